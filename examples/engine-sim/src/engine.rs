//! The handle of an engine, and the thread that it runs on.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::oneshot;

use crate::config::EngineConfig;
use crate::faults::Fault;
use crate::kv_events::{self, KvAddress, KvFault, Sockets};
use crate::occupancy::Occupancy;
use crate::question::Question;
use crate::server;
use crate::state::{RecordedRequest, Shared, Stats};

/// A running engine. It has a thread and a runtime of its own; dropping the handle kills it.
#[derive(Debug)]
pub struct Engine {
    addr: SocketAddr,
    shared: Arc<Shared>,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Engine {
    /// Starts an engine that listens on `listen`; port 0 takes any free port. Connections are
    /// taken from the moment that this returns. May be called in and outside of async code.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a configuration under which nothing could be served,
    /// and whatever binding the address or starting the thread fails with.
    pub fn start(mut config: EngineConfig, listen: SocketAddr) -> io::Result<Self> {
        config.check()?;
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (publishers, sockets, addresses) = match &mut config.kv_events {
            Some(events) => {
                let started = kv_events::start(events, config.ranks)?;
                (started.publishers, started.sockets, started.addresses)
            }
            None => (Vec::new(), Vec::new(), Vec::new()),
        };
        let shared = Arc::new(Shared::new(config, &publishers, addresses));
        let (kill, killed) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("engine-{}", shared.config.name))
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    for sockets in sockets {
                        tokio::spawn(Sockets::run(sockets));
                    }
                    tokio::select! {
                        () = server::serve(listener, served) => {}
                        _ = killed => {}
                    }
                });
                // Every task goes with the runtime, and every socket with its task.
                drop(runtime);
            })?;
        Ok(Self {
            addr,
            shared,
            process: Mutex::new(Some(Process { kill, thread })),
        })
    }

    /// The address that the engine listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The engine's name.
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// The configuration under which it runs. KV events have the ports that were taken in place of
    /// any free ones: an engine that is started with it, once this one is killed, is where this
    /// one was.
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// Where KV events are published and replayed, by rank. Empty without KV events.
    pub fn kv_events(&self) -> &[KvAddress] {
        &self.shared.kv_addresses
    }

    /// Lets a fault strike the KV events of one rank. `false`: that rank does not exist, or
    /// publishes none.
    pub fn strike_kv_events(&self, rank: usize, fault: KvFault) -> bool {
        self.shared.strike_kv_events(rank, fault).is_ok()
    }

    /// Sets what `GET /v1/occupancy` answers from now on.
    pub fn set_occupancy(&self, occupancy: Occupancy) {
        self.shared.set_occupancy(occupancy);
    }

    /// Forgets all blocks but those of running requests, as `POST /reset_prefix_cache` does.
    pub fn reset_prefix_cache(&self) {
        self.shared.clear_caches();
    }

    /// How many prompt tokens the engine would compute for each of these, if they came now one after
    /// another: what is in its cache, or one before it has computed, is found. Of several ranks the
    /// first is asked.
    pub fn would_compute(&self, questions: &[&Question]) -> Vec<usize> {
        let first = self.shared.ranks.first();
        first.map_or_else(Vec::new, |rank| rank.scheduler.would_compute(questions))
    }

    /// Counters and gauges, as `GET /sim/state` gives them. Works on a killed engine too.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The last requests, oldest first; at most 256, without those to `/health`, `/metrics`,
    /// `/v1/occupancy` and `/sim/…`. Works on a killed engine too.
    pub fn recent_requests(&self) -> Vec<RecordedRequest> {
        self.shared.recent_requests()
    }

    /// The last texts that were embedded, oldest first; at most 256, of 4096 characters each. Works on
    /// a killed engine too.
    pub fn embedded_texts(&self) -> Vec<String> {
        self.shared.embedded_texts()
    }

    /// Sets or ends a fault of the whole engine. It strikes every request that has none of its
    /// own, but for `/health`, `/metrics`, `/v1/occupancy` and `/sim/…`, which go on as if all
    /// were well.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.set_fault(fault);
    }

    /// Clears counters, recorded requests and the cache, but for the blocks of running requests.
    /// A fault stays.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Ends the engine as a killed process ends: every connection closes wherever it is, and the
    /// port is free when this returns. A second call does nothing.
    pub fn kill(&self) {
        let process = self
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(Process { kill, thread }) = process {
            // Either fails only if the thread has ended already.
            let _ = kill.send(());
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}
