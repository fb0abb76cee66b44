//! What was measured, as a page, a chart and a list of claims that hold or do not.
//!
//! Every figure is the median of its rounds. A ratio is the median of the rounds' ratios: the two were
//! measured close to each other, so what the machine did beside them struck both.

mod axis;
mod chart;
mod claims;
mod machine;
mod svg;
mod tables;
#[cfg(test)]
mod tests;

use crate::results::{Overhead, OverheadRow, Routing, RoutingRow, Scale, ScaleRow, read, told};
use std::fs;
use std::path::{Path, PathBuf};

/// Around the figures in a page that is written by hand.
const BEGIN: &str = "<!-- begin of the figures -->";
const END: &str = "<!-- end of the figures -->";

/// What to report.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where results are, and where the report goes
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
    /// A page that is to have the figures as well, between its marks; the chart goes beside it
    #[arg(long, value_name = "PAGE")]
    into: Option<PathBuf>,
}

/// What the parts have left.
pub(crate) struct Results {
    overhead: Option<Overhead>,
    routing: Option<Routing>,
    scale: Option<Scale>,
}

/// Writes `report.md` and `report.svg`, and tells the claims.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let results = Results {
        overhead: read(&options.out, "overhead")?,
        routing: read(&options.out, "routing")?,
        scale: read(&options.out, "scale")?,
    };
    let claims = claims::all(&results);
    let figures = page(&results, &claims);
    let chart = chart::draw(&results);
    let file = options.out.join("report.md");
    let text = format!("# This filter and its peers\n\n{}", shown(&file, &figures));
    save(&file, &text)?;
    save(&file.with_extension("svg"), &chart)?;
    if let Some(page) = &options.into {
        let text = fs::read_to_string(page).map_err(|error| told(page, error))?;
        let text = between(&text, &shown(page, &figures));
        save(
            page,
            &text.ok_or_else(|| told(page, "its marks are not there"))?,
        )?;
        save(&page.with_extension("svg"), &chart)?;
    }
    print!("{}", claims::list(&claims));
    println!("All of it is in {}.", file.display());
    Ok(())
}

/// The figures of a page below their chart, which is beside the page under its name.
fn shown(page: &Path, figures: &str) -> String {
    let name = page.file_stem().unwrap_or_default().display();
    format!("![the figures as a chart]({name}.svg)\n\n{figures}")
}

fn page(results: &Results, claims: &[claims::Claim]) -> String {
    let mut parts = vec![machine::describe()];
    parts.extend(results.overhead.as_ref().map(tables::overhead));
    parts.extend(results.routing.as_ref().map(tables::routing));
    parts.extend(results.scale.as_ref().map(tables::scale));
    parts.push(format!("### Claims\n\n{}", claims::list(claims)));
    parts.join("\n")
}

/// The page with other figures between its marks.
fn between(page: &str, figures: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{figures}\n{END}{after}"))
}

fn save(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| told(file, error))
}

impl Overhead {
    fn row(&self, gateway: &str, body_bytes: usize, connections: usize) -> Option<&OverheadRow> {
        self.rows.iter().find(|row| {
            row.gateway == gateway && row.body_bytes == body_bytes && row.connections == connections
        })
    }

    /// The sizes that were measured, each once.
    fn sizes(&self) -> Vec<usize> {
        distinct(self.rows.iter().map(|row| row.body_bytes))
    }

    fn gateways(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| &*row.gateway))
    }
}

impl Routing {
    fn row(&self, gateway: &str, workload: &str, engines: usize) -> Option<&RoutingRow> {
        self.rows.iter().find(|row| {
            row.gateway == gateway && row.workload == workload && row.engines == engines
        })
    }

    /// The workloads and fleets that were played, workloads first.
    fn plays(&self) -> Vec<(&str, usize)> {
        let plays = self.rows.iter().map(|row| (&*row.workload, row.engines));
        let names = distinct(self.rows.iter().map(|row| &*row.workload));
        let mut plays = distinct(plays);
        plays.sort_by_key(|(name, engines)| {
            (names.iter().position(|known| known == name), *engines)
        });
        plays
    }

    fn gateways(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| &*row.gateway))
    }
}

impl Scale {
    fn row(&self, strategy: &str, targets: usize) -> Option<&ScaleRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.strategy == strategy && row.targets == targets)
    }

    fn strategies(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| &*row.strategy))
    }

    fn targets(&self) -> Vec<usize> {
        distinct(self.rows.iter().map(|row| row.targets))
    }
}

/// Each once, in the order in which they come.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// As people write it.
fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        _ => format!("{} KB", bytes / 1024),
    }
}

/// A number with three digits that mean something, or all that it has before the point.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        ..1.0 => 3,
        ..9.95 => 2,
        ..99.5 => 1,
        _ => 0,
    };
    if value.is_nan() {
        return "–".to_owned();
    }
    format!("{value:.digits$}")
}
