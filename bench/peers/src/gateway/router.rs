//! The contenders that are routers of their own, from `PyPI`: Python starts them, and what serves is
//! Rust within that process. All options but addresses, the policy and the log are the defaults.

use super::{Contender, Upstream, installed};
use fleet::process::{id, kill, program};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one may take to start.
const PATIENCE: Duration = Duration::from_mins(1);
/// The tokens of a block of the engines' KV caches.
const BLOCK_TOKENS: &str = "16";

pub(super) struct Router {
    /// `None` only while it is dropped.
    process: Option<Child>,
    /// With its log.
    folder: TempDir,
    addr: SocketAddr,
}

impl Router {
    /// Starts, and waits until all upstreams are found healthy.
    pub(super) async fn start(
        contender: Contender,
        upstreams: &[Upstream],
        model: &str,
    ) -> io::Result<Self> {
        let (variable, default, launcher, warnings) = match contender {
            Contender::Sglang => (
                "ROLTER_SGLANG_ROUTER",
                ".tools/sglang-router",
                "sglang_router.launch_router",
                "warn",
            ),
            _ => (
                "ROLTER_VLLM_ROUTER",
                ".tools/vllm-router",
                "vllm_router.launch_router",
                "warning",
            ),
        };
        let [addr, metrics] = free_addresses()?;
        let urls: Vec<String> = upstreams
            .iter()
            .map(|one| format!("http://{}", one.addr))
            .collect();
        let folder = tempfile::tempdir()?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.path().join(LOG))?;
        let mut command = program(&"python3");
        command
            .env("PYTHONPATH", python_path(installed(variable, default)?))
            .args(["-m", launcher, "--host", &addr.ip().to_string()])
            .args(["--port", &addr.port().to_string()])
            .args(["--prometheus-port", &metrics.port().to_string()])
            // Otherwise one of them writes two lines for each request, and an Envoy here none.
            .args(["--log-level", warnings])
            .arg("--worker-urls")
            .args(&urls);
        if contender == Contender::VllmKvAware {
            command
                .args(["--policy", "kv_aware", "--kv-event-model", model])
                .args(["--kv-event-block-size", BLOCK_TOKENS])
                .args(sources(upstreams, &urls)?);
        } else {
            command.args(["--policy", "cache_aware"]);
        }
        let process = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut router = Self {
            process: Some(process),
            folder,
            addr,
        };
        router.ready(upstreams.len()).await?;
        Ok(router)
    }

    async fn ready(&mut self, upstreams: usize) -> io::Result<()> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .map_err(io::Error::other)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if healthy(&client, self.addr)
                .await
                .is_some_and(|healthy| healthy == upstreams)
            {
                return Ok(());
            }
            let process = self.process.as_mut();
            let ended = process
                .map(Child::try_wait)
                .transpose()?
                .flatten()
                .is_some();
            if ended || Instant::now() > deadline {
                let log = self.log();
                let what = if ended { "it ended" } else { "it is not ready" };
                let end: Vec<&str> = log.lines().rev().take(20).collect();
                let end: Vec<&str> = end.into_iter().rev().collect();
                return Err(io::Error::other(format!("{what}:\n{}", end.join("\n"))));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn process(&self) -> io::Result<u32> {
        let gone = || io::Error::other("the router has ended");
        id(self.process.as_ref().ok_or_else(gone)?)
    }

    fn log(&self) -> String {
        let log = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(super) fn forget_log(&self) -> io::Result<()> {
        let log = OpenOptions::new()
            .write(true)
            .open(self.folder.path().join(LOG))?;
        log.set_len(0)
    }
}

impl Drop for Router {
    /// At once: asked to end, they wait for clients that keep their connections.
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // What has ended already cannot be killed.
            let _ = kill(process);
        }
    }
}

/// In the folder of a router.
const LOG: &str = "log";

/// How many upstreams it takes to be healthy, once it answers.
async fn healthy(client: &reqwest::Client, addr: SocketAddr) -> Option<usize> {
    let answer = client
        .get(format!("http://{addr}/workers"))
        .send()
        .await
        .ok()?;
    let answer: Value = answer.json().await.ok()?;
    let workers = answer["workers"].as_array()?.iter();
    Some(
        workers
            .filter(|worker| worker["is_healthy"] == true)
            .count(),
    )
}

/// Where each upstream tells of its KV cache.
fn sources(upstreams: &[Upstream], urls: &[String]) -> io::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for (upstream, url) in upstreams.iter().zip(urls) {
        let silent = || io::Error::other(format!("{} has no KV events", upstream.name));
        let address = upstream.kv_events.as_ref().ok_or_else(silent)?;
        arguments.extend([
            "--kv-event-source".into(),
            format!("{url}={}", address.endpoint),
        ]);
        if let Some(replay) = &address.replay {
            arguments.extend(["--kv-event-replay-source".into(), format!("{url}={replay}")]);
        }
    }
    Ok(arguments)
}

/// The folder of the router before whatever the environment has.
fn python_path(folder: PathBuf) -> OsString {
    let mut path = folder.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

/// Two that nobody listens at; somebody else may take them until they are used.
fn free_addresses() -> io::Result<[SocketAddr; 2]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let sockets = [free()?, free()?];
    Ok([sockets[0].local_addr()?, sockets[1].local_addr()?])
}
