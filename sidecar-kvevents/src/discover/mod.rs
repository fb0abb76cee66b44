//! Targets that are the addresses of a DNS name, which come and go.
//!
//! The name is looked up again and again. What comes is followed, and what has been gone for a while
//! is forgotten; what is known of the others stays as it is.
//!
//! Invariant: a look-up that fails, or tells of no address, changes nothing. What an answer changes is
//! changed at once. What follows a target has ended before the target is removed.

mod addresses;
mod resolve;

pub use addresses::{LINGER, MAX_MEMBERS};

use crate::state::{Name, Target, Turnover};
use crate::watch::Watch;
use addresses::{Addresses, Changes};
use hickory_resolver::net::NetError;
use resolve::{Failure, Question, Resolver};
use rolter_core::config::{Config, Dns, Provider};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Where there is nobody to be forgotten.
const FAR: Duration = Duration::from_hours(1);

/// Who looks for the addresses of one provider's name.
pub struct Lookout {
    provider: Provider,
    place: usize,
    port: u16,
    resolver: Arc<Resolver>,
    question: Question,
    refresh: Duration,
}

impl Lookout {
    /// One for each provider that has a name.
    ///
    /// # Errors
    /// Where it is not known whom to ask.
    pub(crate) fn all(config: &Config, dns: &Dns) -> io::Result<Vec<Self>> {
        let providers = config.providers.iter().enumerate();
        let named: Vec<_> = providers
            .filter_map(|(place, provider)| Some((place, provider, provider.dns_name()?)))
            .collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let resolver = Resolver::new(dns).map_err(|error| {
            let hint = "write the DNS servers into sidecar.dns.servers";
            io::Error::other(format!("/etc/resolv.conf cannot be used: {error}; {hint}"))
        })?;
        let resolver = Arc::new(resolver);
        let lookouts = named.into_iter().map(|(place, provider, name)| {
            let question = Question::new(&name.name, &resolver);
            let unusable = |error: NetError| {
                let why = "no name that DNS can have";
                io::Error::other(format!("providers[{place}].endpoint: {why}: {error}"))
            };
            Ok(Self {
                place,
                provider: provider.clone(),
                port: name.port,
                resolver: Arc::clone(&resolver),
                question: question.map_err(unusable)?,
                refresh: Duration::from_secs(dns.refresh_secs),
            })
        });
        lookouts.collect()
    }

    /// The name of the provider.
    pub(crate) fn provider(&self) -> &str {
        &self.provider.name
    }

    /// Looks again and again, and follows whom it finds, for as long as it is polled.
    pub(crate) async fn run(mut self, watch: Watch) {
        let state = Arc::clone(&watch.state);
        let Some(name) = state.names().iter().find(|name| name.place == self.place) else {
            return;
        };
        let mut found = Found {
            provider: &self.provider,
            place: self.place,
            port: self.port,
            name,
            watch,
            addresses: Addresses::default(),
            followed: HashMap::new(),
            said: Said::Nothing,
            shared_with: BTreeSet::new(),
        };
        let mut ticks = interval(self.refresh);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = async {
                ticks.tick().await;
                self.question.ask(&self.resolver).await
            };
            tokio::pin!(answer);
            let answer = loop {
                tokio::select! {
                    answer = &mut answer => break answer,
                    () = sleep_until(found.due()) => found.expire().await,
                }
            };
            found.take(answer).await;
        }
    }
}

/// The targets that were found at a name.
struct Found<'a> {
    provider: &'a Provider,
    place: usize,
    port: u16,
    name: &'a Name,
    watch: Watch,
    addresses: Addresses,
    followed: HashMap<IpAddr, Followed>,
    said: Said,
    /// The places of providers that are known to have targets where this one has.
    shared_with: BTreeSet<usize>,
}

/// A target, and what follows it.
struct Followed {
    target: Arc<Target>,
    tasks: JoinSet<()>,
}

/// What the log says last of the look-ups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Found,
    Empty,
    Failed,
}

