//! Whether each list of filters in a file of Envoy's that routes has the filter of the policy, where a
//! route has one.
//!
//! Envoy refuses most of what is found here as well, or the filter refuses the requests, but they
//! cannot tell the place in the file. Invariant: what the file leaves to others is no problem, but
//! doubtful.

use super::filter::{Filter, POLICY};
use rolter_core::config::Problem;
use serde_json::Value;

/// What is found in a file.
#[derive(Default)]
pub(super) struct Findings {
    /// Requests would be refused, or Envoy would not start.
    pub(super) problems: Vec<Problem>,
    /// What the file does not tell.
    pub(super) doubts: Vec<String>,
}

/// Looks at all lists of filters.
pub(super) fn check(document: &Value) -> Findings {
    let mut findings = Findings::default();
    visit(document, "", &mut findings);
    findings
}

/// The depth is bounded by the parsers.
fn visit(value: &Value, path: &str, findings: &mut Findings) {
    match value {
        Value::Array(list) => {
            for (place, value) in list.iter().enumerate() {
                visit(value, &format!("{path}[{place}]"), findings);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                if key == "http_filters"
                    && let Some(list) = value.as_array()
                {
                    check_list(&path, list, findings);
                }
                visit(value, &path, findings);
            }
        }
        _ => {}
    }
}

/// Looks at a list with its path.
fn check_list(path: &str, list: &[Value], findings: &mut Findings) {
    let read = list.iter().enumerate();
    let filters: Vec<Filter<'_>> = read
        .filter_map(|(place, filter)| Filter::read(path, place, filter))
        .collect();
    for routing in filters.iter().filter(|filter| filter.needs_policy()) {
        routing.check_holding(&mut findings.problems);
        let of_policy = filters.iter().filter(|filter| filter.is_of_policy());
        // The one to mend is the one with which least is wrong.
        let checked = of_policy.map(|filter| filter.check_against(routing, path));
        if let Some(problems) = checked.min_by_key(Vec::len) {
            findings.problems.extend(problems);
            continue;
        }
        let place = routing.place;
        let before = list.iter().take(place);
        let is_elsewhere = |filter: &Value| filter.get("config_discovery").is_some();
        if let Some(elsewhere) = before.clone().position(is_elsewhere) {
            findings.doubts.push(format!(
                "{path}[{elsewhere}]: is in another file; it has to be the filter of the policy, \
                 with root_id: {POLICY} and the vm_config and configuration of http_filters[{place}]"
            ));
            continue;
        }
        let what = format!(
            "a route has a policy, and nothing passes it over requests and answers; write a filter \
             with root_id: {POLICY} before http_filters[{place}], which routes, with the same \
             vm_config and configuration (configuration: &rolter in the first, *rolter in the other) \
             and allow_on_headers_stop_iteration: true"
        );
        findings.problems.push(Problem {
            path: path.to_owned(),
            what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
                vec![
                    policy().replace("allow_on_headers_stop_iteration: true,", ""),
                    routing(),
                ],
                "[0].typed_config.config.allow_on_headers_stop_iteration",
                "write true",
            ),
            (
                vec![
                    policy(),
                    routing().replace("allow_on_headers_stop_iteration: true,", ""),
                ],
                "[1].typed_config.config.allow_on_headers_stop_iteration",
                "write true",
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
