//! Sanitising and restoring: nothing is lost, nothing is left, and nothing takes longer than it must.

use super::super::pii::{Sanitizer, Ticket, TooLarge, Unsanitized};
use super::super::texts::{Leg, edit, json};
use crate::config::{Pii, PiiKind, PiiPattern};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::convert::Infallible;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn sanitizer(patterns: &[(&str, &str)]) -> Sanitizer {
    let pattern = |&(name, pattern): &(&str, &str)| PiiPattern {
        name: name.to_owned(),
        pattern: pattern.to_owned(),
    };
    let pii = Sanitizer::new(&Pii {
        kinds: PiiKind::ALL.into(),
        patterns: patterns.iter().map(pattern).collect(),
    });
    pii.unwrap_or_else(|invalid| panic!("{invalid:?}"))
}

fn sanitize(pii: &Sanitizer, body: &Value) -> (Value, Ticket) {
    let body = body.to_string();
    let (sanitized, ticket) = pii.sanitize(&body, usize::MAX).unwrap();
    let sanitized = sanitized.unwrap_or(body);
    assert!(json(sanitized.as_bytes()).is_some(), "{sanitized}");
    (serde_json::from_str(&sanitized).unwrap(), ticket)
}

fn restore(ticket: &Ticket, body: &Value) -> Value {
    let body = body.to_string();
    let restored = ticket.restore(&body, usize::MAX).unwrap();
    serde_json::from_str(&restored.unwrap_or(body)).unwrap()
}

fn prompt(text: &str) -> Value {
    json!({ "prompt": text })
}

