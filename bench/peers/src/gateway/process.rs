//! Processes as the kernel sees them: the cores that they may use, their processor time and memory.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;
use std::ops::Sub;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// What processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Processor time, of all threads, in user and kernel.
    pub(crate) cpu: Duration,
    /// Resident memory. What processes share counts for each.
    pub(crate) memory_bytes: u64,
}

impl Usage {
    /// Of this process.
    pub(crate) fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Of these processes and all that descend from them.
    pub(crate) fn of_trees(roots: &[u32]) -> io::Result<Self> {
        let mut sum = Self::default();
        let mut left = roots.to_vec();
        while let Some(process) = left.pop() {
            let one = Self::of(process)?;
            sum.cpu += one.cpu;
            sum.memory_bytes += one.memory_bytes;
            left.extend(children(process)?);
        }
        Ok(sum)
    }

    fn of(process: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let counted = Stat::parse(&stat)
            .ok_or_else(|| io::Error::other(format!("/proc/{process}/stat is {stat:?}")))?;
        #[expect(clippy::cast_precision_loss, reason = "ticks of centuries fit")]
        let secs = counted.ticks as f64 / clock_ticks_per_second() as f64;
        Ok(Self {
            cpu: Duration::from_secs_f64(secs),
            memory_bytes: counted.pages * page_size() as u64,
        })
    }
}

impl Sub for Usage {
    type Output = Duration;

    /// The processor time between two looks.
    fn sub(self, before: Self) -> Duration {
        self.cpu.saturating_sub(before.cpu)
    }
}

/// What there is to know in `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Processor time of its threads, ended ones included, and of children that it has waited for.
    ticks: u64,
    /// Resident.
    pages: u64,
}

impl Stat {
    /// The fields are counted as in proc(5). The second is a name that may have anything in it.
    fn parse(stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let field = |place: usize| fields.get(place - 3)?.parse::<u64>().ok();
        let ticks = [14, 15, 16, 17]
            .map(field)
            .into_iter()
            .sum::<Option<u64>>()?;
        Some(Self {
            ticks,
            pages: field(24)?,
        })
    }
}

fn children(process: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has just ended has no children.
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        found.extend(
            children
                .split_ascii_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    Ok(found)
}

/// The cores that this thread may use.
pub(crate) fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Keeps this thread, and the threads and processes that it starts from now on, on these cores.
pub(crate) fn pin(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::other(format!("cannot use cores {cores:?}: {error}")))
}

/// Does something in a thread of its own on these cores: programs that it starts find themselves on
/// a machine of this size from their first moment on.
pub(crate) async fn on_cores<T, F>(
    cores: &[usize],
    start: impl FnOnce() -> F + Send + 'static,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    let cores = cores.to_vec();
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let run = || {
            pin(&cores)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(start())
        };
        // Whoever does not wait any more does not want it.
        let _ = tell.send(run());
    });
    told.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_spaces_and_brackets_moves_no_field() {
        let rest = "S 1 2 2 0 -1 4194560 9 0 0 0 70 30 5 2 20 0 3 0 99 123456 789 18446744073709551615 1 1";
        for name in ["envoy", "sglang::router", "a) S 1 (b", "c d 4 5"] {
            let stat = format!("42 ({name}) {rest}");
            let right = Stat {
                ticks: 107,
                pages: 789,
            };
            assert_eq!(Stat::parse(&stat), Some(right), "{stat}");
        }
        for bad in [
            "",
            "42 (envoy",
            "42 (envoy) S 1 2",
            "42 (envoy) S 1 2 2 0 -1 0 9 0 0 0 x 3 0 0",
        ] {
            assert_eq!(Stat::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_this_process_uses_grows() {
        let before = Usage::own().unwrap();
        let mut sum = 0_u64;
        // Some clock ticks long, whatever the machine.
        while Usage::own().unwrap() - before < Duration::from_millis(50) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(before.memory_bytes > 100_000, "{before:?}");
    }

    #[test]
    fn a_tree_has_its_grandchildren() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo up; read line; :'; :"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let told = shell.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(told), &mut line).unwrap();
        let own = Usage::of(shell.id()).unwrap().memory_bytes;
        let tree = Usage::of_trees(&[shell.id()]).unwrap().memory_bytes;
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(tree > own, "{tree} of {own}");
    }

    #[tokio::test]
    async fn programs_find_themselves_on_the_given_cores() {
        let all = cores().unwrap();
        let of_one = on_cores(&all[..1], || async {
            let output = Command::new("nproc").output()?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        });
        assert_eq!(of_one.await.unwrap(), "1");
        assert_eq!(cores().unwrap(), all);
    }
}
