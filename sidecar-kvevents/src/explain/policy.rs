//! What the policy of a route does about a request, told as the filter would do it: the decision is
//! the filter's own.

use super::{Place, Request, start};
use rolter_core::policy::{Admitted, Body, Policy, Request as Asked};
use rolter_core::prompt::Prompt;

/// A request that goes on.
#[derive(Default)]
pub(super) struct Passed {
    /// What stands in the place of its body, if anything does.
    pub(super) body: Option<String>,
    /// Whether neither it nor its answer may be kept.
    pub(super) is_unsanitized: bool,
}

/// Tells what becomes of a request; nothing more where it is refused.
pub(super) fn explain(
    request: &Request<'_>,
    place: &Place<'_>,
    line: &mut dyn FnMut(&str, String),
) -> Option<Passed> {
    // What a configuration has was compiled when that was read.
    let Some(policy) = place.policy.and_then(|policy| Policy::new(policy).ok()) else {
        return Some(Passed::default());
    };
    let prompt = Prompt::read(request.path.as_bytes(), request.body);
    let (stream, body) = match request.body {
        [] => (false, Body::None),
        body if body.len() > place.max_request_bytes => (false, Body::Unknown),
        body => (prompt.stream, Body::Whole(body)),
    };
    let dialect = prompt.dialect;
    let admitted = policy.admit(&Asked {
        dialect,
        stream,
        body,
    });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let (status, reason) = (refusal.status(), refusal.reason());
            let message = refusal.message();
            line(
                "policy",
                format!("refused with {status}, {reason}: {message}"),
            );
            return None;
        }
    };
    line("policy", outcome(&policy, &admitted, stream));
    if policy.config().pii.is_some() && !admitted.is_unsanitized {
        line("found", found(&policy, &admitted));
    }
    if let Some(body) = &admitted.body {
        let prompt = Prompt::read(request.path.as_bytes(), body.as_bytes());
        line("sanitized", start(&String::from_utf8_lossy(&prompt.text)));
    }
    Some(Passed {
        body: admitted.body,
        is_unsanitized: admitted.is_unsanitized,
    })
}

/// What it is passed over.
fn outcome(policy: &Policy, admitted: &Admitted, stream: bool) -> String {
    let config = policy.config();
    if !config.judges() {
        return "does nothing: it has no guardrails, no plugins and no pii".to_owned();
    }
    if stream {
        return "skipped: the request is for a stream, and on_stream says skip; an answer that is \
                none is passed over"
            .to_owned();
    }
    let mut steps = Vec::new();
    match config.guardrails.len() {
        0 => {}
        1 => steps.push("1 guardrail".to_owned()),
        count => steps.push(format!("{count} guardrails")),
    }
    let plugins = config.plugins.iter();
    steps.extend(plugins.map(|plugin| format!("plugin {}", plugin.name)));
    if config.pii.is_some() && !admitted.is_unsanitized {
        steps.push("pii".to_owned());
    }
    let steps = match &*steps.join(", ") {
        "" => "nothing".to_owned(),
        steps => steps.to_owned(),
    };
    let unread = if admitted.is_unsanitized {
        "; the request cannot be read and goes on as it is, as on_unread says skip"
    } else {
        ""
    };
    format!("over the answer: {steps}{unread}")
}

