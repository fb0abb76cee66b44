//! The addresses of a name, as DNS tells them at this moment.
//!
//! Servers are asked in the order in which they are written: another one only where those before it
//! say nothing of use. Nothing is kept of an answer but by which of its search domains a short name was
//! found. Whoever asks decides how often.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use rolter_core::config::Dns;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// How long a server of the configuration has for an answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take in all to have the addresses of a name.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Who asks DNS servers.
pub(super) struct Resolver {
    /// One for each server: of several together, the library asks two at once, and none after one that
    /// is silent.
    servers: Vec<TokioResolver>,
    search: Vec<Name>,
    /// A name with fewer dots is looked for in the search domains first.
    ndots: usize,
}

/// Why there are no addresses.
#[derive(Debug)]
pub(super) enum Failure {
    /// The servers say that the name has none.
    Empty,
    /// They say nothing of use.
    Failed(NetError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no address"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Resolver {
    /// One that asks these servers; those of the machine where there are none.
    ///
    /// # Errors
    /// Where it is not known which those are.
    pub(super) fn new(dns: &Dns) -> Result<Self, NetError> {
        if dns.servers.is_empty() {
            let (config, options) = read_system_conf()?;
            return Self::of(&config, options);
        }
        let servers = dns.servers.iter().copied().map(server).collect();
        let config = ResolverConfig::from_name_servers(servers);
        let mut options = ResolverOpts::default();
        options.timeout = SERVER_TIMEOUT;
        Self::of(&config, options)
    }

    fn of(config: &ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        // Who is there now is the question.
        options.cache_size = 0;
        options.positive_max_ttl = Some(Duration::ZERO);
        options.negative_max_ttl = Some(Duration::ZERO);
        // Each has its turn, once. What is lost on the way is sent again within it.
        let count = u32::try_from(config.name_servers().len()).unwrap_or(u32::MAX);
        options.timeout = options.timeout.min(TIMEOUT / count.max(1));
        options.attempts = 0;
        let client = |server: &NameServerConfig| {
            let config = ResolverConfig::from_name_servers(vec![server.clone()]);
            let provider = TokioRuntimeProvider::default();
            let mut builder = TokioResolver::builder_with_config(config, provider);
            *builder.options_mut() = options.clone();
            builder.build()
        };
        let servers = config.name_servers().iter().map(client);
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            search: config.search().to_vec(),
            ndots: options.ndots,
        })
    }

    /// What a name may stand for, in the order in which it is tried.
    fn meanings(&self, name: &str) -> Result<Vec<Name>, NetError> {
        let name = Name::from_utf8(name)?;
        if name.is_fqdn() {
            return Ok(vec![name]);
        }
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        let within = self.search.iter();
        // What is too long with a domain is no name there.
        let within = within.filter_map(|domain| name.clone().append_domain(domain).ok());
        let mut meanings: Vec<Name> = within.collect();
        // The dots are between the labels.
        let is_whole = usize::from(name.num_labels()) > self.ndots;
        let place = if is_whole { 0 } else { meanings.len() };
        meanings.insert(place, absolute);
        Ok(meanings)
    }

    /// The addresses of an absolute name: those of IPv4, and only if there are none, those of IPv6.
    async fn addresses(
        &self,
        name: &Name,
        silent: &mut usize,
    ) -> Result<BTreeSet<IpAddr>, Failure> {
        for family in [RecordType::A, RecordType::AAAA] {
            match self.look_up(name, family, silent).await {
                Ok(answer) => {
                    let records = answer.answers().iter();
                    let addresses = records.filter_map(|record| record.data.ip_addr());
                    let addresses = addresses.map(|address| address.to_canonical());
                    let addresses: BTreeSet<_> = addresses.filter(is_of_one).collect();
                    if !addresses.is_empty() {
                        return Ok(addresses);
                    }
                }
                Err(error) if error.is_no_records_found() => {}
                Err(error) => return Err(Failure::Failed(error)),
            }
        }
        Err(Failure::Empty)
    }

    /// What the first server says that says something. So many of the first ones are silent, as far as
    /// is known, and are not waited for again.
    async fn look_up(
        &self,
        name: &Name,
        family: RecordType,
        silent: &mut usize,
    ) -> Result<Lookup, NetError> {
        let mut failure = NetError::NoConnections;
        for (place, server) in self.servers.iter().enumerate().skip(*silent) {
            failure = match server.lookup(name.clone(), family).await {
                Err(error) if !error.is_no_records_found() => error,
                answer => return answer,
            };
            let is_silent = !matches!(failure, NetError::Dns(_));
            if is_silent && place == *silent && place + 1 < self.servers.len() {
                *silent += 1;
            }
        }
        Err(failure)
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Whether somebody can be at an address, and nobody else.
fn is_of_one(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// The question for the addresses of one name, again and again.
pub(super) struct Question {
    meanings: Vec<Name>,
    /// What the name stood for when it last had addresses. While that is not known to have none, no
    /// other meaning is tried: what has addresses there are others.
    settled: Option<Name>,
}

impl Question {
    pub(super) fn new(name: &str, resolver: &Resolver) -> Result<Self, NetError> {
        Ok(Self {
            meanings: resolver.meanings(name)?,
            settled: None,
        })
    }

    /// Asks once. It takes as long as [`TIMEOUT`] at most.
    pub(super) async fn ask(&mut self, resolver: &Resolver) -> Result<BTreeSet<IpAddr>, Failure> {
        let asked = timeout(TIMEOUT, self.ask_all(resolver)).await;
        asked.unwrap_or(Err(Failure::Failed(NetError::Timeout)))
    }

    async fn ask_all(&mut self, resolver: &Resolver) -> Result<BTreeSet<IpAddr>, Failure> {
        let mut silent = 0;
        if let Some(name) = &self.settled {
            match resolver.addresses(name, &mut silent).await {
                Err(Failure::Empty) => {}
                answer => return answer,
            }
        }
        let mut failure = Failure::Empty;
        for name in &self.meanings {
            match resolver.addresses(name, &mut silent).await {
                Ok(addresses) => {
                    self.settled = Some(name.clone());
                    return Ok(addresses);
                }
                Err(Failure::Empty) => {}
                // The next may do all the same, as where a domain's servers are away.
                Err(failed) => failure = failed,
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::system_conf::parse_resolv_conf;

    fn meanings(conf: &str, name: &str) -> Vec<String> {
        let (config, options) = parse_resolv_conf(conf).unwrap();
        let resolver = Resolver::of(&config, options).unwrap();
        let meanings = resolver.meanings(name).unwrap();
        meanings.iter().map(Name::to_ascii).collect()
    }

    #[tokio::test]
    async fn a_short_name_is_looked_for_in_the_search_domains() {
        let of_pod = "nameserver 10.96.0.10\n\
            search llm.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";
        for (conf, name, expected) in [
            (
                of_pod,
                "vllm",
                &[
                    "vllm.llm.svc.cluster.local.",
                    "vllm.svc.cluster.local.",
                    "vllm.cluster.local.",
                    "vllm.",
                ][..],
            ),
            (
                of_pod,
                "a.b.c.d.e.f",
                &[
                    "a.b.c.d.e.f.",
                    "a.b.c.d.e.f.llm.svc.cluster.local.",
                    "a.b.c.d.e.f.svc.cluster.local.",
                    "a.b.c.d.e.f.cluster.local.",
                ],
            ),
            (of_pod, "vllm.llm.", &["vllm.llm."]),
            ("nameserver 10.96.0.10", "vllm", &["vllm."]),
            (
                "nameserver 10.0.0.1\ndomain d",
                "vllm.llm",
                &["vllm.llm.", "vllm.llm.d."],
            ),
            (
                "nameserver 10.0.0.1\ndomain d",
                "vllm",
                &["vllm.d.", "vllm."],
            ),
        ] {
            assert_eq!(meanings(conf, name), expected, "{name}");
        }
    }

    /// Who asks these servers, for names in the domains `a.test` and `b.test`.
    fn resolver(servers: &[&fleet::Dns]) -> Resolver {
        let servers = servers.iter().map(|dns| server(dns.addr()));
        let mut config = ResolverConfig::from_name_servers(servers.collect());
        for domain in ["a.test.", "b.test."] {
            config.add_search(Name::from_utf8(domain).unwrap());
        }
        let mut options = ResolverOpts::default();
        options.ndots = 2;
        options.timeout = SERVER_TIMEOUT;
        Resolver::of(&config, options).unwrap()
    }

    #[tokio::test]
    async fn what_a_name_stood_for_counts_until_it_is_known_to_have_no_address() {
        let dns = fleet::Dns::start().unwrap();
        let resolver = resolver(&[&dns]);
        let mut question = Question::new("vllm", &resolver).unwrap();
        let [one, two]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        assert!(matches!(question.ask(&resolver).await, Err(Failure::Empty)));
        dns.set("vllm.a.test", fleet::DnsAnswer::Failure);
        assert!(matches!(
            question.ask(&resolver).await,
            Err(Failure::Failed(_))
        ));
        // Where nothing was found before, what can be had counts.
        dns.set_addresses("vllm.b.test", [two]);
        assert_eq!(question.ask(&resolver).await.unwrap(), [two].into());
        dns.set_addresses("vllm.a.test", [one]);
        assert_eq!(question.ask(&resolver).await.unwrap(), [two].into());
        dns.set("vllm.b.test", fleet::DnsAnswer::Failure);
        assert!(matches!(
            question.ask(&resolver).await,
            Err(Failure::Failed(_))
        ));
        dns.set("vllm.b.test", fleet::DnsAnswer::NoSuchName);
        assert_eq!(question.ask(&resolver).await.unwrap(), [one].into());
        let asked = dns.asked();
        question.ask(&resolver).await.unwrap();
        assert_eq!(dns.asked(), asked + 1, "no more is asked than it takes");
    }

    #[tokio::test]
    async fn the_next_server_is_asked_where_those_before_it_say_nothing_of_use() {
        let [first, second] = [(); 2].map(|()| fleet::Dns::start().unwrap());
        let resolver = resolver(&[&first, &second]);
        let mut question = Question::new("vllm.a.test.", &resolver).unwrap();
        let [one, two]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let name = "vllm.a.test";
        second.set_addresses(name, [two]);
        first.set_addresses(name, [one]);
        for _ in 0..4 {
            assert_eq!(question.ask(&resolver).await.unwrap(), [one].into());
        }
        // That there is no such name is an answer, too.
        first.set(name, fleet::DnsAnswer::NoSuchName);
        assert!(matches!(question.ask(&resolver).await, Err(Failure::Empty)));
        assert_eq!(second.asked(), 0);
        for of_no_use in [fleet::DnsAnswer::Failure, fleet::DnsAnswer::Silence] {
            first.set(name, of_no_use);
            assert_eq!(question.ask(&resolver).await.unwrap(), [two].into());
        }
        first.set_addresses(name, [one]);
        assert_eq!(question.ask(&resolver).await.unwrap(), [one].into());
    }

    #[tokio::test]
    async fn a_silent_server_is_waited_for_once() {
        let [first, second] = [(); 2].map(|()| fleet::Dns::start().unwrap());
        let resolver = resolver(&[&first, &second]);
        let mut question = Question::new("vllm", &resolver).unwrap();
        // In neither domain, nor anywhere else.
        for name in ["vllm.a.test", "vllm.b.test", "vllm"] {
            first.set(name, fleet::DnsAnswer::Silence);
        }
        // Six questions that each waited for the first one would not end in time.
        assert!(matches!(question.ask(&resolver).await, Err(Failure::Empty)));
        assert!(second.asked() >= 6);
    }

    #[test]
    fn an_address_is_of_one() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("127.0.0.1", true),
            ("2001:db8::1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_of_one(&address.parse().unwrap()), expected, "{address}");
        }
    }
}
