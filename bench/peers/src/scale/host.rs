//! The host of one simulated Envoy: what its VMs share.

use rolter_core::shared::{Host, NO_VERSION, Stored};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Envoy {
    data: RefCell<HashMap<String, Stored>>,
    version: Cell<u32>,
    gauges: RefCell<Vec<u64>>,
    names: RefCell<HashMap<String, usize>>,
    calls: Cell<u64>,
}

impl Envoy {
    /// How often it was called.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.get()
    }

    fn count(&self) {
        self.calls.set(self.calls.get() + 1);
    }
}

impl Host for Envoy {
    type Gauge = usize;

    fn vm(&self) -> String {
        "rolter".into()
    }

    fn get(&self, key: &str) -> Option<Stored> {
        self.count();
        self.data.borrow().get(key).cloned()
    }

    fn set(&self, key: &str, value: &[u8], expected: Option<u32>) -> bool {
        self.count();
        let mut data = self.data.borrow_mut();
        let version = data.get(key).map_or(NO_VERSION, |stored| stored.version);
        if expected.is_some_and(|expected| expected != version && version != NO_VERSION) {
            return false;
        }
        let version = self.version.get() + 1;
        self.version.set(version);
        if let Some(stored) = data.get_mut(key) {
            stored.value.clear();
            stored.value.extend_from_slice(value);
            stored.version = version;
        } else {
            let value = value.to_vec();
            data.insert(key.to_owned(), Stored { value, version });
        }
        true
    }

    fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        self.count();
        let mut names = self.names.borrow_mut();
        let next = names.len();
        let gauge = *names.entry(format!("{name} {labels:?}")).or_insert(next);
        self.gauges.borrow_mut().resize(names.len(), 0);
        gauge
    }

    fn read(&self, gauge: usize) -> u64 {
        self.count();
        self.gauges.borrow()[gauge]
    }

    fn add(&self, gauge: usize, amount: i64) {
        self.count();
        let gauge = &mut self.gauges.borrow_mut()[gauge];
        *gauge = gauge.wrapping_add_signed(amount);
    }

    fn put(&self, gauge: usize, value: u64) {
        self.count();
        self.gauges.borrow_mut()[gauge] = value;
    }
}
