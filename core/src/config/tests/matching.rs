//! Which requests a route is for.

use crate::config::{Conditions, Pattern};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_pattern_fits_whole_texts() {
    for (pattern, text, fits) in [
        ("*", "", true),
        ("*", "anything", true),
        ("llama-*", "llama-3", true),
        ("llama-*", "llama", false),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "example.com", false),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("a*a", "aba", true),
        ("exact", "exact", true),
        ("exact", "exactly", false),
    ] {
        assert_eq!(
            Pattern::new(pattern)
                .unwrap()
                .matches(text.as_bytes(), |a, b| a == b),
            fits,
            "{pattern} {text}"
        );
    }
}

#[test]
fn a_route_is_for_what_fits_all_its_conditions() {
    let with = |hosts: &[&str], models: &[&str], route_name: Option<&str>| Conditions {
        hosts: hosts.iter().filter_map(|text| Pattern::new(text)).collect(),
        path_prefix: "/v1/".into(),
        models: models
            .iter()
            .filter_map(|text| Pattern::new(text))
            .collect(),
        route_name: route_name.map(str::to_owned),
    };
    let any = with(&[], &[], None);
    assert!(any.head(b"", b"/v1/chat", None));
    assert!(!any.head(b"", b"/v2/chat", None));
    let host = with(&["llm.example.com", "[::1]"], &[], None);
    for (name, fits) in [
        ("llm.example.com", true),
        ("LLM.Example.com:8080", true),
        ("llm.example.com.evil", false),
        ("other:443", false),
        ("[::1]:80", true),
        ("[::1]", true),
        (":80", false),
        ("80", false),
    ] {
        assert_eq!(host.head(name.as_bytes(), b"/v1/", None), fits, "{name}");
    }
    let named = with(&[], &[], Some("r"));
    assert!(named.head(b"", b"/v1/", Some(b"r")));
    assert!(!named.head(b"", b"/v1/", Some(b"s")) && !named.head(b"", b"/v1/", None));
    let model = with(&[], &["llama-*", "x"], None);
    assert!(model.model("llama-3") && model.model("x") && !model.model("y"));
}
