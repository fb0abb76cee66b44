//! A subscription and a request for a replay, each as a stream of what comes of it. Each is over a
//! connection of its own: an answer can never be one to an earlier question.

use super::Error;
use super::codec::{Codec, Unit};
use super::transport::{Io, connect};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use futures_util::{SinkExt, StreamExt};
use rolter_core::config::EventEndpoint;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::codec::Framed;

/// How long it may take until a peer is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// What a replay has at its end in place of a sequence.
const END: u64 = u64::MAX;

/// What comes of a subscription. It ends with an error.
pub type Events = Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>;

/// What happens to a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer is ready, and has been told what is wanted.
    Connected,
    /// A message has come.
    Published(Received),
}

/// A message, as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A batch of events.
    Batch {
        /// Its number.
        seq: u64,
        /// What is in it.
        payload: Bytes,
    },
    /// Something else.
    Malformed,
}

type Connection = Framed<Box<dyn Io>, Codec>;

/// Subscribes to a topic over a connection that is being made.
pub fn follow<C>(connecting: C, topic: String) -> Events
where
    C: Future<Output = std::io::Result<Box<dyn Io>>> + Send + 'static,
{
    let connecting = async move {
        let mut connection = ready(connecting, "SUB", &["PUB", "XPUB"]).await?;
        let mut subscription = BytesMut::from(&[1][..]);
        subscription.extend_from_slice(topic.as_bytes());
        let subscription = Unit::Message(vec![subscription.freeze()]);
        connection.send(subscription).await?;
        Ok(connection)
    };
    let made = stream::once(connecting).map(|made| match made {
        Ok(connection) => {
            let connected = stream::once(async { Ok(Event::Connected) });
            connected.chain(published(connection)).left_stream()
        }
        Err(error) => stream::once(async { Err(error) }).right_stream(),
    });
    Box::pin(made.flatten())
}

fn published(connection: Connection) -> impl Stream<Item = Result<Event, Error>> + Send {
    stream::try_unfold(connection, |mut connection| async move {
        let frames = receive(&mut connection).await?;
        let received = match &*frames {
            [_topic, seq, payload] => read_batch(seq, payload),
            _ => Received::Malformed,
        };
        Ok(Some((Event::Published(received), connection)))
    })
}

/// Asks for all batches from a sequence on. What ends without an error is all that there is.
pub fn replay(
    endpoint: EventEndpoint,
    rank: u16,
    from: u64,
) -> Pin<Box<dyn Stream<Item = Result<Received, Error>> + Send>> {
    let asked = async move {
        let connecting = async move { connect(&endpoint, rank).await };
        let mut connection = ready(connecting, "DEALER", &["ROUTER"]).await?;
        let from = Bytes::copy_from_slice(&from.to_be_bytes());
        connection
            .send(Unit::Message(vec![Bytes::new(), from]))
            .await?;
        Ok(connection)
    };
    let answers = stream::once(asked).map(|asked| match asked {
        Ok(connection) => stream::try_unfold(connection, |mut connection| async move {
            let frames = receive(&mut connection).await?;
            // With a topic from vLLM 0.26 on, without before.
            let received = match &*frames {
                [_empty, seq, payload] | [_empty, _, seq, payload] => read_batch(seq, payload),
                _ => Received::Malformed,
            };
            let is_end = matches!(received, Received::Batch { seq: END, .. });
            Ok((!is_end).then_some((received, connection)))
        })
        .left_stream(),
        Err(error) => stream::once(async { Err(error) }).right_stream(),
    });
    Box::pin(answers.flatten())
}

fn read_batch(seq: &Bytes, payload: &Bytes) -> Received {
    <[u8; 8]>::try_from(&**seq).map_or(Received::Malformed, |seq| Received::Batch {
        seq: u64::from_be_bytes(seq),
        // Of its own: what it was read with is as large as the peer likes.
        payload: Bytes::copy_from_slice(payload),
    })
}

/// Makes a connection to a peer of one of these types.
async fn ready<C>(connecting: C, own: &'static str, theirs: &[&str]) -> Result<Connection, Error>
where
    C: Future<Output = std::io::Result<Box<dyn Io>>>,
{
    let handshake = async {
        let mut connection = Framed::new(connecting.await?, Codec::default());
        connection.send(Unit::Greeting).await?;
        if next(&mut connection).await? != Unit::Greeting {
            return Err(Error::Protocol("it does not greet"));
        }
        connection.send(Unit::Command(ready_command(own))).await?;
        match next(&mut connection).await? {
            Unit::Command(command) if is_ready(&command, theirs) => Ok(connection),
            Unit::Command(command) if command.starts_with(b"\x05ERROR") => {
                Err(Error::Protocol("it refuses this socket's type"))
            }
            _ => Err(Error::Protocol("its socket is of another type")),
        }
    };
    timeout(READY_TIMEOUT, handshake)
        .await
        .map_err(|_| Error::TimedOut)?
}

fn ready_command(own: &str) -> Bytes {
    let mut command = BytesMut::from(&b"\x05READY\x0bSocket-Type"[..]);
    command.put_u32(u32::try_from(own.len()).unwrap_or_default());
    command.extend_from_slice(own.as_bytes());
    command.freeze()
}

fn is_ready(command: &[u8], theirs: &[&str]) -> bool {
    let Some(mut properties) = command.strip_prefix(b"\x05READY") else {
        return false;
    };
    while let Some((name, value, rest)) = property(properties) {
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return theirs.iter().any(|kind| kind.as_bytes() == value);
        }
        properties = rest;
    }
    false
}

/// Name and value of the first property, and what follows.
fn property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&len, bytes) = bytes.split_first()?;
    let (name, bytes) = bytes.split_at_checked(usize::from(len))?;
    let (&len, bytes) = bytes.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(len)).ok()?;
    let (value, rest) = bytes.split_at_checked(len)?;
    Some((name, value, rest))
}

/// The next message. Pings are answered.
async fn receive(connection: &mut Connection) -> Result<Vec<Bytes>, Error> {
    loop {
        match next(connection).await? {
            Unit::Message(frames) => return Ok(frames),
            Unit::Command(command) => {
                // After the name comes how long the peer waits, in two bytes, then what it wants
                // to hear again.
                if let Some(context) = command.strip_prefix(b"\x04PING").and_then(|c| c.get(2..)) {
                    let pong = [b"\x04PONG", context].concat();
                    connection.send(Unit::Command(pong.into())).await?;
                }
            }
            Unit::Greeting => return Err(Error::Protocol("it greets twice")),
        }
    }
}

async fn next(connection: &mut Connection) -> Result<Unit, Error> {
    connection.next().await.ok_or(Error::Closed)?
}
