//! What an engine publishes: a msgpack batch of events, in each form that engines use.
//!
//! An event is a tagged array (to vLLM 0.23) or a map with a `type` (from 0.24). Arrays may stop
//! early or have more than is known here, maps may have any order and unknown keys, and events of
//! unknown types are passed over. Everything else is malformed, and then nothing of the batch counts.
//!
//! Invariant: nothing is allocated for what a payload claims to have, only for what it has.

use super::msgpack::{Malformed, Reader, Value};
use xxhash_rust::xxh3::xxh3_64;

/// What one publication has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The engine's data-parallel rank, where it tells.
    pub rank: Option<u32>,
    /// In the order in which they happened.
    pub events: Vec<Event<'a>>,
}

/// What has happened in an engine's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Blocks are there.
    Stored(Stored<'a>),
    /// Copies of blocks are not there any more.
    Removed(Removed<'a>),
    /// Nothing is there any more.
    Cleared,
    /// Something else, which engines of another version tell.
    Unknown,
}

/// Blocks that follow one another in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The engine's names for them.
    pub hashes: Vec<BlockHash<'a>>,
    /// The name of the one before them, where there is one.
    pub parent: Option<BlockHash<'a>>,
    /// The tokens of all of them, [`block_size`](Self::block_size) each and perhaps more behind them;
    /// none where they were announced before, in another medium.
    pub token_ids: Vec<u32>,
    /// Tokens of each; above zero where there are token ids.
    pub block_size: u32,
    /// The number of the `LoRA` adapter that they are for.
    pub lora_id: Option<u64>,
    /// The name of the `LoRA` adapter that they are for. Old engines tell none.
    pub lora_name: Option<&'a str>,
    /// The kind of memory, in the engine's words.
    pub medium: Option<&'a str>,
    /// What else sets them apart, by block, where the engine tells.
    pub extra_keys: Option<Vec<ExtraKeys>>,
    /// The group of layers, for a model with several.
    pub group_idx: Option<u32>,
    /// To what these layers attend, in the engine's words; `full_attention` where it is all.
    pub spec_kind: Option<&'a str>,
}

/// Blocks of which a copy is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed<'a> {
    /// The engine's names for them.
    pub hashes: Vec<BlockHash<'a>>,
    /// The kind of memory, in the engine's words.
    pub medium: Option<&'a str>,
    /// The group of layers, for a model with several.
    pub group_idx: Option<u32>,
}

/// An engine's name for a block, from which nothing can be concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHash<'a> {
    /// 64 bits. Some old builds have them as a signed number.
    Int(u64),
    /// As many bytes as the engine likes.
    Bytes(&'a [u8]),
}

impl BlockHash<'_> {
    /// The name in 64 bits. As far as chance goes no two names of an engine have it in common: an
    /// engine uses either numbers or bytes.
    pub fn name(&self) -> u64 {
        match self {
            Self::Int(number) => *number,
            Self::Bytes(bytes) => xxh3_64(bytes),
        }
    }
}

/// What sets a block apart beside its tokens: images, a salt, an adapter. Equal keys are equal bytes,
/// in a form of its own; nothing where there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraKeys(Vec<u8>);

impl ExtraKeys {
    /// Those of the first block of a request with this salt.
    pub fn of_salt(salt: &str) -> Self {
        let mut keys = Self::default();
        Value::Text(salt).write(&mut keys.0);
        keys
    }

    /// The bytes without the name of the adapter that the block is for. Engines tell it here as
    /// well, before anything else, and a block must not be set apart by it twice.
    pub fn beside(&self, lora_name: Option<&str>) -> &[u8] {
        let mut name = Vec::new();
        if let Some(lora_name) = lora_name {
            Value::Text(lora_name).write(&mut name);
        }
        self.0.strip_prefix(&*name).unwrap_or(&self.0)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut keys = Self::default();
        let count = match reader.value()? {
            Value::Nil => 0,
            Value::Array(count) => count,
            _ => return Err(Malformed("extra keys that are no list")),
        };
        reader.values(count, |value| value.write(&mut keys.0))?;
        Ok(keys)
    }
}

/// Decodes a payload.
///
/// # Errors
/// Where any part of it is malformed, or something follows it.
pub fn decode(payload: &[u8]) -> Result<Batch<'_>, Malformed> {
    let mut reader = Reader::new(payload);
    let count = reader.array("a batch that is no list")?;
    if count < 2 {
        return Err(Malformed("a batch without events"));
    }
    if !matches!(
        reader.value()?,
        Value::Float(_) | Value::Unsigned(_) | Value::Negative(_)
    ) {
        return Err(Malformed("a timestamp that is no number"));
    }
    let events = reader.list("events that are no list", read_event)?;
    let rank = match count {
        2 => None,
        _ => reader.number("a rank that is no number")?,
    };
    reader.skip(u64::from(count.saturating_sub(3)))?;
    reader.end()?;
    Ok(Batch { rank, events })
}

/// The fields of both events that have any, behind the tag in this order. An event of an older
/// release stops earlier, one of a newer has more.
const STORED: &[&str] = &[
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
];
const REMOVED: &[&str] = &["block_hashes", "medium", "group_idx"];

