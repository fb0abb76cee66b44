//! A subscriber with a decoder of its own, and the dumbest model of what an engine caches.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use rmpv::Value;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

/// How long something that must come may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A publication as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) topic: Bytes,
    pub(crate) sequence: u64,
    pub(crate) payload: Bytes,
}

impl Frames {
    pub(crate) fn of(frames: &[Bytes]) -> Self {
        let [topic, sequence, payload] = frames else {
            panic!("{} frames", frames.len());
        };
        let sequence = sequence.as_ref().try_into().expect("8 bytes");
        Self {
            topic: topic.clone(),
            sequence: u64::from_be_bytes(sequence),
            payload: payload.clone(),
        }
    }

    /// The events, and the rank.
    pub(crate) fn events(&self) -> (Vec<Event>, u64) {
        let mut rest = self.payload.as_ref();
        let batch = rmpv::decode::read_value(&mut rest).expect("msgpack");
        assert!(rest.is_empty(), "bytes after the payload");
        let batch = batch.as_array().expect("an array");
        assert!(batch[0].is_f64(), "the time {}", batch[0]);
        let events = batch[1].as_array().expect("events");
        let rank = batch[2].as_u64().expect("a rank");
        (events.iter().map(Event::of).collect(), rank)
    }
}

/// A name of a block, as text.
pub(crate) type Name = String;

/// One event, whatever form it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Stored {
        names: Vec<Name>,
        parent: Option<Name>,
        tokens: Vec<u64>,
        block_size: usize,
        lora: Option<String>,
        extra_keys: Vec<Option<Vec<String>>>,
    },
    Removed(Vec<Name>),
    Cleared,
}

/// Fields of a stored block after the tag, in the order of an array.
const STORED: [&str; 11] = [
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
    "kv_cache_spec_sliding_window",
];
const REMOVED: [&str; 3] = ["block_hashes", "medium", "group_idx"];

/// A field of an event by its name.
type Field<'a> = Box<dyn Fn(&str) -> Value + 'a>;

impl Event {
    fn of(event: &Value) -> Self {
        let (tag, field): (&str, Field<'_>) = match event {
            Value::Array(row) => {
                let tag = row[0].as_str().expect("a tag");
                let names: &[&str] = match tag {
                    "BlockStored" => &STORED,
                    "BlockRemoved" => &REMOVED,
                    _ => &[],
                };
                assert_eq!(row.len(), names.len() + 1, "{event}");
                let field = |name: &str| {
                    let place = names.iter().position(|known| *known == name);
                    row[place.expect(name) + 1].clone()
                };
                (tag, Box::new(field))
            }
            Value::Map(pairs) => {
                let field = |name: &str| {
                    let pair = pairs.iter().find(|(key, _)| key.as_str() == Some(name));
                    pair.map_or(Value::Nil, |(_, value)| value.clone())
                };
                let tag = pairs.iter().find(|(key, _)| key.as_str() == Some("type"));
                (
                    tag.expect("a type").1.as_str().expect("text"),
                    Box::new(field),
                )
            }
            other => panic!("an event {other}"),
        };
        let names = || list(&field("block_hashes")).iter().map(name).collect();
        if tag != "AllBlocksCleared" {
            assert_eq!(field("medium").as_str(), Some("GPU"));
            assert_eq!(field("group_idx").as_u64(), Some(0));
        }
        match tag {
            "BlockStored" if !field("kv_cache_spec_sliding_window").is_nil() => {
                panic!("a sliding window")
            }
            "BlockStored" => Self::Stored {
                names: names(),
                parent: Some(field("parent_block_hash"))
                    .filter(|parent| !parent.is_nil())
                    .map(|parent| name(&parent)),
                tokens: list(&field("token_ids"))
                    .iter()
                    .map(|token| token.as_u64().expect("a token id"))
                    .collect(),
                block_size: usize::try_from(field("block_size").as_u64().expect("a size"))
                    .expect("a small size"),
                lora: field("lora_name").as_str().map(str::to_owned),
                extra_keys: list(&field("extra_keys"))
                    .iter()
                    .map(|keys| (!keys.is_nil()).then(|| list(keys).iter().map(text).collect()))
                    .collect(),
            },
            "BlockRemoved" => Self::Removed(names()),
            "AllBlocksCleared" => Self::Cleared,
            other => panic!("an event of the type {other}"),
        }
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn name(value: &Value) -> Name {
    match value {
        Value::Integer(hash) => hash.as_u64().expect("unsigned").to_string(),
        Value::Binary(hash) => {
            assert_eq!(hash.len(), 32);
            format!("{hash:02x?}")
        }
        other => panic!("a hash {other}"),
    }
}

/// What a block is, apart from its name: all tokens up to its end, adapter and extra keys.
type Identity = (Vec<u64>, Option<String>, Vec<String>);

/// What one rank has, as its events tell it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    blocks: HashMap<Name, Identity>,
    known: HashSet<Identity>,
    block_size: usize,
    pub(crate) removed: usize,
}

impl Model {
    pub(crate) fn apply(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Stored {
                    names,
                    parent,
                    tokens,
                    block_size,
                    lora,
                    extra_keys,
                } => {
                    assert_eq!(tokens.len(), names.len() * block_size);
                    assert_eq!(extra_keys.len(), names.len());
                    self.block_size = *block_size;
                    let mut identity = match parent {
                        Some(parent) => self.blocks[parent].clone(),
                        None => (Vec::new(), lora.clone(), Vec::new()),
                    };
                    let blocks = tokens.chunks(*block_size).zip(extra_keys);
                    for (name, (tokens, keys)) in names.iter().zip(blocks) {
                        identity.0.extend(tokens);
                        let keys = keys.iter().flatten();
                        let salt = keys.filter(|key| Some(*key) != lora.as_ref());
                        identity.2.extend(salt.cloned());
                        self.blocks.insert(name.clone(), identity.clone());
                        self.known.insert(identity.clone());
                    }
                }
                Event::Removed(names) => {
                    for name in names {
                        let gone = self.blocks.remove(name).expect("a block that was stored");
                        self.known.remove(&gone);
                        self.removed += 1;
                    }
                }
                Event::Cleared => {
                    self.blocks.clear();
                    self.known.clear();
                }
            }
        }
    }

    /// The prompt tokens that the engine will find in its cache.
    pub(crate) fn cached_tokens(
        &self,
        tokens: &[u64],
        lora: Option<&str>,
        salt: Option<&str>,
    ) -> usize {
        let size = self.block_size.max(1);
        let salt: Vec<_> = salt.map(str::to_owned).into_iter().collect();
        let has = |blocks: &usize| {
            let prefix = tokens[..blocks * size].to_vec();
            self.known
                .contains(&(prefix, lora.map(str::to_owned), salt.clone()))
        };
        let findable = (tokens.len() - 1) / size;
        (1..=findable).take_while(has).count() * size
    }
}

