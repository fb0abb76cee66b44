//! A board as bytes. By hand, as each VM reads it some hundred times a second, and there may be as many
//! replicas as a route has targets.

use super::board::{Board, Replica, Target};
use super::log::{Log, Place};
use crate::time::Millis;

/// Stands for a time where there is none, and for a number of records where there is no such place.
const NO_TIME: u64 = u64::MAX;
const NO_RECORDS: u32 = u32::MAX;

/// What the shared data get.
pub(super) fn write(board: &Board) -> Vec<u8> {
    let mut to = Vec::with_capacity(64 * (1 + board.replicas.len() + board.targets.len()));
    to.extend(board.leader.to_le_bytes());
    to.push(board.slot);
    to.extend(board.seed.to_le_bytes());
    for count in [
        board.replicas.len(),
        board.targets.len(),
        board.adapters.len(),
    ] {
        to.extend((count as u64).to_le_bytes());
    }
    for replica in &board.replicas {
        write_replica(replica, &mut to);
    }
    for target in &board.targets {
        write_target(target, &mut to);
    }
    to.extend(board.adapters.iter().flat_map(|name| name.to_le_bytes()));
    to
}

/// Nothing where it is no board.
pub(super) fn read(mut from: &[u8]) -> Option<Board> {
    let from = &mut from;
    let leader = read_u64(from)?;
    let [slot] = take(from)?;
    let seed = read_u64(from)?;
    let [replicas, targets, adapters] = [read_u64(from)?, read_u64(from)?, read_u64(from)?];
    let board = Board {
        leader,
        slot,
        seed,
        replicas: (0..replicas)
            .map(|_| read_replica(from))
            .collect::<Option<_>>()?,
        targets: (0..targets)
            .map(|_| read_target(from))
            .collect::<Option<_>>()?,
        adapters: (0..adapters)
            .map(|_| read_u64(from))
            .collect::<Option<_>>()?,
    };
    from.is_empty().then_some(board)
}

fn write_replica(replica: &Replica, to: &mut Vec<u8>) {
    let Log { now, before } = replica.log;
    let nowhere = Place {
        epoch: 0,
        records: NO_RECORDS,
    };
    let (before, begins) = before.unwrap_or((nowhere, 0));
    to.extend(replica.target.to_le_bytes());
    to.extend(replica.rank.to_le_bytes());
    to.extend(replica.block_size.to_le_bytes());
    write_time(replica.alive, to);
    for place in [now, before] {
        to.extend(place.epoch.to_le_bytes());
        to.extend(place.records.to_le_bytes());
    }
    to.extend(begins.to_le_bytes());
}

fn read_replica(from: &mut &[u8]) -> Option<Replica> {
    Some(Replica {
        target: read_u64(from)?,
        rank: take(from).map(u16::from_le_bytes)?,
        block_size: read_u32(from)?,
        alive: time(read_u64(from)?),
        log: {
            let (now, before, begins) = (read_place(from)?, read_place(from)?, read_u32(from)?);
            let before = (before.records != NO_RECORDS).then_some((before, begins));
            Log { now, before }
        },
    })
}

fn read_place(from: &mut &[u8]) -> Option<Place> {
    Some(Place {
        epoch: read_u64(from)?,
        records: read_u32(from)?,
    })
}

fn write_target(target: &Target, to: &mut Vec<u8>) {
    let (requests, said) = target.load.unzip();
    let (room, measured) = target.room.unzip();
    to.extend(target.name.to_le_bytes());
    to.extend(requests.unwrap_or(0).to_le_bytes());
    write_time(said, to);
    write_time(target.ill, to);
    to.extend(room.unwrap_or(0.0).to_le_bytes());
    write_time(measured, to);
}

fn read_target(from: &mut &[u8]) -> Option<Target> {
    Some(Target {
        name: read_u64(from)?,
        load: {
            let (requests, said) = (read_u32(from)?, read_u64(from)?);
            time(said).map(|said| (requests, said))
        },
        ill: time(read_u64(from)?),
        room: {
            let (room, measured) = (take(from).map(f64::from_le_bytes)?, read_u64(from)?);
            time(measured).map(|measured| (room, measured))
        },
    })
}

fn write_time(time: Option<Millis>, to: &mut Vec<u8>) {
    let time = time.map_or(NO_TIME, |Millis(time)| time);
    to.extend(time.to_le_bytes());
}

fn time(read: u64) -> Option<Millis> {
    (read != NO_TIME).then_some(Millis(read))
}

fn read_u64(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_le_bytes)
}

fn read_u32(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// Takes the first bytes off.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (&bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(bytes)
}
