use super::host::{Host, NO_VERSION};
use super::in_flight::InFlight;
use super::ring::{MAX_RECORD_BYTES, Reader, SEGMENT_BYTES, SEGMENTS, Writer};
use super::simulated::{SimulatedHost, World};
use super::slots::{DEAD_AFTER, MAX_SLOTS, Member, SlotId};
use super::worker::{BEAT_MILLIS, Worker};
use crate::time::Millis;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Beats after which all that a death left behind is put right: the dead one is noticed and
/// cleared, the next one leads, and its audits are sure.
const SETTLED: usize = 4 * DEAD_AFTER as usize;

const TARGETS: usize = 3;

/// A VM with what a filter has in it.
struct Vm {
    host: SimulatedHost,
    worker: Worker<SimulatedHost>,
    counts: Vec<InFlight<SimulatedHost>>,
    under_way: Vec<usize>,
    /// All records that it knows, its own among them.
    known: BTreeSet<Vec<u8>>,
    id: u64,
    published: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Beat,
    Begin(usize),
    End,
    Publish(usize),
    Read,
    /// What was learnt is gone and has to be read again.
    Forget,
}

impl Vm {
    fn new(world: &Arc<World>, id: u64) -> Self {
        let host = SimulatedHost::new(world);
        Self {
            worker: Worker::new(&host, id),
            counts: ["a", "b", "c"]
                .map(|target| InFlight::new(&host, target))
                .into(),
            under_way: Vec::new(),
            known: BTreeSet::new(),
            published: 0,
            host,
            id,
        }
    }

    fn beat(&mut self) {
        self.worker
            .beat(&self.host, Millis::default(), &self.counts);
    }

    fn read(&mut self, budget: usize) -> bool {
        let known = &mut self.known;
        self.worker.read(&self.host, budget, |record| {
            known.insert(record.to_vec());
        })
    }

    fn publish(&mut self, len: usize) {
        self.published += 1;
        let mut record = format!("{}:{}:", self.id, self.published).into_bytes();
        record.resize(record.len().max(len), b'.');
        if self.worker.publish(&self.host, &record) {
            self.known.insert(record);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Beat => self.beat(),
            Step::Begin(target) => {
                self.counts[target].begin(&self.host);
                self.under_way.push(target);
            }
            Step::End => {
                if let Some(target) = self.under_way.pop() {
                    self.counts[target].end(&self.host);
                }
            }
            Step::Publish(len) => self.publish(len),
            Step::Read => {
                self.read(SEGMENT_BYTES);
            }
            Step::Forget => {
                self.known.clear();
                self.worker.rewind();
            }
        }
    }

    fn perform(mut self, steps: &[Step]) -> Self {
        for &step in steps {
            if self.host.is_dead() {
                break;
            }
            self.step(step);
        }
        self
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..TARGETS).prop_map(Step::Begin),
        2 => Just(Step::End),
        2 => prop_oneof![Just(10_usize), 100..20_000_usize].prop_map(Step::Publish),
        1 => Just(Step::Read),
        1 => Just(Step::Beat),
    ]
}

/// What VMs do, and after how many calls some of them die.
fn any_scripts(vms: usize, steps: usize) -> impl Strategy<Value = Vec<(Vec<Step>, Option<u64>)>> {
    let script = prop::collection::vec(any_step(), 1..steps);
    let death = prop::option::weighted(0.3, 0..150_u64);
    prop::collection::vec((script, death), 1..=vms)
}

/// Runs the scripts side by side; who has died is gone.
fn run(world: &Arc<World>, vms: Vec<Vm>, scripts: &[Vec<Step>]) -> Vec<Vm> {
    let runs = vms.into_iter().zip(scripts);
    let vms = world.run(
        runs.map(|(vm, script)| move || vm.perform(script))
            .collect(),
    );
    let alive: Vec<Vm> = vms.into_iter().filter(|vm| !vm.host.is_dead()).collect();
    for vm in &alive {
        vm.host.die_after(u64::MAX);
    }
    alive
}

fn beat_together(vms: &mut [Vm], times: usize) {
    for _ in 0..times {
        vms.iter_mut().for_each(Vm::beat);
    }
}

fn assert_counts_are_right(vms: &[Vm]) {
    for target in 0..TARGETS {
        let all = vms.iter().flat_map(|vm| &vm.under_way);
        let true_count = all.filter(|&&t| t == target).count();
        for vm in vms {
            let total = vm.counts[target].total(&vm.host);
            assert_eq!(total as usize, true_count, "target {target}");
        }
    }
}

