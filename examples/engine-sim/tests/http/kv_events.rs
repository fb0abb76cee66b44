//! KV events against the dumbest model: what it predicts must be what the engine itself reports.

use std::time::Duration;

use engine_sim::{Engine, EngineConfig, KvEncoding, KvEvents, KvFault, KvHashes, KvReplayForm};
use serde_json::{Value, json};

use super::client::{Answered, post, read, request_h1, send, start};
use super::kv_model::{Asker, Event, Frames, Model, Subscriber};

const COMPLETIONS: &str = "/v1/completions";
const BLOCK: usize = 16;

fn engine(kv_events: KvEvents, ranks: usize, kv_blocks: usize) -> Engine {
    start(EngineConfig {
        prefill_tokens_per_sec: 1e9,
        decode_time_per_token: Duration::ZERO,
        default_max_tokens: 20,
        adapters: vec!["sql".to_owned(), "poem".to_owned()],
        kv_events: Some(kv_events),
        block_tokens: BLOCK,
        ranks,
        kv_blocks,
        ..EngineConfig::default()
    })
}

/// A subscriber of one rank that surely gets all from here on, and the last it got.
async fn subscribed(engine: &Engine, rank: usize, topic: &str) -> (Subscriber, Frames) {
    let mut subscriber = Subscriber::connect(&engine.kv_events()[rank].endpoint, topic).await;
    loop {
        engine.reset_prefix_cache();
        if let Some(mut last) = subscriber.try_next().await {
            while let Some(next) = subscriber.try_next().await {
                last = next;
            }
            return (subscriber, last);
        }
    }
}

async fn post_to(engine: &Engine, rank: &str, path: &str, body: &Value) -> Answered {
    let mut request = request_h1("POST", path, None, body.to_string());
    let rank = rank.parse().expect("a value");
    request.headers_mut().insert("x-data-parallel-rank", rank);
    read(send(engine.addr(), request).await.expect("a response")).await
}

fn cached(answer: &Value) -> usize {
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    usize::try_from(cached.expect("cached tokens")).expect("a small number")
}

async fn token_ids(engine: &Engine, body: &Value) -> Vec<u64> {
    let tokenized = post(engine, "/tokenize", body).await.json();
    let tokens = tokenized["tokens"].as_array().expect("token ids");
    tokens.iter().filter_map(Value::as_u64).collect()
}

/// A model of one rank, kept up to date by its events.
struct Follower {
    subscriber: Subscriber,
    model: Model,
    last: u64,
    frames: Vec<Frames>,
}

impl Follower {
    async fn of(engine: &Engine, rank: usize) -> Self {
        let (subscriber, last) = subscribed(engine, rank, "").await;
        Self {
            subscriber,
            model: Model::default(),
            last: last.sequence,
            frames: Vec::new(),
        }
    }

    fn apply(&mut self, frames: Frames, rank: usize) {
        assert_eq!(frames.sequence, self.last + 1, "a gap");
        self.last = frames.sequence;
        let (events, told) = frames.events();
        assert_eq!(usize::try_from(told), Ok(rank));
        self.model.apply(&events);
        self.frames.push(frames);
    }

    /// Reads all that was published up to now: the replay socket tells how much that is.
    async fn catch_up(&mut self, asker: &mut Asker, rank: usize) {
        let (missing, _) = asker.replay(self.last + 1).await;
        for _ in missing {
            let frames = self.subscriber.next().await;
            self.apply(frames, rank);
        }
    }
}

/// Requests of a small vocabulary, from a sequence of numbers that only looks random.
struct Requests(u64);

impl Requests {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn next(&mut self) -> Value {
        let system =
            "You are one of few. ".repeat(usize::try_from(self.below(3)).expect("small") * 8 + 4);
        let mut messages = vec![json!({"role": "system", "content": system})];
        for _ in 0..=self.below(3) {
            let question = format!("question {} ", self.below(3)).repeat(12);
            messages.push(json!({"role": "user", "content": question}));
        }
        let model = ["m", "m", "sql", "poem"][usize::try_from(self.below(4)).expect("small")];
        let salt = [Value::Null, Value::Null, json!("tenant")]
            [usize::try_from(self.below(3)).expect("small")]
        .clone();
        json!({"model": model, "messages": messages, "cache_salt": salt})
    }
}

