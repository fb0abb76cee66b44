//! This filter and its peers, measured on the same work in the same run.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod gateway;
mod overhead;
mod report;
mod results;
mod routing;
mod scale;
mod workload;

/// Measures this filter and its peers on the same work.
#[derive(Parser)]
#[command(name = "peers")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// What a gateway costs: rate, latency, processor time and memory before instant upstreams
    Overhead(overhead::Options),
    /// How well gateways route: fleets of simulated engines behind each of them
    Routing(routing::Options),
    /// What a decision costs as fleets grow
    Scale(scale::Cost),
    /// What routers come to on the same requests, without sockets and in virtual time
    Simulate(scale::Simulate),
    /// What was measured, as a page and a chart
    Report(report::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().part {
        Part::Overhead(options) => overhead::run(&options).map_err(|error| error.to_string()),
        Part::Routing(options) => routing::run(&options),
        Part::Scale(options) => scale::cost(&options),
        Part::Simulate(options) => scale::simulate(&options),
        Part::Report(options) => report::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
