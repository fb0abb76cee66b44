//! What the filter reads from a request, and what policy and cache do with it, for people to look at.

mod policy;

use rolter_core::cache::{Asked, Bypass, MAX_TEXT_BYTES, Question, VERSION_HEADERS, admits};
use rolter_core::config::{Config, Policy, RouteCache, Scope};
use rolter_core::hex::to_hex;
use rolter_core::prompt::Prompt;
use std::fmt::Write;
use std::str::FromStr;

/// Characters of the text that are shown.
const SHOWN: usize = 200;
/// Token ids that are shown.
const SHOWN_IDS: usize = 16;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path that it is sent to.
    pub path: &'a str,
    /// Its body.
    pub body: &'a [u8],
    /// SHA-256 of its caller's key.
    pub caller: Option<[u8; 32]>,
    /// Its headers.
    pub headers: &'a [Header],
}

/// A header of a request: its name in lower case, and its value.
#[derive(Clone, Debug)]
pub struct Header {
    name: String,
    value: String,
}

impl FromStr for Header {
    type Err = String;

    /// Reads `NAME: VALUE`. Only those are accepted that keys depend on.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
        let name = name.trim().to_ascii_lowercase();
        if !VERSION_HEADERS.contains(&&*name) {
            let known = VERSION_HEADERS.join(", ");
            return Err(format!("of no use for the cache; write one of {known}"));
        }
        let value = value.trim().to_owned();
        Ok(Self { name, value })
    }
}

/// The route of a request: whose policy it is under, and whose cache it is looked for in.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    namespace: &'a str,
    route: &'a str,
    cache: Option<&'a RouteCache>,
    policy: Option<&'a Policy>,
    /// Longer bodies are not read.
    max_request_bytes: usize,
    /// What there is to say of the place itself.
    note: &'static str,
}

impl Place<'static> {
    /// Where there is no configuration to tell.
    pub const UNKNOWN: Self = Self {
        namespace: "rolter",
        route: "-",
        cache: None,
        policy: None,
        max_request_bytes: usize::MAX,
        note: "no configuration is given: the keys are those of a cache that all callers of a \
               route \"-\" share",
    };
}

impl<'a> Place<'a> {
    /// A route of a configuration, which may go unnamed where there is but one.
    ///
    /// # Errors
    /// Where it has no such route, with those that it has.
    pub fn of(config: &'a Config, route: Option<&str>) -> Result<Self, String> {
        let names: Vec<&str> = config.routes.iter().map(|route| &*route.name).collect();
        let known = names.join(", ");
        let route = match (route, &*config.routes) {
            (None, [only]) => only,
            (None, _) => return Err(format!("of which route? write --route with one of {known}")),
            (Some(name), routes) => routes
                .iter()
                .find(|route| route.name == name)
                .ok_or_else(|| format!("--route: no route {name:?}; there are: {known}"))?,
        };
        let note = match (&route.cache, &config.cache) {
            (Some(_), _) => "",
            (None, Some(_)) => {
                "the route has none, so nothing is looked for; write cache: {} there"
            }
            (None, None) => "no route has one, or cache.enabled is false: nothing is looked for",
        };
        let namespace = config.cache.as_ref().map(|cache| &*cache.namespace);
        Ok(Self {
            namespace: namespace.unwrap_or(Place::UNKNOWN.namespace),
            route: &route.name,
            cache: route.cache.as_ref(),
            policy: route.policy.and_then(|place| config.policies.get(place)),
            max_request_bytes: config.max_request_bytes,
            note,
        })
    }

    /// Nothing is looked for there, by the configuration.
    fn is_closed(&self) -> bool {
        self.cache.is_none() && self.route != Place::UNKNOWN.route
    }
}

/// What the filter reads from a request, and what policy and cache of a place make of it.
pub fn explain(request: &Request<'_>, place: &Place<'_>) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        // A string takes all that is written to it.
        writeln!(out, "{key:<10}{value}").unwrap_or_default();
    };
    explain_prompt(request, &mut line);
    let Some(passed) = policy::explain(request, place, &mut line) else {
        return out;
    };
    let sanitized = passed.body.as_ref();
    let request = Request {
        body: sanitized.map_or(request.body, |body| body.as_bytes()),
        ..*request
    };
    explain_cache(&request, place, passed.is_unsanitized, &mut line);
    out
}

