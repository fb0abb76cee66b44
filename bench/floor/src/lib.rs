//! The least that a wasm filter can do which routes by the body: it holds the body, reads it and sets
//! a header. What any filter of this kind costs, whatever it makes of the body.

// The entry point that the macro makes takes no documentation.
#![allow(missing_docs)]

use proxy_wasm::hostcalls::{get_buffer, set_map_value};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, LogLevel, MapType};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|_| Box::new(Root));
}}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Request))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Request;

impl Context for Request {}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            Action::Continue
        } else {
            Action::Pause
        }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !end_of_stream {
            return Action::Pause;
        }
        let body = get_buffer(BufferType::HttpRequestBody, 0, size);
        let len = body.ok().flatten().map_or(0, |body| body.len());
        let len = len.to_string();
        // Where it cannot be set, the request goes where it would have gone.
        let _ = set_map_value(MapType::HttpRequestHeaders, "x-floor", Some(&len));
        Action::Continue
    }
}
