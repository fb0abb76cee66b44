//! What a fault does to an answer that is on its way: cut short, reset, stalled, ended by an error,
//! compressed.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::StatusCode;
use hyper::body::{Body as _, Frame};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};

use crate::api::{Api, error_event};
use crate::faults::Fault;
use crate::reply::{self, ApiError, Body, EVENT_STREAM, ErrorShape, Reply, set};
use crate::server::Abort;

/// Time for what was sent before a reset to reach the client.
const LINGER: Duration = Duration::from_millis(5);

impl Fault {
    /// What happens to the answer of an API, if it is one's.
    pub(crate) fn spoil(self, api: Option<Api>, reply: Reply, abort: Abort) -> Reply {
        let streamed = reply
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind == EVENT_STREAM);
        match self {
            Self::Reset(frames) => begun(reply, streamed.then_some(frames), reset(abort)),
            Self::Stall(frames) => {
                begun(reply, streamed.then_some(frames), stream::pending().boxed())
            }
            Self::Cut(frames) if streamed => reply.map(|body| framed(pieces(body).take(frames))),
            Self::Cut(_) => reply.map(|body| framed(pieces(body).map(halved))),
            Self::Error(frames) if streamed => reply.map(|body| failed(body, api, frames)),
            Self::Error(_) => {
                let shape = api.map_or(ErrorShape::OpenAi, Api::error_shape);
                reply::json(StatusCode::OK, &ApiError::internal().body(shape))
            }
            Self::Gzip => {
                let mut reply = reply.map(zipped);
                set(&mut reply, CONTENT_ENCODING, "gzip");
                reply
            }
            Self::Slow(_)
            | Self::InternalError
            | Self::TooManyRequests(_)
            | Self::Unavailable(_)
            | Self::ResetBeforeHeaders
            | Self::Hang => reply,
        }
    }
}

/// The data of a body, as it comes.
fn pieces(body: Body) -> impl stream::Stream<Item = Bytes> + Send {
    BodyStream::new(body).map(|frame| {
        let Ok(frame) = frame;
        frame.into_data().unwrap_or_default()
    })
}

fn framed(pieces: impl stream::Stream<Item = Bytes> + Send + 'static) -> Body {
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    StreamBody::new(frames).boxed_unsync()
}

fn halved(mut piece: Bytes) -> Bytes {
    piece.truncate(piece.len() / 2);
    piece
}

/// So many events of a stream, or half of any other answer, and then what follows.
fn begun(reply: Reply, frames: Option<usize>, end: BoxStream<'static, Bytes>) -> Reply {
    let Some(frames) = frames else {
        let length = reply.body().size_hint().lower();
        let mut reply = reply.map(|body| framed(pieces(body).map(halved).chain(end)));
        // Promised in full, so the client can tell that it did not come.
        set(&mut reply, CONTENT_LENGTH, &length.to_string());
        return reply;
    };
    reply.map(|body| framed(pieces(body).take(frames).chain(end)))
}

/// Nothing more, and the end of the connection.
fn reset(abort: Abort) -> BoxStream<'static, Bytes> {
    let reset = stream::once(async move {
        tokio::time::sleep(LINGER).await;
        abort.reset_connection().await;
        Bytes::new()
    });
    reset.boxed()
}

/// The first events of a stream, an error, and its last events.
fn failed(body: Body, api: Option<Api>, frames: usize) -> Body {
    let state = Some((body, frames));
    let pieces = stream::unfold(state, move |state| async move {
        let (mut body, left) = state?;
        let mut last = next(&mut body).await?;
        if left > 0 {
            return Some((last, Some((body, left - 1))));
        }
        while let Some(piece) = next(&mut body).await {
            last = piece;
        }
        let mut piece = error_event(api).into_bytes();
        piece.extend_from_slice(&last);
        Some((piece.into(), None))
    });
    framed(pieces)
}

async fn next(body: &mut Body) -> Option<Bytes> {
    let Ok(frame) = body.frame().await?;
    Some(frame.into_data().unwrap_or_default())
}

/// Compressed piece by piece, so that a stream stays one.
fn zipped(body: Body) -> Body {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let zipped = stream::unfold(Some((body, encoder)), |state| async {
        let (mut body, mut encoder) = state?;
        // Writing to a vector cannot fail.
        let (piece, next) = if let Some(piece) = next(&mut body).await {
            let _ = encoder.write_all(&piece).and_then(|()| encoder.flush());
            let piece = std::mem::take(encoder.get_mut());
            (piece, Some((body, encoder)))
        } else {
            (encoder.finish().unwrap_or_default(), None)
        };
        Some((piece.into(), next))
    });
    framed(zipped)
}
