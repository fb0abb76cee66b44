use super::{Kind, MODEL, Message, Play, Settings, TOKEN_BYTES, Workload, generate, trace};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

fn play(kind: Kind) -> Play {
    Settings::of(kind).play(4, Duration::from_mins(1), 7)
}

fn generated() -> impl Iterator<Item = (Kind, Play, Workload)> {
    Kind::GENERATED.into_iter().map(|kind| {
        let play = play(kind);
        (kind, play, generate(kind, &play))
    })
}

#[test]
fn a_workload_depends_on_its_play_alone() {
    let said = |workload: Workload| -> Vec<_> {
        let requests = workload.requests.into_iter();
        requests.map(|r| (r.at, r.body(), r.session)).collect()
    };
    for (kind, play, workload) in generated() {
        let once = said(workload);
        assert_eq!(once, said(generate(kind, &play)));
        let other = Play { seed: 8, ..play };
        assert_ne!(once, said(generate(kind, &other)));
    }
}

#[test]
fn requests_come_in_order_and_about_as_many_as_asked_for() {
    for (kind, play, workload) in generated() {
        let times = || workload.requests.iter().map(|request| request.at);
        assert!(times().is_sorted());
        assert!(times().all(|at| at < play.duration));
        let asked = play.requests_per_sec * play.duration.as_secs_f64();
        for half in [false, true] {
            let in_half = times().filter(|at| (*at > play.duration / 2) == half);
            let share = f64::from(u32::try_from(in_half.count()).unwrap()) / asked;
            assert!((0.45..0.55).contains(&share), "{} {share}", kind.name());
        }
    }
}

#[test]
fn a_body_is_a_streamed_chat_with_as_many_tokens_as_said() {
    for (_, _, workload) in generated() {
        for request in workload.requests.iter().take(50) {
            let body: Value = serde_json::from_str(&request.body()).unwrap();
            assert_eq!(body["model"], MODEL);
            assert_eq!(body["stream"], true);
            assert_eq!(body["max_tokens"], request.answer_tokens);
            let messages = body["messages"].as_array().unwrap();
            let said = messages
                .iter()
                .map(|m| m["content"].as_str().unwrap().len());
            assert_eq!(said.sum::<usize>(), request.prompt_tokens() * TOKEN_BYTES);
            assert_eq!(messages.last().unwrap()["role"], "user");
        }
    }
}

#[test]
fn groups_have_their_heads_in_common_and_nothing_else() {
    let workload = generate(Kind::SharedPrefix, &play(Kind::SharedPrefix));
    let mut groups: HashMap<String, Vec<String>> = HashMap::new();
    for request in &workload.requests {
        let texts: Vec<_> = request.messages.iter().map(Message::text).collect();
        let [head, question] = texts.try_into().unwrap();
        groups.entry(head).or_default().push(question);
    }
    assert!((60..=64).contains(&groups.len()), "{}", groups.len());
    let mut sizes: Vec<_> = groups.values().map(Vec::len).collect();
    sizes.sort_unstable();
    assert!(sizes.last().unwrap() > &(4 * sizes[sizes.len() / 2]));
    let mut questions: Vec<_> = groups.into_values().flatten().collect();
    let count = questions.len();
    questions.sort();
    questions.dedup();
    assert_eq!(questions.len(), count);
}

#[test]
fn a_turn_begins_with_the_turn_before_and_an_answer_of_its_length() {
    let workload = generate(Kind::MultiTurn, &play(Kind::MultiTurn));
    let mut last = HashMap::new();
    let mut later = 0;
    for request in &workload.requests {
        let session = request.session.unwrap();
        if let Some(before) = last.insert(session, request) {
            let before: &super::Request = before;
            let (head, tail) = request.messages.split_at(before.messages.len());
            assert_eq!(head, before.messages);
            assert_eq!(tail[0].role, "assistant");
            assert_eq!(tail[0].tokens(), before.answer_tokens);
            later += 1;
        }
    }
    assert!(later > workload.requests.len() / 2);
}

