//! Bodies of every size and shape under a policy: what can be read is judged whole, what cannot is
//! refused or withheld, and nothing hangs.

use e2e::cached::{COMPLETIONS, Cached, EMBEDDINGS, reply};
use e2e::guarded::{allows, blocks, chat, code, guarded, is_sound, parrot, plugin, replaces};
use e2e::server::{Reply as Says, Server};
use e2e::{CHAT, Caller};
use flate2::{Compression, write::GzEncoder};
use fleet::Setup;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;
use tokio::net::TcpStream;

fn policy(more: &Value) -> Value {
    let mut policy = json!({"plugins": [plugin("judge", &json!({}))]});
    for (key, value) in more.as_object().into_iter().flatten() {
        policy[key] = value.clone();
    }
    policy
}

async fn start(engine: &Server, judge: &Server, policy: Value) -> Cached {
    Cached::start(set_up(engine, judge, policy)).await
}

fn set_up(engine: &Server, judge: &Server, policy: Value) -> Setup {
    let setup = guarded(engine, policy).cluster("judge", judge.addr());
    // The engine takes HTTP/2, so that answers may have trailers.
    setup.finish(|document| {
        let clusters = document["static_resources"]["clusters"].as_array_mut();
        let mut clusters = clusters.unwrap().iter_mut();
        let engine = clusters.find(|cluster| cluster["name"] == "engine").unwrap();
        engine["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        });
    })
}

/// An answer of exactly so many bytes.
fn long(bytes: usize) -> String {
    let answer = |text: &str| {
        let choices = json!([{"index": 0, "message": {"role": "assistant", "content": text}}]);
        json!({"choices": choices}).to_string()
    };
    let text = "a long answer ".chars().cycle();
    let text: String = text.take(bytes - answer("").len()).collect();
    let answer = answer(&text);
    assert_eq!(answer.len(), bytes);
    answer
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_comes_in_pieces_and_with_trailers_is_judged_whole() {
    let engine = parrot().await;
    let judge = Server::start(replaces("birds", "fish")).await;
    let cached = start(&engine, &judge, policy(&json!({}))).await;
    let body = chat("Which birds?").to_string();
    engine.answer(|asked| {
        let content = &asked.json()["messages"][0]["content"];
        let said = json!({"choices": [{"message": {"content": content}}]});
        Says::json(&said).in_pieces(5).trailer("x-checksum", "abc")
    });
    let pieces = body.as_bytes().chunks(7).map(Bytes::copy_from_slice);
    let pieces = stream::unfold(
        pieces.collect::<Vec<_>>().into_iter(),
        async |mut pieces| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let piece = pieces.next()?;
            Some((Ok::<_, Infallible>(piece), pieces))
        },
    );
    let request = cached
        .anonymous(CHAT)
        .header("content-type", "application/json");
    let got = reply(request.body(reqwest::Body::wrap_stream(pieces))).await;
    assert_eq!((got.status, &*got.said()), (200, "Which fish?"));

    let stream = TcpStream::connect(cached.fleet.addr()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    for (other, said) in [("fish", "Which fish?"), ("trees", "Which trees?")] {
        judge.answer(replaces("birds", other));
        let trailers =
            hyper::HeaderMap::from_iter([("x-checksum".parse().unwrap(), "def".parse().unwrap())]);
        let frames = [
            Frame::data(Bytes::from(body.clone())),
            Frame::trailers(trailers),
        ];
        let request = hyper::Request::post(cached.fleet.url(CHAT))
            .header("content-type", "application/json")
            .body(StreamBody::new(stream::iter(
                frames.map(Ok::<_, Infallible>),
            )))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let length = answer.headers()["content-length"]
            .to_str()
            .unwrap()
            .to_owned();
        let answer = answer.into_body().collect().await.unwrap();
        assert_eq!(answer.trailers().unwrap()["x-checksum"], "abc");
        let answer = answer.to_bytes();
        assert_eq!(length, answer.len().to_string());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], said);
    }
    // What is withheld has a length of its own as well.
    judge.answer(blocks);
    assert_eq!(cached.ask(CHAT, &chat("Which birds?")).await.status, 403);
    drop(sender);
    connection.abort();
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_withheld_and_nothing_hangs() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let limit = 100_000;
    let cached = start(&engine, &judge, policy(&json!({"max_answer_bytes": limit}))).await;
    let concurrent = Caller::concurrent(&cached.fleet);
    for bytes in [200, limit - 1, limit, limit + 1, 300_000, 3 << 20, 20 << 20] {
        let answer = long(bytes);
        for announced in [true, false] {
            let mut says = Says::json(&answer).in_pieces(1 << 19);
            says = if announced {
                says.header("content-length", &bytes.to_string())
            } else {
                says.trailer("x-checksum", "abc")
            };
            engine.answer(move |_| says.clone());
            for request in [cached.anonymous(CHAT), concurrent.request(CHAT)] {
                let got = reply(request.json(&chat("hello"))).await;
                if bytes <= limit {
                    assert_eq!((got.status, got.text()), (200, answer.clone()));
                } else {
                    let code = code(&got);
                    assert_eq!(code, (403, "withheld_by_policy".into()), "{bytes}");
                }
            }
        }
    }
    // Nor does a plugin make one longer.
    engine.answer(move |_| Says::json(&long(limit)));
    judge.answer(replaces("a long answer", "a longer answer"));
    let got = cached.ask(CHAT, &chat("hello")).await;
    assert_eq!(code(&got).0, 503, "{got:?}");
    is_sound(&cached.fleet).await;
}

