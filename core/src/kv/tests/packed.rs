//! A board survives the shared data, and nothing else is taken for one.

use crate::kv::board::{Board, Replica, Target};
use crate::kv::log::{Log, Place};
use crate::kv::packed::{read, write};
use crate::time::Millis;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Something is known where the number is odd.
fn board(numbers: &[u32]) -> Board {
    let place = |number: u32| Place {
        epoch: u64::from(number) << 20,
        records: number / 2,
    };
    let time = |number: u32| (number % 2 == 1).then_some(Millis(number.into()));
    let replica = |&number: &u32| Replica {
        target: u64::from(number) << 30,
        rank: 3,
        block_size: number,
        alive: time(number),
        log: Log {
            now: place(number),
            before: time(number).map(|_| (place(number / 2), number)),
        },
    };
    let target = |&number: &u32| Target {
        name: u64::from(number) << 30,
        load: time(number).map(|at| (number, at)),
        ill: time(number / 2),
        room: time(number / 4).map(|at| (0.25, at)),
    };
    Board {
        leader: u64::MAX,
        slot: 200,
        seed: 7,
        replicas: numbers.iter().map(replica).collect(),
        targets: numbers.iter().skip(1).map(target).collect(),
        adapters: numbers.iter().map(|&number| number.into()).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_and_no_part_of_it(
        numbers in prop::collection::vec(any::<u32>(), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let board = board(&numbers);
        let mut bytes = write(&board);
        prop_assert_eq!(read(&bytes), Some(board));
        prop_assert_eq!(read(&bytes[..cut.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(read(&bytes), None);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }
}
