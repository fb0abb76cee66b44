//! What the filter of the policy leaves with a request for the one that routes, which is below it.
//!
//! It is a property of the stream, out of reach of clients. A request without it has not been seen
//! by the policy, so nothing that answers it would be.

use crate::host;

/// What holds the mark.
const PROPERTY: &str = "rolter_policy";
/// What follows the name of the route where the request may not be kept. Names have no semicolon.
const UNSANITIZED: &str = ";unsanitized";

/// How filters have to be set up for it.
pub(crate) const ORDER: &str = "in http_filters, put a filter with the same module, vm_id and \
    configuration and with root_id: rolter_policy somewhere before the one with root_id: rolter";

/// That a policy has been over a request.
#[derive(Default)]
pub(crate) struct Mark {
    /// The route whose policy it was; empty where there was none.
    route: String,
    /// Whether neither the request nor its answer may be kept.
    pub(crate) is_unsanitized: bool,
}

impl Mark {
    /// Leaves it with a request, in any phase of that.
    pub(crate) fn leave(route: &str, is_unsanitized: bool) {
        let flag = if is_unsanitized { UNSANITIZED } else { "" };
        host::set_field(PROPERTY, &format!("{route}{flag}"));
    }

    /// Reads what was left.
    pub(crate) fn read() -> Self {
        let text = host::field(PROPERTY).unwrap_or_default();
        let (route, is_unsanitized) = match text.strip_suffix(UNSANITIZED) {
            Some(route) => (route, true),
            None => (&*text, false),
        };
        Self {
            route: route.to_owned(),
            is_unsanitized,
        }
    }

    /// Whether it was the policy of this route.
    pub(crate) fn is_of(&self, route: &str) -> bool {
        self.route == route
    }
}
