//! The least that a wasm filter can do which routes by the body: it holds the body, reads it and names
//! endpoints, each first in its turn. What any filter of this kind costs, whatever it makes of the
//! body.
//!
//! Its configuration is `{"endpoints": "are HOST:PORT,HOST:PORT"}`, where the last space tells where
//! they begin.

// The entry point that the macro makes takes no documentation.
#![allow(missing_docs)]

use proxy_wasm::hostcalls::{get_buffer, set_map_value};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, LogLevel, MapType};
use std::cell::Cell;
use std::rc::Rc;

/// Names the endpoints in the order in which Envoy is to try them.
const ENDPOINTS: &str = "x-gateway-destination-endpoint";

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|_| Box::new(Root(Rc::default())));
}}

struct Root(Rc<Turns>);

/// The endpoints, beginning with each of them, and whose turn it is.
#[derive(Default)]
struct Turns {
    orders: Vec<String>,
    next: Cell<usize>,
}

impl Turns {
    fn of(configuration: &str) -> Self {
        // Envoy gives a Struct as protobuf, in which the one value comes last.
        let (_, endpoints) = configuration.rsplit_once(' ').unwrap_or_default();
        let mut order: Vec<&str> = endpoints.split(',').collect();
        let orders = (0..order.len()).map(|_| {
            order.rotate_left(1);
            order.join(",")
        });
        Self {
            orders: orders.collect(),
            next: Cell::new(0),
        }
    }

    fn take(&self) -> Option<&str> {
        let next = self.next.get();
        self.next.set((next + 1) % self.orders.len().max(1));
        self.orders.get(next).map(String::as_str)
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let configuration = self.get_plugin_configuration().unwrap_or_default();
        self.0 = Rc::new(Turns::of(&String::from_utf8_lossy(&configuration)));
        true
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Request(Rc::clone(&self.0))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Request(Rc<Turns>);

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
        // One without a body goes nowhere, as does one of whom nobody knows the endpoints.
        let order = self.0.take();
        if body.is_ok_and(|body| body.is_some()) {
            let _ = set_map_value(MapType::HttpRequestHeaders, ENDPOINTS, order);
        }
        Action::Continue
    }
}