/// How much Envoy can hold is the larger one of the route's limit and the listener's, as
/// `envoy/policy.yaml` says.
#[tokio::test]
async fn an_answer_that_envoy_cannot_hold_is_an_error_of_its_own() {
    let [low, high] = [1 << 20, 8 << 20];
    for (route, listener) in [(low, high), (high, low)] {
        let engine = parrot().await;
        let judge = Server::start(allows).await;
        let policy = policy(&json!({"max_answer_bytes": 64 << 20}));
        let setup = set_up(&engine, &judge, policy).finish(move |document| {
            let limits = document
                .pointer_mut("/static_resources/listeners/0")
                .unwrap();
            limits["per_connection_buffer_limit_bytes"] = json!(listener);
            let manager = "/filter_chains/0/filters/0/typed_config/route_config";
            let routes = limits.pointer_mut(manager).unwrap();
            let routes = &mut routes["virtual_hosts"][0]["routes"];
            routes[0]["request_body_buffer_limit"] = json!(route);
        });
        let cached = Cached::start(setup).await;
        for (bytes, status) in [(7 << 20, 200), (10 << 20, 500)] {
            engine.answer(move |_| Says::json(&long(bytes)).in_pieces(1 << 17));
            let got = cached.ask(CHAT, &chat("hello")).await;
            assert_eq!(got.status, status, "{route} {listener}");
            assert_eq!(got.text().contains("a long answer"), status == 200);
        }
        is_sound(&cached.fleet).await;
    }
}