fn read_event<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, Malformed> {
    match reader.value()? {
        Value::Array(count) if count > 0 => {
            let Value::Text(tag) = reader.value()? else {
                return Err(Malformed("an event whose tag is no text"));
            };
            let mut fields = Fields::default();
            let mut left = count - 1;
            for name in fields_of(tag).unwrap_or_default() {
                if left > 0 {
                    fields.read(name, reader)?;
                    left -= 1;
                }
            }
            reader.skip(u64::from(left))?;
            fields.event(tag)
        }
        Value::Map(count) => {
            let tag = find_type(&mut reader.clone(), count)?;
            let Some(names) = fields_of(tag) else {
                reader.skip(2 * u64::from(count))?;
                return Ok(Event::Unknown);
            };
            let mut fields = Fields::default();
            for _ in 0..count {
                match reader.value()? {
                    Value::Text(name) if names.contains(&name) => fields.read(name, reader)?,
                    // The rest of a key that is no text, and the value.
                    Value::Array(inside) => reader.skip(u64::from(inside) + 1)?,
                    Value::Map(inside) => reader.skip(2 * u64::from(inside) + 1)?,
                    _ => reader.skip(1)?,
                }
            }
            fields.event(tag)
        }
        _ => Err(Malformed("an event that is neither list nor map")),
    }
}

/// The fields that an event of this type has here. Nothing for an unknown type.
fn fields_of(tag: &str) -> Option<&'static [&'static str]> {
    match tag {
        "BlockStored" => Some(STORED),
        "BlockRemoved" => Some(REMOVED),
        "AllBlocksCleared" => Some(&[]),
        _ => None,
    }
}

/// The type of an event that is a map, which may be anywhere in it.
fn find_type<'a>(reader: &mut Reader<'a>, count: u32) -> Result<&'a str, Malformed> {
    for _ in 0..count {
        match reader.value()? {
            Value::Text("type") => {
                if let Value::Text(tag) = reader.value()? {
                    return Ok(tag);
                }
                break;
            }
            Value::Array(inside) => reader.skip(u64::from(inside) + 1)?,
            Value::Map(inside) => reader.skip(2 * u64::from(inside) + 1)?,
            _ => reader.skip(1)?,
        }
    }
    Err(Malformed("an event without a type"))
}

/// What has been read of an event.
#[derive(Default)]
struct Fields<'a> {
    hashes: Option<Vec<BlockHash<'a>>>,
    parent: Option<BlockHash<'a>>,
    token_ids: Option<Vec<u32>>,
    block_size: Option<u32>,
    lora_id: Option<u64>,
    lora_name: Option<&'a str>,
    medium: Option<&'a str>,
    extra_keys: Option<Vec<ExtraKeys>>,
    group_idx: Option<u32>,
    spec_kind: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn read(&mut self, name: &str, reader: &mut Reader<'a>) -> Result<(), Malformed> {
        match name {
            "block_hashes" => {
                self.hashes = Some(reader.list("hashes that are no list", |reader| {
                    read_hash(reader)?.ok_or(Malformed("a hash that is nil"))
                })?);
            }
            "parent_block_hash" => self.parent = read_hash(reader)?,
            "token_ids" => {
                self.token_ids = Some(reader.list("token ids that are no list", |reader| {
                    let id = reader.number("a token id that is no number")?;
                    id.ok_or(Malformed("a token id that is nil"))
                })?);
            }
            "block_size" => self.block_size = reader.number("a block size that is no number")?,
            "lora_id" => self.lora_id = reader.number("a LoRA id that is no number")?,
            "lora_name" => self.lora_name = reader.text("a LoRA name that is no text")?,
            "medium" => self.medium = reader.text("a medium that is no text")?,
            "extra_keys" => {
                self.extra_keys = reader
                    .optional_list("extra keys that are no list", |reader| {
                        ExtraKeys::read(reader)
                    })?;
            }
            "group_idx" => self.group_idx = reader.number("a group that is no number")?,
            "kv_cache_spec_kind" => self.spec_kind = reader.text("a kind that is no text")?,
            _ => reader.skip(1)?,
        }
        Ok(())
    }

    fn event(self, tag: &str) -> Result<Event<'a>, Malformed> {
        Ok(match tag {
            "BlockStored" => Event::Stored(self.stored()?),
            "BlockRemoved" => Event::Removed(Removed {
                hashes: self.hashes.ok_or(NO_HASHES)?,
                medium: self.medium,
                group_idx: self.group_idx,
            }),
            "AllBlocksCleared" => Event::Cleared,
            _ => Event::Unknown,
        })
    }

    fn stored(self) -> Result<Stored<'a>, Malformed> {
        let missing = Malformed("stored blocks without token ids or block size");
        let stored = Stored {
            hashes: self.hashes.ok_or(NO_HASHES)?,
            parent: self.parent,
            token_ids: self.token_ids.ok_or(missing)?,
            block_size: self.block_size.ok_or(missing)?,
            lora_id: self.lora_id,
            lora_name: self.lora_name,
            medium: self.medium,
            extra_keys: self.extra_keys,
            group_idx: self.group_idx,
            spec_kind: self.spec_kind,
        };
        let blocks = stored.hashes.len();
        if !stored.token_ids.is_empty() {
            let enough = u64::from(stored.block_size).saturating_mul(blocks as u64);
            if (blocks > 0 && stored.block_size == 0) || (stored.token_ids.len() as u64) < enough {
                return Err(Malformed("fewer token ids than its blocks have"));
            }
            let keys = stored.extra_keys.as_ref();
            if keys.is_some_and(|keys| keys.len() < blocks) {
                return Err(Malformed("fewer extra keys than blocks"));
            }
        }
        Ok(stored)
    }
}

const NO_HASHES: Malformed = Malformed("an event without block hashes");

fn read_hash<'a>(reader: &mut Reader<'a>) -> Result<Option<BlockHash<'a>>, Malformed> {
    Ok(Some(match reader.value()? {
        Value::Nil => return Ok(None),
        Value::Unsigned(number) => BlockHash::Int(number),
        Value::Negative(number) => BlockHash::Int(number.cast_unsigned()),
        Value::Bytes(bytes) => BlockHash::Bytes(bytes),
        _ => return Err(Malformed("a hash that is neither number nor bytes")),
    }))
}