fn assert_slots_differ(vms: &[Vm]) {
    let slots: BTreeSet<_> = vms.iter().filter_map(|vm| vm.worker.slot()).collect();
    assert_eq!(slots.len(), vms.len().min(MAX_SLOTS), "{slots:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(target_arch = "wasm32") { 20 } else { 150 }))]

    /// VMs die anywhere, and stand still for as long as the others like.
    #[test]
    fn no_count_is_lost_and_no_slot_has_two_holders(
        seed: u64,
        scripts in any_scripts(16, 60),
    ) {
        let world = World::new(seed, true);
        let (scripts, deaths): (Vec<_>, Vec<_>) = scripts.into_iter().unzip();
        let vms: Vec<Vm> = (1..).zip(&deaths).map(|(id, death)| {
            let vm = Vm::new(&world, id);
            vm.host.die_after(death.unwrap_or(u64::MAX));
            vm
        }).collect();
        let mut vms = run(&world, vms, &scripts);
        vms.push(Vm::new(&world, 1_000));
        beat_together(&mut vms, SETTLED);
        assert_counts_are_right(&vms);
        assert_slots_differ(&vms);
        prop_assert_eq!(vms.iter().filter(|vm| vm.worker.leads()).count(), 1);

        // Whoever ends what it began brings everything back to zero.
        for vm in &mut vms {
            while !vm.under_way.is_empty() {
                vm.step(Step::End);
            }
        }
        assert_counts_are_right(&vms);
    }

    /// Nobody stands still for long here, but deaths are anywhere: all end up with the same
    /// knowledge, also who comes late or has forgotten everything.
    #[test]
    fn what_one_vm_learns_all_know(
        seed: u64,
        rounds in prop::collection::vec(any_scripts(8, 12), 1..5),
    ) {
        let world = World::new(seed, false);
        let mut vms: Vec<Vm> = Vec::new();
        for (round, scripts) in (1..).zip(rounds) {
            let (mut scripts, deaths): (Vec<_>, Vec<_>) = scripts.into_iter().unzip();
            while vms.len() < scripts.len() {
                vms.push(Vm::new(&world, round * 100 + vms.len() as u64));
            }
            scripts.resize(vms.len(), Vec::new());
            for (script, vm) in scripts.iter_mut().zip(&vms) {
                script.insert(0, Step::Beat);
                if vm.id % 3 == 0 {
                    script.push(Step::Forget);
                }
            }
            for (vm, death) in vms.iter().zip(deaths) {
                vm.host.die_after(death.unwrap_or(u64::MAX));
            }
            vms = run(&world, vms, &scripts);
        }
        vms.push(Vm::new(&world, 10_000));
        beat_together(&mut vms, 1);
        for vm in &mut vms {
            while !vm.read(SEGMENT_BYTES) {}
            prop_assert_eq!(vm.worker.lost(), 0);
        }
        let newcomer = vms.last().map(|vm| vm.known.clone()).unwrap_or_default();
        for vm in &vms {
            prop_assert_eq!(&vm.known, &newcomer, "VM {}", vm.id);
        }
    }

    #[test]
    fn keys_and_bytes_are_bounded(seed: u64, lives in 1..30_usize) {
        let world = World::new(seed, false);
        for id in 1..=lives as u64 {
            let mut vm = Vm::new(&world, id);
            beat_together(std::slice::from_mut(&mut vm), 1 + DEAD_AFTER as usize);
            for _ in 0..2 * SEGMENTS {
                vm.publish(SEGMENT_BYTES / 2);
            }
        }
        let (keys, bytes) = world.stored();
        // At any time one VM was alive, and the one before it not yet dead to the others.
        prop_assert!(keys as u64 <= 1 + 2 * SEGMENTS, "{keys} keys");
        prop_assert!(bytes <= keys * (SEGMENT_BYTES + 50), "{bytes} bytes");
        prop_assert!(world.gauge_count() <= 30, "{} gauges", world.gauge_count());
    }
}

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
fn a_reader_that_fell_behind_counts_what_it_lost() {
    let world = World::new(0, false);
    let mut vms = [Vm::new(&world, 1), Vm::new(&world, 2)];
    beat_together(&mut vms, 1);
    let [writer, reader] = &mut vms;
    writer.publish(10);
    assert!(reader.read(usize::MAX));
    for _ in 0..3 * SEGMENTS {
        writer.publish(SEGMENT_BYTES / 2);
    }
    assert!(reader.read(usize::MAX));
    assert!(reader.worker.lost() > 0);
    let read = reader.known.len() as u64;
    assert_eq!(read + reader.worker.lost(), writer.published);
}

#[test]
fn what_was_there_before_a_vm_came_is_not_lost_to_it() {
    let world = World::new(0, false);
    let mut vms = [Vm::new(&world, 1), Vm::new(&world, 2)];
    beat_together(&mut vms, 1);
    let [writer, late] = &mut vms;
    for _ in 0..3 * SEGMENTS {
        writer.publish(SEGMENT_BYTES / 2);
    }
    assert!(late.read(usize::MAX));
    assert_eq!(late.worker.lost(), 0);
    assert!(!late.known.is_empty());
}

#[test]
fn a_long_way_is_read_in_parts() {
    let world = World::new(0, false);
    let mut vms = [Vm::new(&world, 1), Vm::new(&world, 2), Vm::new(&world, 3)];
    beat_together(&mut vms, 1);
    for _ in 0..20 {
        vms[0].publish(SEGMENT_BYTES / 2);
        vms[1].publish(SEGMENT_BYTES / 2);
    }
    let mut parts = 0;
    while !vms[2].read(SEGMENT_BYTES) {
        parts += 1;
    }
    assert!(parts > 10, "{parts}");
    assert_eq!(vms[2].known.len(), 40);
}

#[test]
fn a_record_of_any_length_arrives_or_is_refused() {
    let world = World::new(0, false);
    let host = SimulatedHost::new(&world);
    let mut writer = Writer::new(&host, SlotId(0));
    let mut reader = Reader::new();
    for len in [0, 1, 20_000, MAX_RECORD_BYTES, 7, MAX_RECORD_BYTES + 1, 1] {
        let record = vec![b'x'; len];
        assert_eq!(writer.publish(&host, &record), len <= MAX_RECORD_BYTES);
        let mut read = Vec::new();
        reader.read(&host, 1, usize::MAX, |record| read.push(record.to_vec()));
        assert_eq!(read.len(), usize::from(len <= MAX_RECORD_BYTES), "{len}");
        assert!(read.iter().all(|read| *read == record));
    }
}

#[test]
fn the_next_holder_of_a_slot_goes_on_with_its_ring() {
    let world = World::new(0, false);
    let host = SimulatedHost::new(&world);
    let mut reader = Reader::new();
    for life in 0..3 {
        let mut writer = Writer::new(&host, SlotId(0));
        for record in 0..5 {
            writer.publish(&host, &[life, record]);
        }
    }
    let mut read = Vec::new();
    reader.read(&host, 1, usize::MAX, |record| read.push(record.to_vec()));
    assert_eq!(read.len(), 15);
    assert_eq!(reader.lost(), 0);
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
        host.put(host.gauge("rolter_ring_head", &[("slot", "0")]), u64::MAX);
        host.put(host.gauge("rolter_slots", &[]), u64::MAX);
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
    vm.counts[0].end(&vm.host);
    assert_eq!(vm.counts[0].total(&vm.host), 0);
    assert_eq!(vm.counts[0].mine(), 0);
}

#[test]
fn the_simulated_host_has_the_rules_of_the_real_one() {
    let world = World::new(0, false);
    let host = SimulatedHost::new(&world);
    assert_eq!(host.get("k"), None);
    assert!(
        host.set("k", b"1", Some(12)),
        "any version will do for an absent key"
    );
    let first = host.get("k").unwrap();
    assert!(!host.set("k", b"2", Some(NO_VERSION)));
    assert!(!host.set("k", b"2", Some(first.version + 1)));
    assert!(host.set("k", b"1", Some(first.version)));
    assert_ne!(
        host.get("k").unwrap().version,
        first.version,
        "each write is a new version"
    );
    assert!(host.set("k", b"3", None));
    let gauge = host.gauge("g", &[("a", "b")]);
    host.add(gauge, -1);
    assert_eq!(host.read(gauge), u64::MAX, "below zero it wraps");
    host.put(gauge, 5);
    assert_eq!(host.read(host.gauge("g", &[("a", "b")])), 5);
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
