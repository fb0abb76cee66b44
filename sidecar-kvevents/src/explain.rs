//! What the filter reads from a request, for people to look at.

use rolter_core::prompt::Prompt;
use std::fmt::Write;

/// Characters of the text that are shown.
const SHOWN: usize = 200;
/// Token ids that are shown.
const SHOWN_IDS: usize = 16;

/// What the filter reads from a body that is sent to this path.
pub fn explain(path: &str, body: &[u8]) -> String {
    let prompt = Prompt::read(path.as_bytes(), body);
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        // A string takes all that is written to it.
        writeln!(out, "{key:<10}{value}").unwrap_or_default();
    };
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
        let text = String::from_utf8_lossy(&prompt.text);
        let start: String = text.chars().take(SHOWN).collect();
        let dots = if start.len() < text.len() { " …" } else { "" };
        line("text", format!("{start:?}{dots}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_what_is_read_and_cuts_it_short() {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#,
            "word ".repeat(1_000)
        );
        let told = explain("/v1/chat/completions", body.as_bytes());
        assert!(
            told.contains("Chat") && told.contains("user: word"),
            "{told}"
        );
        assert!(told.len() < 600, "{told}");
        let told = explain("/v1/completions", br#"{"prompt":[1,2,3]}"#);
        assert!(told.contains("3: 1, 2, 3"), "{told}");
        assert!(explain("/", b"\xff").contains("none"));
    }
}
