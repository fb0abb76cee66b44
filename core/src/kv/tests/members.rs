//! The targets of providers that have a DNS name for them.

use crate::kv::members::{Member, Members, Roster};
use crate::shared::simulated::{SimulatedHost, World};
use std::sync::Arc;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const ENDPOINT: &str = "vllm.svc:8000";

fn member(port: u16, present: bool) -> Member {
    Member {
        address: ([10, 0, 0, 7], port).into(),
        present,
    }
}

/// What is told of the provider `vllm`.
fn told(members: Option<&[Member]>) -> [Members; 1] {
    [Members {
        provider: "vllm".into(),
        endpoint: ENDPOINT.into(),
        members: members.map(Vec::from),
    }]
}

struct Vm {
    host: SimulatedHost,
    roster: Roster<SimulatedHost>,
}

impl Vm {
    fn new(world: &Arc<World>) -> Self {
        let host = SimulatedHost::new(world);
        let roster = Roster::new(&host);
        Self { host, roster }
    }

    fn hear(&mut self, told: &[Members]) -> Vec<String> {
        self.roster.hear(&self.host, told)
    }

    fn members(&mut self) -> Vec<Member> {
        self.roster.refresh(&self.host);
        self.roster.members("vllm", ENDPOINT).to_vec()
    }
}

#[test]
fn every_vm_knows_the_members_and_when_they_are_others() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    let before = other.roster.turnovers();
    let first = [member(1, true), member(2, true)];
    leader.hear(&told(Some(&first)));
    assert_eq!(
        (leader.members(), other.members()),
        (first.to_vec(), first.to_vec())
    );
    let then = other.roster.turnovers();
    assert_ne!(then, before);
    // The same is no news.
    leader.hear(&told(Some(&first)));
    other.members();
    assert_eq!(other.roster.turnovers(), then);
    let second = [member(1, false), member(2, true)];
    assert_eq!(leader.hear(&told(Some(&second))), [""; 0]);
    assert_eq!(other.members(), second);
    assert_ne!(other.roster.turnovers(), then);
}

#[test]
fn members_are_those_of_the_endpoint_that_they_were_found_at() {
    let world = World::new(1, false);
    let mut leader = Vm::new(&world);
    let known = [member(1, true)];
    leader.hear(&told(Some(&known)));
    assert_eq!(leader.roster.members("vllm", "vllm.svc:8001"), []);
    assert_eq!(leader.roster.members("other", ENDPOINT), []);
    // A sidecar that has the new configuration already takes nothing from a filter with the old one.
    let moved = Members {
        endpoint: "elsewhere:8000".into(),
        ..told(None)[0].clone()
    };
    leader.hear(std::slice::from_ref(&moved));
    assert_eq!(leader.members(), known);
    assert_eq!(leader.roster.members("vllm", "elsewhere:8000"), []);
    // Not for ever, if there are more and more.
    for number in 0..40 {
        let endpoint = format!("elsewhere-{number}:8000");
        leader.hear(&[Members {
            endpoint,
            ..moved.clone()
        }]);
    }
    assert_eq!(leader.members(), []);
}

#[test]
fn a_sidecar_that_does_not_know_yet_takes_nothing_back() {
    let world = World::new(1, false);
    let mut leader = Vm::new(&world);
    let known = [member(1, true)];
    leader.hear(&told(Some(&known)));
    assert_eq!(leader.hear(&told(None)), [""; 0]);
    assert_eq!(leader.members(), known);
    // Nor does it where another VM leads by now, which has read nothing before.
    let mut next = Vm::new(&world);
    next.hear(&told(None));
    assert_eq!(next.members(), known);
    assert_ne!(next.roster.turnovers(), 0);
    // That there are none is something else.
    assert_eq!(next.hear(&told(Some(&[]))), ["vllm/10.0.0.7:1"]);
    assert_eq!((next.members(), leader.members()), (vec![], vec![]));
}

#[test]
fn who_is_to_be_forgotten_is_told_once() {
    let world = World::new(1, false);
    let mut leader = Vm::new(&world);
    leader.hear(&told(Some(&[member(1, true), member(2, true)])));
    let away = told(Some(&[member(1, true), member(2, false)]));
    assert_eq!(leader.hear(&away), [""; 0]);
    let gone = told(Some(&[member(1, true)]));
    assert_eq!(leader.hear(&gone), ["vllm/10.0.0.7:2"]);
    assert_eq!(leader.hear(&gone), [""; 0]);
}