#[test]
fn what_looks_like_a_placeholder_gets_one_and_comes_back() {
    let (sanitized, ticket) = sanitize(
        &sanitizer(&[]),
        &prompt("[EMAIL-1] [X-01] a@b.de [TEXT-2] [EMAIL-1]"),
    );
    assert_eq!(
        sanitized["prompt"],
        "[TEXT-1] [TEXT-2] [EMAIL-1] [TEXT-3] [TEXT-1]"
    );
    let answer = prompt(
        "[EMAIL-1] [EMAIL-2] [EMAIL-01] [email-1] [TEXT-1] [TEXT-2] [[TEXT-3]] [IP-1] [A-1234567890]",
    );
    let expected =
        "a@b.de [EMAIL-2] [EMAIL-01] [email-1] [EMAIL-1] [X-01] [[TEXT-2]] [IP-1] [A-1234567890]";
    assert_eq!(restore(&ticket, &answer)["prompt"], expected);
    // It is no personal data.
    assert_eq!(ticket.found().collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn of_findings_that_overlap_nothing_stays() {
    let pii = sanitizer(&[("staff", "[0-9]{3} Ann"), ("note", "Ann Lee, [a-z]+@")]);
    let text = "call 192.0.2.123 Ann Lee, lee@example.com [EMAIL-1] Ann";
    let (sanitized, ticket) = sanitize(&pii, &prompt(text));
    assert_eq!(sanitized["prompt"], "call [IP-1] [TEXT-1] Ann");
    assert_eq!(restore(&ticket, &sanitized)["prompt"], text);
    // A pattern that reaches into what looks like a placeholder takes all of it.
    let pii = sanitizer(&[("open", "of .EM"), ("shut", "1. is")]);
    for text in ["of [EMAIL-1]", "[EMAIL-1] is", "of [EMAIL-1] is"] {
        let (sanitized, ticket) = sanitize(&pii, &prompt(text));
        let left = sanitized["prompt"].as_str().unwrap();
        assert!(["[OPEN-1]", "[TEXT-1]"].contains(&left), "{left}");
        assert_eq!(restore(&ticket, &sanitized)["prompt"], text);
    }
}

#[test]
fn what_is_in_json_in_a_text_is_found_and_comes_back_as_json() {
    let pii = sanitizer(&[("quote", "\"[a-z]+\"")]);
    let deep = json!({"to": "a\tjoe@example.com"}).to_string();
    let result = json!({
        "note": "Card:\n4111111111111111\nMail\njoe@example.com\t192.0.2.1",
        "card": 4_111_111_111_111_111_u64, "said": "he said \"so\"", "deep": [deep],
    });
    let turn = |content: &str| json!({"messages": [{"role": "tool", "content": content}]});
    let content = |body: &Value| {
        let content = body["messages"][0]["content"].as_str().unwrap().to_owned();
        serde_json::from_str::<Value>(&content).unwrap()
    };
    let (sanitized, ticket) = sanitize(&pii, &turn(&result.to_string()));
    let deep = json!({"to": "a\t[EMAIL-1]"}).to_string();
    assert_eq!(
        content(&sanitized),
        json!({
            "note": "Card:\n[CARD-1]\nMail\n[EMAIL-1]\t[IP-1]",
            "card": "[CARD-1]", "said": "he said [QUOTE-1]", "deep": [deep],
        })
    );
    let answer = turn(r#"{"to": "[EMAIL-1]", "said": "[QUOTE-1]"}"#);
    assert_eq!(
        content(&restore(&ticket, &answer)),
        json!({"to": "joe@example.com", "said": "\"so\""})
    );
    // What is JSON in part alone has its escapes as well.
    let text = r#"I got {"note": "x\n4111111111111111\u00e9joe@example.com\\n192.0.2.1"}"#;
    let (sanitized, ticket) = sanitize(&pii, &prompt(text));
    let expected = r#"I got {[QUOTE-1]: "x\n[CARD-1]\u00e9[EMAIL-1]\\n[IP-1]"}"#;
    assert_eq!(sanitized["prompt"], expected);
    assert_eq!(restore(&ticket, &sanitized)["prompt"], text);
}

#[test]
fn the_names_of_kinds_are_in_metrics_and_in_placeholders() {
    let pii = sanitizer(&[("badge", "B[0-9]+")]);
    assert_eq!(
        pii.kinds(),
        ["email", "phone", "card", "iban", "ssn", "ip", "badge"]
    );
    let (sanitized, ticket) = sanitize(&pii, &prompt("B1 B22 B1 10.0.0.1"));
    assert_eq!(sanitized["prompt"], "[BADGE-1] [BADGE-2] [BADGE-1] [IP-1]");
    assert_eq!(ticket.found().collect::<Vec<_>>(), [(5, 1), (6, 2)]);
    assert!(ticket.bytes() > 0 && !ticket.is_empty());
}

#[test]
fn a_ticket_does_not_show_what_it_knows() {
    let (_, ticket) = sanitize(&sanitizer(&[]), &prompt("a@b.de 10.0.0.1"));
    assert_eq!(format!("{ticket:?}"), "[1, 0, 0, 0, 0, 1, 0]");
}

#[test]
fn a_request_without_personal_data_stays_as_it_is() {
    let (sanitized, ticket) = sanitizer(&[])
        .sanitize(r#"{"prompt":"\u0061 b"}"#, 0)
        .unwrap();
    assert_eq!(sanitized, None);
    assert!(ticket.is_empty() && Ticket::default().is_empty());
    let forged = prompt("[EMAIL-1]").to_string();
    assert_eq!(ticket.restore(&forged, 0), Ok(None));
    assert_eq!(Ticket::default().restore(&forged, 0), Ok(None));
}

#[test]
fn a_conversation_that_goes_on_begins_as_it_did() {
    let pii = sanitizer(&[]);
    let turns = ["a@b.de", "c@d.de 10.0.0.1", "e@f.de a@b.de"];
    let mut before = Vec::new();
    for count in 1..=turns.len() {
        let messages: Vec<Value> = turns
            .iter()
            .take(count)
            .map(|turn| json!({"content": turn}))
            .collect();
        // Instructions are written behind the conversation, and read before it.
        let body = json!({"messages": messages, "system": "I am z@z.de."});
        let (sanitized, _) = sanitize(&pii, &body);
        assert_eq!(sanitized["system"], "I am [EMAIL-1].");
        let messages = sanitized["messages"].as_array().unwrap();
        assert!(messages.starts_with(&before), "{sanitized}");
        before.clone_from(messages);
    }
}

#[test]
fn what_came_back_is_not_looked_at_again() {
    let pii = sanitizer(&[("name", "<[^>]*>")]);
    let (sanitized, ticket) = sanitize(&pii, &prompt("<[NAME-2]> <[NAME-1]>"));
    assert_eq!(sanitized["prompt"], "[NAME-1] [NAME-2]");
    assert_eq!(
        restore(&ticket, &sanitized),
        prompt("<[NAME-2]> <[NAME-1]>")
    );
}

#[test]
fn what_comes_back_into_arguments_keeps_them_json() {
    let pii = sanitizer(&[("quote", "\"[a-z\\\\\n]+\"")]);
    let (_, ticket) = sanitize(&pii, &prompt("\"a\\b\nc\""));
    let answer = json!({"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{\"x\": \"[QUOTE-1]\", \"n\": 1.0}"}}]}}]});
    let restored = restore(&ticket, &answer);
    let arguments = restored
        .pointer("/choices/0/message/tool_calls/0/function/arguments")
        .unwrap();
    let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"x": "\"a\\b\nc\"", "n": 1.0}));
}

