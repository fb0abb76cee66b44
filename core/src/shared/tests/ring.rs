//! What is written into a ring, and who reads it.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

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
        assert_eq!(writer.append(&host, &record), len <= MAX_RECORD_BYTES);
        writer.flush(&host);
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
            writer.append(&host, &[life, record]);
        }
        writer.flush(&host);
    }
    let mut read = Vec::new();
    reader.read(&host, 1, usize::MAX, |record| read.push(record.to_vec()));
    assert_eq!(read.len(), 15);
    assert_eq!(reader.lost(), 0);
}

/// The records that a VM reads now.
fn read_by(vm: &mut Vm) -> usize {
    let mut records = 0;
    vm.worker.read(&vm.host, usize::MAX, |_| records += 1);
    records
}

#[test]
fn nobody_reads_its_own_records_again() {
    let world = World::new(0, false);
    let (mut vm, mut other) = (Vm::new(&world, 1), Vm::new(&world, 2));
    vm.beat();
    // The first of all, before it has read anything.
    vm.publish(10);
    assert_eq!(read_by(&mut vm), 0);
    for _ in 0..10 {
        vm.publish(SEGMENT_BYTES / 2);
        assert_eq!(read_by(&mut vm), 0);
    }
    // Slow for once, it takes a slot anew.
    beat_together(std::slice::from_mut(&mut other), SETTLED);
    vm.beat();
    vm.publish(10);
    assert_eq!(read_by(&mut vm), 0);
    // Nor does it miss what others tell, who read all of this.
    assert_eq!(read_by(&mut other), 12);
    other.publish(10);
    assert_eq!(read_by(&mut vm), 1);
    assert_eq!((vm.worker.lost(), other.worker.lost()), (0, 0));
}

#[test]
fn what_is_appended_is_heard_once_it_is_flushed() {
    let world = World::new(0, false);
    let mut vms = [Vm::new(&world, 1), Vm::new(&world, 2)];
    beat_together(&mut vms, 1);
    let heard = |vm: &mut Vm| {
        let mut records = Vec::new();
        assert!(vm.worker.read(&vm.host, usize::MAX, |record| {
            records.push(record.to_vec());
        }));
        records
    };
    let [writer, reader] = &mut vms;
    // More than a segment holds.
    for len in [20, SEGMENT_BYTES / 2, SEGMENT_BYTES / 2, 20] {
        assert!(writer.worker.append(&writer.host, &vec![0; len]));
        assert!(heard(writer).is_empty());
    }
    assert!(heard(reader).len() < 4);
    writer.worker.flush(&writer.host);
    assert_eq!(heard(reader).last().map(Vec::len), Some(20));
    assert_eq!(reader.worker.lost(), 0);
    assert!(heard(writer).is_empty());
    writer.worker.flush(&writer.host);
    assert!(heard(reader).is_empty());
}