fn explain_prompt(request: &Request<'_>, line: &mut dyn FnMut(&str, String)) {
    let prompt = Prompt::read(request.path.as_bytes(), request.body);
    let dialect = match prompt.dialect {
        Some(dialect) => format!("{dialect:?}"),
        None => "none: the prompt is the body as it is".to_owned(),
    };
    line("dialect", dialect);
    line(
        "model",
        prompt.model.as_deref().unwrap_or("none").to_owned(),
    );
    line("stream", prompt.stream.to_string());
    line(
        "length",
        format!(
            "{} bytes, of which {} are compared",
            prompt.len,
            prompt.text.len()
        ),
    );
    line("digest", format!("{:016x}", prompt.digest));
    if let Some(ids) = &prompt.token_ids {
        let ids = ids.to_vec();
        let first: Vec<_> = ids.iter().take(SHOWN_IDS).map(u32::to_string).collect();
        let dots = if ids.len() > SHOWN_IDS { ", …" } else { "" };
        line(
            "tokens",
            format!("{}: {}{dots}", ids.len(), first.join(", ")),
        );
    } else {
        line("text", start(&String::from_utf8_lossy(&prompt.text)));
    }
}

fn explain_cache(
    request: &Request<'_>,
    place: &Place<'_>,
    is_unsanitized: bool,
    line: &mut dyn FnMut(&str, String),
) {
    if place.is_closed() {
        line("cache", place.note.to_owned());
        return;
    }
    let scope = place.cache.map_or(Scope::Route, |cache| cache.scope);
    line(
        "cache",
        match (place.note, scope) {
            ("", Scope::Key) => format!("route {:?}, shared by one caller's requests", place.route),
            ("", Scope::Route) => format!("route {:?}, shared by all callers", place.route),
            (note, _) => note.to_owned(),
        },
    );
    let bypass = |line: &mut dyn FnMut(&str, String), bypass: Bypass| {
        line(
            "bypass",
            format!("{}: {}", bypass.as_str(), bypass.describe()),
        );
    };
    let caller = place
        .cache
        .map_or(Ok(()), |cache| admits(cache, request.caller.as_ref()));
    let unsanitized = is_unsanitized.then_some(Bypass::Unsanitized);
    let whys = unsanitized.into_iter().chain(caller.err());
    let is_looked_for = whys.clone().next().is_none();
    whys.for_each(|why| bypass(line, why));
    let value = |name: &str| {
        let header = request.headers.iter().find(|header| header.name == name);
        header.map_or(&b""[..], |header| header.value.as_bytes())
    };
    let asked = Asked {
        namespace: place.namespace,
        route: place.route,
        scope,
        path: request.path.as_bytes(),
        // Whoever it is: other reasons are told, too.
        caller: request.caller.or(Some([0; 32])),
        versions: VERSION_HEADERS.map(value),
        body: request.body,
    };
    let question = match Question::read(&asked) {
        Ok(question) => question,
        Err(why) => return bypass(line, why),
    };
    if is_looked_for {
        line("exact", to_hex(&question.exact.0));
    }
    if place.cache.is_some_and(|cache| cache.semantic.is_none()) {
        let none = "none: the route looks for equal requests alone, as it has no cache.semantic";
        return line("semantic", none.to_owned());
    }
    match &question.semantic {
        Ok(semantic) => {
            if is_looked_for {
                line("partition", to_hex(&semantic.partition.0));
            }
            let length = semantic.text.len();
            line(
                "embedded",
                format!(
                    "{} ({length} bytes of {MAX_TEXT_BYTES})",
                    start(&semantic.text)
                ),
            );
        }
        Err(why) => {
            let (word, why) = (why.as_str(), why.describe());
            line("semantic", format!("none: {word}: {why}"));
        }
    }
}

