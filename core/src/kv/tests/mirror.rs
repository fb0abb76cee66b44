//! What the VMs of one Envoy know of the engines, on a simulated host.

use super::super::MediumWeights;
use super::super::feed::{
    Change, LmCacheState, LoadState, Page, ReplicaId, ReplicaState, TargetState,
};
use super::super::identity::{Identity, Seed};
use super::super::mirror::{Events, Mirror};
use super::super::{Media, Medium};
use crate::shared::simulated::{SimulatedHost, World};
use crate::shared::slots::SlotId;
use crate::time::Millis;
use crate::wire::NameHash;
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: Millis = Millis(1_000_000);
const STALE: u64 = 30_000;

/// Sixteen tokens for each of four blocks, and one token more.
fn tokens() -> Vec<u8> {
    (0..65_u32).flat_map(u32::to_le_bytes).collect()
}

fn prompt(count: usize) -> Vec<Identity> {
    let bytes = tokens();
    super::super::identity::Chain::new(Seed(5), None, None, &bytes, 16)
        .take(count)
        .collect()
}

/// A page about two ranks of one engine and one of another.
fn page(cursor: &str, changes: &[Change]) -> Page {
    let replica = |target: &str, rank| ReplicaState {
        target: target.into(),
        rank,
        block_size: 16,
        age_ms: Some(100),
    };
    let mut bytes = Vec::new();
    for change in changes {
        change.write(&mut bytes);
    }
    Page {
        cursor: cursor.into(),
        more: false,
        anew: cursor == "0",
        seed: 5,
        replicas: vec![replica("a", 0), replica("a", 1), replica("b", 0)],
        targets: Vec::new(),
        changes: bytes,
        members: Vec::new(),
    }
}

fn put(replica: u16, blocks: &[Identity], medium: Medium) -> Vec<Change> {
    let media = Media::NONE.with(medium);
    blocks
        .iter()
        .map(|&block| Change::Put(ReplicaId(replica), block, media))
        .collect()
}

fn id(replica: usize) -> ReplicaId {
    ReplicaId(replica.try_into().unwrap())
}

struct Vm {
    host: SimulatedHost,
    mirror: Mirror<SimulatedHost>,
}

impl Vm {
    fn new(world: &Arc<World>) -> Self {
        let host = SimulatedHost::new(world);
        let mirror = Mirror::new(&host);
        Self { host, mirror }
    }

    fn hear(&mut self, slot: u8, page: &Page) -> bool {
        // Drawn at random: no two are the same.
        static EPOCHS: AtomicU64 = AtomicU64::new(0);
        let epoch = EPOCHS.fetch_add(1 << 32, Ordering::Relaxed);
        self.mirror.hear(&self.host, SlotId(slot), page, NOW, epoch)
    }

    fn refresh(&mut self) -> bool {
        self.mirror.refresh(&self.host, usize::MAX)
    }

    /// The share of the prompt that a target has, and in which rank.
    fn score(&self, target: &str) -> Option<(f64, u16)> {
        self.score_at(target, NOW)
    }

    fn score_at(&self, target: &str, now: Millis) -> Option<(f64, u16)> {
        let tokens = tokens();
        let weights = MediumWeights::default();
        let parts = self.mirror.parts(&tokens, (Some("m"), None), &weights);
        let mut rng = Rng::with_seed(1);
        let (hash, times) = (NameHash::of(target), (now, STALE));
        let score = self.mirror.score(hash, &parts, times, &mut rng)?;
        Some((score.share, score.rank))
    }
}