async fn check_predictions(kv_events: KvEvents, ranks: usize) {
    let engine = engine(kv_events, ranks, 60);
    let (mut followers, mut askers) = (Vec::new(), Vec::new());
    for rank in 0..ranks {
        followers.push(Follower::of(&engine, rank).await);
        let replay = engine.kv_events()[rank].replay.as_deref();
        askers.push(Asker::connect(replay.expect("replays")).await);
    }
    // Resets for a later rank reached the earlier ones too.
    for (rank, follower) in followers.iter_mut().enumerate() {
        follower.catch_up(&mut askers[rank], rank).await;
    }

    let mut requests = Requests(ranks as u64);
    let (mut hits, mut asked_as_ids) = (0, 0);
    for number in 0..150 {
        let body = requests.next();
        let tokens = token_ids(&engine, &body).await;
        let model = body["model"].as_str().filter(|model| *model != "m");
        let rank = usize::try_from(requests.below(ranks as u64)).expect("small");
        let expected =
            followers[rank]
                .model
                .cached_tokens(&tokens, model, body["cache_salt"].as_str());
        let answer = if number % 3 == 0 {
            asked_as_ids += 1;
            let mut ids = json!({"model": body["model"], "prompt": tokens});
            ids["cache_salt"] = body["cache_salt"].clone();
            post_to(&engine, &rank.to_string(), COMPLETIONS, &ids).await
        } else {
            post_to(&engine, &rank.to_string(), "/v1/chat/completions", &body).await
        };
        let answer = answer.json();
        assert_eq!(answer["usage"]["prompt_tokens"], tokens.len());
        assert_eq!(cached(&answer), expected, "request {number}");
        hits += usize::from(expected > 0);
        if number % 50 == 49 {
            let path = ["/reset_prefix_cache", "/sim/reset"][number / 50 % 2];
            assert_eq!(post(&engine, path, &json!({})).await.status, 200);
        }
        for (rank, follower) in followers.iter_mut().enumerate() {
            follower.catch_up(&mut askers[rank], rank).await;
        }
    }
    assert!(hits > 20 && asked_as_ids > 20, "{hits} hits");
    let removed: usize = followers
        .iter()
        .map(|follower| follower.model.removed)
        .sum();
    assert!(removed > 20, "{removed} evictions");
    for (rank, follower) in followers.iter().enumerate() {
        let first = follower.frames[0].sequence;
        let (replayed, _) = askers[rank].replay(first).await;
        let replayed: Vec<_> = replayed.iter().map(|frames| with_topic(frames)).collect();
        assert_eq!(replayed, follower.frames);
    }
}

/// An answer of either form as a publication.
fn with_topic(frames: &[bytes::Bytes]) -> Frames {
    match frames {
        [sequence, payload] => Frames::of(&["kv-events".into(), sequence.clone(), payload.clone()]),
        _ => Frames::of(frames),
    }
}

#[tokio::test]
async fn events_predict_every_hit_in_maps_and_integers() {
    check_predictions(KvEvents::default(), 1).await;
}

#[tokio::test]
async fn events_predict_every_hit_in_arrays_and_byte_strings() {
    let events = KvEvents {
        encoding: KvEncoding::Array,
        hashes: KvHashes::Bytes,
        replay_form: KvReplayForm::NoTopic,
        ..KvEvents::default()
    };
    check_predictions(events, 1).await;
}

#[tokio::test]
async fn events_predict_every_hit_on_each_rank() {
    check_predictions(KvEvents::default(), 3).await;
    let events = KvEvents {
        encoding: KvEncoding::Array,
        hashes: KvHashes::Int,
        full_report: true,
        ..KvEvents::default()
    };
    check_predictions(events, 2).await;
    let events = KvEvents {
        hashes: KvHashes::Bytes,
        ..KvEvents::default()
    };
    check_predictions(events, 2).await;
}

/// Ends with another prompt, so that there is something to announce.
async fn new_prompt(engine: &Engine, number: usize) {
    let prompt = format!("prompt {number:08} and some more of it").repeat(8);
    let body = json!({"prompt": prompt, "max_tokens": 1});
    assert_eq!(post(engine, COMPLETIONS, &body).await.status, 200);
}