impl Found<'_> {
    fn due(&self) -> Instant {
        self.addresses.due().unwrap_or_else(|| Instant::now() + FAR)
    }

    async fn expire(&mut self) {
        let changes = self.addresses.expire(Instant::now());
        self.turn_over(changes).await;
    }

    async fn take(&mut self, answer: Result<BTreeSet<IpAddr>, Failure>) {
        match answer {
            Ok(addresses) => {
                let before = self.addresses.passed_over();
                let changes = self.addresses.told(&addresses, Instant::now());
                let passed_over = self.addresses.passed_over();
                if passed_over > 0 && before == 0 {
                    let provider = &self.provider.name;
                    tracing::warn!(
                        provider,
                        passed_over,
                        "the name has more than {MAX_MEMBERS} addresses; those beyond are passed over"
                    );
                }
                self.turn_over(changes).await;
                self.name.counts.found(self.watch.state.now(), passed_over);
                self.say(Said::Found, None);
            }
            Err(failure @ Failure::Empty) => {
                self.name.counts.empty();
                self.say(Said::Empty, Some(&failure));
            }
            Err(failure @ Failure::Failed(_)) => {
                self.name.counts.failed();
                self.say(Said::Failed, Some(&failure));
            }
        }
    }

    /// Says it once, until it is otherwise.
    fn say(&mut self, what: Said, failure: Option<&Failure>) {
        let before = std::mem::replace(&mut self.said, what);
        if before == what {
            return;
        }
        let provider = &self.provider.name;
        match failure {
            Some(failure) => {
                let error = failure.to_string();
                let (kept, what) = (self.followed.len(), "cannot look up the addresses");
                tracing::warn!(provider, error, kept, "{what}; those that are known stay");
            }
            None => tracing::info!(
                provider,
                targets = self.followed.len(),
                "addresses are found"
            ),
        }
    }

    async fn turn_over(&mut self, changes: Changes) {
        if changes == Changes::default() {
            return;
        }
        let mut forgotten = Vec::new();
        for address in &changes.forgotten {
            if let Some(Followed { target, mut tasks }) = self.followed.remove(address) {
                // A task that goes on would write into the index under a number that is another's by
                // then.
                tasks.shutdown().await;
                forgotten.push(target);
            }
        }
        let came = changes.came.iter();
        let came = came.map(|&address| self.provider.at(SocketAddr::new(address, self.port)));
        let turnover = Turnover {
            came: came.collect(),
            back: self.targets(&changes.back),
            gone: self.targets(&changes.gone),
            forgotten,
        };
        let came = self.watch.state.turn_over(self.place, &turnover);
        log(&came, &turnover);
        for target in came.iter().chain(&turnover.back) {
            self.warn_of_others(target);
        }
        for ((address, provider), target) in changes.came.iter().zip(&turnover.came).zip(came) {
            let mut tasks = JoinSet::new();
            self.watch.follow(provider, &target, &mut tasks);
            self.followed.insert(*address, Followed { target, tasks });
        }
    }

    /// Says, once for each other provider, that it has a target at the same address.
    fn warn_of_others(&mut self, target: &Target) {
        let targets = self.watch.state.targets();
        let others = targets
            .iter()
            .filter(|other| other.provider != self.place && other.address == target.address)
            // Who is a target of no route makes embeddings alone.
            .filter(|other| other.is_present() && other.is_routed && target.is_routed);
        for other in others {
            if self.shared_with.insert(other.provider) {
                tracing::warn!(
                    provider = target.name,
                    other = other.name,
                    "two targets at one address: each knows of its own load only, and the keys of \
                     either open both; leave it to one provider"
                );
            }
        }
    }

    /// Those at these addresses.
    fn targets(&self, addresses: &[IpAddr]) -> Vec<Arc<Target>> {
        let followed = addresses.iter().filter_map(|ip| self.followed.get(ip));
        followed.map(|of| Arc::clone(&of.target)).collect()
    }
}

fn log(came: &[Arc<Target>], turnover: &Turnover) {
    let secs = LINGER.as_secs();
    for target in came {
        tracing::info!(provider = target.name, "a target has come");
    }
    for target in &turnover.back {
        tracing::info!(provider = target.name, "a target is back");
    }
    for target in &turnover.gone {
        tracing::info!(
            provider = target.name,
            "a target is gone, and forgotten in {secs} s unless it is back"
        );
    }
    for target in &turnover.forgotten {
        tracing::info!(provider = target.name, "a target is forgotten");
    }
}
