//! What requests leave for the access log, where that is wanted: each field is a call of the host, and
//! whether a log reads it nobody tells a filter.

use crate::host;
use rolter_core::config::Config;

#[derive(Clone, Copy)]
pub(crate) struct AccessLog {
    is_wanted: bool,
}

impl AccessLog {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            is_wanted: config.log_fields,
        }
    }

    /// A field of the request that is at hand, as `%FILTER_STATE(wasm.NAME:PLAIN)%`, at any time.
    pub(crate) fn tell(self, name: &str, value: &str) {
        if self.is_wanted {
            host::set_field(name, value);
        }
    }

    /// Likewise, where the value is made for the log alone.
    pub(crate) fn tell_number(self, name: &str, value: u64) {
        if self.is_wanted {
            host::set_field(name, &value.to_string());
        }
    }
}