#[test]
fn a_number_that_a_tool_is_called_with_comes_back_as_a_string() {
    let called = |card: Value| {
        let input = json!({"card": card, "count": 4, "at": 1.50});
        json!({"messages": [{"role": "assistant",
            "content": [{"type": "tool_use", "name": "pay", "input": input}],
            "tool_calls": [{"function": {"name": "pay", "arguments": input.to_string()}}]}]})
    };
    let number = called(json!(4_111_111_111_111_111_u64));
    let (sanitized, ticket) = sanitize(&sanitizer(&[]), &number);
    assert_eq!(sanitized, called(json!("[CARD-1]")));
    assert_eq!(
        restore(&ticket, &sanitized),
        called(json!("4111111111111111"))
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let default = sanitizer(&[]);
    let body = |count: usize| {
        let text: Vec<String> = (0..count).map(|n| format!("a{n}@b.de")).collect();
        prompt(&text.join(" ")).to_string()
    };
    assert!(default.sanitize(&body(10_000), usize::MAX).is_ok());
    let sanitized = |body: &str, max| default.sanitize(body, max).map(|_| ());
    assert_eq!(
        sanitized(&body(10_001), usize::MAX),
        Err(Unsanitized::TooMany)
    );
    assert_eq!(sanitized(&body(10), 50), Err(Unsanitized::TooLarge));
    assert_eq!(
        sanitized("{\"prompt\":[1]}", usize::MAX),
        Err(Unsanitized::Unread)
    );

    let (_, ticket) = sanitize(&default, &prompt("anybody@example.com"));
    let answer = prompt(&"[EMAIL-1]".repeat(100)).to_string();
    let length = answer.len() + 100 * (19 - 9);
    assert_eq!(ticket.restore(&answer, length - 1), Err(TooLarge));
    assert_eq!(
        ticket.restore(&answer, length).unwrap().unwrap().len(),
        length
    );
}

#[test]
fn patterns_that_cannot_be_are_named() {
    let invalid = Sanitizer::new(&Pii {
        kinds: vec![PiiKind::Email],
        patterns: ["a", "(", "a*"]
            .map(|pattern| PiiPattern {
                name: "x".to_owned(),
                pattern: pattern.to_owned(),
            })
            .into(),
    });
    let paths: Vec<String> = invalid
        .err()
        .unwrap()
        .into_iter()
        .map(|invalid| invalid.path)
        .collect();
    assert_eq!(
        paths,
        ["pii.patterns[1].pattern", "pii.patterns[2].pattern"]
    );
}

/// Texts full of what is found, of what looks like it, and of what is in the way.
fn text() -> impl Strategy<Value = String> {
    pieces().prop_map(|pieces| pieces.concat())
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        Just("a@b.de".to_owned()),
        Just("c.d@e.com".to_owned()),
        Just("+49 30 1234567".to_owned()),
        Just("415-555-0123".to_owned()),
        Just("4111 1111 1111 1111".to_owned()),
        Just("123-45-6789".to_owned()),
        Just("10.0.0.1".to_owned()),
        Just("2001:db8::1".to_owned()),
        Just("DE89 3704 0044 0532 0130 00".to_owned()),
        "\\[(EMAIL|PHONE|TEXT|BADGE|A1)-[0-9]{1,3}\\]",
        "[\\[\\]A-Z0-9-]{1,6}",
        "B[0-9 ]{1,4}",
        "[ \"\\\\\n/é語😀@.:+(-]{1,3}",
        "[0-9 .-]{1,20}",
        ".{0,4}",
    ];
    prop::collection::vec(piece, 0..8)
}

/// The same texts in a request of each API, and nested in arguments.
fn requests(texts: &[String; 3]) -> [Value; 5] {
    let [a, b, c] = texts;
    let arguments = json!({"x": [a], "y": {"id": b}}).to_string();
    [
        json!({"messages": [{"role": "system", "content": a}, {"role": "user", "content": [{"type": "text", "text": b}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}, {"function": {"arguments": c}}]}]}),
        json!({"prompt": texts}),
        json!({"input": texts}),
        json!({"instructions": a, "input": [{"content": [{"type": "input_text", "text": b}]}, {"type": "function_call", "arguments": arguments}, {"output": c}]}),
        json!({"system": a, "messages": [{"role": "user", "content": b}, {"role": "assistant", "content": [{"type": "tool_use", "input": {"type": c, "z": a}}]}]}),
    ]
}

