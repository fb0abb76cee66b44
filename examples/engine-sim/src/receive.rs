//! Reading a request to its end, with bounds, and writing down what came.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use hyper::http::request::Parts;
use xxhash_rust::xxh3::Xxh3;

use crate::reply::ApiError;
use crate::state::{RecordedRequest, Shared};

/// The longest body that is read.
const MAX_BODY: usize = 64 << 20;
/// A body longer than this is read only together with few others.
const LARGE_BODY: usize = 1 << 20;
/// What is kept of one request's headers, in bytes.
const KEPT_HEADERS: usize = 64 << 10;
/// What is kept of a path, in characters.
const KEPT_PATH: usize = 4096;

/// The hash under which [`RecordedRequest`] keeps a body: XXH3, 64 bits, as 16 hex digits.
///
/// [`RecordedRequest`]: crate::RecordedRequest
pub fn body_hash(body: &[u8]) -> String {
    let mut hasher = Xxh3::new();
    hasher.update(body);
    hex(&hasher)
}

/// A request that was read: what it was, and its body if that could be taken.
pub(crate) struct Received {
    pub(crate) record: RecordedRequest,
    pub(crate) body: Result<Bytes, ApiError>,
}

/// Reads a request's body to its end.
pub(crate) async fn receive(shared: &Shared, parts: &Parts, body: Incoming) -> Received {
    let mut reader = Reader::default();
    let whole = reader.read(shared, body).await;
    let record = RecordedRequest {
        method: parts.method.to_string(),
        path: parts
            .uri
            .path_and_query()
            .map_or("", |path| path.as_str())
            .chars()
            .take(KEPT_PATH)
            .collect(),
        version: format!("{:?}", parts.version),
        headers: kept(&parts.headers),
        body_bytes: reader.length,
        body_hash: hex(&reader.hasher),
        trailers: reader.trailers,
    };
    let body = whole.and_then(|()| match parts.headers.get(CONTENT_ENCODING) {
        Some(coding) if coding != "identity" => Err(ApiError::bad_request(
            "There was an error parsing the body: it is compressed.",
        )),
        _ => Ok(reader.data.freeze()),
    });
    Received { record, body }
}

#[derive(Default)]
struct Reader {
    data: BytesMut,
    hasher: Xxh3,
    length: u64,
    trailers: Vec<(String, String)>,
}

impl Reader {
    async fn read(&mut self, shared: &Shared, mut body: Incoming) -> Result<(), ApiError> {
        let mut permit = None;
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| ApiError::bad_request("The request body did not arrive."))?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    self.trailers = frame.trailers_ref().map(kept).unwrap_or_default();
                    continue;
                }
            };
            self.hasher.update(&data);
            self.length += u64::try_from(data.len()).unwrap_or_default();
            if self.data.len() + data.len() > MAX_BODY {
                self.data = BytesMut::new();
                let message = format!("The request body is longer than {MAX_BODY} bytes.");
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            self.data.extend_from_slice(&data);
            if self.data.len() > LARGE_BODY && permit.is_none() {
                permit = shared.large_bodies.acquire().await.ok();
            }
        }
        Ok(())
    }
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut left = KEPT_HEADERS;
    let fields = headers.iter().map_while(|(name, value)| {
        left = left.checked_sub(name.as_str().len() + value.len())?;
        Some((
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        ))
    });
    fields.collect()
}

fn hex(hasher: &Xxh3) -> String {
    format!("{:016x}", hasher.digest())
}