#[test]
fn every_vm_knows_what_the_leader_hears() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    assert_eq!(leader.mirror.cursor(), None);
    let blocks = prompt(4);
    let mut changes = put(1, &blocks[..3], Medium::Gpu);
    changes.extend(put(2, &blocks[..2], Medium::Cpu));
    assert!(leader.hear(0, &page("0", &changes)));
    assert_eq!(leader.mirror.cursor(), Some("0"));
    assert!(other.refresh());
    for vm in [&leader, &other] {
        assert_eq!(vm.score("a"), Some((0.75, 1)));
        assert_eq!(vm.score("b"), Some((0.4, 0)));
        assert_eq!(vm.score("c"), None);
    }
    // Later news, and one who comes late.
    let mut changes = vec![Change::Clear(ReplicaId(1))];
    changes.extend(put(0, &blocks[..1], Medium::Gpu));
    assert!(leader.hear(0, &page("1", &changes)));
    let mut late = Vm::new(&world);
    assert!(other.refresh() && late.refresh());
    for vm in [&leader, &other, &late] {
        assert_eq!(vm.score("a"), Some((0.25, 0)));
        assert_eq!(vm.mirror.residents(), 3);
    }
}

#[test]
fn what_is_old_or_not_to_be_trusted_is_not_known() {
    let world = World::new(1, false);
    let mut vm = Vm::new(&world);
    vm.hear(0, &page("0", &put(2, &prompt(1), Medium::Gpu)));
    assert_eq!(vm.score_at("b", NOW.plus(STALE - 100)), Some((0.25, 0)));
    assert_eq!(vm.score_at("b", NOW.plus(STALE - 99)), None);
    let mut distrusted = page("1", &[]);
    distrusted.replicas[2].age_ms = None;
    distrusted.replicas[1].age_ms = Some(700);
    vm.hear(0, &distrusted);
    let events = |target| vm.mirror.events(NameHash::of(target), NOW);
    let of = |trusted, age_millis| {
        Some(Events {
            trusted,
            age_millis,
        })
    };
    assert_eq!(
        (events("a"), events("b"), events("c")),
        (of(2, 700), of(0, 0), None)
    );
    assert_eq!(vm.score("b"), None);
    assert_eq!(vm.score("a"), Some((0.0, 0)));
}

#[test]
fn load_room_and_illness_are_known_while_they_are_fresh() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    let mut page = page("0", &put(2, &prompt(1), Medium::Gpu));
    page.targets = vec![
        TargetState {
            target: "a".into(),
            healthy: Some(false),
            load: Some(LoadState {
                running: 3,
                waiting: 4,
                age_ms: 1_000,
            }),
            lmcache: Some(LmCacheState {
                occupancy: 0.25,
                available: true,
                age_ms: 1_000,
            }),
            adapters: vec!["sql".into()],
        },
        TargetState {
            target: "b".into(),
            healthy: Some(true),
            lmcache: Some(LmCacheState {
                occupancy: 0.25,
                available: false,
                age_ms: 0,
            }),
            ..TargetState::default()
        },
    ];
    leader.hear(0, &page);
    other.refresh();
    let [a, b] = ["a", "b"].map(NameHash::of);
    for mirror in [&leader.mirror, &other.mirror] {
        assert_eq!(mirror.load(a, NOW.plus(4_000)), Some(7));
        assert_eq!(mirror.load(a, NOW.plus(4_001)), None);
        assert_eq!(mirror.load(b, NOW), None);
        assert_eq!(mirror.room(a, NOW, 10_000), Some(0.75));
        assert_eq!(mirror.room(a, NOW.plus(9_001), 10_000), None);
        assert_eq!(mirror.room(b, NOW, 10_000), Some(0.0));
        assert!(mirror.is_ill(a, NOW) && !mirror.is_ill(b, NOW));
        assert!(!mirror.is_ill(a, NOW.plus(5_001)));
        // A model that is an adapter has blocks of its own.
        let tokens = tokens();
        let weights = MediumWeights::default();
        let share = |model| {
            let parts = mirror.parts(&tokens, (Some(model), None), &weights);
            let mut rng = Rng::with_seed(1);
            let score = mirror.score(b, &parts, (NOW, STALE), &mut rng);
            score.map(|score| score.share)
        };
        assert_eq!((share("m"), share("sql")), (Some(0.25), Some(0.0)));
    }
}

