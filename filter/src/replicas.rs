//! The targets as this VM sees them, whatever routes and configurations they are in: how busy they
//! are, and whether they may be used.

use crate::host::Envoy;
use crate::metrics::{Counter, Counters, Gauge};
use rolter_core::health::{Changes, Health, Outcome};
use rolter_core::kv::mirror::Mirror;
use rolter_core::shared::in_flight::InFlight;
use rolter_core::time::Millis;
use rolter_core::wire::NameHash;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// A target, by the name that the configuration gives it.
pub(crate) struct Replica {
    pub(crate) name: String,
    /// Requests.
    pub(crate) in_flight: Rc<InFlight<Envoy>>,
    /// Tokens of their prompts that it has yet to compute.
    pub(crate) pending: Rc<InFlight<Envoy>>,
    pub(crate) health: Health<Envoy>,
    state: Gauge,
    /// By outcome.
    outcomes: Counters<&'static str>,
}

/// What stands for a target whose engine says that it is not well, beside the numbers of the states
/// that requests tell of.
const ILL: u64 = 4;

/// All that some configuration refers to.
#[derive(Default)]
pub(crate) struct Replicas(RefCell<Vec<Weak<Replica>>>);

impl Replicas {
    /// The target of this name.
    pub(crate) fn get(&self, name: &str) -> Rc<Replica> {
        let mut known = self.0.borrow_mut();
        known.retain(|replica| replica.strong_count() > 0);
        let mut alive = known.iter().filter_map(Weak::upgrade);
        if let Some(replica) = alive.find(|replica| replica.name == name) {
            return replica;
        }
        let replica = Rc::new(Replica::new(name));
        known.push(Rc::downgrade(&replica));
        replica
    }

    /// All that is counted of each.
    pub(crate) fn counts(&self) -> Vec<Rc<InFlight<Envoy>>> {
        let replicas = self.all().into_iter();
        replicas
            .flat_map(|replica| [&replica.in_flight, &replica.pending].map(Rc::clone))
            .collect()
    }

    /// Reads what all workers know of the health of each.
    pub(crate) fn refresh(&self) {
        for replica in self.all() {
            replica.health.refresh(&Envoy);
        }
    }

    /// Tells operators how each is.
    pub(crate) fn report(&self, engines: &Mirror<Envoy>, now: Millis) {
        for replica in self.all() {
            let hash = NameHash::of(&replica.name);
            let state = replica.health.state(now).number();
            let is_ill = engines.is_ill(hash, now);
            replica.state.put(if is_ill { ILL } else { state });
            if let Some(events) = engines.events(hash, now) {
                let gauge = |name| Gauge::define(name, &[("target", &*replica.name)]);
                gauge("rolter_events_trusted").put(events.trusted);
                gauge("rolter_events_age_milliseconds").put(events.age_millis);
            }
        }
    }

    fn all(&self) -> Vec<Rc<Replica>> {
        self.0.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Replica {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            in_flight: Rc::new(InFlight::requests(&Envoy, name)),
            pending: Rc::new(InFlight::tokens(&Envoy, name)),
            health: Health::new(&Envoy, name),
            state: Gauge::define("rolter_target_state", &[("target", name)]),
            outcomes: Counters::default(),
        }
    }

    /// Takes in what became of a request that still counts as in flight here.
    pub(crate) fn learn(
        &self,
        outcome: Outcome,
        now: impl FnOnce() -> Millis,
        changes: &Changes<Envoy>,
    ) {
        let name = outcome.as_str();
        self.outcomes.add_one(name, || {
            let labels = [("target", &*self.name), ("outcome", name)];
            Counter::define("rolter_outcomes", &labels)
        });
        // The usual answer comes from a target that nothing is held against.
        if outcome != Outcome::Answered || self.health.is_blamed() {
            let others = outcome.is_failure() && self.in_flight.total(&Envoy) > 1;
            (self.health).learn(&Envoy, outcome, others, now(), changes);
        }
    }
}

impl Drop for Replica {
    /// Nobody looks after it any longer.
    fn drop(&mut self) {
        self.state.put(0);
    }
}
