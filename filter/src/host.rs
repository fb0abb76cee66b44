//! Envoy's calls as this filter uses them.
//!
//! The SDK panics on statuses that it does not expect, and its getters on values that are not
//! UTF-8. So headers are bytes here, and each call is made only in a phase in which its map or
//! buffer exists; a refusal is "nothing".

use crate::metrics::Gauge;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use rolter_core::shared::{Host, Stored};
use rolter_core::time::Millis;
use std::time::{Duration, UNIX_EPOCH};

/// The authority of calls to the sidecar, which nothing depends on.
pub(crate) const SIDECAR: &str = "rolter-sidecar";

/// A request header, in the phases of the request.
pub(crate) fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok()?
}

/// Some request headers, in the phases of the request. What comes several times is one list, as RFC
/// 9110 has it; Envoy itself would tell of the first alone.
pub(crate) fn request_headers<const N: usize>(names: [&str; N]) -> [Option<Vec<u8>>; N] {
    let mut values = names.map(|_| None::<Vec<u8>>);
    // The SDK wants names to be UTF-8, and Envoy takes no others.
    let all = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
    for (name, value) in all {
        let known = names.iter().zip(&mut values);
        for (_, known) in known.filter(|(known, _)| **known == name) {
            match known {
                Some(list) => list.extend([&b","[..], &value].concat()),
                None => *known = Some(value.clone()),
            }
        }
    }
    values
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

/// A response header, in the phase of the response headers.
pub(crate) fn response_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok()?
}

/// The status of the response, in the phase of its headers; 0 where it is no number.
pub(crate) fn response_status() -> u16 {
    let status = response_header(":status");
    let status = status.and_then(|status| str::from_utf8(&status).ok()?.parse().ok());
    status.unwrap_or(0)
}

/// Sets a response header, in the phase of the response headers.
pub(crate) fn set_response_header(name: &str, value: &str) {
    let value = Some(value.as_bytes());
    let _ = hostcalls::set_map_value_bytes(MapType::HttpResponseHeaders, name, value);
}

/// Removes a response header, in the phase of the response headers.
pub(crate) fn remove_response_header(name: &str) {
    let _ = hostcalls::remove_map_value(MapType::HttpResponseHeaders, name);
}

/// Answers the request itself, in the phases of the request.
pub(crate) fn reply(status: u32, headers: &[(&str, &str)], body: &[u8]) {
    let _ = hostcalls::send_http_response(status, headers.to_vec(), Some(body));
}

/// The first bytes of the request body that Envoy holds, in the phase of the body or trailers.
pub(crate) fn request_body(max: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::HttpRequestBody, 0, max).ok()?
}

/// The first bytes of what is passing of the response body, in the phase of that.
pub(crate) fn response_body(max: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::HttpResponseBody, 0, max).ok()?
}

/// The name of the Envoy route that the request matched.
pub(crate) fn route_name() -> Option<Vec<u8>> {
    hostcalls::get_property(vec!["xds", "route_name"]).ok()?
}

/// The address of the last endpoint that the request was sent to, once there is a response.
pub(crate) fn upstream_address() -> Option<Vec<u8>> {
    hostcalls::get_property(vec!["upstream", "address"]).ok()?
}

/// How often the request was sent, once there is a response.
pub(crate) fn attempts() -> u64 {
    number(vec!["upstream", "request_attempt_count"])
}

/// What went wrong, as far as Envoy has noticed by now.
pub(crate) fn response_flags() -> u64 {
    number(vec!["response", "flags"])
}

/// Whether the response is the upstream's own, once there is one: not Envoy's, nor a filter's.
pub(crate) fn is_upstreams_own() -> bool {
    let details = hostcalls::get_property(vec!["response", "code_details"]);
    details.is_ok_and(|details| details.is_some_and(|details| details == b"via_upstream"))
}

/// A field of the stream that is at hand, which its access log can tell, at any time.
pub(crate) fn set_field(name: &str, value: &str) {
    let _ = hostcalls::set_property(vec![name], Some(value.as_bytes()));
}

/// What a filter has set so for the same stream, at any time.
pub(crate) fn field(name: &str) -> Option<String> {
    let value = hostcalls::get_property(vec![name]).ok()??;
    String::from_utf8(value).ok()
}

/// The name under which the configuration has this plugin.
pub(crate) fn root_id() -> Option<Vec<u8>> {
    hostcalls::get_property(vec!["plugin_root_id"]).ok()?
}

