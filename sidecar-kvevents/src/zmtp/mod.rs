//! ZMTP 3.0, the protocol of `ZeroMQ`: as much of it as it takes to subscribe and to ask a replay socket.
//!
//! Invariant: a peer cannot make this process hold more than [`codec::MAX_MESSAGE_BYTES`] and the
//! bytes of one read, whatever it claims to be about to send. That is why this is not the crate
//! `zeromq`: it makes room for a frame as soon as its length is told, so nine bytes end the process.
//! There is no security mechanism but NULL, as with the engines.

mod codec;
mod peer;
mod transport;

pub use peer::{Event, Events, Received, follow, replay};
pub(crate) use transport::remove_stale as remove_stale_socket;
pub use transport::{Io, Listener, connect};

use thiserror::Error;

/// What goes wrong with a peer.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection could not be made, or is lost.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer was silent for too long.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The peer speaks something else.
    #[error("the peer does not speak ZMTP 3 without security: {0}")]
    Protocol(&'static str),
    /// The peer sends more than is taken.
    #[error("a message of the peer is over the limit of {} MiB or {} frames",
        codec::MAX_MESSAGE_BYTES >> 20, codec::MAX_FRAMES)]
    TooLarge,
}
