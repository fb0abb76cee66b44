//! The table of all ranks' blocks against a set for each.

use super::super::Media;
use super::super::feed::ReplicaId;
use super::super::identity::Identity;
use super::super::residents::Residents;
use proptest::prelude::*;
use std::collections::BTreeMap;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const REPLICAS: u16 = 5;

fn media(bits: u8) -> Media {
    Media::from_bits(bits).unwrap()
}

/// Some in each of a few shards.
fn block(number: u64) -> Identity {
    Identity((number % 3) << 56 | number)
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u64, u8),
    Clear(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        // Without any kind of memory it is gone.
        30 => (0..REPLICAS, 0..24_u64, 0..8_u8).prop_map(|(replica, block, bits)| Step::Put(replica, block, bits)),
        20 => (0..REPLICAS, 0..24_u64).prop_map(|(replica, block)| Step::Put(replica, block, 0)),
        1 => (0..REPLICAS).prop_map(Step::Clear),
    ];
    prop::collection::vec(step, 1..300)
}

#[derive(Default)]
struct Model([BTreeMap<u64, Media>; REPLICAS as usize]);

impl Model {
    fn len(&self) -> usize {
        self.0.iter().map(BTreeMap::len).sum()
    }

    /// How many of a prompt's blocks a replica has, from the first on.
    fn follow(&self, replica: usize, prompt: &[Identity]) -> Vec<Media> {
        let known = prompt.iter();
        let known = known.map_while(|block| self.0[replica].get(&block.0).copied());
        known.collect()
    }
}

proptest! {
    #[test]
    fn the_table_knows_what_a_set_for_each_replica_knows(
        steps in steps(), max in 1..60_usize, prompt in prop::collection::vec(0..24_u64, 0..12),
    ) {
        let mut table = Residents::new(max);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Clear(replica) => {
                    table.clear(ReplicaId(replica));
                    model.0[usize::from(replica)].clear();
                }
                Step::Put(replica, number, bits) => {
                    let is_full = model.len() >= max;
                    let known = &mut model.0[usize::from(replica)];
                    let is_known = known.contains_key(&block(number).0);
                    let fits = bits == 0 || is_known || !is_full;
                    prop_assert_eq!(table.put(ReplicaId(replica), block(number), media(bits)), fits);
                    if bits == 0 {
                        known.remove(&block(number).0);
                    } else if fits {
                        known.insert(block(number).0, media(bits));
                    }
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let prompt: Vec<_> = prompt.into_iter().map(block).collect();
        let mut found = vec![Vec::new(); REPLICAS.into()];
        table.follow(prompt.iter().copied(), |place, ReplicaId(replica), media| {
            let found = &mut found[usize::from(replica)];
            let has_all = found.len() == place;
            if has_all {
                found.push(media);
            }
            has_all
        });
        for replica in 0..REPLICAS {
            let (id, number) = (ReplicaId(replica), usize::from(replica));
            let listed: BTreeMap<_, _> = table.iter(id).map(|(block, media)| (block.0, media)).collect();
            prop_assert_eq!(&listed, &model.0[number]);
            prop_assert_eq!(table.count(id), listed.len());
            prop_assert_eq!(&found[number], &model.follow(number, &prompt));
            for block in (0..24).map(block) {
                prop_assert_eq!(table.get(id, block), model.0[number].get(&block.0).copied());
            }
        }
    }
}
