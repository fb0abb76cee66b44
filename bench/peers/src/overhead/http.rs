//! As much of HTTP/1.1 as is needed to read messages, at the least cost: a buffer for each connection,
//! allocated once, through which bodies of any length pass. What comes after a message stays for the
//! next one.

use httparse::{EMPTY_HEADER, Header, Request, Response, Status};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Heads have to fit; bodies pass through in pieces of this size at most.
const BUFFER_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;

/// What comes over a connection.
pub(super) struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// How far the body of a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
}

/// What there is to know of a request before its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) asked: Asked,
    pub(super) framing: Framing,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// An answer to a chat.
    Chat,
    /// The token ids of a chat, as vLLM's `/render` tells them.
    Render,
    /// The same from `/tokenize`.
    Tokenize,
    /// Whether the engine is well, and what it is.
    Other,
}

/// What there is to know of an answer before its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) framing: Framing,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into(),
            start: 0,
            end: 0,
        }
    }

    /// The next request, up to its body; `None` where the connection has ended before it.
    pub(super) async fn request(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<RequestHead>> {
        self.head(from, |bytes| {
            let mut headers = [EMPTY_HEADER; MAX_HEADERS];
            let mut request = Request::new(&mut headers);
            let Status::Complete(length) = request.parse(bytes).map_err(io::Error::other)? else {
                return Ok(None);
            };
            let asked = match request.path.unwrap_or_default() {
                _ if request.method != Some("POST") => Asked::Other,
                path if path.ends_with("/render") => Asked::Render,
                path if path.ends_with("/tokenize") => Asked::Tokenize,
                _ => Asked::Chat,
            };
            let head = RequestHead {
                asked,
                framing: framing(request.headers)?,
            };
            Ok(Some((length, head)))
        })
        .await
    }

    /// The next answer, up to its body; `None` where the connection has ended before it.
    pub(super) async fn response(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<ResponseHead>> {
        self.head(from, |bytes| {
            let mut headers = [EMPTY_HEADER; MAX_HEADERS];
            let mut response = Response::new(&mut headers);
            let Status::Complete(length) = response.parse(bytes).map_err(io::Error::other)? else {
                return Ok(None);
            };
            let head = ResponseHead {
                status: response.code.unwrap_or_default(),
                framing: framing(response.headers)?,
            };
            Ok(Some((length, head)))
        })
        .await
    }

    /// The body of the message whose head was read last, piece by piece.
    pub(super) async fn body(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        framing: Framing,
        mut piece: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        match framing {
            Framing::Length(length) => self.take(from, length, &mut piece).await,
            Framing::Chunked => loop {
                let length = self.chunk(from).await?;
                self.take(from, length, &mut piece).await?;
                // The end of a chunk; after the last one, that of the trailers, which nobody sends.
                self.line(from, |line| line.is_empty().then_some(()))
                    .await?;
                if length == 0 {
                    return Ok(());
                }
            },
        }
    }

    async fn head<T>(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        parse: impl Fn(&[u8]) -> io::Result<Option<(usize, T)>>,
    ) -> io::Result<Option<T>> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            if !bytes.is_empty()
                && let Some((length, head)) = parse(bytes)?
            {
                self.start += length;
                return Ok(Some(head));
            }
            if self.more(from).await? == 0 {
                let is_between = self.start == self.end;
                return if is_between { Ok(None) } else { Err(ended()) };
            }
        }
    }

    async fn chunk(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        let length = |line: &[u8]| {
            let line = str::from_utf8(line).ok()?;
            let digits = line.split(';').next()?.trim();
            usize::from_str_radix(digits, 16).ok()
        };
        self.line(from, length).await
    }

    /// A line without its end, read as it should be.
    async fn line<T>(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<T> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            if let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
                let found = read(&bytes[..end]);
                self.start += end + 2;
                return found.ok_or_else(|| io::Error::other("a chunk is malformed"));
            }
            if self.more(from).await? == 0 {
                return Err(ended());
            }
        }
    }

    async fn take(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        mut left: usize,
        piece: &mut impl FnMut(&[u8]),
    ) -> io::Result<()> {
        while left > 0 {
            let there = &self.buffer[self.start..self.end];
            let there = &there[..there.len().min(left)];
            piece(there);
            left -= there.len();
            self.start += there.len();
            if left > 0 && self.more(from).await? == 0 {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// Reads what is there, behind what is left; zero at the end of the connection.
    async fn more(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            if self.start == 0 {
                return Err(io::Error::other("a head is too long"));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = from.read(&mut self.buffer[self.end..]).await?;
        self.end += read;
        Ok(read)
    }
}

fn framing(headers: &[Header<'_>]) -> io::Result<Framing> {
    let named = |name: &str| {
        let mut found = headers
            .iter()
            .filter(|one| one.name.eq_ignore_ascii_case(name));
        found.next().map(|header| header.value)
    };
    if named("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
        return Ok(Framing::Chunked);
    }
    let Some(length) = named("content-length") else {
        // Requests without a body, and no answer that comes here.
        return Ok(Framing::Length(0));
    };
    let length = str::from_utf8(length)
        .ok()
        .and_then(|length| length.trim().parse().ok());
    length
        .map(Framing::Length)
        .ok_or_else(|| io::Error::other("a content-length is malformed"))
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a message ends in its middle")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers in bytes that come in two parts.
    async fn read(first: &[u8], second: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut from = first.chain(second);
        let mut incoming = Incoming::new();
        let mut messages = Vec::new();
        while let Some(head) = incoming.response(&mut from).await.unwrap() {
            let mut body = Vec::new();
            let piece = |piece: &[u8]| body.extend_from_slice(piece);
            incoming.body(&mut from, head.framing, piece).await.unwrap();
            messages.push((head.status, body));
        }
        messages
    }

    #[tokio::test]
    async fn answers_are_whole_wherever_they_are_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\n\r\n\
            3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\n\r\nok";
        let right = vec![
            (200, b"hello".to_vec()),
            (503, b"abc0123456789".to_vec()),
            (204, Vec::new()),
            (200, b"ok".to_vec()),
        ];
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(read(first, second).await, right, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn requests_are_told_apart_wherever_they_are_cut() {
        let bytes = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}\
            GET /health HTTP/1.1\r\nhost: a\r\n\r\n\
            POST /v1/chat/completions/render HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let mut from = first.chain(second);
            let mut incoming = Incoming::new();
            let mut heads = Vec::new();
            while let Some(head) = incoming.request(&mut from).await.unwrap() {
                incoming
                    .body(&mut from, head.framing, |_| ())
                    .await
                    .unwrap();
                heads.push(head.asked);
            }
            assert_eq!(
                heads,
                [Asked::Chat, Asked::Other, Asked::Render],
                "cut at {cut}"
            );
        }
    }

    #[tokio::test]
    async fn a_message_without_its_end_is_an_error() {
        for bytes in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\ncontent-le",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: none\r\n\r\n",
        ] {
            let (mut from, mut incoming) = (bytes.as_bytes(), Incoming::new());
            let read = async {
                let head = incoming.response(&mut from).await?;
                let framing = head.map(|head| head.framing);
                incoming
                    .body(&mut from, framing.unwrap_or(Framing::Chunked), |_| ())
                    .await
            };
            assert!(read.await.is_err(), "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_body_may_be_longer_than_the_buffer() {
        let body: Vec<u8> = (0..3 * BUFFER_BYTES + 7)
            .map(|n| n.to_le_bytes()[0])
            .collect();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let messages = read(head.as_bytes(), &body).await;
        assert_eq!(messages, [(200, body)]);
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let endless = vec![b'a'; 2 * BUFFER_BYTES];
        let mut from = &b"GET /"[..];
        let mut from = (&mut from).chain(&*endless);
        assert!(Incoming::new().request(&mut from).await.is_err());
    }
}
