//! `rolter-sidecar` on the command line.

use clap::{Args, Parser, Subcommand};
use rolter_core::config::{Config, Provider};
use rolter_core::hex::from_hex;
use rolter_sidecar::document::Gravity;
use rolter_sidecar::explain::{self, Place};
use rolter_sidecar::{capture, document, run::Sidecar};
use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

// The one of musl has one lock for all threads, which doubles what an answer from the cache costs.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Tells all that is wrong or odd about a configuration, and about the file of Envoy's that it is
    /// in.
    Check(Source),
    /// Feeds a recorded run of an engine through the index, and compares what it predicts with what
    /// the engine had cached.
    Replay {
        /// The recording: a JSON object a line.
        capture: PathBuf,
    },
    /// Tells what the filter reads from a request, what the policy does about it, under which keys
    /// its answer is cached, and why not.
    Explain {
        /// The request's body.
        request: PathBuf,
        /// The path that it is sent to.
        #[arg(long)]
        path: String,
        #[command(flatten)]
        source: Source,
        /// The route that it takes.
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        /// SHA-256 of its caller's key without `Bearer`: `printf %s "$KEY" | sha256sum | cut -d" " -f1`.
        #[arg(long, value_name = "HEX", value_parser = read_hash)]
        key_hash: Option<[u8; 32]>,
        /// A header of it that keys depend on, as in `anthropic-version: 2023-06-01`.
        #[arg(long, value_name = "NAME:VALUE")]
        header: Vec<explain::Header>,
    },
}

#[derive(Args)]
#[group(multiple = false)]
struct Source {
    /// A file with the configuration: .yaml, .toml or .json.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file of Envoy's, with the filter's configuration in it.
    #[arg(long, value_name = "FILE")]
    envoy_config: Option<PathBuf>,
}

impl Source {
    fn read(&self) -> Result<Option<Config>, Box<dyn Error>> {
        Ok(match (&self.config, &self.envoy_config) {
            (Some(path), _) => Some(document::read(path)?),
            (None, Some(path)) => Some(document::read_envoy(path)?),
            (None, None) => None,
        })
    }

    fn require(&self) -> Result<Config, Box<dyn Error>> {
        self.read()?.ok_or_else(|| NO_SOURCE.into())
    }
}

const NO_SOURCE: &str = "write --config FILE or --envoy-config FILE";

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
        Command::Run(source) => run(source.require()?)?,
        Command::Check(source) => {
            return check(source);
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
        Command::Explain {
            request,
            path,
            source,
            route,
            key_hash,
            header,
        } => {
            let body =
                fs::read(request).map_err(|error| format!("{}: {error}", request.display()))?;
            let request = explain::Request {
                path,
                body: &body,
                caller: *key_hash,
                headers: header,
            };
            let config = source.read()?;
            let place = match (&config, route) {
                (Some(config), route) => Place::of(config, route.as_deref())?,
                (None, Some(_)) => {
                    return Err("--route is of no use without a configuration".into());
                }
                (None, None) => Place::UNKNOWN,
            };
            print!("{}", explain::explain(&request, &place));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All that is found, errors first.
fn check(source: &Source) -> Result<ExitCode, Box<dyn Error>> {
    let (path, report) = match (&source.config, &source.envoy_config) {
        (Some(path), _) => (path, document::check(path)?),
        (None, Some(path)) => (path, document::check_envoy(path)?),
        (None, None) => return Err(NO_SOURCE.into()),
    };
    if report.is_ok() {
        for config in &report.configs {
            println!("ok: {}", summary(config));
        }
        for finding in &report.findings {
            println!("but {finding}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{}:", path.display());
    for finding in &report.findings {
        match finding.gravity {
            Gravity::Error => eprintln!("{finding}"),
            Gravity::Doubt => eprintln!("but {finding}"),
        }
    }
    Ok(ExitCode::FAILURE)
}

/// What a configuration comes to.
fn summary(config: &Config) -> String {
    let (providers, routes) = (config.providers.len(), config.routes.len());
    let with_cache = config.routes.iter().filter(|route| route.cache.is_some());
    let cache = match &config.cache {
        None => "none with a cache".to_owned(),
        Some(cache) => {
            let place = cache.redis.as_ref().map_or("memory", |_| "Redis");
            format!("{} with a cache in {place}", with_cache.count())
        }
    };
    let sidecar = match config.sidecar {
        Some(_) => "",
        None => ", no sidecar",
    };
    let named = config.providers.iter().filter_map(Provider::dns_name);
    let named = match named.count() {
        0 => String::new(),
        count => format!(" ({count} by a DNS name)"),
    };
    format!("{providers} providers{named}, {routes} routes, {cache}{sidecar}")
}

fn read_hash(text: &str) -> Result<[u8; 32], &'static str> {
    from_hex(text).ok_or("write the 64 hex digits of a SHA-256")
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
    let summary = summary(&config);
    let listen = config.sidecar.as_ref().map(|sidecar| &sidecar.listen);
    let listen = listen.map(ToString::to_string).unwrap_or_default();
    let sidecar = Sidecar::bind(config).await?;
    let metrics = sidecar.metrics_address();
    let metrics = metrics.map(tracing::field::display);
    tracing::info!(listen, metrics, summary, "listening");
    sidecar.run(stop).await?;
    Ok(())
}
