//! A stand-in for an LLM engine: it speaks the protocols that engines speak, keeps a prefix cache
//! of a fixed size, and takes the time that prefill and decode would take.
//!
//! It shares no code with what it is used to test: its chat template, its tokeniser and its block
//! hashes are its own, as an engine's are.
//!
//! What it models, and what it leaves out:
//!
//! - One accelerator a rank. Prefills run one after another; decodes of running requests go on beside
//!   them, each at its own fixed pace.
//! - A request holds the blocks for its prompt and its longest answer from admission to its end.
//!   When too few blocks are free, it waits at the head of the queue and all behind it wait too.
//!   Nothing is ever preempted.
//! - One base model, whatever names it is served under. Only adapters and cache salts keep blocks
//!   apart.
//! - KV events tell of blocks when they are computed; those of one step are one publication.
//! - Headers of a streamed answer leave at once, and its first event with the first token.
//! - One choice and one prompt a request; no sampling, stop strings, log probabilities or tool
//!   calls in answers; no stored responses (`previous_response_id` is answered with 404).
//!
//! ```no_run
//! use engine_sim::{Engine, EngineConfig};
//!
//! let config = EngineConfig { name: "a".to_owned(), ..EngineConfig::default() };
//! let engine = Engine::start(config, ([127, 0, 0, 1], 0).into())?;
//! println!("{} has served {:?}", engine.addr(), engine.stats().served);
//! # Ok::<(), std::io::Error>(())
//! ```

mod answer;
mod api;
mod blocks;
mod config;
mod counts;
mod engine;
mod faults;
mod generation;
mod kv_events;
mod metrics;
mod occupancy;
mod prefix_cache;
mod question;
mod receive;
mod reply;
mod router;
mod scheduler;
mod server;
mod spoil;
mod state;
mod template;
mod tokens;

pub use answer::expected_answer;
pub use blocks::BlockHash;
pub use config::{Embeddings, EngineConfig, MetricNames};
pub use counts::Finished;
pub use engine::Engine;
pub use faults::{Fault, UnknownFault};
pub use kv_events::{
    KvAddress, KvEncoding, KvEvents, KvFault, KvHashes, KvReplayForm, UnknownKvFault,
};
pub use occupancy::Occupancy;
pub use prefix_cache::{BlockCache, CacheEvent, Lease, Named};
pub use question::Question;
pub use receive::body_hash;
pub use state::{RecordedRequest, Stats};
pub use tokens::TOKEN_BYTES;