#[test]
fn while_everything_is_told_anew_the_others_go_on_with_what_they_know() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    let blocks = prompt(4);
    leader.hear(0, &page("0", &put(2, &blocks, Medium::Gpu)));
    other.refresh();
    // The sidecar was started anew, and tells in two pages.
    let mut first = page("0", &put(0, &blocks[..2], Medium::Gpu));
    first.more = true;
    assert!(leader.hear(0, &first));
    let mut late = Vm::new(&world);
    assert!(other.refresh() && late.refresh());
    assert_eq!(other.score("b"), Some((1.0, 0)));
    assert!(leader.hear(0, &page("5", &put(0, &blocks[2..3], Medium::Gpu))));
    assert!(other.refresh() && late.refresh());
    for vm in [&other, &late, &leader] {
        assert_eq!(
            (vm.score("a"), vm.score("b")),
            (Some((0.75, 0)), Some((0.0, 0)))
        );
    }
}

#[test]
fn another_leader_hears_everything_anew_and_empties_what_the_last_one_wrote() {
    let world = World::new(1, false);
    let (mut first, mut second, mut other) = (Vm::new(&world), Vm::new(&world), Vm::new(&world));
    let many: Vec<_> = (0..5_000).map(Identity).collect();
    first.hear(0, &page("0", &put(2, &many, Medium::Gpu)));
    let (_, before) = world.stored();
    // A page that goes on is of no use to who has not heard the beginning.
    assert!(!second.hear(3, &page("7", &[])));
    assert_eq!(second.mirror.cursor(), None);
    assert!(second.hear(3, &page("0", &put(0, &prompt(2), Medium::Gpu))));
    other.refresh();
    assert_eq!(other.score("a"), Some((0.5, 0)));
    assert_eq!(other.mirror.residents(), 2);
    let (_, after) = world.stored();
    assert!(after < before / 10, "{after} of {before}");
    // The first one finds out, and reads as the others do.
    assert!(!first.hear(0, &page("8", &[])));
    assert_eq!(first.mirror.cursor(), None);
    first.refresh();
    assert_eq!(first.score("a"), Some((0.5, 0)));
    assert_eq!(first.mirror.residents(), 2);
}

#[test]
fn a_reader_that_reads_a_little_at_a_time_comes_to_know_all() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    let many: Vec<_> = (0..20_000).map(Identity).collect();
    leader.hear(0, &page("0", &put(2, &many, Medium::Gpu)));
    let mut looks = 1;
    while !other.mirror.refresh(&other.host, 1) {
        looks += 1;
    }
    assert!(looks >= 10);
    assert_eq!(other.mirror.residents(), 20_000);
}

/// Random pages to one or two leaders while others read, some of whom die and come anew. In the end
/// all know the same, and the shared data has not grown beyond what is known.
#[test]
fn all_know_the_same_whatever_happened() {
    for seed in 0..200 {
        let world = World::new(seed, false);
        let mut rng = Rng::with_seed(seed);
        let mut vms: Vec<Vm> = (0..4).map(|_| Vm::new(&world)).collect();
        let mut truth: [Vec<Identity>; 3] = Default::default();
        let (mut leader, mut slot, mut number) = (0, 0, 0);
        for _ in 0..rng.u32(5..60) {
            match rng.u32(0..10) {
                0 => {
                    // The leader dies, and another VM leads, perhaps under the same slot.
                    vms[leader] = Vm::new(&world);
                    leader = rng.usize(0..4);
                    slot = rng.u8(0..2);
                }
                1 => {
                    let other = (leader + 1) % 4;
                    vms[other] = Vm::new(&world);
                }
                2..5 => {
                    let reader = rng.usize(0..4);
                    let Vm { host, mirror } = &mut vms[reader];
                    mirror.refresh(host, rng.usize(0..40_000));
                }
                _ => {
                    number += 1;
                    let replica = rng.usize(0..3);
                    let mut changes = Vec::new();
                    if rng.u32(0..8) == 0 {
                        truth[replica].clear();
                        changes.push(Change::Clear(id(replica)));
                    }
                    for _ in 0..rng.u32(0..3_000) {
                        let block = Identity(rng.u64(0..3_000));
                        let there = rng.bool();
                        truth[replica].retain(|&known| known != block);
                        if there {
                            truth[replica].push(block);
                        }
                        let media = if there {
                            Media::NONE.with(Medium::Gpu)
                        } else {
                            Media::NONE
                        };
                        changes.push(Change::Put(id(replica), block, media));
                    }
                    let page_of = page(&number.to_string(), &changes);
                    if !vms[leader].hear(slot, &page_of) {
                        let all: Vec<_> = (0..3)
                            .flat_map(|replica| put(id(replica).0, &truth[replica], Medium::Gpu))
                            .collect();
                        assert!(vms[leader].hear(slot, &page("0", &all)), "{seed}");
                    }
                }
            }
        }
        let all: Vec<_> = (0..3)
            .flat_map(|replica| put(id(replica).0, &truth[replica], Medium::Gpu))
            .collect();
        if !vms[leader].hear(slot, &page("99", &[])) {
            assert!(vms[leader].hear(slot, &page("0", &all)));
        }
        let expected: usize = truth.iter().map(Vec::len).sum();
        for vm in &mut vms {
            while !vm.refresh() {}
            assert_eq!(vm.mirror.residents(), expected, "{seed}");
        }
        let (_, bytes) = world.stored();
        assert!(
            bytes < 4 * 9 * expected + 3 * 40_000,
            "{seed}: {bytes} for {expected}"
        );
    }
}

