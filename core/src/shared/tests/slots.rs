//! Who holds which slot.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_slot_is_claimed_by_one_of_those_who_find_no_table() {
    for seed in 0..200 {
        let world = World::new(seed, false);
        let vms = (1..=16).map(|id| Vm::new(&world, id)).collect();
        let vms = run(&world, vms, &vec![vec![Step::Beat]; 16]);
        assert_slots_differ(&vms);
    }
}

#[test]
fn a_vm_beyond_the_last_slot_counts_what_it_can_and_disturbs_nobody() {
    let world = World::new(0, false);
    let mut vms: Vec<Vm> = (1..=MAX_SLOTS as u64 + 2)
        .map(|id| Vm::new(&world, id))
        .collect();
    beat_together(&mut vms, 2);
    assert_slots_differ(&vms);
    let mut last = vms.pop().unwrap();
    assert_eq!(last.worker.slot(), None);
    assert!(!last.worker.leads());
    last.publish(10);
    assert!(last.known.is_empty(), "it has nowhere to publish");
    last.step(Step::Begin(0));
    last.step(Step::End);
    assert_counts_are_right(&vms);
}

#[test]
fn the_next_one_leads_once_the_leader_is_dead() {
    let world = World::new(0, false);
    let mut vms = [Vm::new(&world, 1), Vm::new(&world, 2), Vm::new(&world, 3)];
    beat_together(&mut vms, 2);
    assert_eq!(
        vms.each_ref().map(|vm| vm.worker.leads()),
        [true, false, false]
    );
    beat_together(&mut vms[1..], DEAD_AFTER as usize + 1);
    assert!(vms[1].worker.leads() && !vms[2].worker.leads());
}

#[test]
fn a_member_without_a_free_slot_finds_one_later() {
    let world = World::new(0, false);
    let host = SimulatedHost::new(&world);
    let mut members: Vec<_> = (1..=MAX_SLOTS as u64)
        .map(|id| Member::new(&host, id))
        .collect();
    for member in &mut members {
        member.beat(&host, |_| ());
    }
    let mut waiting = Member::new(&host, 999);
    let mut cleared = Vec::new();
    for beat in 0..=DEAD_AFTER {
        assert_eq!(waiting.slot(), None, "beat {beat}");
        waiting.beat(&host, |dead| cleared.push(dead));
        for member in members.iter_mut().skip(1) {
            member.beat(&host, |dead| cleared.push(dead));
        }
    }
    waiting.beat(&host, |_| ());
    assert_eq!(waiting.slot(), Some(SlotId(0)));
    assert_eq!(cleared, [SlotId(0)], "once, by one of them");
}
