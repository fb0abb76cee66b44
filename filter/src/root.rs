//! One a worker and configuration: takes the configuration, makes the requests, and lets the VM look
//! after what it shares.

use crate::plugin::Plugin;
use crate::request::Request;
use crate::vm::Vm;
use crate::{configuration, host};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;
use std::time::Duration;

/// How often this VM looks after what it shares with others. Short, so that a worker without
/// requests knows what the others learn, and one that starts late has caught up soon.
const TICK: Duration = Duration::from_millis(100);

/// Without a plugin until the configuration has been read.
#[derive(Default)]
pub(crate) struct Root {
    plugin: Option<Rc<Plugin>>,
    /// Gone once answers come here no more.
    alive: Rc<()>,
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, size: usize, _trailers: usize) {
        Vm::get().hear(&self.alive, token, headers, size);
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        match configuration::read(&host::configuration().unwrap_or_default()) {
            Ok(config) => {
                self.plugin = Some(Rc::new(Plugin::new(&config)));
                self.set_tick_period(TICK);
                true
            }
            Err(errors) => {
                for problem in errors.0 {
                    log::error!("configuration refused: {problem}");
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        Vm::get().tick(&self.alive, host::now());
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Request::new(self.plugin.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
