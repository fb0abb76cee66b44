//! A host with one VM.

use rolter_core::shared::{Host, Stored};
use std::cell::RefCell;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Alone {
    data: RefCell<HashMap<String, Stored>>,
    gauges: RefCell<Vec<u64>>,
}

impl Host for Alone {
    type Gauge = usize;

    fn vm(&self) -> String {
        "alone".into()
    }

    fn get(&self, key: &str) -> Option<Stored> {
        self.data.borrow().get(key).cloned()
    }

    fn set(&self, key: &str, value: &[u8], _expected: Option<u32>) -> bool {
        let stored = Stored {
            value: value.to_vec(),
            version: 1,
        };
        self.data.borrow_mut().insert(key.to_owned(), stored);
        true
    }

    fn gauge(&self, _name: &str, _labels: &[(&str, &str)]) -> usize {
        let mut gauges = self.gauges.borrow_mut();
        gauges.push(0);
        gauges.len() - 1
    }

    fn read(&self, gauge: usize) -> u64 {
        self.gauges.borrow().get(gauge).copied().unwrap_or(0)
    }

    fn add(&self, gauge: usize, amount: i64) {
        if let Some(gauge) = self.gauges.borrow_mut().get_mut(gauge) {
            *gauge = gauge.wrapping_add_signed(amount);
        }
    }

    fn put(&self, gauge: usize, value: u64) {
        if let Some(gauge) = self.gauges.borrow_mut().get_mut(gauge) {
            *gauge = value;
        }
    }
}