fn start(text: &str) -> String {
    let start: String = text.chars().take(SHOWN).collect();
    let dots = if start.len() < text.len() { " …" } else { "" };
    format!("{start:?}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CHAT: &str = "/v1/chat/completions";

    fn told(path: &str, body: &[u8]) -> String {
        let request = Request {
            path,
            body,
            caller: None,
            headers: &[],
        };
        explain(&request, &Place::UNKNOWN)
    }

    #[test]
    fn it_tells_what_is_read_and_cuts_it_short() {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#,
            "word ".repeat(1_000)
        );
        let long = told(CHAT, body.as_bytes());
        assert!(
            long.contains("Chat") && long.contains("user: word"),
            "{long}"
        );
        assert!(long.len() < 1_200, "{long}");
        let ids = told("/v1/completions", br#"{"prompt":[1,2,3]}"#);
        assert!(ids.contains("3: 1, 2, 3"), "{ids}");
        assert!(told("/", b"\xff").contains("none"));
    }

    #[test]
    fn without_a_configuration_it_says_so_and_tells_keys_all_the_same() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":" a  b "}]}"#;
        let told = told(CHAT, body);
        for part in ["no configuration", "exact ", "partition ", r#""user: a b""#] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }

    #[test]
    fn headers_that_keys_depend_on_make_other_keys() {
        let body = br#"{"messages":[{"role":"user","content":"Hi"}]}"#;
        let exact = |headers: &[Header]| {
            let request = Request {
                path: "/v1/messages",
                body,
                caller: None,
                headers,
            };
            let told = explain(&request, &Place::UNKNOWN);
            let exact = told.lines().find(|line| line.starts_with("exact"));
            exact.unwrap().to_owned()
        };
        let version: Header = "Anthropic-Version: 2023-06-01".parse().unwrap();
        assert_ne!(exact(&[version]), exact(&[]));
        for wrong in ["anthropic-version", "accept: x"] {
            assert!(wrong.parse::<Header>().is_err(), "{wrong}");
        }
    }

    fn config(cache: &serde_json::Value) -> Config {
        let document = json!({
            "sidecar": {"cluster": "s"},
            "providers": [
                {"name": "a", "cluster": "a"},
                {"name": "e", "api_base": "http://e"},
            ],
            "routes": [
                {"name": "chat", "targets": ["a"], "cache": cache},
                {"name": "bare", "targets": ["a"]},
            ],
        });
        Config::read(&document).unwrap()
    }

    fn explained(config: &Config, route: &str, caller: Option<[u8; 32]>, body: &str) -> String {
        let request = Request {
            path: CHAT,
            body: body.as_bytes(),
            caller,
            headers: &[],
        };
        explain(&request, &Place::of(config, Some(route)).unwrap())
    }

    #[test]
    fn each_reason_is_told() {
        let hello = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
        let tool = r#"{"messages":[{"role":"tool","content":"hello"}]}"#;
        let config = config(
            &json!({"keys": ["11".repeat(32)], "semantic": {"provider": "e", "model": "m"}}),
        );
        let listed = Some([0x11; 32]);
        let cases = [
            (
                "chat",
                listed,
                hello,
                &["exact ", "partition ", "embedded "][..],
            ),
            ("chat", None, hello, &["no_key: "]),
            ("chat", None, tool, &["no_key: ", "none: tools: "]),
            (
                "chat",
                Some([0x22; 32]),
                "nonsense",
                &["key_not_listed: ", "unreadable: "],
            ),
            ("bare", listed, hello, &["the route has none"]),
        ];
        for (route, caller, body, parts) in cases {
            let told = explained(&config, route, caller, body);
            for part in parts {
                assert!(told.contains(part), "{part} in {told}");
            }
            let is_looked_for = parts.contains(&"exact ");
            assert_eq!(told.contains("\nexact "), is_looked_for, "{told}");
        }
    }

    #[test]
    fn callers_have_keys_of_their_own_unless_the_route_shares() {
        let hello = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
        for (scope, is_same) in [("key", false), ("route", true)] {
            let config = config(&json!({"scope": scope}));
            let one = explained(&config, "chat", Some([1; 32]), hello);
            let other = explained(&config, "chat", Some([2; 32]), hello);
            assert_eq!(one == other, is_same, "{one}{other}");
            assert!(one.contains("equal requests alone"), "{one}");
        }
    }

    #[test]
    fn a_route_that_is_not_there_is_told_with_those_that_are() {
        let config = config(&json!({}));
        for route in [None, Some("x")] {
            let error = Place::of(&config, route).unwrap_err();
            assert!(error.contains("chat, bare"), "{error}");
        }
    }
}
