//! The values in the documentation, and what it does with them.

use crate::{MODES, check, document, rendered, with};
use e2e::chart::{helm, project};
use e2e::rolled::meshed;
use e2e::schemas::Schemas;
use e2e::validation::shown;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// The values that a page of the documentation has, by name.
fn documented(page: &str) -> Vec<(String, Value)> {
    let text = fs::read_to_string(project().join(page)).unwrap();
    let blocks = text.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("\n```").unwrap().0);
    let values = blocks.map(|block| {
        let name = block.strip_prefix("# values: ");
        let name = name.unwrap_or_else(|| panic!("{page}: what is this?\n{block}"));
        let name = name.lines().next().unwrap();
        (name.to_owned(), serde_saphyr::from_str(block).unwrap())
    });
    values.collect()
}

#[test]
fn the_values_in_the_documentation_are_good() {
    let schemas = Schemas::fetched();
    let folder = tempfile::tempdir().unwrap();
    for (page, usual) in [
        ("docs/kubernetes.md", "envoy"),
        ("docs/istio.md", "istio-gateway"),
    ] {
        for (name, values) in documented(page) {
            let mode = values["mode"].as_str().unwrap_or(usual);
            let rendered = rendered(&with(mode, &values));
            let objects = rendered.objects().iter();
            let problems = objects.flat_map(|object| schemas.problems(object));
            assert_eq!(problems.collect::<Vec<_>>(), Vec::<String>::new(), "{name}");
            if mode == "engines" {
                continue;
            }
            let file = folder.path().join(&name);
            fs::write(&file, rendered.entry("rolter.yaml")).unwrap();
            check(&file, &name);
            if mode != "envoy" {
                meshed(&rendered, mode).map(|_| ()).unwrap();
            }
        }
    }
}

#[test]
fn the_document_can_be_taken_out_of_what_is_rendered() {
    let page = fs::read_to_string(project().join("docs/kubernetes.md")).unwrap();
    let mut lines = page.lines();
    let line = lines.find(|line| line.contains("--show-only templates/configmap.yaml"));
    let helm = helm();
    let chart = project().join("envoy/chart").display().to_string();
    let line = line
        .unwrap()
        .replacen("helm", &helm.display().to_string(), 1);
    let line = line.replace("envoy/chart", &chart);
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let values = with(mode, &json!({}));
        fs::write(folder.path().join("values.yaml"), values.to_string()).unwrap();
        let bash = Command::new("bash")
            .args(["-o", "pipefail", "-c", &line])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        assert!(bash.status.success(), "{}", shown(&bash));
        let text = fs::read_to_string(folder.path().join("rolter.yaml")).unwrap();
        let taken: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(taken, document(&rendered(&values)), "{mode}");
    }
}
