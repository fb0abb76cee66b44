//! A client for the tests: one connection a request, HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine_sim::{Engine, EngineConfig, Stats};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

/// An engine that takes no time to speak of.
pub(crate) fn fast() -> Engine {
    start(EngineConfig {
        prefill_tokens_per_sec: 1e9,
        decode_time_per_token: Duration::ZERO,
        default_max_tokens: 10,
        ..EngineConfig::default()
    })
}

/// An engine that decodes for an hour.
pub(crate) fn slow() -> Engine {
    start(EngineConfig {
        prefill_tokens_per_sec: 1e9,
        decode_time_per_token: Duration::from_mins(1),
        default_max_tokens: 60,
        max_batch: 1,
        ..EngineConfig::default()
    })
}

pub(crate) fn start(config: EngineConfig) -> Engine {
    let config = EngineConfig {
        name: "sim-a".to_owned(),
        ..config
    };
    Engine::start(config, ([127, 0, 0, 1], 0).into()).expect("a free port")
}

/// A response, as much as came of it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: String,
    /// Whether the connection ended before the response did.
    pub(crate) cut: bool,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The events of a stream: name (empty if none) and data.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let events =
            self.body
                .split_terminator("\n\n")
                .map(|event| match event.split_once("\ndata: ") {
                    Some((name, data)) => (
                        name.trim_start_matches("event: ").to_owned(),
                        data.to_owned(),
                    ),
                    None => (String::new(), event.trim_start_matches("data: ").to_owned()),
                });
        events.collect()
    }

    /// The data of a stream's events, without `[DONE]`.
    pub(crate) fn data(&self) -> Vec<Value> {
        let events = self.events();
        let data = events.iter().filter(|(_, data)| data != "[DONE]");
        data.map(|(_, data)| serde_json::from_str(data).expect("an event of JSON"))
            .collect()
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> Answered {
    let (parts, mut body) = response.into_parts();
    let (mut data, mut cut) = (BytesMut::new(), false);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            cut = true;
            break;
        };
        data.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    Answered {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8_lossy(&data).into_owned(),
        cut,
    }
}

pub(crate) async fn send<B>(
    addr: SocketAddr,
    request: Request<B>,
) -> hyper::Result<Response<Incoming>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(addr).await.expect("the engine listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

pub(crate) async fn send_h2(
    addr: SocketAddr,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(addr).await.expect("the engine listens");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

pub(crate) fn request(
    method: &str,
    path: &str,
    fault: Option<&str>,
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://engine{path}"));
    if let Some(fault) = fault {
        request = request.header("x-sim-fault", fault);
    }
    request.body(Full::new(body.into())).expect("a request")
}

pub(crate) fn request_h1(
    method: &str,
    path: &str,
    fault: Option<&str>,
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = request(method, path, fault, body);
    *request.uri_mut() = path.parse().expect("a path");
    request
}

pub(crate) async fn post(engine: &Engine, path: &str, body: &Value) -> Answered {
    post_with(engine, path, None, body).await
}

pub(crate) async fn post_with(
    engine: &Engine,
    path: &str,
    fault: Option<&str>,
    body: &Value,
) -> Answered {
    let request = request_h1("POST", path, fault, body.to_string());
    read(send(engine.addr(), request).await.expect("a response")).await
}

pub(crate) async fn get(engine: &Engine, path: &str) -> Answered {
    read(
        send(engine.addr(), request_h1("GET", path, None, ""))
            .await
            .expect("a response"),
    )
    .await
}

/// Waits until the engine's stats are as wanted, for two seconds at most.
pub(crate) async fn until(engine: &Engine, what: &str, wanted: impl Fn(&Stats) -> bool) {
    for _ in 0..400 {
        if wanted(&engine.stats()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: {:?}", engine.stats());
}