/// A subscriber that reads one rank's events in order.
pub(crate) struct Subscriber {
    socket: SubSocket,
}

impl Subscriber {
    pub(crate) async fn connect(endpoint: &str, topic: &str) -> Self {
        let mut socket = SubSocket::new();
        socket.subscribe(topic).await.expect("a subscription");
        socket.connect(endpoint).await.expect("a publisher");
        Self { socket }
    }

    /// One that binds, and where.
    pub(crate) async fn bind() -> (Self, String) {
        let mut socket = SubSocket::new();
        socket.subscribe("").await.expect("a subscription");
        let endpoint = socket.bind("tcp://127.0.0.1:0").await.expect("a port");
        (Self { socket }, endpoint.to_string())
    }

    pub(crate) async fn next(&mut self) -> Frames {
        let message = timeout(PATIENCE, self.socket.recv()).await;
        let message = message.expect("a publication in time").expect("a message");
        Frames::of(&message.into_vec())
    }

    /// The next one if it comes within a moment.
    pub(crate) async fn try_next(&mut self) -> Option<Frames> {
        let message = timeout(Duration::from_millis(100), self.socket.recv()).await;
        let message = message.ok()?.expect("a message");
        Some(Frames::of(&message.into_vec()))
    }
}

/// Who asks for replays.
pub(crate) struct Asker {
    socket: DealerSocket,
}

impl Asker {
    pub(crate) async fn connect(endpoint: &str) -> Self {
        let mut socket = DealerSocket::new();
        socket.connect(endpoint).await.expect("a replay socket");
        Self { socket }
    }

    pub(crate) async fn ask(&mut self, frames: &[&[u8]]) {
        let mut message = ZmqMessage::from(Bytes::copy_from_slice(frames[0]));
        for frame in &frames[1..] {
            message.push_back(Bytes::copy_from_slice(frame));
        }
        self.socket.send(message).await.expect("a request");
    }

    /// The frames of the next answer, without the delimiter, if one comes.
    pub(crate) async fn answer(&mut self, patience: Duration) -> Option<Vec<Bytes>> {
        let message = timeout(patience, self.socket.recv()).await.ok()?;
        let mut frames = message.expect("a message").into_vec();
        assert!(frames.remove(0).is_empty(), "the delimiter");
        Some(frames)
    }

    /// All publications from `start` on, and the frames of the end marker.
    pub(crate) async fn replay(&mut self, start: u64) -> (Vec<Vec<Bytes>>, Vec<Bytes>) {
        self.ask(&[b"", &start.to_be_bytes()]).await;
        let mut answers = Vec::new();
        loop {
            let answer = self.answer(PATIENCE).await.expect("an answer in time");
            if answer[answer.len() - 2].as_ref() == [0xff; 8] {
                return (answers, answer);
            }
            answers.push(answer);
        }
    }
}
