//! The figures of some plays side by side, with bars.

use crate::play::{Outcome, Work, percentile};
use crate::repeat::Repeated;
use std::collections::BTreeSet;
use std::time::Duration;

const LABEL_WIDTH: usize = 16;
const FIGURE_WIDTH: usize = 8;
const BAR_WIDTH: usize = 10;
const GAP: &str = "   ";
/// Names are above figures and bars, since some are longer than a bar.
const NAME_WIDTH: usize = FIGURE_WIDTH + 1 + BAR_WIDTH;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
/// Of the bars of the first strategy, the second and so on.
const COLOURS: [&str; 3] = ["\x1b[33m", "\x1b[32m", "\x1b[36m"];
const PLAIN: &str = "\x1b[0m";

/// What the others are meant to reach: this many times the hit rate of the first.
const TARGET: f64 = 1.5;

/// A figure, and the length of its bar in the unit of its section.
struct Cell {
    text: String,
    size: f64,
}

/// Rows whose bars have one scale.
struct Section {
    title: &'static str,
    /// What a full bar stands for; nothing for the largest of the section.
    full: Option<f64>,
    rows: Vec<(String, Vec<Cell>)>,
}

/// The outcomes as a table.
pub fn table(outcomes: &[Outcome], colour: bool) -> String {
    let paint = |code, text: &str| match text.trim() {
        "" => text.to_owned(),
        _ if colour => format!("{code}{text}{PLAIN}"),
        _ => text.to_owned(),
    };
    let mut lines = vec![];
    let names = outcomes.iter().map(|outcome| {
        let name = format!("{:NAME_WIDTH$}", outcome.strategy.as_str());
        format!("{}{GAP}", paint(BOLD, &name))
    });
    let names: String = names.collect();
    lines.push(format!("{:LABEL_WIDTH$}{names}", ""));
    for section in sections(outcomes) {
        lines.push(String::new());
        if !section.title.is_empty() {
            lines.push(paint(DIM, section.title));
        }
        let full = section.full.unwrap_or_else(|| section.largest());
        let empty = if section.full.is_some() { "·" } else { " " };
        for (label, cells) in &section.rows {
            let columns = cells.iter().zip(COLOURS.iter().cycle());
            let columns = columns.map(|(Cell { text, size }, colour)| {
                let (bar, left) = bar(size / full);
                let (bar, left) = (paint(colour, &bar), paint(DIM, &empty.repeat(left)));
                format!("{text:>FIGURE_WIDTH$} {bar}{left}{GAP}")
            });
            let columns: String = columns.collect();
            lines.push(format!("{label:LABEL_WIDTH$}{columns}"));
        }
    }
    let lines = lines.iter().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

/// What the figures come to, in a few sentences: each of the others beside the first.
pub fn closing(outcomes: &[Outcome]) -> String {
    let Some((before, others)) = outcomes.split_first() else {
        return String::new();
    };
    let figures = |outcome: &Outcome| (outcome.hit_rate(), outcome.first_token(50));
    let (rate, p50) = figures(before);
    let lines = others.iter().map(|after| {
        let (rate_after, p50_after) = figures(after);
        format!(
            "From {} to {}: hit rate {} → {} (×{:.1}), p50 time to first token {} → {}.\n",
            before.strategy.as_str(),
            after.strategy.as_str(),
            percent(rate),
            percent(rate_after),
            rate_after / rate,
            millis(p50),
            millis(p50_after),
        )
    });
    let lines: String = lines.collect();
    let holds = others
        .iter()
        .map(figures)
        .all(|(rate_after, p50_after)| rate_after / rate >= TARGET && p50_after < p50);
    let holds = if holds { "met" } else { "NOT met" };
    format!(
        "{lines}Expected, a hit rate of ×{TARGET} at least and a lower p50 each time: {holds}.\n"
    )
}

/// What the response cache comes to, in a sentence.
pub fn again(repeated: &Repeated) -> String {
    let Repeated {
        requests,
        from_cache,
        engines,
        cache,
        ..
    } = repeated;
    let [engines, cache] = [engines, cache].map(|times| percentile(times, 50).as_secs_f64() * 1e3);
    format!(
        "Asked a second time, with a response cache: {from_cache} of {requests} answers came from \
         the cache, whole within {cache:.1} ms (p50); those of the engines took {engines:.0} ms.\n"
    )
}

fn sections(outcomes: &[Outcome]) -> Vec<Section> {
    let cells = |cell: &dyn Fn(&Outcome) -> Cell| outcomes.iter().map(cell).collect();
    let time = |percent| {
        let cell = |outcome: &Outcome| {
            let time = outcome.first_token(percent);
            Cell {
                text: millis(time),
                size: time.as_secs_f64(),
            }
        };
        (format!("  p{percent}"), cells(&cell))
    };
    let engines = outcomes.first().map_or(&[][..], |outcome| &outcome.engines);
    let names = engines.iter().map(|work| &work.name);
    let by_engine = |count: fn(&Work) -> u64| {
        let row = |(index, name): (usize, &String)| {
            let cell = |outcome: &Outcome| counted(outcome.engines.get(index).map_or(0, count));
            (format!("  {name}"), cells(&cell))
        };
        names.clone().enumerate().map(row).collect()
    };
    let reasons: BTreeSet<&String> = outcomes.iter().flat_map(|o| o.decisions.keys()).collect();
    let by_reason = reasons.into_iter().map(|reason| {
        let cell = |outcome: &Outcome| counted(outcome.decisions.get(reason).copied().unwrap_or(0));
        (format!("  {reason}"), cells(&cell))
    });
    let hit_rate = |outcome: &Outcome| Cell {
        text: percent(outcome.hit_rate()),
        size: outcome.hit_rate(),
    };
    let section = |title, rows| Section {
        title,
        full: None,
        rows,
    };
    vec![
        Section {
            title: "",
            full: Some(1.0),
            rows: vec![("Prefix hit rate".to_owned(), cells(&hit_rate))],
        },
        section("Time to first token", vec![time(50), time(90)]),
        section("Requests", by_engine(|work| work.requests)),
        section(
            "Most in flight",
            by_engine(|work| u64::try_from(work.peak).unwrap_or(u64::MAX)),
        ),
        section("Decisions", by_reason.collect()),
    ]
}

impl Section {
    fn largest(&self) -> f64 {
        let sizes = self
            .rows
            .iter()
            .flat_map(|(_, cells)| cells)
            .map(|cell| cell.size);
        sizes.fold(0.0, f64::max)
    }
}

/// A bar for a share of the full width, and how much of the width it leaves.
fn bar(share: f64) -> (String, usize) {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let steps = BAR_WIDTH * EIGHTHS.len();
    // The longest bar whose end is not past the share. Nothing at all has none; little has some.
    let filled = (1..=steps)
        .take_while(|&step| place(step, steps) <= share)
        .count();
    let filled = if share > 0.0 { filled.max(1) } else { 0 };
    let (whole, part) = (filled / EIGHTHS.len(), EIGHTHS[filled % EIGHTHS.len()]);
    let rest = BAR_WIDTH - whole - usize::from(!part.is_empty());
    (format!("{}{part}", "█".repeat(whole)), rest)
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred steps")]
fn place(step: usize, steps: usize) -> f64 {
    step as f64 / steps as f64
}

fn counted(count: u64) -> Cell {
    Cell {
        text: if count == 0 {
            "–".to_owned()
        } else {
            count.to_string()
        },
        size: f64::from(u32::try_from(count).unwrap_or(u32::MAX)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        for (share, wanted, left) in [
            (0.0, "", BAR_WIDTH),
            (0.0001, "▏", BAR_WIDTH - 1),
            (0.2, "██", BAR_WIDTH - 2),
            (0.25, "██▌", BAR_WIDTH - 3),
            (1.0, &"█".repeat(BAR_WIDTH), 0),
            (f64::NAN, "", BAR_WIDTH),
        ] {
            assert_eq!(bar(share), (wanted.to_owned(), left), "{share}");
        }
    }
}
