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
{ cat <&3; kill $program; kill -CONT $program; } >/dev/null 2>&1 &
watcher=$!
wait $program
status=$?
kill $watcher 2>/dev/null
exit $status
"#;

/// A program as it is to be started, with standard input for its end.
pub fn program(path: &impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", RUN_UNTIL_STDIN_CLOSES, "program"])
        .arg(path)
        .stdin(Stdio::piped());
    command
}

/// Asks a program to end, and waits until it has.
pub fn stop(process: &mut Child) {
    drop(process.stdin.take());
    // Without a process there is nothing to wait for.
    let _ = process.wait();
}

/// Ends a program at once, as a machine that fails does, and waits until it has.
///
/// # Errors
/// Where it does not run.
pub fn kill(mut process: Child) -> io::Result<()> {
    let killed = signal(&process, "KILL");
    stop(&mut process);
    killed
}

/// The id of a program, which is not that of the shell around it.
///
/// # Errors
/// Where it does not run.
pub fn id(process: &Child) -> io::Result<u32> {
    // It is the first child of the shell that runs it.
    let shell = process.id();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
    let program = children.split(' ').next().and_then(|id| id.parse().ok());
    program.ok_or_else(|| io::Error::other("the program does not run"))
}

/// Sends a signal to a program.
pub(crate) fn signal(process: &Child, signal: &str) -> io::Result<()> {
    let sent = Command::new("kill")
        .args(["-s", signal, &id(process)?.to_string()])
        .status()?;
    let gone = || io::Error::other("the program does not run");
    sent.success().then_some(()).ok_or_else(gone)
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
