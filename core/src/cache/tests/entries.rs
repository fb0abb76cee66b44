//! Entries and tickets, and what is neither.

use super::super::entry::{Compared, Entry, MAX_CONTENT_TYPE_BYTES, OVERHEAD, TextId, Ticket};
use super::super::{ExactKey, Partition};
use super::*;
use crate::time::Millis;
use proptest::prelude::*;
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn entry(stream: bool, content_type: &str, body: &[u8]) -> Entry {
    Entry {
        exact: ExactKey([1; 32]),
        partition: Some(Partition([2; 32])),
        stored: Millis(1_700_000_000_000),
        stream,
        content_type: content_type.to_owned(),
        body: body.to_vec(),
    }
}

#[test]
fn an_entry_is_read_as_it_was_written_with_its_bytes_as_they_are() {
    let body = b"data: \xff\x00[DONE]\n\n";
    for partition in [Some(Partition([2; 32])), None] {
        let written = Entry {
            partition,
            ..entry(true, &"t".repeat(MAX_CONTENT_TYPE_BYTES), body)
        };
        let bytes = written.to_bytes();
        assert_eq!(Entry::from_bytes(&bytes), Some(written));
        assert!(bytes.windows(body.len()).any(|window| window == body));
        assert!(bytes.len() <= body.len() + OVERHEAD);
        for end in 0..bytes.len() {
            assert_eq!(Entry::from_bytes(&bytes[..end]), None, "{end}");
        }
    }
}

#[test]
fn an_entry_answers_whom_it_was_made_for() {
    let stream = entry(true, "text/event-stream", b"");
    let (exact, partition) = (ExactKey([1; 32]), Partition([2; 32]));
    assert!(stream.answers(exact, true) && stream.answers_alike(partition, true));
    assert!(!stream.answers(exact, false) && !stream.answers_alike(partition, false));
    let (other, another) = (ExactKey([2; 32]), Partition([1; 32]));
    assert!(!stream.answers(other, true) && !stream.answers_alike(another, true));
    let never_compared = Entry {
        partition: None,
        ..stream
    };
    assert!(never_compared.answers(exact, true));
    assert!(!never_compared.answers_alike(partition, true));
    // Its form is what it has, whatever it says.
    for (stream, content_type) in [(true, "application/json"), (false, "text/event-stream")] {
        let odd = entry(stream, content_type, b"");
        assert!(!odd.answers(exact, stream) && !odd.answers_alike(partition, stream));
    }
}

#[test]
fn a_ticket_says_what_the_question_was() {
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "stream": true});
    for (path, has_text) in [(CHAT, true), (MESSAGES, true), (RESPONSES, false)] {
        let question = question(path, &body);
        let ticket = Ticket::of(&question);
        assert_eq!(ticket.compared.is_some(), has_text);
        if let Some(Compared { text, .. }) = ticket.compared {
            assert_eq!(text, TextId::of("user: Hi"));
        }
        let text = ticket.to_text();
        assert!(text.len() < 256 && text.is_ascii() && !text.contains("Hi"));
        assert_eq!(Ticket::from_text(&text), Some(ticket));
    }
    let text = Ticket::of(&question(CHAT, &body)).to_text();
    for wrong in [
        String::new(),
        text.replace("chat", "talk"),
        text.replace("stream", "flood"),
        text.replace('-', ""),
        format!("{text}-00"),
        text[..text.len() - 1].to_owned(),
        text[..text.len() - 65].to_owned(),
    ] {
        assert_eq!(Ticket::from_text(&wrong), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..256), text in "[a-f0-9-]{0,256}") {
        let _ = Entry::from_bytes(&bytes);
        let _ = Ticket::from_text(&text);
        // What claims to be long is not believed.
        let long = [&[0x96, 0xc6, 0xff, 0xff, 0xff, 0xff][..], &bytes].concat();
        prop_assert_eq!(Entry::from_bytes(&long), None);
    }
}
