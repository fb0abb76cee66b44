//! One a worker and configuration: takes the configuration, makes the requests, and lets the VM look
//! after what it shares.
//!
//! The module is two filters, which `root_id` tells apart: `rolter_policy` is the one of the policy,
//! any other routes.

use crate::guarded::Guarded;
use crate::mark::ORDER;
use crate::plugin::Plugin;
use crate::policy::Policies;
use crate::request::Request;
use crate::vm::Vm;
use crate::{configuration, host};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use rolter_core::config::{Errors, Problem};
use std::rc::Rc;
use std::time::Duration;

/// How often this VM looks after what it shares with others. Short, so that a worker without
/// requests knows what the others learn, and one that starts late has caught up soon.
const TICK: Duration = Duration::from_millis(100);

/// The `root_id` of the filter of the policy.
const POLICY: &[u8] = b"rolter_policy";

#[derive(Default)]
pub(crate) struct Root {
    role: Role,
    /// Gone once answers come here no more.
    alive: Rc<()>,
}

/// What this filter does.
#[derive(Default)]
enum Role {
    /// Nothing: its configuration has not been read.
    #[default]
    None,
    Routing(Rc<Plugin>),
    Policy(Rc<Policies>),
}

impl Role {
    fn read() -> Result<Self, Errors> {
        let config = configuration::read(&host::configuration().unwrap_or_default())?;
        if host::root_id().as_deref() == Some(POLICY) {
            let policies = Policies::new(&config)?;
            Policies::announce();
            return Ok(Self::Policy(Rc::new(policies)));
        }
        let has_policy = config.routes.iter().any(|route| route.policy.is_some());
        if has_policy && !Policies::are_announced() {
            let what = format!("nothing would pass it over requests and answers; {ORDER}");
            return Err(Errors(vec![Problem {
                path: "policy".to_owned(),
                what,
            }]));
        }
        Ok(Self::Routing(Rc::new(Plugin::new(&config))))
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, size: usize, _trailers: usize) {
        Vm::get().hear(&self.alive, token, headers, size);
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Role::read() {
            Ok(role) => {
                if let Role::Routing(_) = role {
                    self.set_tick_period(TICK);
                }
                self.role = role;
                true
            }
            Err(Errors(problems)) => {
                for problem in problems {
                    log::error!("configuration refused: {problem}");
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        Vm::get().tick(&self.alive, host::now());
        if let Role::Routing(plugin) = &self.role {
            // Also where no requests come: who leads looks after the targets that it knows.
            plugin.renew();
        }
    }

    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match &self.role {
            Role::None => Box::new(Request::new(None)),
            Role::Routing(plugin) => Box::new(Request::new(Some(Rc::clone(plugin)))),
            Role::Policy(policies) => Box::new(Guarded::new(Rc::clone(policies))),
        })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
