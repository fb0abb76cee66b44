//! A Redis process of one's own: started on a free port with nothing on disk, asked, disturbed,
//! stopped.

use crate::process::{find, kill, program, signal, stop};
use redis::{Client, Cmd, FromRedisValue, RedisError, RedisResult};
use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long Redis may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const LOG: &str = "redis.log";

/// A Redis that is gone, with all that is in it, when this is dropped.
pub struct Redis {
    folder: TempDir,
    addr: SocketAddr,
    process: Option<Child>,
}

impl Redis {
    /// Starts one, and waits until it answers.
    ///
    /// # Errors
    /// Where there is none to start, or it does not answer.
    pub async fn start() -> io::Result<Self> {
        // Free at this moment. Redis itself takes no port for "any".
        let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut redis = Self {
            folder: tempfile::tempdir()?,
            addr,
            process: None,
        };
        redis.restart().await?;
        Ok(redis)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address as configurations have it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// The answer to a command.
    ///
    /// # Errors
    /// Where there is none, or it is an error.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let client = Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let answer = command.query_async(&mut connection);
        let late = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        tokio::time::timeout(PATIENCE, answer).await.map_err(late)?
    }

    /// Ends it at once, and with it all that it knows.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn kill(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(process) => kill(process),
            None => Err(io::Error::other("Redis does not run")),
        }
    }

    /// Starts it at the same address, empty, where it does not run, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn restart(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join(LOG))?;
        let process = program(&redis_binary()?)
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(self.addr.port().to_string())
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.folder.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        let deadline = Instant::now() + PATIENCE;
        while self.ask::<String>(&redis::cmd("PING")).await.is_err() {
            let process = self.process.as_mut();
            let ended = process.map(Child::try_wait).transpose()?.flatten();
            if Instant::now() > deadline || ended.is_some() {
                let log = std::fs::read_to_string(self.folder.path().join(LOG))?;
                return Err(io::Error::other(format!("Redis does not answer:\n{log}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// From now on it takes connections and commands, and answers none.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Ends a [`Redis::freeze`].
    ///
    /// # Errors
    /// Where it does not run.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        match &self.process {
            Some(process) => signal(process, name),
            None => Err(io::Error::other("Redis does not run")),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            stop(process);
        }
    }
}

/// The Redis to run: `ROLTER_REDIS`, else the one that `make` installs.
///
/// # Errors
/// Where there is none.
pub fn redis_binary() -> io::Result<PathBuf> {
    find("ROLTER_REDIS", ".tools/redis-server")
}
