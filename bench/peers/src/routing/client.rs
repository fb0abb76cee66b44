//! A client that asks when it is told to, on connections that it keeps, and holds each answer against
//! what it must be.
//!
//! It shares the machine with those that it measures, so a stream is read as text, not as JSON.

use bytes::Bytes;
use engine_sim::{Question, TOKEN_BYTES};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// What is asked.
pub(crate) const PATH: &str = "/v1/chat/completions";
/// What is kept of a wrong answer, to be told.
const SHOWN: usize = 200;

/// Why a request has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer came, or not all of it.
    Transport(String),
    /// The answer is an error.
    Status(u16, String),
    /// The stream did not end with `[DONE]`, or is not the answer to what was asked.
    Answer(String),
    /// There was none when the play ended.
    Unanswered,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "no whole answer: {error}"),
            Self::Status(status, body) => write!(f, "status {status}: {body}"),
            Self::Answer(what) => write!(f, "a wrong answer: {what}"),
            Self::Unanswered => f.write_str("no answer until the play ended"),
        }
    }
}

fn transport(error: impl fmt::Display + fmt::Debug) -> Failure {
    Failure::Transport(format!("{error} ({error:?})"))
}

/// What is to be asked.
pub(crate) struct Ask {
    pub(crate) body: Bytes,
    pub(crate) answer_tokens: usize,
}

type Connection = SendRequest<Full<Bytes>>;

/// Connections that are kept, by whom they lead to. Each has one request at a time, and there are as
/// many as requests are under way at once.
#[derive(Default)]
pub(crate) struct Client {
    idle: Mutex<HashMap<SocketAddr, Vec<Connection>>>,
}

impl Client {
    /// Asks, and calls `first` when the first event with text in it has come. Returns when all of the
    /// answer is there.
    pub(crate) async fn ask(
        &self,
        addr: SocketAddr,
        ask: Ask,
        question: &Question,
        first: impl FnOnce(Instant),
    ) -> Result<(), Failure> {
        let mut connection = self.connection(addr).await?;
        let request = Request::post(PATH)
            .header(HOST, addr.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(ask.body))
            .map_err(transport)?;
        let response = connection.send_request(request).await.map_err(transport)?;
        let bytes = ask.answer_tokens * TOKEN_BYTES;
        let expected = &question.expected_answer()[..bytes.min(question.expected_answer().len())];
        read(response, expected, bytes, first).await?;
        self.idle().entry(addr).or_default().push(connection);
        Ok(())
    }

    async fn connection(&self, addr: SocketAddr) -> Result<Connection, Failure> {
        loop {
            let kept = self.idle().get_mut(&addr).and_then(Vec::pop);
            let Some(mut kept) = kept else { break };
            // One that the other side has closed is gone.
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(addr).await.map_err(transport)?;
        stream.set_nodelay(true).map_err(transport)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(transport)?;
        // Its errors are those of the request that it carries.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(
    response: Response<Incoming>,
    expected: &str,
    bytes: usize,
    first: impl FnOnce(Instant),
) -> Result<(), Failure> {
    let status = response.status();
    let mut body = response.into_body();
    if status != StatusCode::OK {
        let body = body.collect().await.map_err(transport)?.to_bytes();
        let body = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
        return Err(Failure::Status(status.as_u16(), body));
    }
    let mut first = Some(first);
    let mut stream = Stream::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(transport)?.into_data() else {
            continue;
        };
        stream.feed(&data);
        if !stream.text.is_empty()
            && let Some(first) = first.take()
        {
            first(Instant::now());
        }
    }
    let right = stream.text.len() == bytes && stream.text.starts_with(expected.as_bytes());
    if right && stream.done {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&stream.text[..stream.text.len().min(SHOWN)]).into_owned();
    let (got, done) = (stream.text.len(), stream.done);
    let what = format!("{bytes} bytes from {expected:?} on were due; {got} came: {text:?}");
    Err(Failure::Answer(if done {
        what
    } else {
        format!("{what}, and no [DONE]")
    }))
}

/// The text of a stream of chunks, as its bytes come in. What engine-sim says has nothing in it that
/// JSON escapes.
#[derive(Default)]
struct Stream {
    /// The line that is not whole yet.
    line: Vec<u8>,
    text: Vec<u8>,
    /// Whether `[DONE]` has come.
    done: bool,
}

impl Stream {
    fn feed(&mut self, mut data: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (line, rest) = data.split_at(end);
            data = &rest[1..];
            if self.line.is_empty() {
                self.end_line(line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole);
            }
        }
        self.line.extend_from_slice(data);
    }

    fn end_line(&mut self, line: &[u8]) {
        const CONTENT: &[u8] = br#""content":""#;
        let Some(data) = line.trim_ascii().strip_prefix(b"data: ") else {
            return;
        };
        self.done |= data == b"[DONE]";
        if let Some(at) = memmem::find(data, CONTENT) {
            let content = &data[at + CONTENT.len()..];
            let end = memchr::memchr(b'"', content).unwrap_or(0);
            self.text.extend_from_slice(&content[..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_same_text_wherever_its_bytes_are_cut() {
        let stream =
            b"data: {\"choices\":[{\"delta\":{\"content\":\"\",\"role\":\"assistant\"}}]}\n\n\
            : note\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"answ\"}}]}\r\n\r\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"er\"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{}}]}\n\ndata: [DONE]\n\n";
        for cut in 0..=stream.len() {
            let mut read = Stream::default();
            read.feed(&stream[..cut]);
            read.feed(&stream[cut..]);
            assert_eq!((read.text.as_slice(), read.done), (&b"answer"[..], true));
        }
    }
}
