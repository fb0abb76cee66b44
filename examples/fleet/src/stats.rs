//! Envoy's numbers, read from its admin interface.

use crate::envoy::get;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// Counters and gauges by name, as they were at one moment.
#[derive(Clone, Debug)]
pub struct Stats(BTreeMap<String, u64>);

impl Stats {
    pub(crate) async fn read(admin: SocketAddr) -> io::Result<Self> {
        let text = get(admin, "/stats").await.map_err(io::Error::other)?;
        let pairs = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Self(pairs.collect()))
    }

    /// A number of Envoy's own, by its full name; zero where there is none.
    pub fn envoy(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The sum of the filter's numbers of this name that have all these labels.
    pub fn filter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.labelled(name)
            .filter(|(given, _)| labels.iter().all(|label| given.contains(label)))
            .map(|(_, value)| value)
            .sum()
    }

    /// The filter's numbers of this name, with their labels.
    pub fn labelled<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, u64)> {
        self.0.iter().filter_map(move |(full, value)| {
            let mut parts = full.strip_prefix("wasmcustom.")?.split(';');
            if parts.next()? != name {
                return None;
            }
            Some((
                parts.filter_map(|part| part.split_once('=')).collect(),
                *value,
            ))
        })
    }
}
