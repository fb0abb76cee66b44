//! A client: asks, reads the stream, holds the answer against what it must be.

use crate::traffic::Task;
use engine_sim::TOKEN_BYTES;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// What clients ask.
pub(crate) const PATH: &str = "/v1/chat/completions";
/// Longer than any request of this traffic should ever take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a request counts as failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer came, or it broke off.
    Transport(String),
    /// The answer is an error.
    Status(u16, String),
    /// The stream ended before `[DONE]`, or holds what is no chunk of an answer.
    Stream(String),
    /// The answer is to another prompt, or not as long as it should be.
    Answer {
        /// How it must begin.
        expected: String,
        /// How many bytes it must have.
        bytes: usize,
        /// What came.
        got: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "no whole answer: {error}"),
            Self::Status(status, body) => write!(f, "status {status}: {body}"),
            Self::Stream(what) => write!(f, "a broken stream: {what}"),
            Self::Answer {
                expected,
                bytes,
                got,
            } => write!(
                f,
                "a wrong answer: {bytes} bytes from {expected:?} on were due, and {got:?} came"
            ),
        }
    }
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Transport(text)
    }
}

/// Clients that share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    http: Client,
    url: String,
}

impl Asker {
    /// For an Envoy at this base URL.
    pub(crate) fn new(base: &str) -> Result<Self, Failure> {
        Ok(Self {
            // A proxy from the environment would stand between the clients and their Envoy.
            http: Client::builder().no_proxy().timeout(PATIENCE).build()?,
            url: format!("{base}{PATH}"),
        })
    }

    /// Goes through a task, turn by turn, and tells the time to first token of each. A failure is
    /// told for its turn and for all that would have followed.
    pub(crate) async fn perform(
        &self,
        task: &Task,
        told: &UnboundedSender<Result<Duration, Failure>>,
    ) {
        let mut messages = vec![json!({"role": "system", "content": task.system})];
        for (index, turn) in task.turns.iter().enumerate() {
            tokio::time::sleep(turn.think).await;
            messages.push(json!({"role": "user", "content": turn.question}));
            let asked = self.ask(&messages, turn.answer_tokens).await;
            let result = match asked {
                Ok(answer) => {
                    messages.push(json!({"role": "assistant", "content": answer.text}));
                    Ok(answer.first_token)
                }
                Err(failure) => Err(failure),
            };
            let left = if result.is_ok() {
                1
            } else {
                task.turns.len() - index
            };
            for _ in 0..left {
                // Without anyone to tell, the play is over.
                if told.send(result.clone()).is_err() {
                    return;
                }
            }
            if result.is_err() {
                return;
            }
        }
    }

    /// Asks, and holds the answer against what it must be.
    pub(crate) async fn ask(&self, messages: &[Value], tokens: usize) -> Result<Answer, Failure> {
        let body = json!({
            "model": "demo",
            "messages": messages,
            "max_tokens": tokens,
            "stream": true,
        });
        let expected = engine_sim::expected_answer(PATH, &body).unwrap_or_default();
        let asked = Instant::now();
        let response = self.http.post(&self.url).json(&body).send().await?;
        let status = response.status();
        if !status.is_success() {
            return Err(Failure::Status(status.as_u16(), response.text().await?));
        }
        let answer = read(response, asked).await?;
        let bytes = tokens * TOKEN_BYTES;
        if answer.text.len() == bytes && answer.text.starts_with(&expected) {
            return Ok(answer);
        }
        Err(Failure::Answer {
            expected,
            bytes,
            got: answer.text,
        })
    }
}

/// A right answer.
pub(crate) struct Answer {
    text: String,
    /// From the moment of asking to the first event with text in it.
    first_token: Duration,
    /// From the moment of asking to the end.
    pub(crate) whole: Duration,
    /// Whether it came from the response cache.
    pub(crate) from_cache: bool,
}

async fn read(mut response: Response, asked: Instant) -> Result<Answer, Failure> {
    let mut events = Events::default();
    let mut text = String::new();
    let mut first_token = None;
    let cache = response.headers().get("x-rolter-cache");
    let from_cache = cache.is_some_and(|cache| cache == "hit");
    while let Some(bytes) = response.chunk().await? {
        events.feed(&bytes);
        while let Some(event) = events.next() {
            let event = event?;
            if let Some(piece) = event
                .pointer("/choices/0/delta/content")
                .and_then(Value::as_str)
                .filter(|piece| !piece.is_empty())
            {
                first_token.get_or_insert_with(|| asked.elapsed());
                text.push_str(piece);
            }
        }
    }
    match (events.done, first_token) {
        (true, Some(first_token)) => Ok(Answer {
            text,
            first_token,
            whole: asked.elapsed(),
            from_cache,
        }),
        _ => Err(Failure::Stream(format!("no [DONE] after {text:?}"))),
    }
}

/// The events of a stream as their bytes come in.
#[derive(Default)]
struct Events {
    buffer: Vec<u8>,
    /// Whether `[DONE]` has come.
    done: bool,
}

impl Events {
    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event. The closing `[DONE]` is none; it sets `done`.
    fn next(&mut self) -> Option<Result<Value, Failure>> {
        loop {
            let end = self.buffer.iter().position(|&byte| byte == b'\n')?;
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let Some(data) = line.trim_ascii().strip_prefix(b"data: ") else {
                continue;
            };
            if data == b"[DONE]" {
                self.done = true;
                continue;
            }
            let event = serde_json::from_slice(data);
            return Some(event.map_err(|error| Failure::Stream(error.to_string())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let stream = b": hello\n\ndata: {\"a\":1}\n\ndata: {\"a\":2}\r\n\r\ndata: [DONE]\n\n";
        for cut in 0..=stream.len() {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                events.feed(part);
                seen.extend(std::iter::from_fn(|| events.next()));
            }
            assert_eq!(seen, [Ok(json!({"a": 1})), Ok(json!({"a": 2}))], "{cut}");
            assert!(events.done);
        }
    }
}
