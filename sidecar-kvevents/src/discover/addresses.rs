//! Who is at a name, by the answers to the question for its addresses.
//!
//! Invariant: there are [`MAX_MEMBERS`] at most. One that the name has is never given up for another.
//! One that it has no more stays for [`LINGER`], unless somebody needs the room.

use rolter_core::target::MAX_TARGETS;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// As many as a route has targets; a bound for what a wrong answer can cost.
pub const MAX_MEMBERS: usize = MAX_TARGETS;
/// An engine that is not ready for a moment comes back to what it has, within so long.
pub const LINGER: Duration = Duration::from_mins(1);

/// The addresses of a name.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// In the order in which they came.
    known: Vec<Known>,
    passed_over: usize,
}

#[derive(Debug)]
struct Known {
    address: IpAddr,
    /// Since when the name does not have it.
    gone_at: Option<Instant>,
}

/// What becomes of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// They are there for the first time.
    pub(super) came: Vec<IpAddr>,
    /// The name has them again.
    pub(super) back: Vec<IpAddr>,
    /// The name does not have them any more.
    pub(super) gone: Vec<IpAddr>,
    /// They are to be forgotten. Where somebody needs the room, they were there until now.
    pub(super) forgotten: Vec<IpAddr>,
}

impl Addresses {
    /// Takes in an answer, with some addresses in it.
    pub(super) fn told(&mut self, answer: &BTreeSet<IpAddr>, now: Instant) -> Changes {
        let mut changes = Changes::default();
        for known in &mut self.known {
            let address = known.address;
            match (answer.contains(&address), known.gone_at) {
                (true, Some(_)) => {
                    known.gone_at = None;
                    changes.back.push(address);
                }
                (false, None) => {
                    known.gone_at = Some(now);
                    changes.gone.push(address);
                }
                _ => {}
            }
        }
        let is_known = |address: &IpAddr| self.known.iter().any(|known| known.address == *address);
        let newcomers: Vec<IpAddr> = answer
            .iter()
            .filter(|address| !is_known(address))
            .copied()
            .collect();
        self.passed_over = 0;
        for address in newcomers {
            if self.known.len() >= MAX_MEMBERS {
                let Some(forgotten) = self.make_room() else {
                    self.passed_over += 1;
                    continue;
                };
                changes.gone.retain(|&gone| gone != forgotten);
                changes.forgotten.push(forgotten);
            }
            self.known.push(Known {
                address,
                gone_at: None,
            });
            changes.came.push(address);
        }
        changes
    }

    /// Forgets those that have been gone for long enough.
    pub(super) fn expire(&mut self, now: Instant) -> Changes {
        let is_over = |known: &mut Known| known.gone_at.is_some_and(|at| now >= at + LINGER);
        let over = self.known.extract_if(.., is_over);
        Changes {
            forgotten: over.map(|known| known.address).collect(),
            ..Changes::default()
        }
    }

    /// When the next is to be forgotten.
    pub(super) fn due(&self) -> Option<Instant> {
        let gone = self.known.iter().filter_map(|known| known.gone_at);
        gone.min().map(|at| at + LINGER)
    }

    /// How many addresses of the last answer there was no room for.
    pub(super) fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Forgets the one that has been gone for longest.
    fn make_room(&mut self) -> Option<IpAddr> {
        let gone = self.known.iter().enumerate();
        let gone = gone.filter_map(|(place, known)| Some((known.gone_at?, place)));
        let (_, place) = gone.min()?;
        Some(self.known.remove(place).address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap()).into()
    }

    fn ips(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<IpAddr> {
        numbers.into_iter().map(ip).collect()
    }

    fn changes<const CAME: usize, const BACK: usize, const GONE: usize, const OVER: usize>(
        came: [usize; CAME],
        back: [usize; BACK],
        gone: [usize; GONE],
        forgotten: [usize; OVER],
    ) -> Changes {
        Changes {
            came: came.map(ip).into(),
            back: back.map(ip).into(),
            gone: gone.map(ip).into(),
            forgotten: forgotten.map(ip).into(),
        }
    }

    #[test]
    fn one_that_is_gone_is_forgotten_a_minute_later_unless_it_is_back() {
        let (mut addresses, start) = (Addresses::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        let came = addresses.told(&ips([2, 1]), at(0));
        assert_eq!(came, changes([1, 2], [], [], []));
        assert_eq!(addresses.told(&ips([1, 2]), at(5)), Changes::default());
        assert_eq!(addresses.due(), None);
        let gone = addresses.told(&ips([2]), at(10));
        assert_eq!(gone, changes([], [], [1], []));
        assert_eq!(addresses.told(&ips([2]), at(15)), Changes::default());
        assert_eq!(addresses.due(), Some(at(70)));
        assert_eq!(addresses.expire(at(69)), Changes::default());
        let back = addresses.told(&ips([1, 2]), at(69));
        assert_eq!(back, changes([], [1], [], []));
        assert_eq!(addresses.expire(at(200)), Changes::default());
        let all = addresses.told(&ips([3]), at(201));
        assert_eq!(all, changes([3], [], [1, 2], []));
        let forgotten = addresses.expire(at(261));
        assert_eq!(forgotten, changes([], [], [], [1, 2]));
        let again = addresses.told(&ips([1, 3]), at(262));
        assert_eq!(again, changes([1], [], [], []));
    }

    #[test]
    fn newcomers_beyond_the_bound_are_passed_over_until_there_is_room() {
        let (mut addresses, now) = (Addresses::default(), Instant::now());
        // Those that are there stay, wherever they are in the order of addresses.
        addresses.told(&ips(10..10 + MAX_MEMBERS), now);
        let more = addresses.told(&ips(0..10 + MAX_MEMBERS), now);
        assert_eq!((more, addresses.passed_over()), (Changes::default(), 10));
        // One that is gone gives way at once.
        let without = ips((0..11 + MAX_MEMBERS).filter(|&number| number != 12));
        let one = addresses.told(&without, now);
        let expected = changes([0], [], [], [12]);
        assert_eq!((one, addresses.passed_over()), (expected, 10));
        // All others: as many as before.
        let all = addresses.told(&ips(1_000..1_000 + MAX_MEMBERS), now);
        assert_eq!(
            (all.came.len(), all.forgotten.len()),
            (MAX_MEMBERS, MAX_MEMBERS)
        );
        assert!(all.gone.is_empty());
        assert_eq!((addresses.passed_over(), addresses.due()), (0, None));
    }
}
