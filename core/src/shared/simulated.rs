//! A host with the rules of the real one, on which VMs run side by side, a call of the host at a
//! time and in an order that a seed decides, and die between any two of them.

use super::host::{Host, Stored};
use fastrand::Rng;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What all VMs of one simulated Envoy have in common.
pub(crate) struct World {
    state: Mutex<State>,
    turn: Condvar,
}

struct State {
    data: HashMap<String, Stored>,
    version: u32,
    gauges: Vec<u64>,
    names: HashMap<String, usize>,
    /// VMs that run side by side at the moment, and whose call is next.
    running: Vec<usize>,
    next: Option<usize>,
    rng: Rng,
    /// Whether a VM may stand still for as long as it takes the others to make many calls.
    stalls: bool,
    /// One that does, and the calls of others that it waits for.
    stalled: Option<(usize, u32)>,
}

/// The most calls of others that a VM is made to wait for.
const LONGEST_STALL: u32 = 3_000;

impl World {
    pub(crate) fn new(seed: u64, stalls: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                data: HashMap::new(),
                version: 0,
                gauges: Vec::new(),
                names: HashMap::new(),
                running: Vec::new(),
                next: None,
                rng: Rng::with_seed(seed),
                stalls,
                stalled: None,
            }),
            turn: Condvar::new(),
        })
    }

    /// Runs all of these side by side until each has returned, one call of the host at a time.
    /// Where there are no threads, one after the other.
    pub(crate) fn run<T: Send, F: FnOnce() -> T + Send>(self: &Arc<Self>, vms: Vec<F>) -> Vec<T> {
        if cfg!(target_arch = "wasm32") {
            return vms.into_iter().map(|vm| vm()).collect();
        }
        {
            let mut state = self.lock();
            state.running = (0..vms.len()).collect();
            state.choose();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = vms
                .into_iter()
                .enumerate()
                .map(|(number, vm)| {
                    scope.spawn(move || {
                        RUNNING.set(Some(number));
                        let _end = End(self, number);
                        vm()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    /// The keys of the shared data, and the bytes of keys and values.
    pub(crate) fn stored(&self) -> (usize, usize) {
        let state = self.lock();
        let bytes = state.data.iter().map(|(k, v)| k.len() + v.value.len());
        (state.data.len(), bytes.sum())
    }

    pub(crate) fn gauge_count(&self) -> usize {
        self.lock().gauges.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

thread_local! {
    /// The VM of this thread, where it runs beside others.
    static RUNNING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Lets the others go on without a VM that has returned.
struct End<'a>(&'a World, usize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running.retain(|&vm| vm != self.1);
        if state.next == Some(self.1) {
            state.choose();
        }
        self.0.turn.notify_all();
    }
}

impl State {
    fn choose(&mut self) {
        if self.stalls && self.rng.u32(..200) == 0 {
            let vm = self.rng.choice(&self.running).copied();
            self.stalled = vm.map(|vm| (vm, self.rng.u32(..LONGEST_STALL)));
        }
        self.stalled = self
            .stalled
            .and_then(|(vm, calls)| Some((vm, calls.checked_sub(1)?)));
        let stalled = self.stalled.map(|(vm, _)| vm);
        let awake = self.running.iter().filter(|&&vm| Some(vm) != stalled);
        let awake = self.rng.choice(awake.collect::<Vec<_>>());
        self.next = awake.or(self.running.first()).copied();
    }

    fn write(&mut self, key: &str, value: &[u8]) {
        self.version += 1;
        let stored = Stored {
            value: value.to_vec(),
            version: self.version,
        };
        self.data.insert(key.to_owned(), stored);
    }
}

/// The host as one VM has it.
pub(crate) struct SimulatedHost {
    world: Arc<World>,
    /// How many calls the VM has left to live.
    life: Cell<u64>,
}

impl SimulatedHost {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            life: Cell::new(u64::MAX),
        }
    }

    /// Lets the VM die after so many more calls.
    pub(crate) fn die_after(&self, calls: u64) {
        self.life.set(calls);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.life.get() == 0
    }

    /// One call, when it is this VM's turn. Nothing of it happens where the VM has died.
    fn call<T: Default>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        let left = self.life.get();
        if left == 0 {
            return T::default();
        }
        self.life.set(left - 1);
        let mut state = self.world.lock();
        if let Some(vm) = RUNNING.get() {
            while state.next != Some(vm) {
                state = self.world.turn.wait(state).unwrap();
            }
            let result = call(&mut state);
            state.choose();
            if state.next != Some(vm) {
                self.world.turn.notify_all();
            }
            return result;
        }
        call(&mut state)
    }
}

impl Host for SimulatedHost {
    type Gauge = usize;

    fn vm(&self) -> String {
        "v".to_owned()
    }

    fn get(&self, key: &str) -> Option<Stored> {
        self.call(|state| state.data.get(key).cloned())
    }

    fn set(&self, key: &str, value: &[u8], expected: Option<u32>) -> bool {
        self.call(|state| {
            let current = state.data.get(key).map(|stored| stored.version);
            let refused = expected
                .zip(current)
                .is_some_and(|(expected, current)| expected != current);
            if !refused {
                state.write(key, value);
            }
            !refused
        })
    }

    fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        // Not a turn of its own: nobody can tell when a gauge was made.
        let mut state = self.world.lock();
        let full = labels.iter().fold(name.to_owned(), |full, (label, value)| {
            format!("{full};{label}={value}")
        });
        let fresh = state.gauges.len();
        let index = *state.names.entry(full).or_insert(fresh);
        if index == fresh {
            state.gauges.push(0);
        }
        index
    }

    fn read(&self, gauge: usize) -> u64 {
        self.call(|state| state.gauges[gauge])
    }

    fn add(&self, gauge: usize, amount: i64) {
        self.call(|state| {
            state.gauges[gauge] = state.gauges[gauge].wrapping_add_signed(amount);
        });
    }

    fn put(&self, gauge: usize, value: u64) {
        self.call(|state| state.gauges[gauge] = value);
    }
}
