//! Which requests a route is for.

use super::fields::Fields;

/// The conditions of a route. All that are given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Any of these hosts; empty: every host. Ports do not count, nor does case.
    pub hosts: Vec<Pattern>,
    /// How the path begins.
    pub path_prefix: String,
    /// Any of these models; empty: every model.
    pub models: Vec<Pattern>,
    /// The name of the Envoy route.
    pub route_name: Option<String>,
}

impl Default for Conditions {
    /// Every request.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            path_prefix: "/".into(),
            models: Vec::new(),
            route_name: None,
        }
    }
}

impl Conditions {
    pub(super) fn read(route: &Fields<'_>) -> Self {
        let Some(fields) = route.object("match") else {
            return Self::default();
        };
        let path_prefix = fields.string("path_prefix").unwrap_or("/");
        if !path_prefix.starts_with('/') {
            fields.add("path_prefix", "a path begins with \"/\"");
        }
        if path_prefix.contains(['*', '?', '#']) {
            fields.add(
                "path_prefix",
                "write the beginning of a path, without pattern or query",
            );
        }
        let patterns = |key, normal: fn(&[u8]) -> &[u8]| {
            fields
                .strings(key)
                .filter_map(|(path, text)| {
                    let text = str::from_utf8(normal(text.as_bytes())).unwrap_or(text);
                    let pattern = Pattern::new(text);
                    if pattern.is_none() {
                        fields.add(&path, "a pattern has one \"*\" at most, and is not empty");
                    }
                    pattern
                })
                .collect()
        };
        Self {
            hosts: patterns("hosts", without_port),
            path_prefix: path_prefix.to_owned(),
            models: patterns("models", |model| model),
            route_name: fields.string("route_name").map(str::to_owned),
        }
    }

    /// Whether the conditions on what is known from the headers hold.
    pub fn head(&self, host: &[u8], path: &[u8], route_name: Option<&[u8]>) -> bool {
        path.starts_with(self.path_prefix.as_bytes())
            && (self.hosts.is_empty() || {
                let host = without_port(host);
                let fits = |pattern: &Pattern| pattern.matches(host, <[u8]>::eq_ignore_ascii_case);
                self.hosts.iter().any(fits)
            })
            && self.route_name.as_ref().is_none_or(|name| {
                route_name.is_some_and(|route_name| route_name == name.as_bytes())
            })
    }

    /// Whether the condition on the model holds.
    pub fn model(&self, model: &str) -> bool {
        let fits = |pattern: &Pattern| pattern.matches(model.as_bytes(), |a, b| a == b);
        self.models.is_empty() || self.models.iter().any(fits)
    }
}

/// A host as it is compared: ports do not count.
fn without_port(host: &[u8]) -> &[u8] {
    let digits = host
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let name = host.get(..host.len() - digits).unwrap_or_default();
    match name.split_last() {
        // The colons inside an IPv6 address are inside brackets.
        Some((b':', name)) if digits > 0 => name,
        _ => host,
    }
}

/// A text in which one `*` may stand for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    head: String,
    /// What follows the `*`, where there is one.
    tail: Option<String>,
}

impl Pattern {
    /// Nothing where the text is empty or has more than one `*`.
    pub fn new(text: &str) -> Option<Self> {
        let (head, tail) = match text.split_once('*') {
            Some((head, tail)) => (head, Some(tail.to_owned())),
            None => (text, None),
        };
        let valid = !text.is_empty() && !tail.as_ref().is_some_and(|tail| tail.contains('*'));
        valid.then(|| Self {
            head: head.to_owned(),
            tail,
        })
    }

    /// Whether the whole of `text` fits, piece by piece the same as the pattern's.
    pub fn matches(&self, text: &[u8], same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        let Some((head, rest)) = text.split_at_checked(self.head.len()) else {
            return false;
        };
        let tail = match &self.tail {
            Some(tail) => rest
                .len()
                .checked_sub(tail.len())
                .and_then(|at| rest.get(at..)),
            None => Some(rest),
        };
        let wanted = self.tail.as_deref().unwrap_or_default();
        same(head, self.head.as_bytes()) && tail.is_some_and(|tail| same(tail, wanted.as_bytes()))
    }
}
