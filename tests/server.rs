//! A server that answers as a test says: an engine that says what is wanted, or somebody who is asked
//! about answers. It keeps what it was asked.

use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The last requests that are kept.
const MAX_KEPT: usize = 1024;

/// It takes requests until it is dropped.
pub struct Server {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

struct State {
    answer: Arc<Answer>,
    asked: u64,
    last: VecDeque<Asked>,
}

type Answer = dyn Fn(&Asked) -> Reply + Send + Sync;

/// What it was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: HeaderMap,
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    comes: bool,
}

impl Server {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// Where it cannot.
    pub async fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.unwrap_or_else(|error| panic!("no server: {error}"));
        let addr = listener.local_addr();
        let addr = addr.unwrap_or_else(|error| panic!("no address: {error}"));
        let state = Arc::new(Mutex::new(State {
            answer: Arc::new(answer),
            asked: 0,
            last: VecDeque::new(),
        }));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self {
            addr,
            state,
            accepting,
        }
    }

    /// From now on it answers so.
    pub fn answer(&self, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        lock(&self.state).answer = Arc::new(answer);
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How often it was asked.
    pub fn asked(&self) -> u64 {
        lock(&self.state).asked
    }

    /// What it was asked last, the latest at the end.
    pub fn all(&self) -> Vec<Asked> {
        lock(&self.state).last.iter().cloned().collect()
    }

    /// What it was asked last.
    ///
    /// # Panics
    /// Where it was asked nothing yet.
    pub fn last(&self) -> Asked {
        let last = lock(&self.state).last.back().cloned();
        last.unwrap_or_else(|| panic!("it was asked nothing"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Asked {
    /// The body as JSON.
    ///
    /// # Panics
    /// Where it is none.
    pub fn json(&self) -> Value {
        let json = serde_json::from_slice(&self.body);
        json.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Reply {
    /// With this status, content type and body.
    ///
    /// # Panics
    /// Where the type is none that can be sent.
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let reply = Self {
            status,
            headers: HeaderMap::new(),
            pieces: vec![body.into()],
            trailers: None,
            comes: true,
        };
        reply.header("content-type", content_type)
    }

    /// A success with JSON.
    pub fn json(body: &impl ToString) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// None, ever.
    pub fn never() -> Self {
        let comes = false;
        Self {
            comes,
            ..Self::json(&"")
        }
    }

    /// The body, whole.
    pub fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    /// Whether it is [`Reply::never`].
    pub fn is_never(&self) -> bool {
        !self.comes
    }

    /// With one more header.
    ///
    /// # Panics
    /// Where it is none that can be sent.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = field(name, value);
        self.headers.append(name, value);
        self
    }

    /// With one more trailer.
    ///
    /// # Panics
    /// Where it is none that can be sent.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        let (name, value) = field(name, value);
        let trailers = self.trailers.get_or_insert_default();
        trailers.append(name, value);
        self
    }

    /// In pieces of so many bytes, with pauses between them.
    ///
    /// # Panics
    /// Where that is zero.
    #[must_use]
    pub fn in_pieces(mut self, bytes: usize) -> Self {
        let whole = self.pieces.concat();
        self.pieces = whole.chunks(bytes).map(Bytes::copy_from_slice).collect();
        self
    }
}

fn field(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    match (name.parse(), value.parse()) {
        (Ok(name), Ok(value)) => (name, value),
        _ => panic!("no header: {name:?}: {value:?}"),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // An answer that panics does so without the lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    // Connections end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| respond(request, Arc::clone(&state)));
            let server = auto::Builder::new(TokioExecutor::new());
            // A client that leaves is no mistake.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

type Pieces = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

async fn respond(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> hyper::Result<Response<Pieces>> {
    let (head, body) = request.into_parts();
    let asked = Asked {
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
    };
    let answer = {
        let mut state = lock(&state);
        state.asked += 1;
        state.last.push_back(asked.clone());
        if state.last.len() > MAX_KEPT {
            state.last.pop_front();
        }
        Arc::clone(&state.answer)
    };
    let reply = answer(&asked);
    if !reply.comes {
        std::future::pending::<()>().await;
    }
    let pieces = reply.pieces.into_iter().enumerate();
    let pieces = stream::iter(pieces).then(async |(number, piece)| {
        if number > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Frame::data(piece)
    });
    let trailers = reply.trailers.map(Frame::trailers);
    let frames = pieces.chain(stream::iter(trailers)).map(Ok).boxed();
    let mut response = Response::new(StreamBody::new(frames));
    *response.status_mut() = reply.status.try_into().unwrap_or_default();
    *response.headers_mut() = reply.headers;
    Ok(response)
}
