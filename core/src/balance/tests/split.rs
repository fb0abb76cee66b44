//! The split among variants.

use crate::balance::split;
use fastrand::Rng;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use xxhash_rust::xxh3::xxh3_64;

#[test]
fn each_group_gets_its_part_with_and_without_sessions() {
    let mut rng = Rng::with_seed(1);
    for with_session in [false, true] {
        let mut counts = [0; 3];
        for number in 0..10_000_u64 {
            let session = with_session.then(|| xxh3_64(&number.to_le_bytes()));
            counts[split([70, 25, 5], session, 7, &mut rng)] += 1;
        }
        // Five standard deviations of a binomial distribution.
        for (count, percent) in counts.into_iter().zip([70, 25, 5]) {
            let expected = f64::from(percent) * 100.0;
            let deviation = (expected * (100.0 - f64::from(percent)) / 100.0).sqrt();
            let difference = (f64::from(count) - expected).abs();
            assert!(difference < 5.0 * deviation, "{counts:?}");
        }
    }
}

#[test]
fn a_session_stays_in_its_part_and_routes_split_differently() {
    let mut rng = Rng::with_seed(1);
    let mut differ = 0;
    for number in 0..1_000_u64 {
        let session = Some(xxh3_64(&number.to_le_bytes()));
        let part = split([50, 50], session, 7, &mut rng);
        assert_eq!(split([50, 50], session, 7, &mut rng), part);
        differ += usize::from(split([50, 50], session, u64::MAX / 3, &mut rng) != part);
    }
    assert!((300..700).contains(&differ), "{differ}");
}

#[test]
fn all_goes_to_the_only_group() {
    let mut rng = Rng::with_seed(1);
    for session in [None, Some(0), Some(u64::MAX)] {
        assert_eq!(split([100], session, 0, &mut rng), 0);
    }
}
