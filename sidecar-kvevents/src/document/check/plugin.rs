//! A wasm filter of ours in a file of Envoy's: how it gets its configuration, and what happens where
//! it fails. Invariant: what Envoy takes as it is here, it hands to the filter as JSON.

use super::envoy::{Envoy, Plugin};
use crate::document::value::text;
use rolter_core::config::Problem;
use serde_json::Value;

/// The types that Envoy unpacks.
const STRUCT: &str = "type.googleapis.com/google.protobuf.Struct";
const STRING: &str = "type.googleapis.com/google.protobuf.StringValue";
const BYTES: &str = "type.googleapis.com/google.protobuf.BytesValue";

/// What a rule says of a plugin.
fn each(envoy: &Envoy<'_>, look: impl Fn(&Plugin<'_>) -> Option<Problem>) -> Vec<Problem> {
    envoy.plugins.iter().filter_map(look).collect()
}

/// Without one, or with one of no type, nothing starts.
pub(super) fn configuration(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let Some(configuration) = plugin.value.get("configuration") else {
            let vm = plugin.value["vm_config"].get("configuration");
            if vm.is_some() {
                let what = "the filter reads its own configuration, not the VM's, so that Envoy \
                            does not start; write it one level up, beside vm_config";
                return Some(plugin.problem("vm_config.configuration", what));
            }
            let what = "not there, so that Envoy does not start; write one with providers and \
                        routes";
            return Some(plugin.problem("configuration", what));
        };
        let kind = text(configuration, "@type");
        let field = "configuration.@type";
        if kind.is_empty() {
            let what = format!(
                "not there, so that Envoy refuses the file; write {STRUCT}, and the configuration \
                 itself below value"
            );
            return Some(plugin.problem(field, what));
        }
        (![STRUCT, STRING, BYTES].contains(&kind)).then(|| {
            let what = format!(
                "{kind:?}, which Envoy does not hand over as JSON; write {STRUCT}, and the \
                 configuration itself below value"
            );
            plugin.problem(field, what)
        })
    })
}

/// What its type does not have.
pub(super) fn value(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let configuration = plugin.value.get("configuration")?;
        let what = match (text(configuration, "@type"), configuration.get("value")) {
            (STRUCT | STRING | BYTES, None) => "not there, so that the filter gets nothing; write \
                                                providers and all else below value"
                .to_owned(),
            (STRUCT, Some(value)) if !value.is_object() => {
                format!("no object, and @type says Struct; write keys here, or @type: {STRING}")
            }
            (STRING, Some(Value::String(text))) => {
                let error = serde_json::from_str::<Value>(text).err()?;
                format!("no JSON: {error}; write JSON here, or keys with @type: {STRUCT}")
            }
            (STRING, Some(_)) => {
                format!("no text, and @type says StringValue; write @type: {STRUCT}")
            }
            _ => return None,
        };
        Some(plugin.problem("configuration.value", what))
    })
}

/// They may be right, but nobody can read them.
pub(super) fn bytes(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let is_bytes = text(&plugin.value["configuration"], "@type") == BYTES;
        is_bytes.then(|| {
            let what = format!(
                "BytesValue, which neither this check nor the sidecar reads, so that nothing in it \
                 is checked; write {STRUCT}"
            );
            plugin.problem("configuration.@type", what)
        })
    })
}

/// Without that, requests with a body hang.
pub(super) fn holding(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let field = "allow_on_headers_stop_iteration";
        let what = match plugin.value.get(field) {
            Some(Value::Bool(true)) => return None,
            // Envoy's type for that is BoolValue, which may be written as an object, too.
            Some(given) if given["value"] == true => return None,
            Some(given) => format!("{given}, with which requests with a body hang; write true"),
            None => "not there; write true, or requests with a body hang".to_owned(),
        };
        Some(plugin.problem(field, what))
    })
}

/// Whether Envoy goes on without it where it fails, and the field that says so.
fn open(plugin: &Plugin<'_>) -> Option<&'static str> {
    if plugin.value["fail_open"] == true {
        return Some("fail_open");
    }
    // Envoy takes the number of a name, too.
    let policy = plugin.value.get("failure_policy")?;
    (policy == "FAIL_OPEN" || policy == 3).then_some("failure_policy")
}

/// A filter of the policy that is open lets through what it holds.
pub(super) fn policy_fails_open(plugin: &Plugin<'_>) -> Option<Problem> {
    let field = open(plugin)?;
    let what = "Envoy delivers answers without the policy where this filter fails";
    let what = match field {
        "failure_policy" => format!("FAIL_OPEN: {what}; write FAIL_RELOAD"),
        _ => format!("{what}; write failure_policy: FAIL_RELOAD instead"),
    };
    Some(plugin.problem(field, what))
}

/// One that routes leaves to clients what is its own.
pub(super) fn fails_open(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let field = open(plugin).filter(|_| !plugin.is_of_policy())?;
        if has_both(plugin) {
            return None;
        }
        let what = "where this filter fails, nothing takes away the header that chooses the engine, \
                    so that clients choose it, or their requests get 503; write failure_policy: \
                    FAIL_RELOAD";
        Some(plugin.problem(field, what))
    })
}

/// What a failure ends for good.
pub(super) fn closed_for_good(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        let policy = plugin.value.get("failure_policy");
        if policy.is_none()
            && plugin
                .value
                .get("fail_open")
                .is_some_and(|open| open == true)
        {
            return None;
        }
        let what = match policy {
            None => "not there",
            Some(policy) if *policy == "FAIL_CLOSED" || *policy == 2 => "FAIL_CLOSED",
            Some(policy) if *policy == "UNSPECIFIED" || *policy == 0 => "UNSPECIFIED",
            Some(_) => return None,
        };
        let what = format!(
            "{what}, with which a worker answers 503 from the first failure on until Envoy \
             restarts; write FAIL_RELOAD"
        );
        Some(plugin.problem("failure_policy", what))
    })
}

fn has_both(plugin: &Plugin<'_>) -> bool {
    plugin.value["fail_open"] == true && plugin.value.get("failure_policy").is_some()
}

/// Envoy takes one of them.
pub(super) fn two_failure_policies(envoy: &Envoy<'_>) -> Vec<Problem> {
    each(envoy, |plugin| {
        has_both(plugin).then(|| {
            let what = "beside failure_policy, and Envoy refuses the file where both are there; \
                        remove it";
            plugin.problem("fail_open", what)
        })
    })
}
