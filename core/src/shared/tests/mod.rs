//! Many VMs side by side, their deaths and what is left of them.

mod host;
mod ring;
mod slots;
mod worker;

use super::host::{Host, NO_VERSION};
use super::in_flight::InFlight;
use super::ring::{MAX_RECORD_BYTES, Reader, SEGMENT_BYTES, SEGMENTS, Writer};
use super::simulated::{SimulatedHost, World};
use super::slots::{DEAD_AFTER, MAX_SLOTS, Member, SlotId};
use super::worker::{BEAT_MILLIS, Worker};
use crate::affinity::Limits;
use crate::memory::{Lesson, Memory};
use crate::target::TargetId;
use crate::time::Millis;
use crate::wire::{Message, NameHash};
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
    /// What it has learnt from them.
    memory: Memory,
    id: u64,
    published: u64,
}

fn empty_memory() -> Memory {
    Memory::new(Limits {
        max_nodes: 1 << 30,
        max_memory: 1 << 30,
    })
}

/// Prompts of a few families, in each of which they begin alike.
fn prompt(len: usize) -> Vec<u8> {
    let letters = ["ab", "abc", "abcd"][len % 3].bytes();
    letters.cycle().take(len).collect()
}

fn target_of(message: &Message<'_>) -> TargetId {
    TargetId(if message.target.0.is_multiple_of(3) {
        0
    } else {
        1 + u16::from(message.target.0.is_multiple_of(2))
    })
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
                .map(|target| InFlight::requests(&host, target))
                .into(),
            under_way: Vec::new(),
            known: BTreeSet::new(),
            memory: empty_memory(),
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
        let (known, memory) = (&mut self.known, &mut self.memory);
        self.worker.read(&self.host, budget, |record| {
            let message = Message::read(record).expect("a message");
            memory.learn(target_of(&message), message.at, &message.lesson);
            known.insert(record.to_vec());
        })
    }

    /// Gives some target a prompt of this length and tells the others.
    fn publish(&mut self, len: usize) {
        self.published += 1;
        let text = prompt(len);
        let message = Message {
            memory: NameHash(self.id),
            target: NameHash(self.published),
            at: Millis(1_000 * self.published),
            lesson: Lesson::Prompt {
                model: b"m",
                text: &text,
            },
        };
        let mut record = Vec::new();
        message.write(&mut record);
        if self.worker.publish(&self.host, &record) {
            self.memory
                .learn(target_of(&message), message.at, &message.lesson);
            self.known.insert(record);
        }
    }

    /// How much of each of some prompts each target has.
    fn answers(&self) -> Vec<usize> {
        let prompts = (0..40).map(|n| prompt(n * 500));
        prompts
            .flat_map(|text| {
                let found = self.memory.tree.find(b"m", &text);
                [0, 1, 2].map(|target| found.len(TargetId(target)))
            })
            .collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Beat => self.beat(),
            Step::Begin(target) => {
                self.counts[target].begin(&self.host, 1);
                self.under_way.push(target);
            }
            Step::End => {
                if let Some(target) = self.under_way.pop() {
                    self.counts[target].end(&self.host, 1);
                }
            }
            Step::Publish(len) => self.publish(len),
            Step::Read => {
                self.read(SEGMENT_BYTES);
            }
            Step::Forget => {
                self.known.clear();
                self.memory = empty_memory();
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
        for vm in &vms {
            prop_assert_eq!(&vm.known, &vms[0].known, "VM {}", vm.id);
            prop_assert_eq!(vm.answers(), vms[0].answers(), "VM {}", vm.id);
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