#[tokio::test]
async fn a_replay_begins_where_it_is_asked_to_and_ends_with_a_marker() {
    for (form, frames) in [(KvReplayForm::Topic, 3), (KvReplayForm::NoTopic, 2)] {
        let events = KvEvents {
            replay_form: form,
            ..KvEvents::default()
        };
        let engine = engine(events, 1, 4096);
        for number in 0..5 {
            new_prompt(&engine, number).await;
        }
        let replay = engine.kv_events()[0].replay.clone().expect("replays");
        let mut asker = Asker::connect(&replay).await;
        let (all, end) = asker.replay(0).await;
        assert_eq!(all.len(), 5);
        assert_eq!((all[0].len(), end.len()), (frames, frames));
        assert!(end[frames - 1].is_empty());
        assert!(frames == 2 || (end[0].is_empty() && all[0][0] == "kv-events"));
        let (some, _) = asker.replay(3).await;
        assert_eq!(some, all[3..]);
        let (none, same_end) = asker.replay(99).await;
        assert_eq!((none.len(), same_end), (0, end));

        // What cannot be read has no answer, and does no harm.
        let junk: [&[&[u8]]; 3] = [&[b""], &[b"", b"\0"], &[b"x", b"\0\0\0\0\0\0\0\0"]];
        for frames in junk {
            asker.ask(frames).await;
        }
        assert_eq!(asker.replay(0).await.0, all);
    }
}

#[tokio::test]
async fn a_replay_has_what_was_dropped_and_not_what_was_lost() {
    let engine = engine(KvEvents::default(), 1, 4096);
    let (mut subscriber, last) = subscribed(&engine, 0, "kv-").await;
    let next = last.sequence + 1;
    assert!(engine.strike_kv_events(0, KvFault::Lose(1)));
    new_prompt(&engine, 0).await;
    let body = json!({"fault": "drop=2"});
    assert_eq!(post(&engine, "/sim/kv-events", &body).await.status, 200);
    for number in 1..4 {
        new_prompt(&engine, number).await;
    }
    assert_eq!(subscriber.next().await.sequence, next + 3);
    let replay = engine.kv_events()[0].replay.clone().expect("replays");
    let mut asker = Asker::connect(&replay).await;
    let sequences = |frames: &[Vec<bytes::Bytes>]| -> Vec<u64> {
        let frames = frames.iter().map(|frames| Frames::of(frames).sequence);
        frames.collect()
    };
    assert_eq!(
        sequences(&asker.replay(next).await.0),
        [next + 1, next + 2, next + 3]
    );

    assert!(engine.strike_kv_events(0, KvFault::ReplaySilent));
    asker.ask(&[b"", &0_u64.to_be_bytes()]).await;
    assert!(asker.answer(Duration::from_millis(200)).await.is_none());
    assert!(engine.strike_kv_events(0, KvFault::ReplayAnswers));
    assert_eq!(asker.replay(next + 3).await.0.len(), 1);
    assert!(!engine.strike_kv_events(1, KvFault::ReplaySilent));
    let body = json!({"fault": "drop=2", "rank": 1});
    assert_eq!(post(&engine, "/sim/kv-events", &body).await.status, 400);
}

#[tokio::test]
async fn what_is_cached_can_be_published_again() {
    let engine = engine(KvEvents::default(), 1, 4096);
    let (mut subscriber, last) = subscribed(&engine, 0, "").await;
    new_prompt(&engine, 0).await;
    let mut stored: Vec<Event> = subscriber.next().await.events().0;
    assert!(engine.strike_kv_events(0, KvFault::PublishAgain));
    let again = subscriber.next().await;
    assert_eq!(again.sequence, last.sequence + 2);
    assert_eq!(again.events().0, stored);
    new_prompt(&engine, 1).await;
    stored = subscriber.next().await.events().0;
    assert!(matches!(stored[0], Event::Stored { parent: None, .. }));
}

#[tokio::test]
async fn a_publisher_comes_back_at_its_place_and_counts_on() {
    let engine = engine(KvEvents::default(), 1, 4096);
    let (mut subscriber, last) = subscribed(&engine, 0, "").await;
    assert!(engine.strike_kv_events(0, KvFault::Down));
    new_prompt(&engine, 0).await;
    assert_eq!(subscriber.try_next().await, None);
    assert!(engine.strike_kv_events(0, KvFault::Up));
    let (_, back) = subscribed(&engine, 0, "").await;
    assert!(back.sequence > last.sequence + 1);
}

