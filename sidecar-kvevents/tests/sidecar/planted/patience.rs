//! Mistakes about answers that take long.

use super::edits::{remove, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Pool};
    vec![
        plant(
            "timeout",
            Envoy,
            [remove("@route/route/timeout")],
            "@route/route/timeout",
            "not there, which is 15 s",
        ),
        plant(
            "timeout",
            Pool,
            [set("@route/route/timeout", json!("30s"))],
            "@route/route/timeout",
            "30s, after which Envoy cuts answers",
        ),
        plant(
            "idle_timeout",
            Envoy,
            [set("@route/route/idle_timeout", json!("10s"))],
            "@route/route/idle_timeout",
            "write 300s",
        ),
        plant(
            "idle_timeout",
            Envoy,
            [
                remove("@route/route/idle_timeout"),
                set("@hcm/stream_idle_timeout", json!("20s")),
            ],
            "@hcm/stream_idle_timeout",
            "20s, which ends requests",
        ),
        plant(
            "stream_duration",
            Envoy,
            [set(
                "@route/route/max_stream_duration/max_stream_duration",
                json!("60s"),
            )],
            "@route/route/max_stream_duration/max_stream_duration",
            "also those that are flowing",
        ),
        plant(
            "stream_duration",
            Envoy,
            [set(
                "@hcm/common_http_protocol_options/max_stream_duration",
                json!("60s"),
            )],
            "@hcm/common_http_protocol_options/max_stream_duration",
            "write 0s",
        ),
        plant(
            "per_try_timeout",
            Envoy,
            [set(
                "@route/route/retry_policy/per_try_timeout",
                json!("5s"),
            )],
            "@route/route/retry_policy/per_try_timeout",
            "computed once more",
        ),
        plant(
            "hedging",
            Envoy,
            [set(
                "@route/route/hedge_policy/hedge_on_per_try_timeout",
                json!(true),
            )],
            "@route/route/hedge_policy",
            "two engines compute the same answer",
        ),
        plant(
            "retries",
            Envoy,
            [set(
                "@route/route/retry_policy/retry_on",
                json!("reset, 5xx"),
            )],
            "@route/route/retry_policy/retry_on",
            "5xx is for whatever",
        ),
        plant(
            "pool_retries",
            Pool,
            [remove("@route/route/retry_policy")],
            "@route/route/retry_policy/retry_on",
            "write connect-failure,refused-stream,reset,retriable-status-codes",
        ),
    ]
}
