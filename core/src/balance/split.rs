//! The split of a route's requests among groups of targets.

use fastrand::Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The group, by its place, whose part of the requests this one falls into, given the parts in per
/// cent. Requests of one session fall into the same part, as long as the parts are the same. Each
/// route has a seed, so that a session is not in the same part of every split.
pub fn split(
    percents: impl IntoIterator<Item = u32>,
    session: Option<u64>,
    seed: u64,
    rng: &mut Rng,
) -> usize {
    let point = match session {
        // The high half of a product, on which all bits of the hash have an influence.
        Some(session) => {
            let hash = xxh3_64_with_seed(&session.to_le_bytes(), seed);
            (u128::from(hash) * 100) >> 64
        }
        None => rng.u128(..100),
    };
    let ends = percents.into_iter().scan(0_u128, |end, percent| {
        *end += u128::from(percent);
        Some(*end)
    });
    let before = ends.take_while(|&end| end <= point);
    before.count()
}
