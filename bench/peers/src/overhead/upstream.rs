//! An engine that takes no time: it answers every chat at once with the same completion. What routers
//! ask engines beside that it answers as a healthy engine does.

use super::http::{Asked, Incoming, RequestHead};
use serde_json::json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The answer to every chat.
pub(super) const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The answer is somewhere in what was said before, and so there is little to add to it here."},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1024,"completion_tokens":16,"total_tokens":1040}}"#;
/// What there is to be said to all other questions.
const ABOUT: &str = r#"{"object":"list","data":[{"id":"m","object":"model","max_model_len":131072}],"model_path":"m"}"#;
/// About as many bytes of a prompt are a token.
const TOKEN_BYTES: usize = 4;
const VOCABULARY: u64 = 128_000;

/// Serves until it is dropped.
pub(super) struct Upstream {
    addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Upstream {
    /// On a free port, within the thread's `LocalSet`.
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let answers = Rc::new(Answers::new());
        let accepting = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Rc::clone(&answers);
                // A gateway that ends cuts its connections where they are.
                spawn_local(async move { serve(stream, &answers).await.ok() });
            }
        });
        Ok(Self { addr, accepting })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Whole HTTP answers.
struct Answers {
    completion: Vec<u8>,
    about: Vec<u8>,
    /// Token ids by the hash of the request: made once for each of the bodies that there are to ask.
    tokens: RefCell<HashMap<u64, Rc<[u8]>>>,
}

impl Answers {
    fn new() -> Self {
        Self {
            completion: answer(COMPLETION),
            about: answer(ABOUT),
            tokens: RefCell::default(),
        }
    }

    fn tokens(&self, field: &str, body: &[u8]) -> Rc<[u8]> {
        let hash = xxh3_64_with_seed(body, field.len() as u64);
        let mut made = self.tokens.borrow_mut();
        let answer = made
            .entry(hash)
            .or_insert_with(|| tokens(field, body).into());
        Rc::clone(answer)
    }
}

async fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut incoming = Incoming::new();
    let mut body = Vec::new();
    while let Some(RequestHead { asked, framing }) = incoming.request(&mut stream).await? {
        let field = match asked {
            Asked::Render => "token_ids",
            Asked::Tokenize => "tokens",
            Asked::Chat | Asked::Other => {
                incoming.body(&mut stream, framing, |_| ()).await?;
                let is_chat = asked == Asked::Chat;
                let answer = if is_chat {
                    &answers.completion
                } else {
                    &answers.about
                };
                stream.write_all(answer).await?;
                continue;
            }
        };
        body.clear();
        let piece = |piece: &[u8]| body.extend_from_slice(piece);
        incoming.body(&mut stream, framing, piece).await?;
        stream.write_all(&answers.tokens(field, &body)).await?;
    }
    Ok(())
}

/// The token ids of a request, as if its own bytes were the prompt: those that begin alike have the same
/// ones first.
fn tokens(field: &str, body: &[u8]) -> Vec<u8> {
    let pieces = body.chunks(TOKEN_BYTES);
    let ids: Vec<u64> = pieces
        .map(|piece| xxh3_64_with_seed(piece, 0) % VOCABULARY)
        .collect();
    let told = json!({
        "request_id": "chatcmpl-1",
        "model": "m",
        "count": ids.len(),
        "max_model_len": 131_072,
        field: ids,
    });
    answer(&told.to_string())
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
