//! Whether each list of filters that routes has the filter of the policy, where a route has one: before
//! it, with the same VM and the same configuration, and closed where it fails.
//!
//! Envoy refuses most of what is found here as well, or the filter refuses the requests, but they
//! cannot tell the place in the file. With another module or configuration some requests may go well;
//! that is an error all the same, as the others are refused. Invariant: what the file leaves to others
//! is no problem, but doubtful.

use super::envoy::{Envoy, List, POLICY, Plugin, problem};
use super::plugin;
use crate::document::configuration::{readable, with_policy};
use rolter_core::config::Problem;
use serde_json::Value;

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Missing,
    After,
    VmId,
    Vm,
    Configuration,
    FailsOpen,
    /// Nobody can tell.
    Elsewhere,
}

pub(super) fn missing(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::Missing)
}

pub(super) fn after(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::After)
}

pub(super) fn vm_id(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::VmId)
}

pub(super) fn vm(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::Vm)
}

pub(super) fn configuration(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::Configuration)
}

pub(super) fn fails_open(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::FailsOpen)
}

pub(super) fn elsewhere(envoy: &Envoy<'_>) -> Vec<Problem> {
    of(envoy, Kind::Elsewhere)
}

/// All of a kind.
fn of(envoy: &Envoy<'_>, kind: Kind) -> Vec<Problem> {
    let lists = envoy.lists.iter().enumerate();
    let found = lists.flat_map(|(place, list)| in_list(envoy, place, list));
    let found = found.filter(|(found, _)| *found == kind);
    found.map(|(_, problem)| problem).collect()
}

fn in_list(envoy: &Envoy<'_>, place: usize, list: &List<'_>) -> Vec<(Kind, Problem)> {
    let mut found = Vec::new();
    for (own, routing) in envoy.routing_in(place) {
        let config = envoy.config_of(routing);
        if config.is_none_or(|config| with_policy(config).is_empty()) {
            continue;
        }
        let of_policy = envoy.plugins_of(place);
        let of_policy = of_policy.filter(|(_, plugin)| plugin.is_of_policy());
        // The one to mend is the one with which least is wrong.
        let compared =
            of_policy.map(|(other, policy)| compare(list, (other, policy), (own, routing)));
        if let Some(problems) = compared.min_by_key(Vec::len) {
            found.extend(problems);
        } else {
            found.push(none(list, own));
            // Another one that routes would need the same.
            break;
        }
    }
    found
}

/// Nothing in the list says that it is the filter of the policy of this one.
fn none(list: &List<'_>, own: usize) -> (Kind, Problem) {
    let mut before = list.filters.iter().take(own);
    let is_elsewhere = |filter: &Value| filter.get("config_discovery").is_some();
    if let Some(elsewhere) = before.position(is_elsewhere) {
        let what = format!(
            "is in another file; it has to be the filter of the policy, with root_id: {POLICY} and \
             the vm_config and configuration of http_filters[{own}]"
        );
        let path = format!("{}[{elsewhere}]", list.path);
        return (Kind::Elsewhere, problem(&path, what));
    }
    let what = format!(
        "a route has a policy, and nothing passes it over requests and answers; write a filter \
         with root_id: {POLICY} before http_filters[{own}], which routes, with the same vm_config \
         and configuration (configuration: &rolter in the first, *rolter in the other) and \
         allow_on_headers_stop_iteration: true"
    );
    (Kind::Missing, problem(&list.path, what))
}

/// The module, and what else makes the VM, but for its id.
fn vm_of(plugin: &Plugin<'_>) -> Option<Value> {
    let mut vm = plugin.value.get("vm_config")?.clone();
    vm.as_object_mut()?.remove("vm_id");
    Some(vm)
}

