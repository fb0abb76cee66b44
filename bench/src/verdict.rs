//! What was measured, beside what it is measured against and what is wanted of it.

use serde_json::Value;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The estimates that criterion left in this run. Those of earlier runs do not count: a ratio of
/// two runs says more about the machine's day than about the code.
pub struct Estimates {
    directory: PathBuf,
    since: SystemTime,
}

impl Estimates {
    /// Of benches that run from now on. `tmpdir` is what cargo calls `CARGO_TARGET_TMPDIR`, which
    /// criterion's directory is beside.
    pub fn from_now(tmpdir: &str) -> Self {
        let beside = || Path::new(tmpdir).with_file_name("criterion").into();
        let directory: OsString = std::env::var_os("CRITERION_HOME").unwrap_or_else(beside);
        Self {
            directory: directory.into(),
            since: SystemTime::now(),
        }
    }

    /// The median time of a bench, divided by how many things it does at a time.
    pub fn median(&self, bench: &str, things: usize) -> Option<Amount> {
        let file = self.directory.join(bench).join("new/estimates.json");
        if file.metadata().ok()?.modified().ok()? < self.since {
            return None;
        }
        let estimates: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        let nanoseconds = estimates.get("median")?.get("point_estimate")?.as_f64()?;
        Some(Amount::Microseconds(
            nanoseconds / 1e3 / approximate(things),
        ))
    }
}

/// Something measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A time.
    Microseconds(f64),
    /// An amount of memory.
    Bytes(f64),
}

impl Amount {
    /// So many bytes.
    pub fn bytes(count: impl TryInto<usize>) -> Self {
        Self::Bytes(approximate(count.try_into().unwrap_or_default()))
    }

    /// This as a multiple of the other.
    pub fn over(self, other: Self) -> f64 {
        self.value() / other.value()
    }

    fn value(self) -> f64 {
        match self {
            Self::Microseconds(value) | Self::Bytes(value) => value,
        }
    }
}

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Microseconds(value) if *value < 10.0 => format!("{value:.2} µs"),
            Self::Microseconds(value) => format!("{value:.1} µs"),
            Self::Bytes(value) => format!("{value:.0} B"),
        };
        f.pad(&text)
    }
}

/// A comparison, with the most that ours may be of theirs where something is wanted of it.
pub struct Comparison {
    /// What is compared with what.
    pub what: String,
    /// What it takes here.
    pub ours: Option<Amount>,
    /// What it takes there.
    pub theirs: Option<Amount>,
    /// The wanted ratio.
    pub at_most: Option<f64>,
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Some(ours), Some(theirs)) = (self.ours, self.theirs) else {
            return write!(f, "{:<56} not measured in this run", self.what);
        };
        let ratio = ours.over(theirs);
        write!(f, "{:<56} {ours:>11} {theirs:>13}  ", self.what)?;
        write!(f, "{:>8}", fraction(ratio))?;
        match self.at_most {
            None => Ok(()),
            Some(most) => {
                let verdict = if ratio <= most { "met" } else { "missed" };
                write!(f, "  at most {:<6} {verdict}", fraction(most))
            }
        }
    }
}

/// Prints comparisons as a table, and how many of the wanted ratios were missed.
pub fn print(comparisons: &[Comparison]) {
    let heads = ["", "ours", "theirs", "ratio", "wanted"];
    let [what, ours, theirs, ratio, wanted] = heads;
    println!("\n{what:<56} {ours:>11} {theirs:>13}  {ratio:>8}  {wanted}");
    for comparison in comparisons {
        println!("{comparison}");
    }
    let missed = |c: &&Comparison| match (c.ours, c.theirs, c.at_most) {
        (Some(ours), Some(theirs), Some(most)) => ours.over(theirs) > most,
        _ => false,
    };
    let wanted = comparisons.iter().filter(|c| c.at_most.is_some()).count();
    let missed = comparisons.iter().filter(missed).count();
    println!("\n{missed} of {wanted} wanted ratios missed");
}

/// `1/4.0` for a quarter.
fn fraction(ratio: f64) -> String {
    if ratio < 0.9 {
        format!("1/{:.1}", 1.0 / ratio)
    } else {
        format!("{ratio:.2}")
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is counted here is far below 2^53"
)]
fn approximate(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(ours: f64, theirs: f64, at_most: f64) -> String {
        let comparison = Comparison {
            what: "this".into(),
            ours: Some(Amount::Microseconds(ours)),
            theirs: Some(Amount::Microseconds(theirs)),
            at_most: Some(at_most),
        };
        comparison.to_string()
    }

    #[test]
    fn a_ratio_is_met_up_to_what_is_wanted_and_missed_beyond() {
        assert!(compared(1.0, 4.0, 0.25).ends_with("1/4.0  at most 1/4.0  met"));
        assert!(compared(1.1, 4.0, 0.25).ends_with("1/3.6  at most 1/4.0  missed"));
        assert!(compared(3.0, 2.0, 1.0).ends_with("1.50  at most 1.00   missed"));
    }

    #[test]
    fn what_did_not_run_has_no_estimate() {
        let estimates = Estimates::from_now("/nowhere/tmp");
        assert_eq!(estimates.median("read/ours/message", 1), None);
    }
}