/// Puts another body in the place of the request body that Envoy holds, in the phase of the body or
/// trailers.
pub(crate) fn replace_request_body(body: &[u8]) {
    let _ = hostcalls::set_buffer(BufferType::HttpRequestBody, 0, usize::MAX, body);
}

/// Puts another body in the place of the response body that Envoy holds. There has to be one: the SDK
/// panics where none has come.
pub(crate) fn replace_response_body(body: &[u8]) {
    let _ = hostcalls::set_buffer(BufferType::HttpResponseBody, 0, usize::MAX, body);
}

/// Lets a response go on that was held until now, out of another phase.
pub(crate) fn resume_response() {
    let _ = hostcalls::resume_http_response();
}

/// Whether the answer to a call is a success, in the phase of that.
pub(crate) fn call_succeeded(headers: usize) -> bool {
    // Where there are none, the call was reset, and there is no map to ask.
    headers != 0 && call_header(":status").is_some_and(|status| status == b"200")
}

/// The body of an answer to a call, in the phase of that. Nothing where it is empty, or the answer is
/// no success.
pub(crate) fn call_body(headers: usize, size: usize) -> Option<Vec<u8>> {
    call_succeeded(headers).then(|| call_bytes(size)).flatten()
}

/// The body of an answer to a call, whatever it is, in the phase of that. Nothing where it is empty.
pub(crate) fn call_bytes(size: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, size).ok()?
}

/// A header of an answer to a call that has some, in the phase of that.
pub(crate) fn call_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, name).ok()?
}

/// Calls somebody, out of a request. The number of the call, where there is one.
pub(crate) fn call(
    cluster: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    timeout: Duration,
) -> Option<u32> {
    let headers = headers.to_vec();
    hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout).ok()
}

/// Leaves something for the plugins of all workers that have the same `vm_id`.
pub(crate) fn share(key: &str, value: &[u8]) {
    let _ = hostcalls::set_shared_data(key, Some(value), None);
}

/// Whether something was left so.
pub(crate) fn is_shared(key: &str) -> bool {
    hostcalls::get_shared_data(key).is_ok_and(|(value, _)| value.is_some())
}

/// Lets a request go on that was held until now, out of another phase.
pub(crate) fn resume_request() {
    let _ = hostcalls::resume_http_request();
}

/// The configuration of the plugin, in the phase of the configuration.
pub(crate) fn configuration() -> Option<Vec<u8>> {
    hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX).ok()?
}

/// The time now.
pub(crate) fn now() -> Micros {
    let elapsed = hostcalls::get_current_time()
        .ok()
        .and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    let micros = elapsed.and_then(|elapsed| u64::try_from(elapsed.as_micros()).ok());
    Micros(micros.unwrap_or(0))
}

/// Microseconds since the epoch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Micros(u64);

impl Micros {
    pub(crate) fn millis(self) -> Millis {
        Millis(self.0 / 1_000)
    }

    /// The microseconds since an earlier time; zero where the clock was set back.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The microseconds between two times, whichever came first.
    pub(crate) fn apart(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

fn number(path: Vec<&str>) -> u64 {
    let bytes = hostcalls::get_property(path).ok().flatten();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// What the VMs of this Envoy share.
pub(crate) struct Envoy;

impl Host for Envoy {
    type Gauge = Gauge;

    /// The `vm_id`, as a part of the name of a metric.
    fn vm(&self) -> String {
        let id = hostcalls::get_property(vec!["plugin_vm_id"]).ok().flatten();
        let id = String::from_utf8_lossy(&id.unwrap_or_default()).into_owned();
        let separates = |c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c);
        id.replace(separates, "_")
    }

    fn get(&self, key: &str) -> Option<Stored> {
        let (value, version) = hostcalls::get_shared_data(key).ok()?;
        Some(Stored {
            value: value?,
            version: version?,
        })
    }

    fn set(&self, key: &str, value: &[u8], expected: Option<u32>) -> bool {
        hostcalls::set_shared_data(key, Some(value), expected).is_ok()
    }

    fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Gauge {
        Gauge::define(name, labels)
    }

    fn tally(&self, name: &str, labels: &[(&str, &str)]) -> Gauge {
        Gauge::tally(name, labels)
    }

    fn read(&self, gauge: Gauge) -> u64 {
        gauge.read()
    }

    fn add(&self, gauge: Gauge, amount: i64) {
        gauge.add(amount);
    }

    fn put(&self, gauge: Gauge, value: u64) {
        gauge.put(value);
    }
}