/// Three VMs run side by side, call by call: two take themselves for the leader, each with all that
/// the sidecar has told by then, and one of them may die at any moment; the third reads. Whatever
/// came of that, the next leader puts it right, and nobody ever believed a part.
#[test]
fn two_leaders_at_once_leave_nothing_wrong_behind() {
    let all: Vec<_> = (0..4_000).map(Identity).collect();
    for seed in 0..150 {
        let world = World::new(seed, true);
        let mut vms: Vec<Vm> = (0..3).map(|_| Vm::new(&world)).collect();
        vms[1].host.die_after(Rng::with_seed(seed).u64(0..60));
        let told = &all;
        let runs: Vec<_> = vms
            .iter_mut()
            .zip(0_u8..)
            .map(|(vm, number)| {
                move || {
                    for round in 0..12 {
                        if number < 2 {
                            let to = 1_000 + round * 250;
                            let page_of = match vm.mirror.cursor() {
                                None => page("0", &put(2, &told[..to], Medium::Gpu)),
                                Some(_) => page("1", &put(2, &told[to - 250..to], Medium::Gpu)),
                            };
                            vm.hear(number, &page_of);
                        } else {
                            vm.mirror.refresh(&vm.host, 20_000);
                            let is_whole = vm.mirror.knows(NameHash::of("b"), NOW, STALE);
                            assert!(!is_whole || vm.mirror.residents() >= 1_000, "{seed}");
                        }
                    }
                }
            })
            .collect();
        world.run(runs);
        // The sidecar tells a third one everything, and all come to know the same.
        let mut next = Vm::new(&world);
        assert!(
            next.hear(2, &page("0", &put(2, &all, Medium::Gpu))),
            "{seed}"
        );
        let mut late = Vm::new(&world);
        let survivors = vms.iter_mut().filter(|vm| !vm.host.is_dead());
        for vm in survivors.chain([&mut late]) {
            vm.host.die_after(u64::MAX);
            vm.mirror.leave();
            while !vm.refresh() {}
            assert_eq!(vm.mirror.residents(), all.len(), "{seed}");
        }
        let (_, bytes) = world.stored();
        assert!(bytes < 3 * 9 * all.len() + 40_000, "{seed}: {bytes}");
    }
}

