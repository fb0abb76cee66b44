//! How a route chooses among its targets.

use super::fields::Fields;
use crate::balance::{Exact, Guard, Margins, Pipeline, Strategy};
use crate::kv::MediumWeights;
use std::time::Duration;

const MAX_NODES: usize = 1_000_000;

/// A tokenizer of the engine's takes some milliseconds; what takes longer is worth less than it
/// costs.
const TOKENIZE_MILLIS: u64 = 20;

/// How a route chooses, and what it remembers for that.
pub(super) struct Choosing {
    pub(super) strategy: Strategy,
    /// Distinct bytes of prompts for a target, where the strategy remembers anything.
    pub(super) max_nodes: Option<usize>,
    pub(super) precise: Option<Precise>,
}

/// Where a route with `precise_cache_aware` gets token ids, and where it sends ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precise {
    /// How long the sidecar may take to make token ids of a request that has none, in milliseconds;
    /// nothing where it is not to be asked.
    pub tokenize_ms: Option<u64>,
    /// Whether the engine is told which of its ranks has the prompt.
    pub rank_header: bool,
}

pub(super) fn read(route: &Fields<'_>) -> Choosing {
    let plain = |strategy| Choosing {
        strategy,
        max_nodes: None,
        precise: None,
    };
    // The default first. Options are read for their mistakes, even where another strategy makes no
    // use of them.
    let mut choices = [
        (
            "cache_aware",
            read_cache_aware(route.object("cache_aware").as_ref()),
        ),
        ("consistent_hash", plain(Strategy::ConsistentHash)),
        ("power_of_two", plain(Strategy::PowerOfTwo)),
        ("least_load", plain(Strategy::LeastLoad)),
        ("round_robin", plain(Strategy::RoundRobin)),
        ("random", plain(Strategy::Random)),
        ("weighted", plain(Strategy::Weighted)),
        ("pipeline", read_pipeline(route.object("pipeline").as_ref())),
        (
            "precise_cache_aware",
            read_precise(route.object("precise_cache_aware").as_ref()),
        ),
        (
            "lmcache_aware",
            plain(Strategy::LmcacheAware {
                guard: match &route.object("lmcache_aware") {
                    Some(fields) => read_guard(fields, Guard::default()),
                    None => Guard::default(),
                },
            }),
        ),
    ];
    let names = choices.each_ref().map(|(name, _)| *name);
    let name = route.one_of("strategy", &names);
    for options in [
        "cache_aware",
        "pipeline",
        "precise_cache_aware",
        "lmcache_aware",
    ] {
        if name.is_some_and(|name| name != options) && route.has(options) {
            route.add(options, "has no effect with this strategy; remove it");
        }
    }
    let chosen = names.iter().position(|known| Some(*known) == name);
    choices.swap(0, chosen.unwrap_or(0));
    let [(_, chosen), ..] = choices;
    chosen
}

fn read_cache_aware(options: Option<&Fields<'_>>) -> Choosing {
    let mut margins = Margins::default();
    let mut max_nodes = MAX_NODES;
    if let Some(fields) = options {
        margins = read_margins(fields, margins);
        max_nodes = read_max_nodes(fields);
    }
    Choosing {
        strategy: Strategy::CacheAware { margins },
        max_nodes: Some(max_nodes),
        precise: None,
    }
}

fn read_precise(options: Option<&Fields<'_>>) -> Choosing {
    let mut exact = Exact::default();
    let mut precise = Precise {
        tokenize_ms: None,
        rank_header: false,
    };
    if let Some(fields) = options {
        exact.margins = read_margins(fields, exact.margins);
        if let Some(weights) = fields.object("weights") {
            let defaults = exact.weights;
            let weight = |key, default| weights.number(key, 0.0..=1.0, default);
            exact.weights = MediumWeights {
                gpu: weight("gpu", defaults.gpu),
                cpu: weight("cpu", defaults.cpu),
                other: weight("other", defaults.other),
            };
        }
        let millis = fields.integer("tokenize_timeout_ms", 1..=10_000, TOKENIZE_MILLIS);
        let tokenizes = fields.boolean("tokenize", false);
        if !tokenizes && fields.has("tokenize_timeout_ms") {
            let what = "has no effect without tokenize: true; remove it";
            fields.add("tokenize_timeout_ms", what);
        }
        precise = Precise {
            tokenize_ms: tokenizes.then_some(millis),
            rank_header: fields.boolean("rank_header", false),
        };
    }
    Choosing {
        strategy: Strategy::PreciseCacheAware(exact),
        // For what was sent a moment ago.
        max_nodes: Some(MAX_NODES),
        precise: Some(precise),
    }
}

fn read_margins(fields: &Fields<'_>, defaults: Margins) -> Margins {
    Margins {
        threshold: fields.number("threshold", 0.0..=1.0, defaults.threshold),
        miss_weight: fields.number("miss_weight", 1.0..=1_000.0, defaults.miss_weight),
        guard: read_guard(fields, defaults.guard),
    }
}

fn read_guard(fields: &Fields<'_>, defaults: Guard) -> Guard {
    Guard {
        balance_abs: fields.integer("balance_abs", 0..=1_000_000, defaults.balance_abs),
        balance_rel: fields.number("balance_rel", 1.0..=1e6, defaults.balance_rel),
    }
}

fn read_pipeline(options: Option<&Fields<'_>>) -> Choosing {
    let defaults = Pipeline::default();
    let Some(fields) = options else {
        return Choosing {
            strategy: Strategy::Pipeline(defaults),
            max_nodes: Some(MAX_NODES),
            precise: None,
        };
    };
    let weight = |key, default| fields.number(key, 0.0..=100.0, default);
    let pipeline = Pipeline {
        session: weight("session", defaults.session),
        session_ttl: Duration::from_secs(fields.integer(
            "session_ttl_secs",
            1..=7 * 24 * 60 * 60,
            defaults.session_ttl.as_secs(),
        )),
        prefix: weight("prefix", defaults.prefix),
        load: weight("load", defaults.load),
        weight: weight("weight", defaults.weight),
        latency: weight("latency", defaults.latency),
    };
    let max_nodes = read_max_nodes(fields);
    for (weight, of, key) in [
        (pipeline.session, "session", "session_ttl_secs"),
        (pipeline.prefix, "prefix", "max_nodes"),
    ] {
        if weight == 0.0 && fields.has(key) {
            fields.add(key, format!("has no effect where {of} is 0; remove it"));
        }
    }
    let scorers = [
        pipeline.session,
        pipeline.prefix,
        pipeline.load,
        pipeline.weight,
        pipeline.latency,
    ];
    if scorers.iter().all(|&weight| weight == 0.0) {
        fields.add_here("all scorers weigh 0; write a weight for one");
    }
    Choosing {
        strategy: Strategy::Pipeline(pipeline),
        max_nodes: Some(max_nodes),
        precise: None,
    }
}

fn read_max_nodes(options: &Fields<'_>) -> usize {
    options.integer("max_nodes", 1..=100_000_000, MAX_NODES)
}
