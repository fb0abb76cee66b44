//! Personal data: whoever asks gets their own back, and neither engines nor those who are asked about
//! answers nor the cache ever see it.

use e2e::cached::{Cached, reply, with};
use e2e::guarded::{
    Ways, allows, chat, code, guarded, is_sound, parrot, plugin, replaces, with_cache,
};
use e2e::server::Server;
use e2e::{CHAT, Caller, setup};
use fleet::Redis;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Somebody's data: one of each kind.
struct Person {
    key: &'static str,
    data: [&'static str; 7],
}

const ANN: Person = Person {
    key: "ann's key",
    data: [
        "ann@example.com",
        "+1 415 555 2671",
        "4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "536-90-4399",
        "192.0.2.17",
        "EMP-123456",
    ],
};
const BEN: Person = Person {
    key: "ben's key",
    data: [
        "ben.müller+x@mail.example.org",
        "+44 20 7946 0958",
        "5500 0000 0000 0004",
        "GB82 WEST 1234 5698 7654 32",
        "219-09-9998",
        "2001:db8::7:1",
        "EMP-654321",
    ],
};

impl Person {
    /// Words that have all of it.
    fn words(&self) -> String {
        let [email, phone, card, iban, ssn, ip, employee] = self.data;
        format!(
            "I am {email} \\ \"{email}\", call {phone}; pay with {card} or {iban}. Mine are {ssn}, \
             {ip} and {employee}. [EMAIL-1] is no data of mine.",
        )
    }

    /// Whether some of it is in these bytes.
    fn is_in(&self, bytes: &[u8]) -> Option<&'static str> {
        let has = |part: &&&str| {
            let part = part.as_bytes();
            bytes.windows(part.len()).any(|window| window == part)
        };
        self.data.iter().find(has).copied()
    }
}

fn policy() -> serde_json::Value {
    json!({
        "pii": {"patterns": [{"name": "employee", "pattern": "\\bEMP-[0-9]{6}\\b"}]},
        "plugins": [plugin("judge", &json!({}))],
    })
}

/// A way to Redis on which all that is sent is kept.
async fn overheard(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(to).await else {
                continue;
            };
            let ((mut asks, mut is_told), (mut answers, mut is_asked)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut is_told).await });
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = asks.read(&mut buffer).await {
                    all.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if is_asked.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (addr, heard)
}

/// All that a Redis has, names and values.
async fn all_of(redis: &Redis) -> Vec<u8> {
    let keys = redis::cmd("KEYS").arg("*").to_owned();
    let keys: Vec<Vec<u8>> = redis.ask(&keys).await.unwrap();
    assert!(!keys.is_empty());
    let mut all = Vec::new();
    for key in keys {
        let kind = redis::cmd("TYPE").arg(&key).to_owned();
        let kind: String = redis.ask(&kind).await.unwrap();
        let mut read = match &*kind {
            "string" => redis::cmd("GET").arg(&key).to_owned(),
            "zset" => redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).to_owned(),
            other => panic!("{other}"),
        };
        all.extend(key);
        if kind == "string" {
            all.extend(redis.ask::<Vec<u8>>(&read).await.unwrap());
        } else {
            let members = redis.ask::<Vec<Vec<u8>>>(read.arg("WITHSCORES")).await;
            all.extend(members.unwrap().concat());
        }
        all.push(b'\n');
    }
    all
}

#[tokio::test]
async fn who_asks_gets_their_own_data_back_and_an_engine_sees_placeholders() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = || guarded(&engine, policy()).cluster("judge", judge.addr());
    let ways = Ways::start(setup).await;
    let question = ways.question(&ANN.words());
    for got in ways.ask(&question).await {
        let said = format!("You said: {}", ANN.words());
        assert_eq!((got.status, &*got.said()), (200, &*said));
    }
    let text = "I am [EMAIL-1] \\ \"[EMAIL-1]\", call [PHONE-1]; pay with [CARD-1] or [IBAN-1]. Mine \
        are [SSN-1], [IP-1] and [EMPLOYEE-1]. [TEXT-1] is no data of mine.";
    let seen = engine.last().json();
    assert_eq!(seen["messages"][0]["content"], text);
    for asked in engine.all().iter().chain(&judge.all()) {
        assert_eq!(ANN.is_in(&asked.body), None, "{}", asked.text());
        let length = asked.headers["content-length"].to_str().unwrap();
        assert_eq!(length, asked.body.len().to_string());
    }
    for kind in ["email", "phone", "card", "iban", "ssn", "ip", "employee"] {
        let labels = [("route", "chat"), ("kind", kind)];
        let counted = |stats: &fleet::Stats| stats.filter("rolter_policy_pii", &labels);
        let stats = ways.on.fleet.stats_when(|stats| counted(stats) == 3).await;
        assert_eq!(counted(&stats.unwrap()), 3, "{kind}");
    }
    ways.is_sound().await;
}