#[test]
fn an_engine_that_has_told_of_no_block_has_none_and_sets_no_scale() {
    let world = World::new(1, false);
    let mut vm = Vm::new(&world);
    let mut page = page("0", &put(2, &prompt(3), Medium::Gpu));
    page.replicas[0].block_size = 0;
    page.replicas[1].block_size = 0;
    vm.hear(0, &page);
    let tokens = tokens();
    let weights = MediumWeights::default();
    let parts = vm.mirror.parts(&tokens, (None, None), &weights);
    let block = |target: &str| {
        let mut rng = Rng::with_seed(1);
        let hash = NameHash::of(target);
        let score = vm.mirror.score(hash, &parts, (NOW, STALE), &mut rng);
        score.map(|score| (score.share, score.block))
    };
    assert_eq!(
        (block("a"), block("b")),
        (Some((0.0, 0.0)), Some((0.75, 0.25)))
    );
}

#[test]
fn of_ranks_that_have_as_much_each_is_taken_at_times() {
    let world = World::new(1, false);
    let mut vm = Vm::new(&world);
    let mut changes = put(0, &prompt(2), Medium::Gpu);
    changes.extend(put(1, &prompt(2), Medium::Gpu));
    vm.hear(0, &page("0", &changes));
    let tokens = tokens();
    let weights = MediumWeights::default();
    let parts = vm.mirror.parts(&tokens, (None, None), &weights);
    let mut rng = Rng::with_seed(1);
    let mut rank = || {
        let hash = NameHash::of("a");
        let score = vm.mirror.score(hash, &parts, (NOW, STALE), &mut rng);
        usize::from(score.unwrap().rank)
    };
    let mut counts = [0, 0];
    (0..200).for_each(|_| counts[rank()] += 1);
    assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_fresh() {
    let world = World::new(1, false);
    let mut vm = Vm::new(&world);
    vm.hear(0, &page("0", &put(2, &prompt(1), Medium::Gpu)));
    let back = Millis(NOW.0 - STALE - 1_000);
    assert_eq!(vm.score_at("b", back), None);
}

#[test]
fn changes_that_cannot_be_read_are_heard_anew() {
    let world = World::new(1, false);
    let mut vm = Vm::new(&world);
    assert!(vm.hear(0, &page("0", &put(2, &prompt(1), Medium::Gpu))));
    let mut broken = page("1", &[]);
    broken.changes = vec![9, 9, 9];
    assert!(!vm.hear(0, &broken));
    assert_eq!(vm.mirror.cursor(), None);
}

#[test]
fn a_number_that_another_target_gets_has_nothing_of_who_had_it() {
    let world = World::new(1, false);
    let (mut leader, mut other) = (Vm::new(&world), Vm::new(&world));
    let blocks = prompt(4);
    let of = |target: &str, cursor, more, changes: &[Change]| {
        let mut page = page(cursor, changes);
        page.replicas[2].target = target.into();
        Page { more, ..page }
    };
    let all = put(2, &blocks[..3], Medium::Gpu);
    assert!(leader.hear(0, &of("b", "0", false, &all)));
    assert!(other.refresh());
    // What is left to be told of the last one comes when the number is another's already.
    let late = put(2, &blocks[3..], Medium::Gpu);
    assert!(leader.hear(0, &of("c", "1", true, &late)));
    assert!(other.refresh());
    assert_eq!(leader.score("c"), None);
    assert_eq!(
        (other.score("b"), other.score("c")),
        (Some((0.75, 0)), None)
    );
    let mut changes = vec![Change::Clear(ReplicaId(2))];
    changes.extend(put(2, &blocks[..1], Medium::Gpu));
    assert!(leader.hear(0, &of("c", "2", false, &changes)));
    let mut newcomer = Vm::new(&world);
    assert!(other.refresh() && newcomer.refresh());
    for vm in [&leader, &other, &newcomer] {
        assert_eq!((vm.score("b"), vm.score("c")), (None, Some((0.25, 0))));
        assert_eq!(vm.mirror.residents(), 1);
    }
    // Nobody has it for a while.
    assert!(leader.hear(0, &of("", "3", false, &[Change::Clear(ReplicaId(2))])));
    assert!(other.refresh());
    for vm in [&leader, &other] {
        assert_eq!(vm.score("c"), None);
        assert_eq!(vm.mirror.residents(), 0);
    }
}
