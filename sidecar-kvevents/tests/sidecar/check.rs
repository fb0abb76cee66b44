//! `rolter-sidecar check` finds each mistake that it knows, and none where there is none.

use super::planted::{Base, plants};
use rolter_sidecar::document::{self, Gravity};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the command on a file.
fn checked(option: &str, file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolter-sidecar"));
    command.arg("check").arg(option).arg(file);
    command.output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_planted_mistake_is_found_where_it_is_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("envoy.json");
    let mut wrong = Vec::new();
    for plant in plants(dir.path()) {
        let mut document = plant.base.document();
        for edit in &plant.edits {
            edit(&mut document);
        }
        fs::write(&file, document.to_string()).unwrap();
        let report = document::check_envoy(&file).unwrap();
        let found: Vec<_> = report.findings.iter().map(|finding| finding.rule).collect();
        let expected: BTreeSet<_> = plant.also.iter().copied().chain([plant.rule]).collect();
        let told = |what: &str| {
            let findings = report.findings.iter();
            let findings: Vec<_> = findings.map(ToString::to_string).collect();
            format!("{} at {}: {what}: {findings:#?}", plant.rule, plant.path)
        };
        if found.len() != expected.len() || found.iter().any(|rule| !expected.contains(rule)) {
            wrong.push(told("other findings"));
            continue;
        }
        let mut findings = report.findings.iter();
        let finding = findings.find(|finding| finding.rule == plant.rule).unwrap();
        let what = &finding.problem.what;
        if finding.problem.path != plant.path {
            wrong.push(told("another path"));
        }
        if !what.contains(plant.words) {
            wrong.push(told("other words"));
        }
        let advice = ["; write ", "; remove ", "; it has to be "];
        if !advice.iter().any(|begin| what.contains(begin)) {
            wrong.push(told("nothing to do"));
        }
        let output = checked("--envoy-config", &file);
        let is_error = !report.is_ok();
        let line = match finding.gravity {
            Gravity::Error => format!("{finding}\n"),
            Gravity::Doubt => format!("but {finding}\n"),
        };
        let printed = if is_error {
            &output.stderr
        } else {
            &output.stdout
        };
        let printed = String::from_utf8_lossy(printed);
        if output.status.code() != Some(i32::from(is_error)) || !printed.contains(&line) {
            wrong.push(told(&format!(
                "it is {} and prints {printed}",
                output.status
            )));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_has_a_planted_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let planted: BTreeSet<_> = plants(dir.path()).iter().map(|plant| plant.rule).collect();
    let known: BTreeSet<_> = document::rules().map(|(name, _)| name).collect();
    assert_eq!(planted, known);
    assert_eq!(known.len(), document::rules().count(), "names differ");
}

#[test]
fn the_documented_files_of_envoys_have_no_finding() {
    let mut count = 0;
    for file in fs::read_dir(root().join("envoy")).unwrap() {
        let path = file.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let report = document::check_envoy(&path).unwrap();
            assert_eq!(report.findings, [], "{path:?}");
            assert!(checked("--envoy-config", &path).status.success());
            count += 1;
        }
    }
    assert!(count >= 3);
}

#[test]
fn all_that_is_found_is_told_at_once_errors_first_and_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("envoy.json");
    let mut document = Base::Envoy.document();
    let doubt = "/admin/address/socket_address/address";
    *document.pointer_mut(doubt).unwrap() = json!("0.0.0.0");
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let filter = document.pointer_mut(filters).unwrap();
    let plugin = &mut filter["http_filters"][0]["typed_config"]["config"];
    plugin["allow_on_headers_stop_iteration"] = json!(false);
    plugin["vm_config"]["code"] = json!({});
    plugin["configuration"]["value"]["routes"][0]["stratgy"] = json!("cache_aware");
    fs::write(&file, document.to_string()).unwrap();
    let output = checked("--envoy-config", &file);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let printed = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    let begins = [
        format!("{}:", file.display()),
        "routes[0].stratgy: unknown key".to_owned(),
        "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.http_filters[0].\
         typed_config.config.allow_on_headers_stop_iteration: false"
            .to_owned(),
        "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.http_filters[0].\
         typed_config.config.vm_config.code: "
            .to_owned(),
        "but admin.address.socket_address.address: 0.0.0.0".to_owned(),
    ];
    assert_eq!(lines.len(), begins.len(), "{printed}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(
            line.starts_with(&begin),
            "{line}\ndoes not begin with\n{begin}"
        );
    }
}

#[test]
fn a_configuration_of_its_own_is_told_what_can_be_told_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rolter.json");
    let doubtful = json!({
        "providers": [{"name": "a", "cluster": "a"}, {"name": "b", "cluster": "b"}],
        "routes": [{"name": "rest", "targets": ["a"]}, {"name": "chat", "targets": ["a"]}],
    });
    fs::write(&file, doubtful.to_string()).unwrap();
    let output = checked("--config", &file);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let lines: Vec<&str> = printed.lines().collect();
    let [ok, unused, shadowed] = lines[..] else {
        panic!("{printed}")
    };
    assert!(ok.starts_with("ok: 2 providers, 2 routes"));
    assert!(unused.starts_with("but providers[1].name: no route has \"b\" as a target"));
    assert!(shadowed.starts_with("but routes[1].match: no request gets to chat"));
    fs::write(&file, json!({"providers": []}).to_string()).unwrap();
    let output = checked("--config", &file);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("\nproviders: empty; write at least one\n"),
        "{printed}"
    );
}

#[test]
fn a_file_without_a_filter_of_ours_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("envoy.json");
    fs::write(
        &file,
        json!({"static_resources": {"listeners": []}}).to_string(),
    )
    .unwrap();
    let output = checked("--envoy-config", &file);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("no wasm filter in it"), "{printed}");
}

#[test]
fn the_documentation_has_each_rule_with_what_becomes_of_it() {
    let page = fs::read_to_string(root().join("docs/check.md")).unwrap();
    let mut documented = BTreeSet::new();
    let mut gravity = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            gravity = match title {
                "Errors" => Some(Gravity::Error),
                "Doubts" => Some(Gravity::Doubt),
                _ => None,
            };
        }
        let Some(gravity) = gravity else { continue };
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells
            .next()
            .and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
        let Some(name) = name else { continue };
        let told: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        assert_eq!(told.len(), 2, "{name}: what was planted, and what it does");
        assert!(
            documented.insert((name.to_owned(), gravity)),
            "{name} is there twice"
        );
    }
    let known: BTreeSet<_> = document::rules()
        .map(|(name, gravity)| (name.to_owned(), gravity))
        .collect();
    let missing: Vec<_> = known.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&known).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
}

/// A document of Envoy's that is parsed, for the planted mistakes.
pub(super) fn parsed(name: &str) -> Value {
    let text = fs::read_to_string(root().join("envoy").join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}
