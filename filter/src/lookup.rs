//! What is asked of the response cache before a request is routed.

use crate::cache::{Cache, Outcome};
use crate::host;
use proxy_wasm::hostcalls;
use rolter_core::cache::control::Control;
use rolter_core::cache::headers::{CACHE, CALLER, KIND, PATH, REASON, TICKET};
use rolter_core::cache::{Bypass, VERSION_HEADERS};
use rolter_core::hex::to_hex;
use std::rc::Rc;
use std::time::Duration;

/// More than any ticket has.
const MAX_TICKET_BYTES: usize = 512;
/// More than any reason for a bypass has.
const MAX_REASON_BYTES: usize = 64;

/// A question to the sidecar: whether there is an answer to a request.
pub(crate) struct Lookup {
    cache: Rc<Cache>,
    /// What it needs for asking, which is gone once it has: it is as long as the client likes.
    asks: Option<Asks>,
    start: host::Micros,
}

struct Asks {
    path: String,
    caller: Option<String>,
    versions: [Option<String>; 3],
    /// Whether an answer is not wanted, but a ticket for the next one is.
    refresh: bool,
}

/// What has come of a question.
pub(crate) enum Looked {
    Hit(Hit),
    NoHit(NoHit),
}

/// An answer from the cache.
pub(crate) struct Hit {
    kind: &'static str,
    age: String,
    content_type: String,
    body: Vec<u8>,
}

/// Why a target has to answer.
pub(crate) enum NoHit {
    /// There is no answer; what to store the next one with, unless the sidecar could not be asked.
    Miss(Option<Ticket>),
    /// The request is not for the cache.
    Bypass,
}

/// What the sidecar wants to have with an answer to a request.
pub(crate) struct Ticket {
    /// The cache that the request was looked for in.
    pub(crate) cache: Rc<Cache>,
    pub(crate) text: String,
}

impl Lookup {
    /// For a request with a body, in the phases of the request.
    pub(crate) fn new(
        cache: &Rc<Cache>,
        caller: Option<&[u8; 32]>,
        control: Control,
    ) -> Result<Self, Bypass> {
        let text = |value: Option<Vec<u8>>| {
            value
                .map(|value| String::from_utf8(value).map_err(|_| Bypass::Unreadable))
                .transpose()
        };
        let [one, two, three] = VERSION_HEADERS;
        let [path, one, two, three] = host::request_headers([":path", one, two, three]);
        Ok(Self {
            cache: Rc::clone(cache),
            asks: Some(Asks {
                path: text(path)?.ok_or(Bypass::Path)?,
                caller: caller.map(|caller| to_hex(caller)),
                versions: [text(one)?, text(two)?, text(three)?],
                refresh: control == Control::NoCache,
            }),
            start: host::now(),
        })
    }

    /// Asks the sidecar, once. The number of the call, where there is one.
    pub(crate) fn ask(&mut self, cluster: &str, body: &[u8]) -> Option<u32> {
        let Asks {
            path,
            caller,
            versions,
            refresh,
        } = self.asks.take()?;
        let (route, config) = (&self.cache.route, &self.cache.config);
        let (scope, millis) = (config.scope.as_str(), config.lookup_timeout_ms);
        let query = format!(
            "/v1/cache/lookup?route={route}&scope={scope}&timeout_ms={millis}&refresh={refresh}"
        );
        let mut headers = vec![
            (":method", "POST"),
            (":path", &query),
            (":authority", host::SIDECAR),
            ("content-type", "application/json"),
            (PATH, &path),
        ];
        headers.extend(caller.as_deref().map(|key| (CALLER, key)));
        let versions = VERSION_HEADERS.into_iter().zip(&versions);
        headers.extend(versions.filter_map(|(name, value)| Some((name, value.as_deref()?))));
        let timeout = Duration::from_millis(millis);
        let call = hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout);
        if call.is_err() {
            self.cache.complain(cluster);
        }
        call.ok()
    }

    /// What the sidecar has answered, in the phase of that.
    pub(crate) fn answer(&self, headers: usize, size: usize) -> Looked {
        self.cache.looked(host::now().since(self.start));
        let looked = self.read(headers, size);
        looked.unwrap_or_else(|| Looked::NoHit(self.failed()))
    }

    /// The sidecar could not be asked.
    pub(crate) fn failed(&self) -> NoHit {
        self.cache.count(Outcome::Failed, Outcome::Failed.as_str());
        NoHit::Miss(None)
    }

    fn read(&self, headers: usize, size: usize) -> Option<Looked> {
        if !host::call_succeeded(headers) {
            return None;
        }
        let text = |name| String::from_utf8(host::call_header(name)?).ok();
        match text(CACHE)?.as_str() {
            "hit" => {
                let (kind, outcome) = match text(KIND)?.as_str() {
                    "exact" => ("exact", Outcome::Exact),
                    "semantic" => ("semantic", Outcome::Semantic),
                    _ => return None,
                };
                let hit = Hit {
                    kind,
                    age: text("age")?,
                    content_type: text("content-type")?,
                    body: host::call_bytes(size)?,
                };
                self.cache.count(outcome, kind);
                Some(Looked::Hit(hit))
            }
            "miss" => {
                let ticket = text(TICKET).filter(|ticket| ticket.len() <= MAX_TICKET_BYTES);
                self.cache.count(Outcome::Miss, "");
                Some(Looked::NoHit(NoHit::Miss(ticket.map(|text| Ticket {
                    cache: Rc::clone(&self.cache),
                    text,
                }))))
            }
            "bypass" => {
                let reason = text(REASON).filter(|reason| reason.len() <= MAX_REASON_BYTES);
                let reason = reason.as_deref().unwrap_or_default();
                self.cache.count(Outcome::Bypass, reason);
                Some(Looked::NoHit(NoHit::Bypass))
            }
            _ => None,
        }
    }
}

impl Hit {
    /// Answers the request.
    pub(crate) fn reply(&self) {
        let headers = [
            ("content-type", &*self.content_type),
            (CACHE, Outcome::Exact.told()),
            (KIND, self.kind),
            ("age", &self.age),
        ];
        host::reply(200, &headers, &self.body);
    }
}
