//! A fleet that goes on when the command that started it has returned.
//!
//! The serving process holds a lock on the state file from its first moment to its last, and writes
//! its own pid there. So while the lock is held the pid is that process and no other, and once it
//! is free all is gone, whatever way it ended.

use crate::lines;
use demo::{Strategy, engine, setup};
use fleet::{Fleet, Setup};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/run");
/// Where clients look first for a proxy on their machine.
const PORT: u16 = 8080;
/// How long a request waits for the cache, on a machine that may be busy with other things.
const LOOKUP_MILLIS: u64 = 1_000;
/// How long a fleet may take to start: a little more than Envoy itself may.
const START: Duration = Duration::from_secs(70);
/// How long a fleet may take to end.
const END: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);

/// What the state file holds while a fleet is there.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    pid: i32,
    /// Nothing while it is starting.
    addresses: Option<Addresses>,
}

/// Where the fleet is to be found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    /// For clients.
    pub(crate) clients: SocketAddr,
    /// Envoy's admin interface.
    pub(crate) admin: SocketAddr,
}

/// Starts a fleet, unless there is one, and prints how to try it.
pub(crate) async fn up() -> io::Result<()> {
    let addresses = if is_held()? {
        let addresses = ready(is_held).await?;
        println!("It is running already.\n");
        addresses
    } else {
        start().await?
    };
    print!("{}", lines::to_try(addresses));
    Ok(())
}

/// Prints where clients find the fleet, or where Envoy's admin interface is.
pub(crate) async fn url(admin: bool) -> io::Result<()> {
    if !is_held()? {
        return Err(io::Error::other(
            "nothing is running; start it with: make up",
        ));
    }
    let addresses = ready(is_held).await?;
    let address = if admin {
        addresses.admin
    } else {
        addresses.clients
    };
    println!("http://{address}");
    Ok(())
}

/// Stops the fleet, if there is one, and waits until it is gone.
pub(crate) async fn down() -> io::Result<()> {
    if !is_held()? {
        println!("Nothing is running.");
        return Ok(());
    }
    let deadline = Instant::now() + END;
    let mut asked = false;
    while is_held()? {
        if Instant::now() > deadline {
            let what = format!("it does not end; see {}", log().display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        if !asked && let Some(pid) = state().and_then(|state| Pid::from_raw(state.pid)) {
            // It may have ended by itself in the meantime: then there is nothing to wait for.
            asked = kill_process(pid, Signal::TERM).is_ok();
        }
        tokio::time::sleep(POLL).await;
    }
    println!("Stopped.");
    Ok(())
}

/// Runs a fleet until it is dropped.
pub(crate) async fn serve() -> io::Result<()> {
    let file = open()?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("a fleet is running already"),
        TryLockError::Error(error) => error,
    })?;
    // Locals go in reverse order: the lock is free once the fleet has gone.
    let mut state = State {
        pid: std::process::id().try_into().map_err(io::Error::other)?,
        addresses: None,
    };
    write(&file, &state)?;
    let setup = setup(Strategy::CacheAware, &engine())
        .cached()
        // Who tries it needs no key.
        .with("/routes/0/cache/scope", "route")
        .with("/routes/0/cache/lookup_timeout_ms", LOOKUP_MILLIS)
        .with("/debug_headers", true);
    let fleet = Fleet::start(Setup {
        listen: listen(),
        ..setup
    })
    .await?;
    state.addresses = Some(Addresses {
        clients: fleet.addr(),
        admin: fleet.admin(),
    });
    write(&file, &state)?;
    std::future::pending().await
}

async fn start() -> io::Result<Addresses> {
    fs::create_dir_all(FOLDER)?;
    let output = File::create(log())?;
    println!("Starting four engines and Envoy …");
    let process = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // What the terminal tells the group of this command is not for the fleet.
        .process_group(0)
        .spawn()?;
    let mut starting = Starting(Some(process));
    let addresses = ready(|| starting.has_told()).await?;
    starting.0 = None;
    Ok(addresses)
}

/// A serving process that has just begun. It is ended with this, unless it is taken out.
struct Starting(Option<Child>);

impl Starting {
    /// Whether the process has written its state.
    fn has_told(&mut self) -> io::Result<bool> {
        let Some(process) = &mut self.0 else {
            return Ok(false);
        };
        if process.try_wait()?.is_some() {
            self.0 = None;
            let said = fs::read_to_string(log())?;
            let said = said.trim().trim_start_matches("demo: ");
            return Err(io::Error::other(said.to_owned()));
        }
        Ok(state().is_some_and(|state| u32::try_from(state.pid) == Ok(process.id())))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            // If it has just ended by itself, all is well too.
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
        }
    }
}

/// The addresses, once the fleet has told them. `there` is whether the state file is this fleet's.
async fn ready(mut there: impl FnMut() -> io::Result<bool>) -> io::Result<Addresses> {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        if there()?
            && let Some(addresses) = state().and_then(|state| state.addresses)
        {
            return Ok(addresses);
        }
        tokio::time::sleep(POLL).await;
    }
    let what = format!("the fleet is not ready; see {}", log().display());
    Err(io::Error::new(io::ErrorKind::TimedOut, what))
}

/// Whether there is a process that serves. Where there is none, whatever one before it has left in
/// the state file goes, so that the next one's lock never stands beside another's pid.
fn is_held() -> io::Result<bool> {
    let file = open()?;
    match file.try_lock() {
        Ok(()) => file.set_len(0).map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open() -> io::Result<File> {
    fs::create_dir_all(FOLDER)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(state_file())
}

/// What the state file says. Nothing while it is being written.
fn state() -> Option<State> {
    serde_json::from_slice(&fs::read(state_file()).ok()?).ok()
}

fn write(mut file: &File, state: &State) -> io::Result<()> {
    use std::io::Seek;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(state)?)
}

/// The address for clients: the usual port, or any other if that is taken.
fn listen() -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => (Ipv4Addr::LOCALHOST, 0).into(),
    }
}

fn state_file() -> PathBuf {
    PathBuf::from(FOLDER).join("demo.json")
}

fn log() -> PathBuf {
    PathBuf::from(FOLDER).join("demo.log")
}
