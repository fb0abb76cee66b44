//! Where a reader of the feed is.

use rolter_core::kv::feed::{Cursor, NoCursor};
use std::fmt;
use std::str::FromStr;

/// Where a reader of the feed is: what it has been told of the blocks, and of everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedCursor {
    /// In the changes of blocks.
    pub blocks: Cursor,
    /// Of everything else; a new one with each change.
    pub version: u64,
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.version, self.blocks)
    }
}

impl FromStr for FeedCursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (version, blocks) = text.split_once('.').ok_or(NoCursor)?;
        Ok(Self {
            blocks: blocks.parse()?,
            version: u64::from_str_radix(version, 16).map_err(|_| NoCursor)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        for text in ["0.1-2", "ff.1-2-3-4"] {
            let cursor: FeedCursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        for text in ["", "1-2", ".1-2", "1.", "1.1", "x.1-2", "1.1.1-2", "1-2.1"] {
            assert!(text.parse::<FeedCursor>().is_err(), "{text}");
        }
    }
}
