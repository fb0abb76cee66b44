//! Mistakes about the module and its VM.

use super::edits::{copy, remove, second_listener, set, sidecar};
use super::{Base, Plant, plant};
use serde_json::json;
use std::path::Path;

pub(super) fn plants(dir: &Path) -> Vec<Plant> {
    use Base::Envoy;
    let filename = "@plugin/vm_config/code/local/filename";
    let no_module = dir.join("text.wasm");
    std::fs::write(&no_module, "no module").unwrap();
    let not_there = dir.join("missing.wasm");
    vec![
        plant(
            "runtime",
            Envoy,
            [set(
                "@plugin/vm_config/runtime",
                json!("envoy.wasm.runtime.wamr"),
            )],
            "@plugin/vm_config/runtime",
            "write envoy.wasm.runtime.v8",
        ),
        plant(
            "code",
            Envoy,
            [remove("@plugin/vm_config/code")],
            "@plugin/vm_config/code",
            "no module, so that Envoy does not start",
        ),
        plant(
            "code_sha256",
            Envoy,
            [set(
                "@plugin/vm_config/code",
                json!({"remote": {"http_uri": {"uri": "http://a/b", "cluster": "vllm-a"}}}),
            )],
            "@plugin/vm_config/code/remote/sha256",
            "write the 64 hex digits",
        ),
        plant(
            "module_file",
            Envoy,
            [set(filename, json!(not_there))],
            filename,
            "missing.wasm on this machine",
        ),
        plant(
            "module_content",
            Envoy,
            [set(filename, json!(no_module))],
            filename,
            "is no wasm module",
        ),
        plant(
            "vm_id",
            Envoy,
            [remove("@plugin/vm_config/vm_id")],
            "@plugin/vm_config/vm_id",
            "write vm_id: rolter",
        ),
        plant(
            "vm_ids",
            Envoy,
            [
                second_listener(),
                set(
                    "@second/http_filters/0/typed_config/config/vm_config/vm_id",
                    json!("another"),
                ),
            ],
            "@second/http_filters/0/typed_config/config/vm_config/vm_id",
            "both send requests to vllm-a",
        ),
        plant(
            "same_name",
            Envoy,
            [
                second_listener(),
                copy("@clusters", 0, 3),
                set("@clusters/3/name", json!("vllm-c")),
                set(
                    "@clusters/3/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/\
                     socket_address/port_value",
                    json!(8003),
                ),
                set(
                    "@second/http_filters/0/typed_config/config/configuration/value/providers/0/\
                     cluster",
                    json!("vllm-c"),
                ),
            ],
            "@second/http_filters/0/typed_config/config/configuration/value/providers/0/cluster",
            "write another name for one of them",
        ),
        plant(
            "several_configurations",
            Envoy,
            [
                set("@value/sidecar", sidecar()),
                second_listener(),
                set(
                    "@second/http_filters/0/typed_config/config/configuration/value/debug_headers",
                    json!(true),
                ),
            ],
            "",
            "2 different configurations",
        ),
    ]
}
