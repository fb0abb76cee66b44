//! A mistake for each rule of `rolter-sidecar check`, planted into the documented files of Envoy's; a
//! module for each one that has rules.

mod alone;
mod buffers;
mod clusters;
mod edits;
mod filters;
mod module;
mod patience;
mod plugin;
mod policy;
mod pools;
mod routes;
mod sidecar;
mod surroundings;
mod unguarded;

use super::check::parsed;
use edits::{Edit, as_path, whole};
use serde_json::Value;
use std::path::Path;

/// The file that a mistake is planted into.
#[derive(Clone, Copy)]
pub(super) enum Base {
    Envoy,
    Pool,
    Policy,
}

impl Base {
    pub(super) fn document(self) -> Value {
        parsed(match self {
            Self::Envoy => "envoy.yaml",
            Self::Pool => "pool.yaml",
            Self::Policy => "policy.yaml",
        })
    }
}

/// A mistake, and what is to be said of it.
pub(super) struct Plant {
    pub(super) rule: &'static str,
    pub(super) base: Base,
    pub(super) edits: Vec<Edit>,
    /// Where it is to be found.
    pub(super) path: String,
    /// What is to be said, among other things.
    pub(super) words: &'static str,
    /// Rules that have to say something as well.
    pub(super) also: &'static [&'static str],
}

impl Plant {
    fn also(mut self, rules: &'static [&'static str]) -> Self {
        self.also = rules;
        self
    }
}

fn plant(
    rule: &'static str,
    base: Base,
    edits: impl Into<Vec<Edit>>,
    path: &str,
    words: &'static str,
) -> Plant {
    Plant {
        rule,
        base,
        edits: edits.into(),
        path: as_path(&whole(path)),
        words,
        also: &[],
    }
}

/// All of them; some need files, which are in a directory.
pub(super) fn plants(dir: &Path) -> Vec<Plant> {
    let all = [
        plugin::plants(),
        module::plants(dir),
        filters::plants(),
        policy::plants(),
        routes::plants(),
        patience::plants(),
        pools::plants(),
        clusters::plants(),
        sidecar::plants(),
        buffers::plants(),
        surroundings::plants(),
        alone::plants(),
        unguarded::plants(),
    ];
    all.into_iter().flatten().collect()
}
