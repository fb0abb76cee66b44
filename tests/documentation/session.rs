//! Running the commands of a page, one block after the other in one shell, and comparing what they
//! print with what the page shows. There is no cluster: what Helm would send to one it renders, and the
//! ports of pods, as `kubectl port-forward` would give them, are those of a fleet.

use crate::blocks::Block;
use crate::{file, shell};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What stands between the outputs of two blocks.
const MARK: &str = "==== block";

/// What stands in for a cluster.
const CLUSTER: &str = r#"
helm() {
  case "$*" in *envoy/chart*) ;; *) return 0 ;; esac
  local word words=()
  for word; do
    case $word in
      upgrade) words+=(template) ;;
      --install) ;;
      *) words+=("$word") ;;
    esac
  done
  command helm "${words[@]}"
}
curl() {
  local word words=()
  for word; do
    word=${word/#localhost:8080/${URL:-localhost:8080}}
    word=${word/#localhost:9902/${ADMIN:-localhost:9902}}
    word=${word/#localhost:9464/${SIDECAR:-localhost:9464}}
    words+=("$word")
  done
  command curl "${words[@]}"
}
"#;

/// A folder that has all of the project's, and the files of values that a page shows.
///
/// # Panics
/// Where it cannot be made.
pub(crate) fn desk(page: &[&Block]) -> TempDir {
    let desk = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(file(".")).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().canonicalize().unwrap();
        symlink(path, desk.path().join(entry.file_name())).unwrap();
    }
    for block in page {
        if let Some((name, _)) = block
            .text
            .strip_prefix("# values: ")
            .and_then(|rest| rest.split_once('\n'))
        {
            fs::write(desk.path().join(name), &block.text).unwrap();
        }
    }
    desk
}

/// The fleet that `make up` starts: there is none before a test, and none is left after it.
pub(crate) struct Fleet;

impl Fleet {
    /// # Panics
    /// Where one runs, which is somebody else's.
    pub(crate) fn none_yet() -> Self {
        let demo = file("target/debug/demo");
        if demo.exists() {
            let output = Command::new(demo).arg("url").output().unwrap();
            assert!(
                !output.status.success(),
                "a fleet is running; stop it: make down"
            );
        }
        Self
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = bash("make down", &[]).output();
    }
}

/// Runs what is to be run of a page in a folder, and returns what it printed.
///
/// # Errors
/// Where a command fails, or prints other than the page shows.
pub(crate) fn run(
    page: &[&Block],
    environment: &[(&str, String)],
    folder: &Path,
) -> Result<String, String> {
    let mut script = CLUSTER.to_owned();
    let mut run = Vec::new();
    for (place, block) in page.iter().enumerate() {
        if let Some(part) = shell::run(block) {
            // A block is a command that must not fail, in the shell that all of them share.
            script += &format!("printf '\\n{MARK} {place}\\n'\n{part}");
            run.push(place);
        }
    }
    if run.is_empty() {
        return Ok(String::new());
    }
    let mut command = bash(&script, environment);
    command.current_dir(folder);
    let output = command.output().map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = page[0];
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{first}: {}\n{told}\n{errors}", output.status));
    }
    for place in run {
        let next = page.get(place + 1).filter(|next| next.language == "text");
        let Some(shown) = next else { continue };
        let begin = format!("\n{MARK} {place}\n");
        let (_, rest) = told.split_once(&begin).ok_or("a block did not run")?;
        let printed = rest.split(&format!("\n{MARK} ")).next().unwrap_or_default();
        compare(printed, &shown.text).map_err(|line| {
            format!("{shown}: it is not printed: {line}\nbut this is:\n{printed}")
        })?;
    }
    Ok(told)
}

/// Each line that is shown is printed, in this order. `…` stands for anything.
fn compare<'a>(printed: &str, shown: &'a str) -> Result<(), &'a str> {
    let mut printed = printed.lines();
    for line in shown.lines().filter(|line| !line.trim().is_empty()) {
        if !printed.any(|candidate| fits(candidate.trim(), line.trim())) {
            return Err(line);
        }
    }
    Ok(())
}

fn fits(candidate: &str, pattern: &str) -> bool {
    // What is printed may have an ellipsis, too.
    if candidate == pattern {
        return true;
    }
    let mut parts = pattern.split('…');
    let head = parts.next().unwrap_or_default();
    let Some(mut rest) = candidate.strip_prefix(head) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    last.is_some_and(|last| last.is_empty() || rest.is_empty())
}

/// A shell that stops at the first command that fails, without what cargo and make have put into the
/// environment of this process.
fn bash(script: &str, environment: &[(&str, String)]) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(file("."))
        .stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_cargos = text.starts_with("CARGO") && text != "CARGO_HOME";
        let is_makes = text.starts_with("MAKE") || text == "MFLAGS";
        if is_cargos || is_makes || text.starts_with("ROLTER_") {
            command.env_remove(&name);
        }
    }
    let of = |program: PathBuf| program.parent().map(Path::to_owned).unwrap_or_default();
    let sidecar = fleet::sidecar_binary().unwrap_or_else(|error| panic!("{error}"));
    let envoy = fleet::envoy_binary().unwrap_or_else(|error| panic!("{error}"));
    let programs = [of(sidecar), of(envoy), of(e2e::chart::helm())];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = programs.into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path).unwrap());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command
}
