//! Envoy's calls as this filter uses them.
//!
//! The SDK panics on statuses that it does not expect, and its getters on values that are not
//! UTF-8. So headers are bytes here, and each call is made only in a phase in which its map or
//! buffer exists; a refusal is "nothing".

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use std::time::UNIX_EPOCH;

/// A request header, in the phase of the request headers.
pub(crate) fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok()?
}

/// Sets a request header, until the request has been sent on.
pub(crate) fn set_request_header(name: &str, value: &str) {
    let value = Some(value.as_bytes());
    // A refusal would leave the request without a cluster, which Envoy then answers.
    let _ = hostcalls::set_map_value_bytes(MapType::HttpRequestHeaders, name, value);
}

/// Removes all copies of a request header, in the phase of the request headers.
pub(crate) fn remove_request_header(name: &str) {
    let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
}

/// Sets a response header, in the phase of the response headers.
pub(crate) fn set_response_header(name: &str, value: &str) {
    let value = Some(value.as_bytes());
    let _ = hostcalls::set_map_value_bytes(MapType::HttpResponseHeaders, name, value);
}

/// The first bytes of the request body that Envoy holds, in the phase of the body or trailers.
pub(crate) fn request_body(max: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::HttpRequestBody, 0, max).ok()?
}

/// The name of the Envoy route that the request matched.
pub(crate) fn route_name() -> Option<Vec<u8>> {
    hostcalls::get_property(vec!["xds", "route_name"]).ok()?
}

/// The configuration of the plugin, in the phase of the configuration.
pub(crate) fn configuration() -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX).ok()?
}

/// Microseconds since the epoch.
pub(crate) fn now_micros() -> u64 {
    hostcalls::get_current_time()
        .ok()
        .and_then(|now| now.duration_since(UNIX_EPOCH).ok())
        .and_then(|elapsed| u64::try_from(elapsed.as_micros()).ok())
        .unwrap_or(0)
}