/// The personal data that it takes out.
fn found(policy: &Policy, admitted: &Admitted) -> String {
    let kinds = policy.kinds();
    let found = admitted.ticket.found().map(|(kind, count)| {
        let kind = kinds.get(kind).map_or("?", |kind| kind);
        format!("{count} {kind}")
    });
    match &*found.collect::<Vec<_>>().join(", ") {
        "" => "no personal data".to_owned(),
        found => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::explain;
    use super::*;
    use rolter_core::config::Config;
    use serde_json::{Value, json};

    const CHAT: &str = "/v1/chat/completions";

    fn config(policy: &Value) -> Config {
        let document = json!({
            "sidecar": {"cluster": "s"},
            "max_request_bytes": 4096,
            "providers": [
                {"name": "a", "cluster": "a"},
                {"name": "e", "api_base": "http://e"},
            ],
            "routes": [{
                "name": "chat",
                "targets": ["a"],
                "policy": policy,
                "cache": {"scope": "route", "semantic": {"provider": "e", "model": "m"}},
            }],
        });
        Config::read(&document).unwrap()
    }

    fn told(policy: &Value, body: &str) -> String {
        let config = config(policy);
        let request = Request {
            path: CHAT,
            body: body.as_bytes(),
            caller: None,
            headers: &[],
        };
        explain(&request, &Place::of(&config, Some("chat")).unwrap())
    }

    /// A line of what is told.
    fn line<'a>(told: &'a str, key: &str) -> Option<&'a str> {
        let mut lines = told.lines();
        lines.find_map(|line| line.strip_prefix(key).map(str::trim_start))
    }

    fn chat(text: &str) -> String {
        json!({"messages": [{"role": "user", "content": text}]}).to_string()
    }

    #[test]
    fn the_cache_gets_what_the_policy_has_made_of_a_request() {
        let pii = json!({"pii": {}});
        let one = told(&pii, &chat("Write to ann@example.com, ann@example.com"));
        let other = told(&pii, &chat("Write to bob@example.org, bob@example.org"));
        for told in [&one, &other] {
            assert_eq!(line(told, "policy"), Some("over the answer: pii"), "{told}");
            assert_eq!(line(told, "found"), Some("1 email"), "{told}");
            let text = "Write to [EMAIL-1], [EMAIL-1]";
            for key in ["sanitized", "embedded"] {
                assert!(line(told, key).unwrap().contains(text), "{told}");
            }
        }
        for key in ["exact", "partition"] {
            assert!(line(&one, key).is_some(), "{one}");
            assert_eq!(line(&one, key), line(&other, key));
        }
        let plain = told(&json!({}), &chat("Write to [EMAIL-1], [EMAIL-1]"));
        assert_eq!(line(&one, "exact"), line(&plain, "exact"));
    }

    #[test]
    fn a_request_without_personal_data_goes_on_as_it_is() {
        let told = told(&json!({"pii": {}}), &chat("Hello"));
        assert_eq!(line(&told, "found"), Some("no personal data"));
        assert_eq!(line(&told, "sanitized"), None);
        assert!(line(&told, "exact").is_some(), "{told}");
    }

    #[test]
    fn a_refusal_is_told_with_its_reason_and_nothing_is_looked_for() {
        let stream = r#"{"stream": true, "messages": [{"role": "user", "content": "Hello"}]}"#;
        let long = chat(&"word ".repeat(1024));
        let pii = json!({"pii": {}});
        let cases = [
            (&pii, stream, "refused with 400, stream: "),
            (&pii, "nonsense", "refused with 400, unread_request: "),
            (&pii, &*long, "refused with 400, unread_request: "),
        ];
        for (policy, body, expected) in cases {
            let told = told(policy, body);
            assert!(
                line(&told, "policy").unwrap().starts_with(expected),
                "{told}"
            );
            assert_eq!(line(&told, "cache"), None, "{told}");
        }
    }

    #[test]
    fn what_is_skipped_is_told_and_is_not_for_the_cache_with_personal_data() {
        let stream = r#"{"stream": true, "messages": [{"role": "user", "content": "Hello"}]}"#;
        let skip = json!({"pii": {}, "on_stream": "skip", "on_unread": "skip"});
        let rule = json!({"name": "r", "keywords": ["x"], "action": "block"});
        let plugin = json!({"name": "scan", "cluster": "scan"});
        let rules = json!({"guardrails": [rule], "plugins": [plugin], "on_stream": "skip"});
        let skipped = told(&skip, stream);
        assert!(
            line(&skipped, "policy").unwrap().starts_with("skipped"),
            "{skipped}"
        );
        let unread = told(&skip, "nonsense");
        assert!(
            line(&unread, "policy").unwrap().contains("as it is"),
            "{unread}"
        );
        for told in [&skipped, &unread] {
            let bypass = line(told, "bypass").unwrap();
            assert!(bypass.starts_with("unsanitized: "), "{told}");
            assert_eq!(line(told, "exact"), None, "{told}");
        }
        // Nothing was to be taken out of it.
        let skipped = told(&rules, stream);
        assert!(
            line(&skipped, "policy").unwrap().starts_with("skipped"),
            "{skipped}"
        );
        assert!(line(&skipped, "exact").is_some(), "{skipped}");
        let judged = told(&rules, &chat("Hello"));
        let steps = "over the answer: 1 guardrail, plugin scan";
        assert_eq!(line(&judged, "policy"), Some(steps));
        let nothing = told(&json!({}), &chat("Hello"));
        assert!(
            line(&nothing, "policy")
                .unwrap()
                .starts_with("does nothing"),
            "{nothing}"
        );
    }
}
