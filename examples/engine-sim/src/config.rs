//! What an engine is: its size, its speed, its name.

use std::io;
use std::time::Duration;

use crate::blocks::Adapter;
use crate::kv_events::KvEvents;

/// The most ranks of an engine.
const MAX_RANKS: usize = 256;
/// The longest embedding.
pub(crate) const MAX_DIMENSIONS: usize = 4096;

/// The size, speed and name of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// The engine's name, sent with every response as `x-engine`.
    pub name: String,
    /// The names under which it serves its one base model. Empty: any name is accepted, and
    /// echoed.
    pub models: Vec<String>,
    /// `LoRA` adapters: further models, with blocks of their own.
    pub adapters: Vec<String>,
    /// Data-parallel ranks. Each has a scheduler and a KV cache of its own.
    pub ranks: usize,
    /// Size of a rank's KV cache, in blocks.
    pub kv_blocks: usize,
    /// Size of one block, in tokens.
    pub block_tokens: usize,
    /// The longest prompt plus answer, in tokens. What the KV cache can hold bounds it too.
    pub max_model_len: usize,
    /// Speed of the prefill, in uncached prompt tokens a second. Infinity takes no time.
    pub prefill_tokens_per_sec: f64,
    /// Time between two tokens of one answer.
    pub decode_time_per_token: Duration,
    /// The most requests that run (prefill or decode) at once.
    pub max_batch: usize,
    /// The most requests that wait for a place; beyond it, an engine answers 503. Every request
    /// waits for a moment, so none is served without room for one.
    pub max_waiting: usize,
    /// The length of an answer, in tokens, when the request names none.
    pub default_max_tokens: usize,
    /// Chooses the filler words of answers. The part that a client verifies does not depend on it.
    pub seed: u64,
    /// How the engine tells what is in its cache. `None`: it does not.
    pub kv_events: Option<KvEvents>,
    /// Whose names metrics have.
    pub metrics: MetricNames,
    /// Length of an embedding, where a request asks for no other.
    pub embedding_dimensions: usize,
    /// What an embedding depends on.
    pub embeddings: Embeddings,
}

/// What an embedding depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Embeddings {
    /// The input: those of two different ones have no more in common than chance gives.
    ByInput,
    /// Nothing: to an index of them, every input means the same.
    Equal,
}

/// Whose names metrics have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricNames {
    /// vLLM's: `vllm:num_requests_running` and so on.
    Vllm,
    /// `SGLang`'s: `sglang:num_running_reqs` and so on.
    Sglang,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            name: "engine".to_owned(),
            models: Vec::new(),
            adapters: Vec::new(),
            ranks: 1,
            kv_blocks: 4096,
            block_tokens: 16,
            max_model_len: 32_768,
            prefill_tokens_per_sec: 20_000.0,
            decode_time_per_token: Duration::from_millis(10),
            max_batch: 64,
            max_waiting: 4096,
            default_max_tokens: 32,
            seed: 0,
            kv_events: None,
            metrics: MetricNames::Vllm,
            embedding_dimensions: 8,
            embeddings: Embeddings::ByInput,
        }
    }
}

impl EngineConfig {
    /// The longest prompt plus answer that this engine takes, in tokens.
    pub fn context_tokens(&self) -> usize {
        self.max_model_len
            .min(self.kv_blocks.saturating_mul(self.block_tokens))
    }

    /// The model that stands for this engine where one name is wanted.
    pub(crate) fn first_model(&self) -> &str {
        self.models.first().unwrap_or(&self.name)
    }

    /// The adapter of a name, if it is one.
    pub(crate) fn adapter(&self, name: &str) -> Option<Adapter> {
        let place = self.adapters.iter().position(|adapter| adapter == name)?;
        Some(Adapter {
            id: place + 1,
            name: name.to_owned(),
        })
    }

    /// Refuses a configuration under which no request could ever end.
    pub(crate) fn check(&self) -> io::Result<()> {
        let refused = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.name.is_empty() || !self.name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refused("name must be printable ASCII without spaces");
        }
        if self.block_tokens == 0 || self.kv_blocks == 0 {
            return refused("block_tokens and kv_blocks must be at least 1");
        }
        if self.context_tokens() < 2 {
            return refused("the KV cache and max_model_len must hold at least 2 tokens");
        }
        if self.ranks == 0 || self.ranks > MAX_RANKS {
            return refused("ranks must be 1 to 256");
        }
        if self.adapters.iter().any(String::is_empty) {
            return refused("adapters must have names");
        }
        if self.max_batch == 0 || self.default_max_tokens == 0 {
            return refused("max_batch and default_max_tokens must be at least 1");
        }
        if self.embedding_dimensions == 0 || self.embedding_dimensions > MAX_DIMENSIONS {
            return refused("embedding_dimensions must be 1 to 4096");
        }
        if self.prefill_tokens_per_sec.is_nan() || self.prefill_tokens_per_sec < 1.0 {
            return refused("prefill_tokens_per_sec must be at least 1");
        }
        Ok(())
    }
}
