//! `publisher.py` as a child process, which ends with its owner.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) struct Publisher {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) port: u16,
    pub(crate) replay_port: u16,
}

impl Publisher {
    /// On free ports.
    pub(crate) fn start() -> Self {
        Self::at("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    }

    pub(crate) fn without_replay() -> Self {
        Self::at("tcp://127.0.0.1:*", "-")
    }

    /// In place of one that is gone.
    pub(crate) fn restart(self) -> Self {
        let (port, replay_port) = (self.port, self.replay_port);
        drop(self);
        Self::on_ports(port, replay_port)
    }

    pub(crate) fn on_ports(port: u16, replay_port: u16) -> Self {
        let replay = match replay_port {
            0 => "-".to_owned(),
            port => format!("tcp://127.0.0.1:{port}"),
        };
        Self::at(&format!("tcp://127.0.0.1:{port}"), &replay)
    }

    pub(crate) fn at(publish: &str, replay: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pyzmq = std::env::var_os("ROLTER_PYZMQ")
            .map_or_else(|| here.join("../.tools/pyzmq"), PathBuf::from);
        let mut child = Command::new("python3")
            .arg(here.join("tests/publisher.py"))
            .args([publish, replay])
            .env("PYTHONPATH", pyzmq)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut publisher = Self {
            child,
            out,
            port: 0,
            replay_port: 0,
        };
        let line = publisher.line();
        let ports: Vec<_> = line
            .split(' ')
            .skip(1)
            .map(|port| port.parse().unwrap())
            .collect();
        assert_eq!(
            ports.len(),
            2,
            "the publisher did not start; has it pyzmq? run `make test`"
        );
        (publisher.port, publisher.replay_port) = (ports[0], ports[1]);
        publisher
    }

    pub(crate) fn publish(&mut self, count: usize) {
        self.order("publish", count);
    }

    /// Carries out a command of the script.
    pub(crate) fn order(&mut self, command: &str, count: usize) {
        let order = format!("{command} {count}\n");
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(order.as_bytes())
            .unwrap();
        self.line();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
