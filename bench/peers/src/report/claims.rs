//! What is claimed, and whether it holds.

use super::{Results, short, size};
use crate::gateway::{Contender, Strategy};
use crate::results::{Overhead, OverheadRound, OverheadRow, Rounds, Routing, RoutingRow, Scale};
use crate::routing::ORACLE;
use crate::workload::Kind;

/// The load that most is said of.
const BODY: usize = 4 << 10;
const CONNECTIONS: usize = 16;
/// The longest body, over one connection.
const LONG: usize = 256 << 10;

const OURS: Contender = Contender::Rolter(Strategy::CacheAware);
const EXACT: Contender = Contender::Rolter(Strategy::PreciseCacheAware);
const IN_TURN: Contender = Contender::Rolter(Strategy::RoundRobin);
/// Of the others, those that are measured for what they cost, and for how they route.
const PEERS: [Contender; 2] = [Contender::Sglang, Contender::Vllm];
const ROUTING_PEERS: [Contender; 3] = [Contender::Sglang, Contender::Vllm, Contender::VllmKvAware];

/// One claim. Those about something that was not measured are not made.
#[derive(Debug, PartialEq)]
pub(super) struct Claim {
    /// With the bound that it is about.
    pub(super) what: String,
    pub(super) measured: String,
    pub(super) met: bool,
}

/// A line for each.
pub(super) fn list(claims: &[Claim]) -> String {
    let line = |claim: &Claim| {
        let met = if claim.met { "met" } else { "**not met**" };
        format!("- {}: {}, {met}\n", claim.what, claim.measured)
    };
    claims.iter().map(line).collect()
}

pub(super) fn all(results: &Results) -> Vec<Claim> {
    let mut claims = Vec::new();
    claims.extend(results.overhead.iter().flat_map(overhead));
    claims.extend(results.routing.iter().flat_map(routing));
    claims.extend(results.scale.iter().flat_map(scale));
    claims
}

fn at_least(what: &str, measured: f64, bound: f64) -> Claim {
    Claim {
        what: format!("{what}, at least {bound}"),
        measured: short(measured),
        met: measured >= bound,
    }
}

fn at_most(what: &str, measured: f64, bound: f64) -> Claim {
    Claim {
        what: format!("{what}, at most {bound}"),
        measured: short(measured),
        met: measured <= bound,
    }
}

fn below(what: &str, measured: f64, bound: f64) -> Claim {
    Claim {
        what: format!("{what}, below {bound}"),
        measured: short(measured),
        met: measured < bound,
    }
}

fn overhead(all: &Overhead) -> Vec<Claim> {
    let mut claims = Vec::new();
    let row = |one: Contender, bytes| all.row(one.name(), bytes, CONNECTIONS);
    let Some(ours) = row(OURS, BODY) else {
        return claims;
    };
    let load = format!("at {} and {CONNECTIONS} connections", size(BODY));
    for (other, bound) in [
        (Contender::Floor, 0.9),
        (Contender::Sglang, 1.1),
        (Contender::Vllm, 1.7),
    ] {
        claims.extend(row(other, BODY).map(|row| {
            let what = format!("requests/s {load} to those of {other}");
            at_least(
                &what,
                ours.ratio(row, |round| round.requests_per_sec),
                bound,
            )
        }));
    }
    for peer in PEERS {
        claims.extend(row(peer, BODY).map(|row| {
            let what = format!("p99 {load} to that of {peer}");
            at_most(&what, ours.ratio(row, |round| round.p99_micros), 1.0)
        }));
    }
    let cpu = |round: &OverheadRound| round.cpu_secs_per_1000;
    for peer in PEERS {
        for bytes in all.sizes() {
            let pair = row(OURS, bytes).zip(row(peer, bytes));
            claims.extend(pair.map(|(ours, theirs): (&OverheadRow, &OverheadRow)| {
                let what = format!("CPU for a request of {} to that of {peer}", size(bytes));
                below(&what, ours.ratio(theirs, cpu), 1.0)
            }));
        }
    }
    let long = |one: Contender| all.row(one.name(), LONG, 1);
    claims.extend(
        long(OURS)
            .zip(long(Contender::PlainEnvoy))
            .map(|(ours, plain)| {
                let what = format!("ms that p50 at {} is longer than plain Envoy's", size(LONG));
                let longer =
                    ours.paired(plain, |round| round.p50_micros, |ours, plain| ours - plain);
                below(&what, longer / 1e3, 1.0)
            }),
    );
    claims
}

fn routing(all: &Routing) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (workload, engines) in all.plays() {
        let row = |name: &str| all.row(name, workload, engines);
        let Some(ours) = row(EXACT.name()) else {
            continue;
        };
        let play = format!("{workload}, {engines} engines");
        let peers = ROUTING_PEERS.iter().filter_map(|peer| row(peer.name()));
        let hits = |row: &&RoutingRow| row.median(|round| round.hit_rate);
        let p90 = |row: &&RoutingRow| row.median(|round| round.ttft_p90_ms);
        let most = peers.clone().max_by(|a, b| hits(a).total_cmp(&hits(b)));
        claims.extend(most.map(|peer| {
            let what = format!(
                "{play}: hit rate of {EXACT} to the best peer's, {}",
                peer.gateway
            );
            at_least(&what, ours.ratio(peer, |round| round.hit_rate), 1.0)
        }));
        claims.extend(row(ORACLE).map(|oracle| {
            let what = format!("{play}: hit rate of {EXACT} to the oracle's");
            at_least(&what, ours.ratio(oracle, |round| round.hit_rate), 0.95)
        }));
        let soonest = peers.min_by(|a, b| p90(a).total_cmp(&p90(b)));
        claims.extend(soonest.map(|peer| {
            let what = format!(
                "{play}: p90 of {EXACT} to the best peer's, {}",
                peer.gateway
            );
            below(&what, ours.ratio(peer, |round| round.ttft_p90_ms), 1.0)
        }));
        let hot = workload == Kind::HotPrefix.name();
        claims.extend(row(IN_TURN.name()).filter(|_| hot).map(|in_turn| {
            let what = format!("{play}: p90 of {EXACT} to that of {IN_TURN}");
            at_most(&what, ours.ratio(in_turn, |round| round.ttft_p90_ms), 1.0)
        }));
    }
    claims
}

fn scale(all: &Scale) -> Vec<Claim> {
    let claim = |strategy: &str| {
        let few = all.row(strategy, 8)?.decision_nanos;
        let many = all.row(strategy, 512)?.decision_nanos;
        let what = format!("a decision of {strategy} over 512 targets to one over 8");
        Some(below(&what, many / few, 4.0))
    };
    all.strategies().into_iter().filter_map(claim).collect()
}
