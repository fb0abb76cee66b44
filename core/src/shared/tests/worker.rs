//! A worker as a whole, in unusual circumstances.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_slow_vm_takes_another_slot_and_keeps_its_counts() {
    let world = World::new(0, false);
    let (mut slow, mut other) = (Vm::new(&world, 1), Vm::new(&world, 2));
    slow.beat();
    slow.step(Step::Begin(0));
    beat_together(std::slice::from_mut(&mut other), SETTLED);
    assert_eq!(other.counts[0].total(&other.host), 0, "it counts as dead");
    let mut third = Vm::new(&world, 3);
    third.beat();
    assert_eq!(third.worker.slot(), slow.worker.slot(), "the slot is free");
    let mut vms = [slow, other, third];
    beat_together(&mut vms, SETTLED);
    assert_slots_differ(&vms);
    assert_counts_are_right(&vms);
}

#[test]
fn garbage_in_the_shared_data_is_passed_over() {
    for garbage in [Vec::new(), vec![b'x'], vec![255; 100], vec![0; 70_000]] {
        let world = World::new(0, false);
        let host = SimulatedHost::new(&world);
        host.set("rolter/1/slots", &garbage, None);
        for segment in 0..SEGMENTS {
            host.set(&format!("rolter/1/ring/0/{segment}"), &garbage, None);
        }
        host.put(
            host.gauge("rolter_ring_head", &[("slot", "0"), ("vm", "v")]),
            u64::MAX,
        );
        host.put(host.gauge("rolter_slots", &[("vm", "v")]), u64::MAX);
        let mut vm = Vm::new(&world, 7);
        assert!(vm.read(usize::MAX));
        beat_together(std::slice::from_mut(&mut vm), SETTLED);
        assert!(vm.known.is_empty());
        assert!(vm.worker.slot().is_some());
    }
}

#[test]
fn a_beat_is_due_whichever_way_the_clock_was_set() {
    let world = World::new(0, false);
    let mut vm = Vm::new(&world, 1);
    let now = Millis(1_000_000);
    vm.worker.beat(&vm.host, now, &vm.counts);
    assert!(!vm.worker.is_due(now.plus(BEAT_MILLIS - 1)));
    assert!(vm.worker.is_due(now.plus(BEAT_MILLIS)));
    assert!(!vm.worker.is_late(now.plus(BEAT_MILLIS)));
    assert!(vm.worker.is_late(now.plus(4 * BEAT_MILLIS)));
    assert!(vm.worker.is_late(Millis(0)));
}

#[test]
fn an_end_without_a_beginning_is_not_counted() {
    let world = World::new(0, false);
    let vm = Vm::new(&world, 1);
    vm.counts[0].end(&vm.host, 1);
    assert_eq!(vm.counts[0].total(&vm.host), 0);
}

#[test]
fn what_others_have_is_read_the_more_seldom_the_more_targets_there_are() {
    let world = World::new(0, false);
    let (mut vm, mut other) = (Vm::new(&world, 1), Vm::new(&world, 2));
    let load = |vm: &Vm, now, targets| vm.counts[0].load(&vm.host, Millis(now), targets);
    for (targets, moment) in [(4, 0), (512, 8)] {
        let now = 1_000_000 * (targets as u64);
        assert_eq!(load(&vm, now, targets), 0);
        other.step(Step::Begin(0));
        vm.step(Step::Begin(0));
        assert_eq!(load(&vm, now, targets), 1, "of its own it knows at once");
        assert_eq!(load(&vm, now + moment, targets), 1);
        assert_eq!(load(&vm, now + moment + 1, targets), 2);
        other.step(Step::End);
        vm.step(Step::End);
    }
}