#[tokio::test]
async fn an_engine_started_anew_is_at_its_old_place_and_counts_from_0() {
    let old = engine(KvEvents::default(), 2, 4096);
    subscribed(&old, 1, "").await;
    old.kill();
    let new = Engine::start(old.config().clone(), old.addr()).expect("the same ports");
    assert_eq!(new.kv_events(), old.kv_events());
    let (_, last) = subscribed(&new, 1, "").await;
    let replay = new.kv_events()[1].replay.clone().expect("replays");
    let (all, _) = Asker::connect(&replay).await.replay(0).await;
    assert_eq!(Frames::of(&all[0]).sequence, 0);
    assert_eq!(all.len() as u64, last.sequence + 1);
}

#[tokio::test]
async fn a_publisher_that_connects_finds_a_subscriber_that_binds() {
    let (mut subscriber, endpoint) = Subscriber::bind().await;
    let events = KvEvents {
        endpoint,
        replay_endpoint: None,
        ..KvEvents::default()
    };
    let engine = engine(events, 1, 4096);
    let first = loop {
        engine.reset_prefix_cache();
        if let Some(first) = subscriber.try_next().await {
            break first;
        }
    };
    assert_eq!(first.events().0, [Event::Cleared]);
    assert_eq!(first.topic, "kv-events");
}

#[tokio::test]
async fn events_go_over_a_unix_socket_too() {
    let path = std::env::temp_dir().join(format!("engine-sim-{}.ipc", std::process::id()));
    let events = KvEvents {
        endpoint: format!("ipc://{}", path.display()),
        replay_endpoint: None,
        topic: String::new(),
        ..KvEvents::default()
    };
    // The second finds what the first left behind.
    for _ in 0..2 {
        let engine = engine(events.clone(), 1, 4096);
        let (_, last) = subscribed(&engine, 0, "").await;
        assert!(last.topic.is_empty());
    }
    drop(std::fs::remove_file(path));
}

#[tokio::test]
async fn a_rank_that_does_not_exist_is_refused_and_the_least_loaded_serves_the_rest() {
    let engine = start(EngineConfig {
        ranks: 2,
        kv_events: Some(KvEvents::default()),
        decode_time_per_token: Duration::from_mins(1),
        ..EngineConfig::default()
    });
    let body = json!({"prompt": "hello", "max_tokens": 1});
    for (rank, status) in [
        ("0", 200),
        ("1", 200),
        ("2", 400),
        ("-1", 200),
        ("one", 200),
    ] {
        let answer = post_to(&engine, rank, COMPLETIONS, &body).await;
        assert_eq!(answer.status, status, "{rank}");
    }
    let long = json!({"prompt": "hello", "max_tokens": 4000, "stream": true});
    let request = |body: &Value| request_h1("POST", COMPLETIONS, None, body.to_string());
    let first = send(engine.addr(), request(&long)).await.expect("headers");
    assert_eq!(engine.stats().running + engine.stats().waiting, 1);
    // Rank 0 is busy with it, so this is rank 1's, which announces it.
    let (mut subscriber, _) = subscribed(&engine, 1, "").await;
    new_prompt(&engine, 0).await;
    assert_eq!(subscriber.next().await.events().1, 1);
    drop(first);
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_does_not_hold_up_the_engine() {
    let engine = engine(KvEvents::default(), 1, 4096);
    let (subscriber, _) = subscribed(&engine, 0, "").await;
    // 15 MB of events: more than what sockets hold on their way.
    for number in 0..100 {
        let prompt = format!("prompt {number:08} ").repeat(7500);
        let body = json!({"prompt": prompt, "max_tokens": 1});
        assert_eq!(post(&engine, COMPLETIONS, &body).await.status, 200);
    }
    let (mut reader, last) = subscribed(&engine, 0, "").await;
    new_prompt(&engine, 0).await;
    assert_eq!(reader.next().await.sequence, last.sequence + 1);
    drop(subscriber);
}

#[test]
fn endpoints_that_nothing_can_be_done_with_are_refused() {
    for (endpoint, ranks) in [
        ("nowhere", 1),
        ("tcp://127.0.0.1:0x1", 1),
        ("ipc:///run/kv", 2),
    ] {
        let config = EngineConfig {
            kv_events: Some(KvEvents {
                endpoint: endpoint.to_owned(),
                ..KvEvents::default()
            }),
            ranks,
            ..EngineConfig::default()
        };
        assert!(
            Engine::start(config, ([127, 0, 0, 1], 0).into()).is_err(),
            "{endpoint}"
        );
    }
}
