//! A Redis of a test's own, on a free port.

use super::support::PATIENCE;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) struct RedisServer {
    pub(crate) port: u16,
    child: Child,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that is free, as is the one that a cluster's bus has beside it.
pub(crate) fn free_port() -> u16 {
    loop {
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = any.local_addr().unwrap().port();
        if port
            .checked_add(10_000)
            .is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok())
        {
            return port;
        }
    }
}

impl RedisServer {
    /// Started, and answering.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_at(free_port(), arguments).await
    }

    pub(crate) async fn start_at(port: u16, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        let child = spawn(port, &arguments, &directory);
        let server = Self {
            port,
            child,
            arguments,
            directory,
        };
        server.answers().await;
        server
    }

    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Starts it again, empty, on the same port.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.arguments, &self.directory);
        self.answers().await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The password is the one that it was started with.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        self.connect().await.unwrap()
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let mut password = self
            .arguments
            .iter()
            .skip_while(|&one| one != "--requirepass");
        let password = password
            .nth(1)
            .map_or(String::new(), |word| format!(":{word}@"));
        let url = format!("redis://{password}127.0.0.1:{}", self.port);
        let client = redis::Client::open(url).unwrap();
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
    }

    async fn answers(&self) {
        let began = Instant::now();
        while self.connect().await.is_err() {
            assert!(began.elapsed() < PATIENCE, "Redis does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(port: u16, arguments: &[String], directory: &TempDir) -> Child {
    let binary = std::env::var_os("ROLTER_REDIS")
        .expect("ROLTER_REDIS is the path of a redis-server; `make test` has one");
    let mut command = Command::new(PathBuf::from(binary));
    // Sentinels write into their configuration.
    let file = directory.path().join("redis.conf");
    if !file.exists() {
        std::fs::write(&file, "").unwrap();
    }
    command
        .arg(&file)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}
