//! What the documentation shows is accepted.

use rolter_sidecar::document;
use std::path::Path;

#[test]
fn each_configuration_of_the_documentation_is_accepted() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/exact-routing.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let blocks: Vec<_> = text
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("configuration.yaml");
    for block in blocks {
        std::fs::write(&file, block).unwrap();
        if let Err(error) = document::read(&file) {
            panic!("{error}\nin\n{block}");
        }
    }
}
