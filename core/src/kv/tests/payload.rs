//! Payloads, as engines of many versions have them and as none should.

use super::super::Malformed;
use super::super::payload::{Batch, BlockHash, Event, decode};
use super::bytes;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const FIXTURES: &str = include_str!("../../../fixtures/kv-payloads.jsonl");

/// What was decoded, in the form of the fixtures.
fn as_json(decoded: &Result<Batch<'_>, Malformed>) -> Value {
    match decoded {
        Err(_) => json!("malformed"),
        Ok(batch) => json!({
            "rank": batch.rank,
            "events": batch.events.iter().map(event_as_json).collect::<Vec<_>>(),
        }),
    }
}

fn event_as_json(event: &Event<'_>) -> Value {
    let hash = |hash: &BlockHash<'_>| match hash {
        BlockHash::Int(number) => number.to_string(),
        BlockHash::Bytes(bytes) => {
            let digit = |number: u8| char::from_digit(number.into(), 16).unwrap();
            bytes
                .iter()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
                .collect()
        }
    };
    let hashes = |all: &[BlockHash<'_>]| all.iter().map(hash).collect::<Vec<_>>();
    match event {
        Event::Cleared => json!({"event": "cleared"}),
        Event::Unknown => json!({"event": "unknown"}),
        Event::Removed(removed) => json!({
            "event": "removed",
            "hashes": hashes(&removed.hashes),
            "medium": removed.medium,
            "group_idx": removed.group_idx,
        }),
        Event::Stored(stored) => json!({
            "event": "stored",
            "hashes": hashes(&stored.hashes),
            "parent": stored.parent.as_ref().map(hash),
            "token_ids": stored.token_ids,
            "block_size": stored.block_size,
            "medium": stored.medium,
            "lora_name": stored.lora_name,
            "group_idx": stored.group_idx,
        }),
    }
}

#[test]
fn every_fixture_decodes_as_it_says() {
    let mut count = 0;
    for line in FIXTURES.lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let payload = bytes(fixture["payload"].as_str().unwrap());
        let mut expected = fixture["expect"].clone();
        let decoded = decode(&payload);
        // Extra keys are opaque here; which blocks have any is what can be compared.
        for (number, event) in expected
            .get_mut("events")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let Some(keys) = event.as_object_mut().unwrap().remove("extra_keys") else {
                continue;
            };
            let Event::Stored(stored) = &decoded.as_ref().unwrap().events[number] else {
                panic!("{fixture}");
            };
            let given = stored.extra_keys.as_ref();
            let some = |keys: &Value| keys.as_array().is_some_and(|keys| !keys.is_empty());
            assert_eq!(
                given.map(|keys| keys
                    .iter()
                    .map(|keys| !keys.beside(None).is_empty())
                    .collect()),
                keys.as_array()
                    .map(|keys| keys.iter().map(some).collect::<Vec<_>>()),
                "{fixture}"
            );
        }
        assert_eq!(as_json(&decoded), expected, "{fixture}\n{decoded:?}");
        count += 1;
    }
    assert_eq!(count, 27);
}

#[test]
fn no_payload_that_is_cut_short_or_goes_on_passes() {
    for line in FIXTURES.lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let mut payload = bytes(fixture["payload"].as_str().unwrap());
        if fixture["expect"] == "malformed" {
            continue;
        }
        for length in 0..payload.len() {
            assert!(decode(&payload[..length]).is_err(), "{fixture} to {length}");
        }
        payload.push(0xc0);
        assert!(decode(&payload).is_err(), "{fixture} and more");
    }
}

/// Writes msgpack; only what the tests need.
fn write(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Null => to.push(0xc0),
        Value::Bool(value) => to.push(0xc2 + u8::from(*value)),
        Value::Number(number) if number.is_u64() => {
            to.push(0xcf);
            to.extend(number.as_u64().unwrap().to_be_bytes());
        }
        Value::Number(number) => {
            to.push(0xcb);
            to.extend(number.as_f64().unwrap().to_be_bytes());
        }
        Value::String(text) => {
            to.push(0xdb);
            to.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            to.extend(text.as_bytes());
        }
        Value::Array(values) => {
            to.push(0xdd);
            to.extend(u32::try_from(values.len()).unwrap().to_be_bytes());
            for value in values {
                write(value, to);
            }
        }
        Value::Object(fields) => {
            to.push(0xdf);
            to.extend(u32::try_from(fields.len()).unwrap().to_be_bytes());
            for (key, value) in fields {
                write(&json!(key), to);
                write(value, to);
            }
        }
    }
}

fn decoded(events: &Value) -> Result<Vec<Value>, String> {
    let mut payload = Vec::new();
    write(&json!([1.5, events, 0]), &mut payload);
    let batch = decode(&payload).map_err(|error| error.to_string())?;
    Ok(batch.events.iter().map(event_as_json).collect())
}

#[test]
fn widths_of_numbers_make_no_difference() {
    let events = decoded(&json!([["BlockRemoved", [5, 300], "CPU"]])).unwrap();
    assert_eq!(events[0]["hashes"], json!(["5", "300"]));
    assert_eq!(events[0]["medium"], "CPU");
}

#[test]
fn what_an_unknown_event_has_is_passed_over_whatever_it_is() {
    let odd = json!({"a": [[], {"b": [1, {"c": null}]}], "type": "BlockMoved", "block_hashes": 7});
    let list = json!(["BlockMoved", {"deep": [[[["x"]]]]}, 1]);
    let events = decoded(&json!([
        odd,
        ["AllBlocksCleared"],
        list,
        ["BlockRemoved", [1]]
    ]))
    .unwrap();
    let names: Vec<_> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(names, ["unknown", "cleared", "unknown", "removed"]);
}

#[test]
fn each_fault_is_named() {
    for (event, expected) in [
        (json!(7), "an event that is neither list nor map"),
        (json!([]), "an event that is neither list nor map"),
        (json!([7]), "an event whose tag is no text"),
        (json!({"block_hashes": [1]}), "an event without a type"),
        (json!({"type": 7}), "an event without a type"),
        (json!(["BlockRemoved"]), "an event without block hashes"),
        (json!(["BlockRemoved", [null]]), "a hash that is nil"),
        (
            json!(["BlockRemoved", [1.5]]),
            "a hash that is neither number nor bytes",
        ),
        (
            json!(["BlockStored", [1], null, [1]]),
            "stored blocks without token ids or block size",
        ),
        (
            json!(["BlockStored", [1], null, [1], 2]),
            "fewer token ids than its blocks have",
        ),
        (
            json!(["BlockStored", [1], null, [1], 0]),
            "fewer token ids than its blocks have",
        ),
        (
            json!(["BlockStored", [1], null, ["x"], 1]),
            "a token id that is no number",
        ),
        (
            json!([
                "BlockStored",
                [1, 2],
                null,
                [1, 2],
                1,
                null,
                null,
                null,
                [null]
            ]),
            "fewer extra keys than blocks",
        ),
        (
            json!(["BlockStored", [1], null, [1], 1, null, null, null, ["x"]]),
            "extra keys that are no list",
        ),
    ] {
        assert_eq!(decoded(&json!([event])), Err(expected.into()), "{event}");
    }
}
