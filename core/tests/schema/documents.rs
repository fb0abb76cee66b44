//! The configurations that this repository shows.

use crate::file;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// All of them, each with the file that has it.
pub(crate) fn all() -> Vec<(String, Value)> {
    let mut documents = Vec::new();
    for folder in ["envoy", "docs", "."] {
        let entries = fs::read_dir(file(folder)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let place = path.display().to_string();
            for text in texts(&path) {
                // What cannot be read as it stands is no whole configuration.
                let read = serde_saphyr::from_multiple::<Value>(&text);
                for value in read.into_iter().flatten() {
                    find(&value, &place, &mut documents);
                }
            }
        }
    }
    documents
}

/// A YAML file, or what a page shows in YAML.
fn texts(path: &Path) -> Vec<String> {
    let read = || fs::read_to_string(path).unwrap();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("yaml") => vec![read()],
        Some("md") => {
            let page = read();
            let blocks = page.split("```yaml\n").skip(1);
            let blocks = blocks.filter_map(|rest| rest.split("```").next());
            // The chart completes its values, and its tests read what comes of them.
            let blocks = blocks.filter(|block| !block.starts_with("# values: "));
            blocks.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// What has providers and routes, wherever it is.
fn find(value: &Value, place: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| find(value, place, found)),
        Value::Object(fields) => {
            if fields.contains_key("providers") && fields.contains_key("routes") {
                found.push((place.to_owned(), value.clone()));
                return;
            }
            fields.values().for_each(|value| find(value, place, found));
        }
        _ => {}
    }
}
