//! `demo run` compares strategies under the same traffic; `demo up` leaves a fleet running to
//! try by hand, and `demo down` ends it.

#![forbid(unsafe_code)]

mod background;
mod lines;

use clap::{Parser, Subcommand};
use demo::{Failure, Outcome, Progress, Repeated, Shape, Strategy, Traffic};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Engines behind a real Envoy with the filter, on this machine.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays the same traffic under `round_robin`, `cache_aware` and `precise_cache_aware` and shows
    /// them side by side, and asks some of it twice with a response cache.
    Run {
        /// Chooses the traffic.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Starts a fleet in the background and says how to try it.
    Up,
    /// Prints the URL for clients of the fleet that `up` started.
    Url {
        /// The one of Envoy's admin interface.
        #[arg(long)]
        admin: bool,
    },
    /// Stops the fleet that `up` started.
    Down,
    /// What `up` starts.
    #[command(hide = true)]
    Serve,
}

/// Envoy's worker threads. They share what they learn, so more of them would find as much.
const WORKERS: usize = 1;
/// How many failures are shown in full.
const SHOWN_FAILURES: usize = 5;
/// The time between two lines that tell how far it is.
const NEWS: Duration = Duration::from_secs(5);
/// As shells have it for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let command = async {
        match Args::parse().command {
            Command::Run { seed } => run(seed).await,
            Command::Up => background::up().await.map(|()| true),
            Command::Url { admin } => background::url(admin).await.map(|()| true),
            Command::Down => background::down().await.map(|()| true),
            Command::Serve => background::serve().await.map(|()| true),
        }
    };
    // What is dropped here stops all that it has started.
    let result = tokio::select! {
        result = command => result,
        signal = interrupted() => match signal {
            Ok(()) => return ExitCode::from(INTERRUPTED),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits until this process is asked to end.
async fn interrupted() -> io::Result<()> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut hup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hup.recv() => {}
    }
    Ok(())
}

/// Whether every answer was right.
async fn run(seed: u64) -> io::Result<bool> {
    let traffic = Arc::new(Traffic::new(Shape::FULL, seed));
    let conversations = traffic
        .tasks
        .iter()
        .filter(|task| task.turns.len() > 1)
        .count();
    eprintln!(
        "{} requests by {} clients: {conversations} conversations of several turns, and {} single \
         questions under {} system prompts.\nThree times the same, to a fresh fleet of four simulated \
         engines behind one Envoy worker, and then some of it twice with a response cache; less than two \
         minutes in all.",
        traffic.requests(),
        traffic.clients,
        traffic.tasks.len() - conversations,
        Shape::FULL.groups,
    );
    let mut outcomes = Vec::new();
    for strategy in Strategy::ALL {
        outcomes.push(part(strategy, &traffic).await?);
    }
    eprintln!("response cache: starting the engines and Envoy …");
    let repeated = demo::repeat(&traffic, &demo::engine()).await?;
    let colour = io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    println!("\n{}", demo::table(&outcomes, colour));
    print!("{}{}", demo::closing(&outcomes), demo::again(&repeated));
    Ok(verdict(&outcomes, &repeated))
}

async fn part(strategy: Strategy, traffic: &Arc<Traffic>) -> io::Result<Outcome> {
    let name = strategy.as_str();
    eprintln!("{name}: starting the engines and Envoy …");
    let requests = traffic.requests();
    let mut news = Instant::now();
    let tell = |progress| match progress {
        Progress::Ready(took) => {
            eprintln!("{name}: ready after {:.1} s", took.as_secs_f64());
            news = Instant::now();
        }
        Progress::Over(over, after) if over == requests || news.elapsed() >= NEWS => {
            eprintln!(
                "{name}: {over} of {requests} requests after {:.1} s",
                after.as_secs_f64()
            );
            news = Instant::now();
        }
        Progress::Over(..) => {}
    };
    demo::play(strategy, WORKERS, traffic, &demo::engine(), tell).await
}

/// Says whether every answer was right, and what was wrong.
fn verdict(outcomes: &[Outcome], repeated: &Repeated) -> bool {
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_right()) {
        let name = outcome.strategy.as_str();
        let (right, requests) = (outcome.first_tokens.len(), outcome.requests);
        println!("{name}: only {right} of {requests} requests got their right answer.");
        show(&outcome.failures);
    }
    let right = outcomes.iter().all(Outcome::is_right) && repeated.failures.is_empty();
    show(&repeated.failures);
    if right {
        let requests: usize = outcomes.iter().map(|outcome| outcome.requests).sum();
        let requests = requests + 2 * repeated.requests;
        println!("All {requests} answers were right.");
    }
    right
}

fn show(failures: &[Failure]) {
    for failure in failures.iter().take(SHOWN_FAILURES) {
        println!("  {failure}");
    }
}