#[tokio::test]
async fn a_hit_restores_the_data_of_the_request_that_it_answers() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = guarded(&engine, policy()).cluster("judge", judge.addr());
    let redis = Redis::start().await.unwrap();
    let (way, heard) = overheard(redis.addr()).await;
    let embedder = e2e::cached::embedder(engine_sim::Embeddings::Equal);
    let setup = with_cache(setup)
        .with("/routes/0/cache/scope", "route")
        .semantic(&embedder)
        .with("/cache/redis", format!("redis://{way}"));
    let cached = Cached::start(setup).await;
    cached.until_connected().await;
    let ask = |person: &Person, words: String| {
        let request = cached.anonymous(CHAT).bearer_auth(person.key);
        request.json(&chat(&words))
    };
    let stored = cached.counted("stores", &[("cache", "exact")]).await;
    cached.store(ask(&ANN, ANN.words()), "semantic").await;
    cached
        .until_counted("stores", &[("cache", "exact")], stored + 1)
        .await;
    for _ in 0..2 {
        for person in [&BEN, &ANN] {
            for (kind, more) in [("exact", ""), ("semantic", " Please.")] {
                let got = reply(ask(person, person.words() + more)).await;
                assert_eq!(got.told(), (200, "hit", kind));
                // In other words too it is the answer to those of the first.
                assert_eq!(got.said(), format!("You said: {}", person.words()));
            }
        }
    }
    assert_eq!(engine.asked(), 1);
    let everywhere = [
        all_of(&redis).await,
        heard.lock().unwrap().clone(),
        embedder.embedded_texts().join("\n").into_bytes(),
        cached.fleet.log().into_bytes(),
        cached.fleet.sidecar_log().into_bytes(),
    ];
    for (place, bytes) in everywhere.iter().enumerate() {
        for person in [&ANN, &BEN] {
            assert_eq!(person.is_in(bytes), None, "{place}");
        }
        let placeholder = b"[EMAIL-1]";
        let mut windows = bytes.windows(placeholder.len());
        let has_placeholder = windows.any(|window| window == placeholder);
        assert_eq!(has_placeholder, place < 3, "{place}");
    }
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn nobody_gets_data_back_that_is_not_theirs() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = with_cache(guarded(&engine, policy())).cluster("judge", judge.addr());
    let setup = setup.with("/routes/0/cache/scope", "route");
    let cached = Cached::start(setup).await;
    let ask = |person: &Person, words: &str| {
        let request = cached.anonymous(CHAT).bearer_auth(person.key);
        reply(request.json(&chat(words)))
    };
    // What a user writes stays what they wrote, and what an engine or a plugin makes up stays that.
    ask(&ANN, "I am ann@example.com.").await;
    for words in [
        "Who is [EMAIL-1]?",
        "[EMAIL-1] [TEXT-1] [EMPLOYEE-9]",
        "[[EMAIL-1]]",
    ] {
        for _ in 0..2 {
            let got = ask(&BEN, words).await;
            assert_eq!(got.said(), format!("You said: {words}"));
        }
    }
    judge.answer(replaces("You said", "[EMAIL-1] [EMAIL-2] [PHONE-1]"));
    let got = ask(&BEN, "I am ben@example.org.").await;
    let said = "ben@example.org [EMAIL-2] [PHONE-1]: I am ben@example.org.";
    assert_eq!(got.said(), said);
    let got = ask(&BEN, "Hello.").await;
    assert_eq!(got.said(), "[EMAIL-1] [EMAIL-2] [PHONE-1]: Hello.");
    // In another request the same placeholder is somebody else's.
    judge.answer(allows);
    let got = ask(&ANN, "I am ann@example.com.").await;
    assert_eq!(
        (&*got.cache, &*got.said()),
        ("hit", "You said: I am ann@example.com.")
    );
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn only_texts_are_looked_at_and_the_rest_stays_as_it_was_written() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = guarded(&engine, policy()).cluster("judge", judge.addr());
    let cached = Cached::start(setup).await;
    let body = r#"{ "user" : "ann@example.com", "temperature":1.50, "metadata":{"a":"ann@example.com"},
        "model":"ann@example.com","messages":[{"content":"\u0061nn@example.com" ,"role":"user"}]}"#;
    let request = cached
        .anonymous(CHAT)
        .header("content-type", "application/json");
    let got = reply(request.body(body)).await;
    assert_eq!(got.said(), "You said: ann@example.com");
    let sent = body.replace(r#""\u0061nn@example.com""#, r#""[EMAIL-1]""#);
    assert_eq!(engine.last().text(), sent);
    // They are those of the prompt as it came.
    let request = cached
        .anonymous(CHAT)
        .header("x-rolter-vllm-token-ids", "1,2,3");
    reply(request.json(&chat("hi"))).await;
    assert!(
        !engine
            .last()
            .headers
            .contains_key("x-rolter-vllm-token-ids")
    );
    // Nothing to take out: not a byte is another.
    let body = r#"{"messages":[{"content":"h\u0069" ,"role":"user"}], "model" :"m" }"#;
    let request = cached
        .anonymous(CHAT)
        .header("content-type", "application/json");
    assert_eq!(reply(request.body(body)).await.said(), "You said: hi");
    assert_eq!(engine.last().text(), body);
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn a_request_with_more_data_than_may_be_kept_for_it_is_refused() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = guarded(&engine, policy()).cluster("judge", judge.addr());
    let cached = Cached::start(setup).await;
    let people = |count: u32| {
        let people = (0..count).map(|number| format!("person{number}@example.com "));
        people.collect::<String>()
    };
    let got = cached.ask(CHAT, &chat(&people(10_000))).await;
    assert_eq!(got.said(), format!("You said: {}", people(10_000)));
    let got = cached.ask(CHAT, &chat(&people(10_001))).await;
    assert_eq!(code(&got), (400, "refused_by_policy".into()));
    assert_eq!(engine.asked(), 1);
    is_sound(&cached.fleet).await;
}

