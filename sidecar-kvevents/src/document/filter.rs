//! A wasm filter in a list of Envoy's, and whether it can be that of the policy for another one: before
//! it, with the same VM and the same configuration, and closed where it fails.
//!
//! Invariant: each problem is told at the path of the field to mend, with what to write there.

use super::{configuration, with_policy};
use rolter_core::config::{Config, Problem};
use serde_json::Value;

/// The `root_id` of the filter of the policy.
pub(super) const POLICY: &str = "rolter_policy";

/// A wasm filter in a list.
pub(super) struct Filter<'a> {
    pub(super) place: usize,
    /// Of what Envoy calls the plugin's configuration.
    path: String,
    plugin: &'a Value,
    /// Ours, if it is.
    configuration: Option<Value>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(list: &str, place: usize, filter: &'a Value) -> Option<Self> {
        // The second is what Istio writes.
        let ways = ["/typed_config/config", "/typed_config/value/config"];
        let way = ways.iter().find(|way| filter.pointer(way).is_some())?;
        let plugin = filter.pointer(way)?;
        Some(Self {
            place,
            path: format!("{list}[{place}]{}", way.replace('/', ".")),
            plugin,
            configuration: plugin.get("configuration").and_then(configuration),
        })
    }

    pub(super) fn is_of_policy(&self) -> bool {
        self.plugin["root_id"] == POLICY
    }

    /// Whether it routes, and a route of it has a policy.
    pub(super) fn needs_policy(&self) -> bool {
        let config = self.configuration.as_ref().map(Config::read);
        !self.is_of_policy()
            && config
                .is_some_and(|config| config.is_ok_and(|config| !with_policy(&config).is_empty()))
    }

    fn vm_id(&self) -> &'a str {
        let id = self.plugin.pointer("/vm_config/vm_id");
        id.and_then(Value::as_str).unwrap_or_default()
    }

    /// The module, and what else makes the VM, but for its id.
    fn vm(&self) -> Option<Value> {
        let mut vm = self.plugin.get("vm_config")?.clone();
        vm.as_object_mut()?.remove("vm_id");
        Some(vm)
    }

    fn problem(&self, field: &str, what: String) -> Problem {
        Problem {
            path: format!("{}.{field}", self.path),
            what,
        }
    }

    /// Without that, requests with a body hang.
    pub(super) fn check_holding(&self, problems: &mut Vec<Problem>) {
        let field = "allow_on_headers_stop_iteration";
        if self.plugin[field] != true {
            let what = "not there; write true, or requests with a body hang";
            problems.push(self.problem(field, what.to_owned()));
        }
    }

    /// Where it fails and is open, Envoy goes on without it, and delivers what it holds.
    fn check_closed(&self, problems: &mut Vec<Problem>) {
        // Envoy takes the number of a name, too.
        let is_open = |policy: &Value| policy == "FAIL_OPEN" || policy == 3;
        let what = "Envoy delivers answers without the policy where this filter fails";
        if self.plugin.get("failure_policy").is_some_and(is_open) {
            let what = format!("FAIL_OPEN: {what}; write FAIL_RELOAD");
            problems.push(self.problem("failure_policy", what));
        }
        if self.plugin["fail_open"] == true {
            let what = format!("{what}; write failure_policy: FAIL_RELOAD instead");
            problems.push(self.problem("fail_open", what));
        }
    }

    /// What is wrong with it as the filter of the policy of another one.
    pub(super) fn check_against(&self, routing: &Self, list: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let place = routing.place;
        if self.place > place {
            let Self { place: here, .. } = self;
            let what = format!(
                "the filter of the policy comes after http_filters[{place}], which routes, so that \
                 it sees requests too late and answers of the cache not at all; write it before that"
            );
            let path = format!("{list}[{here}]");
            problems.push(Problem { path, what });
        }
        if self.vm_id() != routing.vm_id() {
            let (here, there) = (self.vm_id(), routing.vm_id());
            let what = format!(
                "{here:?}, but http_filters[{place}], which routes, has {there:?}; write the same, \
                 or neither knows of the other"
            );
            problems.push(self.problem("vm_config.vm_id", what));
        }
        if self.vm() != routing.vm() {
            let what = format!(
                "another than that of http_filters[{place}], which routes; write it once, as \
                 vm_config: &vm, and vm_config: *vm in the other"
            );
            problems.push(self.problem("vm_config", what));
        }
        if self.configuration != routing.configuration {
            let what = format!(
                "another than that of http_filters[{place}], which routes; write it once, as \
                 configuration: &rolter, and configuration: *rolter in the other"
            );
            problems.push(self.problem("configuration", what));
        }
        self.check_holding(&mut problems);
        self.check_closed(&mut problems);
        problems
    }
}
