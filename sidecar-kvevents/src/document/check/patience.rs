//! What Envoy's routes do to answers that take minutes. Invariant: what an operator wrote is only
//! doubtful where it is shorter than an answer commonly takes.

use super::envoy::{Envoy, List, Route, problem};
use crate::document::value::{seconds, text};
use rolter_core::config::Problem;
use serde_json::Value;

/// A prompt that is long, on an engine that is busy, may wait so long for its first token.
const FIRST_TOKEN_SECS: f64 = 60.0;
/// Long answers may take so long.
const ANSWER_SECS: f64 = 300.0;

fn each(
    envoy: &Envoy<'_>,
    look: impl Fn(&Route<'_>, &List<'_>) -> Option<Problem>,
) -> Vec<Problem> {
    let following = envoy.following();
    following
        .filter_map(|(route, _, list)| look(route, list))
        .collect()
}

/// Shorter than that, and no zero, which is none.
fn is_short(value: &Value, limit: f64) -> bool {
    seconds(value).is_some_and(|seconds| seconds > 0.0 && seconds < limit)
}

/// Envoy's default is 15 seconds for the whole answer.
pub(super) fn timeout(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |route, _| {
        let field = "route.timeout";
        let is_stream = route.action.get("max_stream_duration").is_some();
        let what = match route.action.get("timeout") {
            None if is_stream => return None,
            None => "not there, which is 15 s".to_owned(),
            Some(given) if is_short(given, FIRST_TOKEN_SECS) => {
                text(route.action, "timeout").into()
            }
            Some(_) => return None,
        };
        let what = format!(
            "{what}, after which Envoy cuts answers, or sends 504; write 0s, and an idle_timeout \
             for engines that have gone silent"
        );
        Some(route.problem(field, what))
    })
}

/// The route's, or else the connection manager's.
pub(super) fn idle_timeout(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = each(envoy, |route, list| {
        let (own, whole) = (route.action.get("idle_timeout"), "stream_idle_timeout");
        let why = "which ends requests whose first token takes longer; write 300s";
        if let Some(own) = own {
            let given = text(route.action, "idle_timeout");
            let what = format!("{given}, {why}");
            return is_short(own, FIRST_TOKEN_SECS)
                .then(|| route.problem("route.idle_timeout", what));
        }
        let given = list.owner.get(whole)?;
        is_short(given, FIRST_TOKEN_SECS).then(|| {
            let what = format!("{}, {why}", text(list.owner, whole));
            problem(&format!("{}.{whole}", list.owner_path), what)
        })
    });
    told.dedup();
    told
}

/// Which counts whatever is flowing.
pub(super) fn stream_duration(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = each(envoy, |route, list| {
        let why = "after which Envoy cuts answers, also those that are flowing; write 0s";
        let own = &route.action["max_stream_duration"];
        if is_short(&own["max_stream_duration"], ANSWER_SECS) {
            let given = text(own, "max_stream_duration");
            let field = "route.max_stream_duration.max_stream_duration";
            return Some(route.problem(field, format!("{given}, {why}")));
        }
        let whole = &list.owner["common_http_protocol_options"];
        let is_overridden = own.get("max_stream_duration").is_some();
        (!is_overridden && is_short(&whole["max_stream_duration"], ANSWER_SECS)).then(|| {
            let given = text(whole, "max_stream_duration");
            let path = format!(
                "{}.common_http_protocol_options.max_stream_duration",
                list.owner_path
            );
            problem(&path, format!("{given}, {why}"))
        })
    });
    told.dedup();
    told
}

/// The route's, or else the virtual host's.
fn retry_policy<'a>(route: &Route<'a>) -> Option<(String, &'a Value)> {
    if let Some(own) = route.action.get("retry_policy") {
        return Some((format!("{}.route.retry_policy", route.path), own));
    }
    let [_, (path, host), _] = &route.levels;
    let policy = host.get("retry_policy")?;
    Some((format!("{path}.retry_policy"), policy))
}

/// Each look at retries, with the route.
fn each_retrying(
    envoy: &Envoy<'_>,
    look: impl Fn(&str, &Value) -> Option<Problem>,
) -> Vec<Problem> {
    let mut told = each(envoy, |route, _| {
        let (path, policy) = retry_policy(route)?;
        look(&path, policy)
    });
    told.dedup();
    told
}

/// What has not begun by then is made once more, elsewhere.
pub(super) fn per_try_timeout(envoy: &Envoy<'_>) -> Vec<Problem> {
    each_retrying(envoy, |path, policy| {
        let keys = ["per_try_timeout", "per_try_idle_timeout"];
        let mut keys = keys.into_iter();
        let key = keys.find(|key| is_short(&policy[key], FIRST_TOKEN_SECS))?;
        let what = format!(
            "{}, after which a request that still waits for its answer is given up, and computed \
             once more where it is retried; remove it",
            text(policy, key)
        );
        Some(problem(&format!("{path}.{key}"), what))
    })
}

/// The same request twice at once.
pub(super) fn hedging(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |route, _| {
        let policy = route.action.get("hedge_policy")?;
        (policy["hedge_on_per_try_timeout"] == true).then(|| {
            let what = "two engines compute the same answer at once, and the filter knows of one; \
                        remove it";
            route.problem("route.hedge_policy", what)
        })
    })
}

fn retry_on(policy: &Value) -> impl Iterator<Item = &str> {
    let conditions = text(policy, "retry_on").split(',');
    conditions.map(str::trim)
}

/// What an engine answered after it had computed.
pub(super) fn retries(envoy: &Envoy<'_>) -> Vec<Problem> {
    each_retrying(envoy, |path, policy| {
        let mut conditions = retry_on(policy);
        let broad = conditions.find(|condition| ["5xx", "gateway-error"].contains(condition))?;
        let what = format!(
            "{broad} is for whatever an engine answers with such a status, also what it has worked \
             on for minutes, such as a request that it times out or dies of, so that one request \
             may occupy one engine after the other; write connect-failure,refused-stream,reset, \
             and retriable-status-codes with 503 for a pool"
        );
        Some(problem(&format!("{path}.retry_on"), what))
    })
}

/// Without them nobody walks down the ranking.
pub(super) fn pool_retries(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |route, _| {
        let policy = retry_policy(route);
        let walks = policy
            .as_ref()
            .is_some_and(|(_, policy)| retry_on(policy).any(|condition| !condition.is_empty()));
        (!route.by_header() && !walks).then(|| {
            let what = "not there, so that what one engine does not answer fails, though others \
                        could; write connect-failure,refused-stream,reset,retriable-status-codes";
            match policy {
                Some((path, _)) => problem(&format!("{path}.retry_on"), what),
                None => route.problem("route.retry_policy.retry_on", what),
            }
        })
    })
}