/// Placeholders are the same from turn to turn, so the engine that has the beginning has it still.
#[tokio::test]
async fn a_conversation_with_personal_data_keeps_its_prefix() {
    let fleet = e2e::start(setup(2, 1).guarded(json!({"pii": {}}))).await;
    let caller = Caller::new(&fleet);
    let mut words = ANN.words();
    let first = caller.say(&words).await;
    assert_eq!(first.decision, "miss");
    for turn in 0..5 {
        words += &format!(
            " Turn {turn}: ask {}, {} or {turn}@example.com.",
            ANN.data[0], BEN.data[0]
        );
        assert_eq!(
            caller.say(&words).await.pick(),
            (&*first.engine, "affinity")
        );
    }
    is_sound(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_at_once_get_their_own_data_back() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let setup = with_cache(guarded(&engine, policy()).workers(4));
    let setup = setup
        .cluster("judge", judge.addr())
        .with("/routes/0/cache/scope", "route");
    let cached = Cached::start(setup).await;
    let callers: Vec<Caller> = (0..20).map(|_| Caller::new(&cached.fleet)).collect();
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..200 {
        // Ten questions, which differ in the data of twenty people each.
        let words = format!(
            "Question {}: I am person{number}@example.com and call +1 415 555 {:04}.",
            number % 10,
            2000 + number
        );
        let body = with(&chat(&words), "/seed", json!(number % 10));
        let request = callers[number % 20].request(CHAT).json(&body);
        asking.spawn(async move { (words, reply(request).await) });
    }
    while let Some(answered) = asking.join_next().await {
        let (words, got) = answered.unwrap();
        assert_eq!(
            (got.status, got.said()),
            (200, format!("You said: {words}"))
        );
    }
    let asked = engine.all();
    assert!(
        asked
            .iter()
            .all(|asked| !asked.text().contains("@example.com"))
    );
    is_sound(&cached.fleet).await;
}
