use super::*;
use crate::balance::few::{Few, MOST};
use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The ids of the least, by keys that are given for targets from zero on.
fn least(keys: &[u32], count: usize, rng: &mut Rng) -> Vec<u16> {
    let targets = TargetSet::first(keys.len());
    let few = Few::of(targets, count, |target| keys[target.index()], rng);
    few.iter().map(|TargetId(id)| id).collect()
}

#[test]
fn the_least_come_least_first_however_they_are_offered() {
    let mut rng = Rng::with_seed(1);
    for keys in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 1, 5, 2, 4]] {
        let mut order = [0, 1, 2, 3, 4];
        order.sort_by_key(|&id| keys[usize::from(id)]);
        for count in 0..=MOST {
            assert_eq!(least(&keys, count, &mut rng), order[..count], "{keys:?}");
        }
    }
}

#[test]
fn there_are_no_more_than_there_are_targets_or_places() {
    let mut rng = Rng::with_seed(1);
    assert!(least(&[], MOST, &mut rng).is_empty());
    assert_eq!(least(&[7], MOST, &mut rng), [0]);
    assert_eq!(least(&[7, 6], MOST, &mut rng), [1, 0]);
    assert_eq!(least(&[0; 20], 1_000, &mut rng).len(), MOST);
    assert_eq!(Few::<u32>::new(MOST).first(), None);
}

#[test]
fn equal_ones_come_in_any_order_each_as_likely() {
    const ROUNDS: usize = 12_000;
    let mut rng = Rng::with_seed(3);
    // Behind a less one, which is always first, and with one that never comes.
    let keys = [1, 1, 0, 1, 2, 1];
    let equal = [0, 1, 3, 5];
    let mut came = [[0_usize; 6]; 2];
    for _ in 0..ROUNDS {
        let ids = least(&keys, 3, &mut rng);
        assert_eq!(ids[0], 2);
        assert_ne!(ids[1], ids[2]);
        for (count, id) in came.iter_mut().zip(&ids[1..]) {
            count[usize::from(*id)] += 1;
        }
    }
    for counts in came {
        let share = ROUNDS / equal.len();
        let near = |&id: &usize| counts[id].abs_diff(share) < share / 10;
        assert!(equal.iter().all(near), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), ROUNDS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same keys as by sorting, of different targets.
    #[test]
    fn they_are_what_sorting_would_put_first(
        keys in prop::collection::vec(0_u32..6, 0..40),
        count in 0_usize..8,
        seed in 0_u64..1_000,
    ) {
        let ids = least(&keys, count, &mut Rng::with_seed(seed));
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.truncate(count.min(MOST));
        let of: Vec<u32> = ids.iter().map(|&id| keys[usize::from(id)]).collect();
        prop_assert_eq!(of, sorted);
        let mut different = ids.clone();
        different.sort_unstable();
        different.dedup();
        prop_assert!(different.len() == ids.len());
    }
}
