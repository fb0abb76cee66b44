//! Programs that run beside this process, and never longer than it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs a program until it ends or this process does, however it does: the pipe to standard input
/// is closed then, and the watcher ends the program.
const RUN_UNTIL_STDIN_CLOSES: &str = r#"
exec 3<&0
"$@" 3<&- &
program=$!
{ cat <&3; kill $program; } >/dev/null 2>&1 &
watcher=$!
wait $program
status=$?
kill $watcher 2>/dev/null
exit $status
"#;

/// A program as it is to be started, with standard input for its end.
pub(crate) fn program(path: &impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", RUN_UNTIL_STDIN_CLOSES, "program"])
        .arg(path)
        .stdin(Stdio::piped());
    command
}

/// Asks a program to end, and waits until it has.
pub(crate) fn stop(process: &mut Child) {
    drop(process.stdin.take());
    // Without a process there is nothing to wait for.
    let _ = process.wait();
}

/// A file that a variable names, else one by its path in the project.
pub(crate) fn find(variable: &str, default: &str) -> io::Result<PathBuf> {
    let path = match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(default),
    };
    fs::canonicalize(&path).map_err(|error| {
        let path = path.display();
        io::Error::other(format!(
            "{path}: {error}; run `make build`, or set {variable}"
        ))
    })
}
