//! The policy as a whole.

mod admission;
mod delivery;
mod guardrails;
mod patterns;
mod pii;
mod pii_kinds;
mod texts;
mod usage;

use super::*;
use crate::config::Config;
use crate::prompt::Dialect;
use serde_json::{Value, json};

/// A policy at work.
fn policy(policy: &Value) -> Policy {
    let document = json!({
        "policy": policy,
        "providers": [{"name": "a", "cluster": "a"}],
        "routes": [{"name": "chat", "targets": ["a"]}],
    });
    let config = Config::read(&document).unwrap();
    Policy::new(&config.policies[0]).unwrap()
}

/// A chat's body with one user turn.
fn asks(words: &str) -> String {
    json!({"model": "m", "messages": [{"role": "user", "content": words}]}).to_string()
}

/// A chat's answer, not as a serializer would write it.
fn says(words: &str) -> String {
    let words = Value::from(words);
    format!(
        "{{ \"id\":\"1\", \"choices\" : [{{\"message\":{{\"role\":\"assistant\",\"content\":{words}}}}}], \
         \"n\": 1.50, \"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2}}}}"
    )
}

/// What is known of a chat without anything taken out of it.
fn context(basis: Basis) -> Context {
    Context {
        route: "chat".into(),
        dialect: Some(Dialect::Chat),
        model: Some("m".into()),
        caller: Some([7; 32]),
        basis,
        ticket: Ticket::default(),
    }
}

/// The chat's request as the policy lets it go on, or why it does not.
fn admit(policy: &Policy, body: &str) -> Result<Admitted, Refusal> {
    policy.admit(&Request {
        dialect: Some(Dialect::Chat),
        stream: false,
        body: Body::Whole(body.as_bytes()),
    })
}