/// What is wrong with a filter as that of the policy of another one.
fn compare(
    list: &List<'_>,
    (place, policy): (usize, &Plugin<'_>),
    (own, routing): (usize, &Plugin<'_>),
) -> Vec<(Kind, Problem)> {
    let mut found = Vec::new();
    if place > own {
        let what = format!(
            "the filter of the policy comes after http_filters[{own}], which routes, so that it \
             sees requests too late and answers of the cache not at all; write it before that"
        );
        let path = format!("{}[{place}]", list.path);
        found.push((Kind::After, problem(&path, what)));
    }
    if policy.vm_id() != routing.vm_id() {
        let (here, there) = (policy.vm_id(), routing.vm_id());
        let what = format!(
            "{here:?}, but http_filters[{own}], which routes, has {there:?}; write the same, or \
             neither knows of the other"
        );
        found.push((Kind::VmId, policy.problem("vm_config.vm_id", what)));
    }
    if vm_of(policy) != vm_of(routing) {
        let what = format!(
            "another than that of http_filters[{own}], which routes, so that the two may be \
             different versions, which need not agree about a request; write it once, as \
             vm_config: &vm, and vm_config: *vm in the other"
        );
        found.push((Kind::Vm, policy.problem("vm_config", what)));
    }
    let ours = |plugin: &Plugin<'_>| readable(plugin.value);
    if ours(policy) != ours(routing) {
        let what = format!(
            "another than that of http_filters[{own}], which routes, so that the two may not \
             agree about the route of a request; write it once, as configuration: &rolter, and configuration: *rolter in the other"
        );
        found.push((Kind::Configuration, policy.problem("configuration", what)));
    }
    found.extend(plugin::policy_fails_open(policy).map(|problem| (Kind::FailsOpen, problem)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is found in a file.
    struct Findings {
        problems: Vec<Problem>,
        doubts: Vec<String>,
    }

    fn check(document: &Value) -> Findings {
        let envoy = Envoy::read(document);
        let lists = envoy.lists.iter().enumerate();
        let found: Vec<_> = lists
            .flat_map(|(place, list)| in_list(&envoy, place, list))
            .collect();
        let (doubts, problems): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(kind, _)| *kind == Kind::Elsewhere);
        Findings {
            problems: problems.into_iter().map(|(_, problem)| problem).collect(),
            doubts: doubts.iter().map(|(_, doubt)| doubt.to_string()).collect(),
        }
    }

    /// An Envoy whose list of filters is this; `vm` and `ours` are anchors, of which aliases may be
    /// made.
    fn checked(filters: &str) -> Findings {
        let text = format!(
            "
x-vm: &vm {{ vm_id: rolter, code: {{ local: {{ filename: a.wasm }} }} }}
x-ours: &ours
  '@type': type.googleapis.com/google.protobuf.Struct
  value:
    policy: {{ plugins: [{{ name: p, cluster: p }}] }}
    providers: [{{ name: a, cluster: a }}]
    routes: [{{ name: chat, targets: [a] }}]
static_resources:
  listeners:
    - filter_chains:
        - filters:
            - typed_config:
                http_filters: [{filters}]
"
        );
        check(&serde_saphyr::from_str(&text).unwrap())
    }

    const LIST: &str = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config\
                        .http_filters";
    const OTHER: &str = "{name: other}";

    fn filter(root_id: &str, vm: &str, configuration: &str) -> String {
        format!(
            "{{typed_config: {{config: {{root_id: {root_id}, vm_config: {vm}, \
             allow_on_headers_stop_iteration: true, configuration: {configuration}}}}}}}"
        )
    }

    fn policy() -> String {
        filter(POLICY, "*vm", "*ours")
    }

    fn routing() -> String {
        filter("rolter", "*vm", "*ours")
    }

    /// A filter with one more field.
    fn with(filter: &str, field: &str) -> String {
        filter.replace("root_id:", &format!("{field}, root_id:"))
    }

    /// The paths of what is wrong, below the list, and the words.
    fn wrong(filters: &[String]) -> Vec<(String, String)> {
        let findings = checked(&filters.join(", "));
        assert_eq!(findings.doubts, [""; 0]);
        let problems = findings.problems.into_iter();
        let split = problems.map(|Problem { path, what }| {
            let below = path.strip_prefix(LIST).unwrap();
            (below.to_owned(), what)
        });
        split.collect()
    }

    #[test]
    fn a_filter_of_the_policy_before_the_one_that_routes_is_right() {
        let other = OTHER.to_owned();
        let lists = [
            vec![policy(), routing()],
            vec![other.clone(), policy(), other.clone(), routing(), other],
            // Two that route, and one policy over both.
            vec![policy(), routing(), routing()],
            vec![
                with(&policy(), "failure_policy: FAIL_CLOSED, fail_open: false"),
                routing(),
            ],
            // Where it fails, its requests have no cluster.
            vec![policy(), with(&routing(), "failure_policy: FAIL_OPEN")],
        ];
        for list in lists {
            assert_eq!(wrong(&list), []);
        }
    }

    #[test]
    fn where_no_route_has_a_policy_nothing_is_asked_for() {
        let bare =
            "{value: {providers: [{name: a, cluster: a}], routes: [{name: chat, targets: [a]}]}}";
        let off = "{value: {policy: {enabled: false, plugins: [{name: p, cluster: p}]}, \
                   providers: [{name: a, cluster: a}], routes: [{name: chat, targets: [a]}]}}";
        for configuration in [bare, off] {
            assert_eq!(wrong(&[filter("rolter", "*vm", configuration)]), []);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_to_write() {
        let cases = [
            // Nothing is there.
            (
                vec![routing()],
                "",
                "write a filter with root_id: rolter_policy before http_filters[0]",
            ),
            // It is after the one that routes.
            (
                vec![OTHER.to_owned(), routing(), policy()],
                "[2]",
                "comes after http_filters[1]",
            ),
            (
                vec![
                    filter(
                        POLICY,
                        "{ vm_id: other, code: { local: { filename: a.wasm } } }",
                        "*ours",
                    ),
                    routing(),
                ],
                "[0].typed_config.config.vm_config.vm_id",
                "\"other\", but http_filters[1], which routes, has \"rolter\"",
            ),
            (
                vec![
                    filter(
                        POLICY,
                        "{ vm_id: rolter, code: { local: { filename: b.wasm } } }",
                        "*ours",
                    ),
                    routing(),
                ],
                "[0].typed_config.config.vm_config",
                "vm_config: *vm",
            ),
            (
                vec![filter(POLICY, "*vm", "{value: {providers: []}}"), routing()],
                "[0].typed_config.config.configuration",
                "configuration: *rolter",
            ),
            (
                vec![with(&policy(), "failure_policy: FAIL_OPEN"), routing()],
                "[0].typed_config.config.failure_policy",
                "write FAIL_RELOAD",
            ),
            (
                vec![with(&policy(), "failure_policy: 3"), routing()],
                "[0].typed_config.config.failure_policy",
                "write FAIL_RELOAD",
            ),
            (
                vec![with(&policy(), "fail_open: true"), routing()],
                "[0].typed_config.config.fail_open",
                "write failure_policy: FAIL_RELOAD",
            ),
        ];
        for (filters, path, what) in cases {
            let wrong = wrong(&filters);
            let [(found, told)] = &wrong[..] else {
                panic!("{wrong:?} of {filters:?}")
            };
            assert_eq!(found, path);
            assert!(told.contains(what), "{what} in {told}");
        }
    }

    #[test]
    fn each_list_is_looked_at_and_all_that_is_wrong_is_told() {
        let configuration = json!({"value": {
            "policy": {"plugins": [{"name": "p", "cluster": "p"}]},
            "providers": [{"name": "a", "cluster": "a"}],
            "routes": [{"name": "chat", "targets": ["a"]}],
        }});
        let filter = |root_id: &str, vm_id: &str, configuration: &Value| {
            json!({"typed_config": {"config": {
                "root_id": root_id,
                "vm_config": {"vm_id": vm_id},
                "allow_on_headers_stop_iteration": true,
                "configuration": configuration,
            }}})
        };
        let right = filter(POLICY, "v", &configuration);
        let routing = filter("", "v", &configuration);
        let wrong = filter(POLICY, "w", &json!({"value": {}}));
        let document = json!({"listeners": [
            {"http_filters": [right, routing]},
            {"http_filters": [routing, wrong]},
        ]});
        let findings = check(&document);
        let paths = findings.problems.iter().map(|problem| &*problem.path);
        let expected = [
            "listeners[1].http_filters[1]",
            "listeners[1].http_filters[1].typed_config.config.vm_config.vm_id",
            "listeners[1].http_filters[1].typed_config.config.configuration",
        ];
        assert_eq!(paths.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_configuration_may_be_a_struct_or_json_in_a_string() {
        let ours = r#"{"policy": {"plugins": [{"name": "p", "cluster": "p"}]},
            "providers": [{"name": "a", "cluster": "a"}], "routes": [{"name": "chat", "targets": ["a"]}]}"#;
        let text = format!("{{value: {}}}", json!(ours));
        assert_eq!(wrong(&[filter(POLICY, "*vm", &text), routing()]), []);
    }

    #[test]
    fn a_filter_that_is_in_another_file_is_doubtful() {
        let discovered = "{name: rolter_policy, config_discovery: {}}";
        let findings = checked(&format!("{discovered}, {}", routing()));
        assert!(findings.problems.is_empty());
        let [doubt] = &findings.doubts[..] else {
            panic!("one doubt")
        };
        assert!(
            doubt.starts_with(&format!("{LIST}[0]: is in another file")),
            "{doubt}"
        );
        // After the one that routes it is of no use.
        let findings = checked(&format!("{}, {discovered}", routing()));
        assert_eq!(findings.problems.len(), 1);
    }
}
