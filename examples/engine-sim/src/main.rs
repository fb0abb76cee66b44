//! One engine as a process, for demos and for tests that need one to kill.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Parser;
use engine_sim::{Engine, EngineConfig};

/// Runs a stand-in for an LLM engine until it is killed.
///
/// Prints the address that it listens on as a line of its own.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Address to listen on; port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Sent with every response as `x-engine`.
    #[arg(long, default_value = "engine")]
    name: String,
    /// A model that is served; may be repeated. Without one, any model is.
    #[arg(long = "model")]
    models: Vec<String>,
    /// Size of the KV cache in blocks.
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
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let decode_time_per_token = Duration::try_from_secs_f64(args.decode_ms_per_token / 1000.0)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let config = EngineConfig {
        name: args.name,
        models: args.models,
        kv_blocks: args.kv_blocks,
        block_tokens: args.block_tokens,
        max_model_len: args.max_model_len,
        prefill_tokens_per_sec: args.prefill_tokens_per_sec,
        decode_time_per_token,
        max_batch: args.max_batch,
        max_waiting: args.max_waiting,
        default_max_tokens: args.default_max_tokens,
        seed: args.seed,
    };
    let engine = Engine::start(config, args.listen)?;
    let mut out = io::stdout();
    writeln!(out, "{}", engine.addr())?;
    out.flush()?;
    loop {
        thread::park();
    }
}
