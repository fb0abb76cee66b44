//! The figures of two plays side by side, with bars.

use crate::play::{Outcome, Work};
use std::collections::BTreeSet;
use std::time::Duration;

const LABEL_WIDTH: usize = 16;
const FIGURE_WIDTH: usize = 8;
const BAR_WIDTH: usize = 20;
const GAP: &str = "   ";

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
/// Of the bars of the first and the second strategy.
const COLOURS: [&str; 2] = ["\x1b[33m", "\x1b[32m"];
const PLAIN: &str = "\x1b[0m";

/// What the second strategy is meant to reach: this many times the hit rate of the first.
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
    rows: Vec<(String, [Cell; 2])>,
}

/// Both outcomes as a table.
pub fn table(outcomes: &[Outcome; 2], colour: bool) -> String {
    let paint = |code, text: &str| match text.trim() {
        "" => text.to_owned(),
        _ if colour => format!("{code}{text}{PLAIN}"),
        _ => text.to_owned(),
    };
    let mut lines = vec![];
    let names = outcomes.each_ref().map(|outcome| outcome.strategy.as_str());
    let names = names.map(|name| column("", &paint(BOLD, &format!("{name:BAR_WIDTH$}"))));
    lines.push(format!("{:LABEL_WIDTH$}{}", "", names.concat()));
    for section in sections(outcomes) {
        lines.push(String::new());
        if !section.title.is_empty() {
            lines.push(paint(DIM, section.title));
        }
        let full = section.full.unwrap_or_else(|| section.largest());
        let empty = if section.full.is_some() { "·" } else { " " };
        for (label, cells) in &section.rows {
            let columns = [0, 1].map(|index| {
                let Cell { text, size } = &cells[index];
                let (bar, left) = bar(size / full);
                let (bar, left) = (paint(COLOURS[index], &bar), paint(DIM, &empty.repeat(left)));
                column(text, &format!("{bar}{left}"))
            });
            lines.push(format!("{label:LABEL_WIDTH$}{}", columns.concat()));
        }
    }
    let lines = lines.iter().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

fn column(figure: &str, bar: &str) -> String {
    format!("{figure:>FIGURE_WIDTH$} {bar}{GAP}")
}

/// What the figures come to, in a few sentences.
pub fn closing(outcomes: &[Outcome; 2]) -> String {
    let [before, after] = outcomes;
    let times = after.hit_rate() / before.hit_rate();
    let p50 = outcomes.each_ref().map(|outcome| outcome.first_token(50));
    let holds = times >= TARGET && p50[1] < p50[0];
    format!(
        "From {} to {}: hit rate {} → {} (×{times:.1}), p50 time to first token {} → {}.\n\
         Expected, a hit rate of ×{TARGET} at least and a lower p50: {}.\n",
        before.strategy.as_str(),
        after.strategy.as_str(),
        percent(before.hit_rate()),
        percent(after.hit_rate()),
        millis(p50[0]),
        millis(p50[1]),
        if holds { "met" } else { "NOT met" },
    )
}

fn sections(outcomes: &[Outcome; 2]) -> Vec<Section> {
    let cells = |cell: &dyn Fn(&Outcome) -> Cell| outcomes.each_ref().map(cell);
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
    let names = outcomes[0].engines.iter().map(|work| &work.name);
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
            (0.1, "██", BAR_WIDTH - 2),
            (0.125, "██▌", BAR_WIDTH - 3),
            (1.0, &"█".repeat(BAR_WIDTH), 0),
            (f64::NAN, "", BAR_WIDTH),
        ] {
            assert_eq!(bar(share), (wanted.to_owned(), left), "{share}");
        }
    }
}
