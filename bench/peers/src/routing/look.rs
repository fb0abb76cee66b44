//! What engines, gateway and this process have done so far, as of one moment.

use super::fleet::Counts;
use crate::gateway::Gateway;
use crate::gateway::process::Usage;
use engine_sim::Engine;
use std::io;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) struct Look {
    at: Instant,
    counts: Counts,
    own: Usage,
    gateway: Usage,
}

/// What they did between two looks.
pub(crate) struct Between {
    pub(crate) lasted: Duration,
    /// The share of this machine's processors that all took together.
    pub(crate) busy: f64,
    /// Processors that the gateway took.
    pub(crate) gateway_busy: f64,
}

impl Look {
    pub(crate) fn new(gateway: Option<&Gateway>, engines: &[Engine]) -> io::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            counts: Counts::of(engines),
            own: Usage::own()?,
            gateway: gateway.map_or(Ok(Usage::default()), Gateway::usage)?,
        })
    }

    /// What the engines have counted since.
    pub(crate) fn counts_since(&self, before: &Self) -> Counts {
        self.counts.since(&before.counts)
    }

    pub(crate) fn since(&self, before: &Self) -> io::Result<Between> {
        let lasted = self.at - before.at;
        let gateway = self.gateway - before.gateway;
        let all = (self.own - before.own) + gateway;
        let cores = u32::try_from(available_parallelism()?.get()).unwrap_or(u32::MAX);
        Ok(Between {
            lasted,
            busy: all.as_secs_f64() / lasted.as_secs_f64() / f64::from(cores),
            gateway_busy: gateway.as_secs_f64() / lasted.as_secs_f64(),
        })
    }
}
