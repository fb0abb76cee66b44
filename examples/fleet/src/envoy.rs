//! An Envoy process: found, started, watched until it takes requests, stopped.

use crate::process::{self, find, program, stop};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long Envoy may take to start: it compiles the module once for each worker.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Envoy {
    process: Child,
    /// With the bootstrap, the filter's part and the log.
    directory: TempDir,
    workers: usize,
    pub(crate) listener: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Envoy {
    /// Starts in a folder that has the bootstrap, as `envoy.json`, and all that it refers to.
    pub(crate) async fn start(directory: TempDir, workers: usize) -> io::Result<Self> {
        let (process, admin, listener) = launch(directory.path(), workers).await?;
        Ok(Self {
            process,
            directory,
            workers,
            listener,
            admin,
        })
    }

    pub(crate) fn id(&self) -> io::Result<u32> {
        process::id(&self.process)
    }

    /// Ends, and starts again in the same folder.
    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        stop(&mut self.process);
        fs::remove_file(self.directory.path().join(ADMIN))?;
        let launched = launch(self.directory.path(), self.workers).await?;
        (self.process, self.admin, self.listener) = launched;
        Ok(())
    }

    /// Puts a file into the folder, in one move.
    pub(crate) fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = self.directory.path().join("draft");
        fs::write(&draft, text)?;
        fs::rename(draft, self.directory.path().join(name))
    }

    pub(crate) fn forget_log(&self) -> io::Result<()> {
        let log = OpenOptions::new()
            .write(true)
            .open(self.directory.path().join("log"))?;
        log.set_len(0)
    }

    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// Where Envoy writes the address of its admin interface, in the folder.
const ADMIN: &str = "admin";

/// Starts, and waits until requests are taken. The addresses are those of the admin interface and of
/// the first listener.
async fn launch(folder: &Path, workers: usize) -> io::Result<(Child, SocketAddr, SocketAddr)> {
    let file = |name: &str| folder.join(name);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file("log"))?;
    let mut process = program(&envoy_binary()?)
        .arg("-c")
        .arg(file("envoy.json"))
        .arg("--admin-address-path")
        .arg(file(ADMIN))
        .args(["--concurrency", &workers.to_string()])
        .arg("--use-dynamic-base-id")
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((admin, listener)) = ready(&file(ADMIN)).await {
            return Ok((process, admin, listener));
        }
        let ended = process.try_wait()?.is_some();
        if ended || Instant::now() > deadline {
            stop(&mut process);
            let log = fs::read_to_string(file("log"))?;
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            let end: Vec<&str> = end.into_iter().rev().collect();
            let what = if ended { "ended" } else { "is not ready" };
            return Err(io::Error::other(format!(
                "Envoy {what}:\n{}",
                end.join("\n")
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The addresses of the admin interface and of the first listener, once Envoy is ready.
async fn ready(admin_file: &Path) -> Option<(SocketAddr, SocketAddr)> {
    let admin: SocketAddr = fs::read_to_string(admin_file).ok()?.trim().parse().ok()?;
    get(admin, "/ready").await.ok()?;
    let listeners = get(admin, "/listeners?format=json").await.ok()?;
    let listeners: Value = serde_json::from_str(&listeners).ok()?;
    let socket = listeners.pointer("/listener_statuses/0/local_address/socket_address")?;
    let ip = socket["address"].as_str()?.parse().ok()?;
    let port = socket["port_value"].as_u64()?.try_into().ok()?;
    Some((admin, SocketAddr::new(ip, port)))
}

/// Asks the admin interface, past any proxy that the environment names.
pub(crate) async fn get(admin: SocketAddr, path: &str) -> reqwest::Result<String> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(format!("http://{admin}{path}")).send().await?;
    answer.error_for_status()?.text().await
}

/// The Envoy to run: `ENVOY_BIN`, else the one that `make` installs.
///
/// # Errors
/// Where there is none.
pub fn envoy_binary() -> io::Result<PathBuf> {
    find("ENVOY_BIN", ".tools/envoy")
}

/// A release of Envoy, as in 1.40.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

/// The version of the Envoy to run.
pub(crate) fn version() -> io::Result<Version> {
    let output = Command::new(envoy_binary()?).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // As in `… version: 5b1f/1.40.0/Clean/RELEASE/BoringSSL`.
    let told = text.split_once("version: ").map(|(_, told)| told);
    let release = told.and_then(|told| told.split('/').nth(1));
    let mut numbers = release
        .into_iter()
        .flat_map(|release| release.split('.'))
        .map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok(Version(major, minor)),
        _ => Err(io::Error::other(format!("no version of Envoy: {text:?}"))),
    }
}

/// The filter to run: `ROLTER_WASM`, else the one that `make` builds.
///
/// # Errors
/// Where there is none.
pub fn module() -> io::Result<PathBuf> {
    find(
        "ROLTER_WASM",
        "target/wasm32-wasip1/release/rolter_filter.wasm",
    )
}

/// The same filter, but one that a request with the header `x-rolter-trap` brings down:
/// `ROLTER_TRAP_WASM`, else the one that `make` builds.
///
/// # Errors
/// Where there is none.
pub fn trap_module() -> io::Result<PathBuf> {
    find(
        "ROLTER_TRAP_WASM",
        "target/trap/wasm32-wasip1/release/rolter_filter.wasm",
    )
}
