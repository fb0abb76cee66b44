//! Mistakes about what Envoy can hold.

use super::edits::{in_both, precise, remove};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Policy};
    vec![
        plant(
            "request_buffer",
            Envoy,
            [remove("@route/request_body_buffer_limit")],
            "@route/request_body_buffer_limit",
            "write 2097152 or more",
        ),
        plant(
            "answer_buffer",
            Policy,
            in_both("/policy/max_answer_bytes", &json!(8 << 20)),
            "@listener/per_connection_buffer_limit_bytes",
            "a max_answer_bytes of 8388608",
        ),
        plant(
            "request_headers",
            Envoy,
            precise(&[0, 1]),
            "@hcm/max_request_headers_kb",
            "Envoy answers 431",
        ),
    ]
}