fn texts(body: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    let body = body.to_string();
    let _ = edit(&body, Leg::Request, usize::MAX, |text| {
        texts.push(text.to_owned());
        Ok::<_, Infallible>(None)
    });
    texts
}

proptest! {
    #[test]
    fn what_was_sanitised_is_restored_to_what_it_was(
        pieces in [text(), text(), text()],
        pattern in prop_oneof![Just("B[0-9 ]+"), Just("[A-Z]+-1"), Just("1\\]"), Just("(?s).\\[A"), Just("@"), Just("[0-9]")],
    ) {
        let pii = sanitizer(&[("badge", pattern)]);
        for body in requests(&pieces) {
            let (sanitized, ticket) = sanitize(&pii, &body);
            prop_assert_eq!(restore(&ticket, &sanitized), body);
        }
    }

    #[test]
    fn nothing_that_is_found_is_left(pieces in [pieces(), pieces(), pieces()]) {
        // Apart from each other: what is no word of its own may be one beside a placeholder.
        let pieces = pieces.map(|pieces| pieces.join(" ; "));
        let pii = sanitizer(&[]);
        for body in requests(&pieces) {
            // What is left has placeholders alone, which are found as such.
            let (sanitized, _) = sanitize(&pii, &body);
            let (again, ticket) = sanitize(&pii, &sanitized);
            prop_assert_eq!(texts(&again).len(), texts(&body).len());
            let left: u64 = ticket.found().map(|(_, count)| count).sum();
            prop_assert_eq!(left, 0, "{} from {}", sanitized, body);
        }
    }

    #[test]
    fn all_values_are_where_their_placeholders_are_and_nothing_else_changed(
        words in prop::collection::vec(("[a-z]{1,5}", 0..4usize), 0..20),
    ) {
        // The dumbest model: words apart from each other, and a table.
        let values = ["", "a@b.de", "10.0.0.1", "c@d.de"];
        let mut seen: Vec<&str> = Vec::new();
        let mut expected = String::new();
        let mut given = String::new();
        for (word, value) in &words {
            let value = values[*value];
            given += &format!("{word} {value} ");
            if value.is_empty() {
                expected += &format!("{word}  ");
                continue;
            }
            if !seen.contains(&value) {
                seen.push(value);
            }
            let is_email = |value: &str| value.contains('@');
            let alike = seen.iter().filter(|other| is_email(other) == is_email(value));
            let number = alike.take_while(|other| **other != value).count() + 1;
            let kind = if is_email(value) { "EMAIL" } else { "IP" };
            expected += &format!("{word} [{kind}-{number}] ");
        }
        let (sanitized, _) = sanitize(&sanitizer(&[]), &prompt(&given));
        prop_assert_eq!(&sanitized["prompt"], &expected);
    }
}

#[test]
fn a_million_bytes_of_what_is_almost_something_take_linear_time() {
    let pii = sanitizer(&[("long", "x.*y")]);
    for piece in [
        "a",
        "a@",
        "a@b.",
        "a@b.c",
        "@",
        ".",
        "'",
        "1 ",
        "01 ",
        "+1 ",
        "+",
        "(",
        "0",
        "4",
        "4 ",
        "4111-",
        "4111 1111 1111 1111 25.00 ",
        "a%40",
        "a%40b.",
        "a@b.c1",
        "..@",
        "+49 170 1234567 10-18 ",
        "a:1",
        "415-555-",
        "123-45-",
        "1.",
        "1:",
        "ffff:",
        ":",
        "::",
        "DE89",
        "DE89 ",
        "DE89 3704 ",
        "[",
        "[A",
        "[A-",
        "[A-1",
        "[A-1]",
        "x",
        "xy",
        "é",
        "\u{1F600}",
    ] {
        let text = piece.repeat(1_000_000 / piece.len());
        let body = prompt(&text);
        match pii.sanitize(&body.to_string(), usize::MAX) {
            Ok((sanitized, ticket)) => {
                let sanitized =
                    serde_json::from_str(&sanitized.unwrap_or(body.to_string())).unwrap();
                assert!(restore(&ticket, &sanitized) == body, "{piece:?}");
            }
            Err(error) => panic!("{piece:?}: {error:?}"),
        }
    }
}
