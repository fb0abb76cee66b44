//! What Envoy can hold of requests and answers, against what the filter has it hold. Invariant: how
//! much that is is the larger one of the listener's limit and the route's; those of clusters do not
//! matter.

use super::envoy::{Envoy, List, problem};
use crate::document::configuration::with_policy;
use crate::document::value::number;
use rolter_core::balance::Strategy;
use rolter_core::config::{Config, Problem};
use serde_json::Value;

/// What Envoy takes where a listener does not say.
const DEFAULT_BUFFER: u64 = 1 << 20;
/// And where a connection manager does not say how many KiB of headers a request may have.
const DEFAULT_HEADERS_KB: u64 = 60;

const OF_LISTENER: &str = "per_connection_buffer_limit_bytes";
const OF_ROUTE: &str = "request_body_buffer_limit";

/// The connection managers in listeners in which something of ours is, with what Envoy reads at once
/// there.
fn listening<'a, 'b>(
    envoy: &'a Envoy<'b>,
) -> impl Iterator<Item = (&'a List<'b>, &'a Config, &'a str, u64)> {
    envoy.routed().filter_map(|(list, _, config)| {
        let (path, listener) = list.listener.as_ref()?;
        let limit = listener.get(OF_LISTENER);
        let limit = limit.map_or(Some(DEFAULT_BUFFER), number)?;
        Some((list, config, &**path, limit))
    })
}

/// Requests are held until their prompt is read, or until they are known to be longer.
pub(super) fn requests(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, config, _, at_once) in listening(envoy) {
        let longest = config.max_request_bytes as u64;
        let needed = longest.saturating_add(at_once);
        for route in list.routes.iter().filter(|route| envoy.follows(route)) {
            let own = route.value.get(OF_ROUTE).and_then(number);
            let held = own.unwrap_or_default().max(at_once);
            if held >= needed {
                continue;
            }
            let what = format!(
                "Envoy holds {held} bytes of a request, and answers 413 to what is longer while the \
                 filter holds it, which is up to a max_request_bytes of {longest} and the \
                 {OF_LISTENER} of {at_once} that come at once; write {needed} or more"
            );
            told.push(route.problem(OF_ROUTE, what));
        }
    }
    told
}

/// Answers are held until they are whole.
pub(super) fn answers(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, config, path, limit) in listening(envoy) {
        let policies = with_policy(config).into_iter();
        let judging = policies.filter(|policy| policy.judges());
        let Some(longest) = judging.map(|policy| policy.max_answer_bytes).max() else {
            continue;
        };
        let of_routes = largest_of_routes(list.owner);
        if limit.max(of_routes) < longest as u64 {
            let what = format!(
                "{limit}, but a policy lets answers through up to a max_answer_bytes of {longest}, \
                 and Envoy cannot hold those; write more here or in the route's {OF_ROUTE}, or \
                 less there"
            );
            told.push(problem(&format!("{path}.{OF_LISTENER}"), what));
        }
    }
    told.dedup();
    told
}

/// The largest limit of its routes, or zero. Which of them is for which answers, others know.
fn largest_of_routes(value: &Value) -> u64 {
    match value {
        Value::Array(list) => list.iter().map(largest_of_routes).max().unwrap_or(0),
        Value::Object(fields) => {
            let own = fields.get(OF_ROUTE).and_then(number);
            let inner = fields.values().map(largest_of_routes).max();
            own.max(inner).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Token ids come in a header where nobody else makes them.
pub(super) fn headers(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, config, ..) in listening(envoy) {
        let asks_clients = config.routes.iter().any(|route| {
            let makes_none = route
                .precise
                .is_some_and(|precise| precise.tokenize_ms.is_none());
            matches!(route.strategy, Strategy::PreciseCacheAware(_)) && makes_none
        });
        let field = "max_request_headers_kb";
        let given = list.owner.get(field).and_then(number);
        let given = given.unwrap_or(DEFAULT_HEADERS_KB);
        if asks_clients && given <= DEFAULT_HEADERS_KB {
            let what = format!(
                "{given} KiB, in which 10000 token ids find room at most, and Envoy answers 431 to \
                 longer headers; write 1024 where clients send x-rolter-vllm-token-ids"
            );
            told.push(problem(&format!("{}.{field}", list.owner_path), what));
        }
    }
    told
}
