//! What goes wrong with KV events, on request.

use std::fmt;
use std::str::FromStr;

/// Something that goes wrong with one rank's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFault {
    /// `drop=<n>`: the next n publications reach no subscriber. A replay has them.
    Drop(u64),
    /// `lose=<n>`: the next n publications reach nobody, and no replay has them. Where both are
    /// asked for, these come first.
    Lose(u64),
    /// `replay-silent`: the replay socket reads requests and answers none.
    ReplaySilent,
    /// `replay-answers`: the end of that.
    ReplayAnswers,
    /// `publish-again`: all blocks in the cache are announced as stored once more.
    PublishAgain,
    /// `down`: the publishing socket closes, and its subscribers' connections with it. Publications
    /// count on, and a replay has them.
    Down,
    /// `up`: the socket is back, at its old place.
    Up,
}

/// Text that names no fault of KV events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKvFault(
    /// The text.
    pub String,
);

impl fmt::Display for UnknownKvFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a fault of KV events; use drop=<n>, lose=<n>, replay-silent, \
             replay-answers, publish-again, down or up",
            self.0
        )
    }
}

impl std::error::Error for UnknownKvFault {}

impl FromStr for KvFault {
    type Err = UnknownKvFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownKvFault(text.chars().take(64).collect());
        let count = |text: &str| text.parse().map_err(|_| unknown());
        match text.split_once('=') {
            Some(("drop", n)) => Ok(Self::Drop(count(n)?)),
            Some(("lose", n)) => Ok(Self::Lose(count(n)?)),
            Some(_) => Err(unknown()),
            None => match text {
                "replay-silent" => Ok(Self::ReplaySilent),
                "replay-answers" => Ok(Self::ReplayAnswers),
                "publish-again" => Ok(Self::PublishAgain),
                "down" => Ok(Self::Down),
                "up" => Ok(Self::Up),
                _ => Err(unknown()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_other_text_is_none() {
        assert_eq!("drop=3".parse(), Ok(KvFault::Drop(3)));
        assert_eq!("lose=1".parse(), Ok(KvFault::Lose(1)));
        assert_eq!("publish-again".parse(), Ok(KvFault::PublishAgain));
        for text in ["", "drop", "drop=", "drop=-1", "up=1", "sideways"] {
            assert!(text.parse::<KvFault>().is_err(), "{text}");
        }
    }
}
