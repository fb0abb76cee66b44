//! Traces in Mooncake's format: a line of JSON a request, with `timestamp` in milliseconds,
//! `input_length` and `output_length` in tokens, and `hash_ids`, one for each 512 tokens. Equal ids
//! are equal tokens after equal tokens.

use super::{Kind, Message, Piece, Play, Request, Workload};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// The longest answer that is asked for, in tokens. Each token is an event on a machine that has other
/// things to do, and routing is not about it.
const ANSWER: usize = 64;
/// Tokens of a block of the trace.
const BLOCK: usize = 512;

#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

/// Reads as much of a trace as a play has time for, faster or slower than it was: so that as many
/// requests come in a second, on average over the whole trace, as the play is to have. The seed
/// changes what the texts are.
pub(crate) fn read(path: &Path, play: &Play) -> Result<Workload, String> {
    let here = |what: String| format!("trace {}: {what}", path.display());
    let file = File::open(path).map_err(|error| here(error.to_string()))?;
    parse(BufReader::new(file), play).map_err(here)
}

pub(super) fn parse(lines: impl BufRead, play: &Play) -> Result<Workload, String> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let here = |what: String| format!("line {number}: {what}");
        let line = line.map_err(|error| here(error.to_string()))?;
        if !line.trim().is_empty() {
            let line = serde_json::from_str(&line).map_err(|error| here(error.to_string()))?;
            all.push(check(line).map_err(here)?);
        }
    }
    all.sort_by_key(|line| line.timestamp);
    let start = all.first().ok_or("no requests")?.timestamp;
    let last = all.last().map_or(start, |line| line.timestamp);
    let count = u32::try_from(all.len()).map_or(f64::MAX, f64::from);
    let really = Duration::from_millis(last - start).as_secs_f64();
    let slower = count / play.requests_per_sec / really.max(f64::MIN_POSITIVE);
    let times = times(&all);
    let requests = all.iter().zip(times).map(|(line, at)| {
        let at = at
            .saturating_sub(Duration::from_millis(start))
            .mul_f64(slower.min(1e6));
        request(line, at, play.seed)
    });
    Ok(Workload {
        name: Kind::Trace.name(),
        requests: requests.take_while(|r| r.at < play.duration).collect(),
    })
}

/// When each request comes. A trace may tell time in steps of seconds: what it has at one moment is
/// spread evenly up to the next one, or so many would come at once as never did.
fn times(lines: &[Line]) -> Vec<Duration> {
    let moments: Vec<&[Line]> = lines.chunk_by(|a, b| a.timestamp == b.timestamp).collect();
    let moment = |lines: &[Line]| lines.first().map_or(0, |line| line.timestamp);
    let mut times = Vec::with_capacity(lines.len());
    for (place, lines) in moments.iter().enumerate() {
        let start = moment(lines);
        let next = moments.get(place + 1).map_or(start, |next| moment(next));
        let step = Duration::from_millis(next - start) / u32::try_from(lines.len()).unwrap_or(1);
        let steps = (0..).map(|nth| Duration::from_millis(start) + step * nth);
        times.extend(steps.take(lines.len()));
    }
    times
}

fn check(line: Line) -> Result<Line, String> {
    let needed = line.input_length.div_ceil(BLOCK);
    if line.input_length == 0 || line.output_length == 0 {
        return Err("input_length and output_length must be at least 1".to_owned());
    }
    if line.hash_ids.len() != needed {
        return Err(format!(
            "{} hash_ids; an input_length of {} has {needed}, one for each {BLOCK} tokens",
            line.hash_ids.len(),
            line.input_length
        ));
    }
    Ok(line)
}

fn request(line: &Line, at: Duration, seed: u64) -> Request {
    let lengths = (0..line.input_length).step_by(BLOCK);
    let lengths = lengths.map(|before| BLOCK.min(line.input_length - before));
    let pieces = line.hash_ids.iter().zip(lengths);
    let pieces = pieces.map(|(id, tokens)| Piece {
        // Ids count up from zero, so a product keeps them apart.
        id: (id + 1).wrapping_mul(seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15)),
        tokens,
    });
    Request {
        at,
        messages: vec![Message {
            role: "user",
            pieces: pieces.collect(),
        }],
        session: None,
        answer_tokens: line.output_length.min(ANSWER),
    }
}
