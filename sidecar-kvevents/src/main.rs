//! `rolter-sidecar` on the command line.

use clap::{Args, Parser, Subcommand};
use rolter_core::config::Config;
use rolter_sidecar::{capture, document, explain, run::Sidecar};
use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Knows what LLM engines tell of themselves, and tells Envoy.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Writes logs as JSON, an object a line.
    #[arg(long, global = true)]
    json: bool,
    /// What is logged: error, warn, info, debug or trace, also by module.
    #[arg(long, global = true, default_value = "info")]
    log_level: EnvFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Follows and asks the engines, and answers Envoy, until SIGTERM or SIGINT.
    Run(Source),
    /// Tells all that is wrong with a configuration.
    Check(Source),
    /// Feeds a recorded run of an engine through the index, and compares what it predicts with what
    /// the engine had cached.
    Replay {
        /// The recording: a JSON object a line.
        capture: PathBuf,
    },
    /// Tells what the filter reads from a request.
    Explain {
        /// The request's body.
        request: PathBuf,
        /// The path that it is sent to.
        #[arg(long)]
        path: String,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// A file with the configuration: .yaml, .toml or .json.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file of Envoy's, with the filter's configuration in it.
    #[arg(long, value_name = "FILE")]
    envoy_config: Option<PathBuf>,
}

impl Source {
    fn read(&self) -> Result<Config, Box<dyn Error>> {
        match (&self.config, &self.envoy_config) {
            (Some(path), _) => Ok(document::read(path)?),
            (None, Some(path)) => Ok(document::read_envoy(path)?),
            (None, None) => Err("write --config FILE or --envoy-config FILE".into()),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(cli.log_level)
        .with_writer(std::io::stderr);
    if cli.json {
        logs.json().init();
    } else {
        logs.init();
    }
    match execute(&cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: &Command) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Run(source) => run(source.read()?)?,
        Command::Check(source) => {
            let config = source.read()?;
            println!(
                "ok: {} providers, {} routes{}",
                config.providers.len(),
                config.routes.len(),
                if config.sidecar.is_some() {
                    ""
                } else {
                    ", no sidecar"
                }
            );
        }
        Command::Replay { capture } => {
            let file =
                File::open(capture).map_err(|error| format!("{}: {error}", capture.display()))?;
            let outcome = capture::replay(BufReader::new(file))
                .map_err(|error| format!("{}: {error}", capture.display()))?;
            println!("{outcome}");
            if !outcome.is_exact() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Explain { request, path } => {
            let body =
                fs::read(request).map_err(|error| format!("{}: {error}", request.display()))?;
            print!("{}", explain::explain(path, &body));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What blocks a thread, as a look-up of a name can, has so long to end.
const GRACE: Duration = Duration::from_secs(1);

fn run(config: Config) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(serve(config));
    runtime.shutdown_timeout(GRACE);
    result
}

async fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stopping.cancel();
    });
    let sidecar = Sidecar::bind(config).await?;
    tracing::info!(address = ?sidecar.address(), metrics = ?sidecar.metrics_address(), "listening");
    sidecar.run(stop).await;
    Ok(())
}