#[test]
fn one_head_is_nearly_everybodys() {
    let workload = generate(Kind::HotPrefix, &play(Kind::HotPrefix));
    let with_head = workload.requests.iter().filter(|r| r.messages.len() == 2);
    let heads: Vec<_> = with_head.map(|r| &r.messages[0]).collect();
    assert!(heads.windows(2).all(|two| two[0] == two[1]));
    assert!((85..95).contains(&(100 * heads.len() / workload.requests.len())));
}

const TRACE: &str = r#"{"timestamp": 1000, "input_length": 700, "output_length": 20, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 1100, "output_length": 3, "hash_ids": [0, 1, 2]}

{"timestamp": 2000, "input_length": 512, "output_length": 9, "hash_ids": [4]}
{"timestamp": 5000, "input_length": 1, "output_length": 1, "hash_ids": [5]}
"#;

fn traced(trace: &str, requests_per_sec: f64, secs: u64) -> Result<Workload, String> {
    let play = Play {
        engines: 1,
        requests_per_sec,
        duration: Duration::from_secs(secs),
        seed: 3,
    };
    trace::parse(trace.as_bytes(), &play)
}

#[test]
fn equal_ids_of_a_trace_are_equal_text() {
    let workload = traced(TRACE, 1.0, 60).unwrap();
    let texts: Vec<_> = (workload.requests.iter())
        .map(|request| request.messages[0].text())
        .collect();
    let lengths: Vec<_> = texts.iter().map(|text| text.len() / TOKEN_BYTES).collect();
    assert_eq!(lengths, [700, 512, 1100, 1]);
    assert!(texts[2].starts_with(&texts[0]));
    let common = texts[0].bytes().zip(texts[1].bytes());
    assert!(common.take_while(|(a, b)| a == b).count() < 100);
}

#[test]
fn a_trace_is_played_as_fast_as_asked_for_and_as_long() {
    let times = |rate, secs| -> Vec<_> {
        let requests = traced(TRACE, rate, secs).unwrap().requests;
        requests.iter().map(|r| r.at.as_millis()).collect()
    };
    // Four requests in four seconds.
    assert_eq!(times(1.0, 60), [0, 1000, 2000, 4000]);
    assert_eq!(times(2.0, 60), [0, 500, 1000, 2000]);
    assert_eq!(times(2.0, 1), [0, 500]);
}

#[test]
fn requests_of_one_moment_are_spread_up_to_the_next() {
    let line = |at: u64| {
        format!(
            r#"{{"timestamp": {at}, "input_length": 5, "output_length": 5, "hash_ids": [{at}]}}"#
        )
    };
    let trace = [0, 0, 3000, 3000, 3000, 6000].map(line).join("\n");
    let requests = traced(&trace, 1.0, 60).unwrap().requests;
    let times: Vec<_> = requests.iter().map(|r| r.at.as_millis()).collect();
    assert_eq!(times, [0, 1500, 3000, 4000, 5000, 6000]);
}

#[test]
fn a_bad_line_of_a_trace_is_named() {
    for (trace, says) in [
        ("", "no requests"),
        ("\n{}\n", "line 2: missing field `timestamp`"),
        ("nonsense", "line 1: expected ident"),
        (
            r#"{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]}"#,
            "line 1: 1 hash_ids; an input_length of 513 has 2",
        ),
        (
            r#"{"timestamp": 0, "input_length": 5, "output_length": 0, "hash_ids": [0]}"#,
            "line 1: input_length and output_length must be at least 1",
        ),
    ] {
        let error = traced(trace, 1.0, 1).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
    let missing = std::path::Path::new("/nowhere/trace.jsonl");
    let error = super::read_trace(missing, &play(Kind::Trace)).unwrap_err();
    assert!(error.starts_with("trace /nowhere/trace.jsonl: "), "{error}");
}

#[test]
fn an_empty_play_asks_nothing() {
    for kind in Kind::GENERATED {
        let play = Settings::of(kind).play(4, Duration::ZERO, 1);
        assert_eq!(generate(kind, &play).requests.len(), 0);
    }
}
