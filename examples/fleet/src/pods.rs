//! The pods of a headless service: engines at addresses of their own, all on the same ports, and a DNS
//! server that knows which of them are ready.

use crate::Dns;
use engine_sim::{Engine, EngineConfig, KvEvents};
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// The pods of a service, and its name.
pub struct Pods {
    /// Who knows the name.
    pub dns: Dns,
    /// The second number of their addresses.
    net: u8,
    http: u16,
    events: u16,
    replay: u16,
}

impl Pods {
    /// The name.
    pub const NAME: &str = "vllm.llm.svc.cluster.test";

    /// A service without pods; its pods are at `127.NET.*.*`.
    ///
    /// # Errors
    /// Where there are no free ports.
    pub fn new() -> io::Result<Self> {
        // Ports that are free for one service may be given to another one a moment later, so no two
        // of a process have the same net. The first is the machine's own.
        static NETS: AtomicU8 = AtomicU8::new(0);
        let net = 1 + NETS.fetch_add(1, Ordering::Relaxed) % 250;
        // Free at one address, and so most likely at its neighbours.
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let sockets = [free()?, free()?, free()?];
        let port = |socket: &TcpListener| Ok::<_, io::Error>(socket.local_addr()?.port());
        let [http, events, replay] = &sockets;
        Ok(Self {
            dns: Dns::start()?,
            net,
            http: port(http)?,
            events: port(events)?,
            replay: port(replay)?,
        })
    }

    /// Where a pod is.
    pub fn ip(&self, pod: u16) -> IpAddr {
        let [high, low] = pod.to_be_bytes();
        Ipv4Addr::new(127, self.net, high, low).into()
    }

    /// Where a pod's API is.
    pub fn address(&self, pod: u16) -> SocketAddr {
        (self.ip(pod), self.http).into()
    }

    /// What a pod is called as a target.
    pub fn target(&self, pod: u16) -> String {
        format!("vllm/{}", self.address(pod))
    }

    /// Starts a pod with such an engine, which is called as its target, whether the name has its address
    /// or not. It runs until it is dropped.
    ///
    /// # Errors
    /// Where its ports are taken.
    pub fn start(&self, pod: u16, engine: EngineConfig) -> io::Result<Engine> {
        let (ip, address) = (self.ip(pod), self.address(pod));
        let config = EngineConfig {
            name: self.target(pod),
            kv_events: Some(KvEvents {
                endpoint: format!("tcp://{ip}:{}", self.events),
                replay_endpoint: Some(format!("tcp://{ip}:{}", self.replay)),
                bind: true,
                ..KvEvents::default()
            }),
            ..engine
        };
        // Where no clock is that tests set forward.
        let started = thread::spawn(move || Engine::start(config, address)).join();
        started.map_err(|_| io::Error::other("the engine has panicked"))?
    }

    /// The name has the addresses of these pods.
    pub fn has(&self, pods: impl IntoIterator<Item = u16>) {
        let addresses = pods.into_iter().map(|pod| self.ip(pod));
        self.dns.set_addresses(Self::NAME, addresses);
    }

    /// The name as a provider.
    pub fn provider(&self) -> Value {
        let name = Self::NAME;
        let (http, events, replay) = (self.http, self.events, self.replay);
        json!({
            "name": "vllm",
            "endpoint": format!("{name}:{http}"),
            "api_base": format!("http://{name}:{http}"),
            "kv_events": {
                "endpoint": format!("tcp://{name}:{events}"),
                "replay_endpoint": format!("tcp://{name}:{replay}"),
            },
        })
    }
}
