//! A sidecar process: started, asked, stopped.

use crate::process::{self, find, kill, program, stop};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long the sidecar may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

const DOCUMENT: &str = "sidecar.json";
const LOG: &str = "sidecar.log";

pub(crate) struct Sidecar {
    folder: PathBuf,
    process: Option<Child>,
}

/// Where the sidecar listens, in the folder of a fleet.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("sidecar.sock")
}

impl Sidecar {
    /// Starts with this document, in a folder, and waits until it listens.
    pub(crate) async fn start(folder: &Path, document: &str) -> io::Result<Self> {
        fs::write(folder.join(DOCUMENT), document)?;
        let mut sidecar = Self {
            folder: folder.to_owned(),
            process: None,
        };
        sidecar.run().await?;
        Ok(sidecar)
    }

    /// Starts, where it does not run.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(LOG))?;
        let process = program(&sidecar_binary()?)
            .args(["run", "--config"])
            .arg(self.folder.join(DOCUMENT))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        let deadline = Instant::now() + PATIENCE;
        while self.get("/healthz").await.is_err() {
            if Instant::now() > deadline || self.has_ended()? {
                let log = self.log();
                return Err(io::Error::other(format!(
                    "the sidecar is not ready:\n{log}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> io::Result<u32> {
        match &self.process {
            Some(process) => process::id(process),
            None => Err(io::Error::other("the sidecar does not run")),
        }
    }

    /// Ends it at once, as a machine that fails does.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(process) => kill(process),
            None => Err(io::Error::other("the sidecar does not run")),
        }
    }

    /// What it answers.
    pub(crate) async fn get(&self, path: &str) -> reqwest::Result<String> {
        let client = reqwest::Client::builder()
            .unix_socket(socket(&self.folder))
            .no_proxy()
            .build()?;
        let answer = client.get(format!("http://sidecar{path}")).send().await?;
        answer.error_for_status()?.text().await
    }

    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn has_ended(&mut self) -> io::Result<bool> {
        let process = self.process.as_mut();
        Ok(process
            .map(Child::try_wait)
            .transpose()?
            .flatten()
            .is_some())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            stop(process);
        }
    }
}

/// The sidecar to run: `ROLTER_SIDECAR`, else the one that `make` builds.
///
/// # Errors
/// Where there is none.
pub fn sidecar_binary() -> io::Result<PathBuf> {
    find("ROLTER_SIDECAR", "target/debug/rolter-sidecar")
}
