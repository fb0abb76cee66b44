//! One engine as a process, for demos and for tests that need one to kill.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Parser;
use engine_sim::{
    Embeddings, Engine, EngineConfig, KvEncoding, KvEvents, KvHashes, KvReplayForm, MetricNames,
};

/// Runs a stand-in for an LLM engine until it is killed.
///
/// Prints the address that it listens on as a line of its own; with KV events, a line for each rank
/// follows: `kv-events <endpoint> <replay endpoint, or ->`.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Address to listen on; port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Sent with every response as `x-engine`.
    #[arg(long, default_value = "engine")]
    name: String,
    /// A name that the model is served under; may be repeated. Without one, any name is.
    #[arg(long = "model")]
    models: Vec<String>,
    /// A `LoRA` adapter, which is a model with blocks of its own; may be repeated.
    #[arg(long = "adapter")]
    adapters: Vec<String>,
    /// Data-parallel ranks, each with a scheduler and a KV cache of its own.
    #[arg(long, default_value_t = 1)]
    ranks: usize,
    /// Size of a rank's KV cache in blocks.
    #[arg(long, default_value_t = EngineConfig::default().kv_blocks)]
    kv_blocks: usize,
    /// Size of a block in tokens.
    #[arg(long, default_value_t = EngineConfig::default().block_tokens)]
    block_tokens: usize,
    /// The longest prompt plus answer in tokens.
    #[arg(long, default_value_t = EngineConfig::default().max_model_len)]
    max_model_len: usize,
    /// Prefill speed in uncached prompt tokens a second.
    #[arg(long, default_value_t = EngineConfig::default().prefill_tokens_per_sec)]
    prefill_tokens_per_sec: f64,
    /// Time between two tokens of one answer in milliseconds.
    #[arg(long, default_value_t = 10.0)]
    decode_ms_per_token: f64,
    /// The most requests that run at once.
    #[arg(long, default_value_t = EngineConfig::default().max_batch)]
    max_batch: usize,
    /// The most requests that wait.
    #[arg(long, default_value_t = EngineConfig::default().max_waiting)]
    max_waiting: usize,
    /// The length of an answer in tokens when the request names none.
    #[arg(long, default_value_t = EngineConfig::default().default_max_tokens)]
    default_max_tokens: usize,
    /// Chooses the filler words of answers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Whose names metrics have.
    #[arg(long, value_enum, default_value = "vllm")]
    metrics: MetricNames,
    /// Length of an embedding, where a request asks for no other.
    #[arg(long, default_value_t = EngineConfig::default().embedding_dimensions)]
    embedding_dimensions: usize,
    /// What an embedding depends on.
    #[arg(long, value_enum, default_value = "by-input")]
    embeddings: Embeddings,
    #[command(flatten)]
    kv_events: KvEventArgs,
}

#[derive(clap::Args)]
#[command(next_help_heading = "KV events")]
struct KvEventArgs {
    /// Publishes KV events: `tcp://<host>:<port>` or `ipc://<path>`. As with vLLM, it binds if this
    /// has a `*` or `::` or starts with `ipc://`, and else connects. The port `*` is any free one.
    #[arg(long = "kv-events-endpoint")]
    endpoint: Option<String>,
    /// Binds wherever the endpoint is.
    #[arg(long = "kv-events-bind", requires = "endpoint")]
    bind: bool,
    /// Answers replays here.
    #[arg(long = "kv-events-replay-endpoint", requires = "endpoint")]
    replay_endpoint: Option<String>,
    /// The first frame of every publication.
    #[arg(long = "kv-events-topic", default_value = "")]
    topic: String,
    /// Maps as vLLM from 0.24 on, or arrays as before.
    #[arg(long = "kv-events-encoding", value_enum, default_value = "map")]
    encoding: KvEncoding,
    /// How names of blocks are written.
    #[arg(long = "kv-events-hashes", value_enum, default_value = "int")]
    hashes: KvHashes,
    /// Replays with a topic frame as vLLM from 0.26 on, or without as before.
    #[arg(long = "kv-events-replay-form", value_enum, default_value = "topic")]
    replay_form: KvReplayForm,
    /// Announces blocks that a request finds as stored once more.
    #[arg(long = "kv-events-full-report")]
    full_report: bool,
}

impl KvEventArgs {
    fn config(self) -> Option<KvEvents> {
        Some(KvEvents {
            endpoint: self.endpoint?,
            bind: self.bind,
            replay_endpoint: self.replay_endpoint,
            topic: self.topic,
            encoding: self.encoding,
            hashes: self.hashes,
            replay_form: self.replay_form,
            full_report: self.full_report,
        })
    }
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let decode_time_per_token = Duration::try_from_secs_f64(args.decode_ms_per_token / 1000.0)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let config = EngineConfig {
        name: args.name,
        models: args.models,
        adapters: args.adapters,
        ranks: args.ranks,
        kv_blocks: args.kv_blocks,
        block_tokens: args.block_tokens,
        max_model_len: args.max_model_len,
        prefill_tokens_per_sec: args.prefill_tokens_per_sec,
        decode_time_per_token,
        max_batch: args.max_batch,
        max_waiting: args.max_waiting,
        default_max_tokens: args.default_max_tokens,
        seed: args.seed,
        kv_events: args.kv_events.config(),
        metrics: args.metrics,
        embedding_dimensions: args.embedding_dimensions,
        embeddings: args.embeddings,
    };
    let engine = Engine::start(config, args.listen)?;
    let mut out = io::stdout();
    writeln!(out, "{}", engine.addr())?;
    for address in engine.kv_events() {
        let replay = address.replay.as_deref().unwrap_or("-");
        writeln!(out, "kv-events {} {replay}", address.endpoint)?;
    }
    out.flush()?;
    loop {
        thread::park();
    }
}
