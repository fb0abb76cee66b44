//! Who is measured: each gateway started before given upstreams, on given cores, as it ships; its
//! processor time and memory; and stopped, with all its processes, when the [`Gateway`] is dropped.

mod envoy;
pub(crate) mod process;
mod router;

use crate::gateway::process::Usage;
use crate::gateway::router::Router;
use engine_sim::KvAddress;
use fleet::Fleet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Envoy without a filter, each upstream in turn.
    PlainEnvoy,
    /// The same with the least that a filter which reads bodies can do.
    Floor,
    /// This filter.
    Rolter(Strategy),
    /// The router of `SGLang`.
    Sglang,
    /// The router of vLLM, by what it sent where.
    Vllm,
    /// The same by the engines' KV events.
    VllmKvAware,
}

/// A strategy of this filter, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    RoundRobin,
    CacheAware,
    Pipeline,
    /// With a sidecar, and token ids from the engines.
    PreciseCacheAware,
}

/// An engine, or what stands for one, that serves already.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    /// Where it tells of its KV cache.
    pub(crate) kv_events: Option<KvAddress>,
}

/// A gateway that serves, until it is dropped.
pub(crate) struct Gateway(Kind);

enum Kind {
    Envoy(Box<Fleet>),
    Router(Router),
}

impl Contender {
    pub(crate) const ALL: [Self; 9] = [
        Self::PlainEnvoy,
        Self::Floor,
        Self::Rolter(Strategy::RoundRobin),
        Self::Rolter(Strategy::CacheAware),
        Self::Rolter(Strategy::Pipeline),
        Self::Rolter(Strategy::PreciseCacheAware),
        Self::Sglang,
        Self::Vllm,
        Self::VllmKvAware,
    ];

    /// As it is called in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PlainEnvoy => "plain Envoy",
            Self::Floor => "floor",
            Self::Rolter(Strategy::RoundRobin) => "rolter round_robin",
            Self::Rolter(Strategy::CacheAware) => "rolter cache_aware",
            Self::Rolter(Strategy::Pipeline) => "rolter pipeline",
            Self::Rolter(Strategy::PreciseCacheAware) => "rolter precise_cache_aware",
            Self::Sglang => "sglang-router cache_aware",
            Self::Vllm => "vllm-router cache_aware",
            Self::VllmKvAware => "vllm-router kv_aware",
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            format!("there is no gateway {name:?}; there are {all}")
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl Gateway {
    /// Starts one before these upstreams, all of which serve this model, and waits until it takes
    /// requests for all of them. It has these cores, or all where none is named; an Envoy has a worker
    /// for each.
    pub(crate) async fn start(
        contender: Contender,
        upstreams: &[Upstream],
        model: &str,
        cores: &[usize],
    ) -> io::Result<Self> {
        let (upstreams, model, of_it) = (upstreams.to_vec(), model.to_owned(), cores.to_vec());
        process::on_cores(cores, move || async move {
            let workers = match of_it.len() {
                0 => std::thread::available_parallelism()?.get(),
                some => some,
            };
            let kind = match contender {
                Contender::PlainEnvoy | Contender::Floor | Contender::Rolter(_) => Kind::Envoy(
                    Box::new(envoy::start(contender, &upstreams, workers).await?),
                ),
                Contender::Sglang | Contender::Vllm | Contender::VllmKvAware => {
                    // Ports that were free when it was told them may be taken when it asks for them.
                    let once = Router::start(contender, &upstreams, &model).await;
                    Kind::Router(match once {
                        Ok(router) => router,
                        Err(_) => Router::start(contender, &upstreams, &model).await?,
                    })
                }
            };
            Ok(Self(kind))
        })
        .await
        .map_err(|error| io::Error::other(format!("{contender}: {error}")))
    }

    /// Where it takes requests.
    pub(crate) fn addr(&self) -> SocketAddr {
        match &self.0 {
            Kind::Envoy(fleet) => fleet.addr(),
            Kind::Router(router) => router.addr(),
        }
    }

    /// What all its processes have used so far.
    pub(crate) fn usage(&self) -> io::Result<Usage> {
        let processes = match &self.0 {
            Kind::Envoy(fleet) => fleet.processes()?,
            Kind::Router(router) => vec![router.process()?],
        };
        Usage::of_trees(&processes)
    }

    /// Empties its log. Some write a line for each request, and disks have an end.
    pub(crate) fn forget_log(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Envoy(fleet) => fleet.forget_log(),
            Kind::Router(router) => router.forget_log(),
        }
    }
}

/// Something that the Makefile installs or builds, where a variable says, else at a path in the
/// project.
fn installed(variable: &str, default: &str) -> io::Result<PathBuf> {
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(default),
    };
    path.canonicalize().map_err(|error| {
        let path = path.display();
        io::Error::other(format!(
            "{path}: {error}; run `make bench-peers`, or set {variable}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for contender in Contender::ALL {
            assert_eq!(contender.name().parse(), Ok(contender));
        }
        let refused = "envoy".parse::<Contender>().unwrap_err();
        assert!(
            refused.contains("plain Envoy, floor, rolter round_robin"),
            "{refused}"
        );
    }
}