#[tokio::test]
async fn answers_that_cannot_be_read_are_withheld_unless_the_policy_lets_them_go() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let readable = r#"{"a":"secret"}"#;
    let type_of_json = "application/json";
    let answers = [
        Says::new(200, type_of_json, gzip(readable)).header("content-encoding", "gzip"),
        Says::new(200, "text/plain", "secret"),
        Says::new(200, "text/html", readable.replace('{', "<")),
        Says::new(200, type_of_json, r#"{"a":"secret""#),
        Says::new(200, type_of_json, r#"{"a":"secret"}{}"#),
        Says::new(200, type_of_json, r#"["secret"]"#),
        Says::new(200, type_of_json, b"{\"a\":\"secret\xff\"}".to_vec()),
        Says::new(200, type_of_json, "[".repeat(100_000)),
        Says::new(201, type_of_json, "secret"),
    ];
    for (on_unread, passes) in [("refuse", false), ("skip", true)] {
        let cached = start(&engine, &judge, policy(&json!({"on_unread": on_unread}))).await;
        for says in &answers {
            for pieces in [false, true] {
                let mut says = says.clone();
                if pieces {
                    says = says.in_pieces(40_000).trailer("x-checksum", "abc");
                }
                let body = says.body();
                engine.answer(move |_| says.clone());
                let request = cached.anonymous(CHAT).json(&chat("hello"));
                let got = reply(request.header("accept-encoding", "gzip")).await;
                if passes {
                    assert!([200, 201].contains(&got.status), "{got:?}");
                    assert_eq!(got.body, body);
                } else {
                    assert_eq!(code(&got), (403, "withheld_by_policy".into()));
                    assert!(!got.text().contains("secret"), "{}", got.text());
                }
                // Engines are not asked for what could not be read.
                assert!(!engine.last().headers.contains_key("accept-encoding"));
            }
        }
        is_sound(&cached.fleet).await;
    }
    assert_eq!(judge.asked(), 0);
}

#[tokio::test]
async fn errors_and_answers_without_a_body_pass_as_they_are() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let cached = start(&engine, &judge, policy(&json!({}))).await;
    let error = json!({"error": {"message": "no such model"}}).to_string();
    for status in [400, 404, 429, 500, 503] {
        for (kind, body) in [("application/json", &*error), ("text/plain", "sorry")] {
            let says = Says::new(status, kind, body.to_owned());
            engine.answer(move |_| says.clone());
            let got = cached.ask(CHAT, &chat("hello")).await;
            assert_eq!((got.status, &*got.text()), (status, body));
        }
    }
    // Trailers may follow the headers at once, also where nothing could be read.
    let bare = Says::new(200, "application/json", "").in_pieces(1);
    let bare = bare.trailer("x-checksum", "abc");
    let encoded = bare.clone().header("content-encoding", "gzip");
    for (says, status) in [(bare, 200), (encoded, 403)] {
        engine.answer(move |_| says.clone());
        let got = cached.ask(CHAT, &chat("hello")).await;
        assert_eq!((got.status, &*got.text()), (status, ""));
    }
    for status in [200, 204] {
        for announced in [true, false] {
            let mut says = Says::new(status, "text/plain", "");
            if announced && status == 200 {
                says = says.header("content-length", "0");
            }
            engine.answer(move |_| says.clone());
            for path in [CHAT, "/health"] {
                let got = cached.ask(path, &chat("hello")).await;
                assert_eq!((got.status, &*got.text()), (status, ""), "{announced}");
            }
        }
    }
    assert_eq!(judge.asked(), 0);
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn requests_without_a_body_pass_and_their_answers_are_judged() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let policy = policy(&json!({"pii": {"kinds": ["email"]}}));
    let cached = start(&engine, &judge, policy).await;
    let models = r#"{"object":"list","data":[{"id":"m"}]}"#;
    engine.answer(move |_| Says::json(&models));
    let caller = Caller::new(&cached.fleet);
    let got = reply(caller.bodiless("/v1/models")).await;
    assert_eq!((got.status, &*got.text()), (200, models));
    assert_eq!(judge.last().json()["request"]["api"], Value::Null);
    judge.answer(blocks);
    assert_eq!(reply(caller.bodiless("/v1/models")).await.status, 403);
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn requests_that_cannot_be_sanitized_are_refused_unless_the_policy_lets_them_go() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let mail = chat("I am ann@example.com.").to_string();
    let long = chat(&"a long question ".repeat(1 << 17)).to_string();
    let tokens = json!({"model": "m", "prompt": [1, 2, 3]}).to_string();
    let ids = json!({"model": "m", "input": [[1, 2], [3]]}).to_string();
    let list = json!([chat("I am ann@example.com.")]).to_string();
    let requests: [(&str, Vec<u8>, Option<&str>); 8] = [
        (CHAT, gzip(&mail), Some("gzip")),
        (CHAT, mail.as_bytes()[..mail.len() - 1].to_vec(), None),
        (CHAT, list.into_bytes(), None),
        (CHAT, [mail.as_bytes(), b"\xff"].concat(), None),
        (CHAT, long.into_bytes(), None),
        (
            "/generate",
            b"{\"text\": \"I am ann@example.com.\"}".to_vec(),
            None,
        ),
        (COMPLETIONS, tokens.into_bytes(), None),
        (EMBEDDINGS, ids.into_bytes(), None),
    ];
    for (on_unread, passes) in [("refuse", false), ("skip", true)] {
        let more = json!({"on_unread": on_unread, "pii": {"kinds": ["email"]}});
        let cached = start(&engine, &judge, policy(&more)).await;
        engine.answer(|_| Says::json(&r#"{"a":1}"#));
        for (path, body, encoding) in &requests {
            let before = engine.asked();
            let send = |chunked: bool| {
                let mut request = cached
                    .anonymous(path)
                    .header("content-type", "application/json");
                if let Some(encoding) = encoding {
                    request = request.header("content-encoding", *encoding);
                }
                let pieces = body.chunks(60_000).map(Bytes::copy_from_slice);
                let pieces = pieces.map(Ok::<_, Infallible>).collect::<Vec<_>>();
                reply(if chunked {
                    request.body(reqwest::Body::wrap_stream(stream::iter(pieces)))
                } else {
                    request.body(body.clone())
                })
            };
            for chunked in [false, true] {
                let got = send(chunked).await;
                if passes {
                    assert_eq!(got.status, 200, "{path} {}", got.text());
                    assert_eq!(engine.last().body, body);
                } else {
                    assert_eq!(code(&got), (400, "refused_by_policy".into()), "{path}");
                    assert_eq!(engine.asked(), before);
                }
            }
        }
        is_sound(&cached.fleet).await;
    }
}

#[tokio::test]
async fn without_personal_data_to_look_for_requests_need_not_be_read() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let cached = start(&engine, &judge, policy(&json!({}))).await;
    engine.answer(|_| Says::json(&r#"{"a":1}"#));
    let long = chat(&"a long question ".repeat(1 << 17)).to_string();
    for body in [long, "no JSON".to_owned()] {
        let request = cached.anonymous(CHAT).body(body.clone());
        let got = reply(request).await;
        assert_eq!(code(&got), (403, "withheld_by_policy".into()));
        assert_eq!(engine.last().body, body);
    }
    is_sound(&cached.fleet).await;
}
