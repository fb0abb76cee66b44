//! Frames on the wire: a greeting, then commands and messages of some frames.

use super::Error;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

/// The most bytes of one message. Batches of engines have some KiB.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// The most frames of one message. Those of engines have four.
pub(super) const MAX_FRAMES: usize = 16;

/// The most bytes of a command: a socket's properties, or a ping.
const MAX_COMMAND_BYTES: usize = 64 << 10;

const GREETING_BYTES: usize = 64;
/// Where in a greeting the security mechanism is.
const MECHANISM: std::ops::Range<usize> = 12..32;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What a peer sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Greeting,
    Command(Bytes),
    Message(Vec<Bytes>),
}

#[derive(Debug, Default)]
pub(super) struct Codec {
    greeted: bool,
    /// The frames of a message whose last is still to come.
    frames: Vec<Bytes>,
}

/// What precedes all else: version 3.0, no security.
fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

impl Encoder<Unit> for Codec {
    type Error = Error;

    fn encode(&mut self, unit: Unit, to: &mut BytesMut) -> Result<(), Error> {
        match unit {
            Unit::Greeting => to.extend_from_slice(&greeting()),
            Unit::Command(body) => put_frame(COMMAND, &body, to),
            Unit::Message(frames) => {
                for (index, frame) in frames.iter().enumerate() {
                    let is_last = index + 1 == frames.len();
                    put_frame(if is_last { 0 } else { MORE }, frame, to);
                }
            }
        }
        Ok(())
    }
}

fn put_frame(flags: u8, body: &[u8], to: &mut BytesMut) {
    match u8::try_from(body.len()) {
        Ok(len) => to.extend_from_slice(&[flags, len]),
        Err(_) => {
            to.put_u8(flags | LONG);
            to.put_u64(body.len() as u64);
        }
    }
    to.extend_from_slice(body);
}

impl Decoder for Codec {
    type Item = Unit;
    type Error = Error;

    fn decode(&mut self, from: &mut BytesMut) -> Result<Option<Unit>, Error> {
        if !self.greeted {
            return self.decode_greeting(from);
        }
        loop {
            let bytes: usize = self.frames.iter().map(Bytes::len).sum();
            let Some((flags, body)) = take_frame(from, MAX_MESSAGE_BYTES.saturating_sub(bytes))?
            else {
                return Ok(None);
            };
            if flags & COMMAND != 0 {
                return Ok(Some(Unit::Command(body)));
            }
            if self.frames.len() >= MAX_FRAMES {
                return Err(Error::TooLarge);
            }
            self.frames.push(body);
            if flags & MORE == 0 {
                return Ok(Some(Unit::Message(std::mem::take(&mut self.frames))));
            }
        }
    }
}

impl Codec {
    fn decode_greeting(&mut self, from: &mut BytesMut) -> Result<Option<Unit>, Error> {
        // What is no ZMTP at all may never send as much as a greeting has.
        if from.first().is_some_and(|&byte| byte != 0xff) {
            return Err(Error::Protocol("it begins with something else"));
        }
        let Some((theirs, _)) = from.split_first_chunk::<GREETING_BYTES>() else {
            return Ok(None);
        };
        let ours = greeting();
        let (signature, version) = (theirs.get(9), theirs.get(10));
        if signature.is_none_or(|byte| byte & 1 == 0) || version.is_none_or(|&version| version < 3)
        {
            return Err(Error::Protocol("its version is older"));
        }
        if theirs.get(MECHANISM) != ours.get(MECHANISM) {
            return Err(Error::Protocol("it wants a security mechanism"));
        }
        from.advance(GREETING_BYTES);
        self.greeted = true;
        Ok(Some(Unit::Greeting))
    }
}

/// The flags and the body of the next frame, once it is all there, where it has so many bytes at
/// most. No room is made for it before: its length is what the peer claims.
fn take_frame(from: &mut BytesMut, room: usize) -> Result<Option<(u8, Bytes)>, Error> {
    let Some(&flags) = from.first() else {
        return Ok(None);
    };
    let (header, len) = if flags & LONG == 0 {
        (2, from.get(1).map(|&len| u64::from(len)))
    } else {
        let len = from.get(1..9).map(|mut bytes| bytes.get_u64());
        (9, len)
    };
    let Some(len) = len else {
        return Ok(None);
    };
    let len = usize::try_from(len)
        .ok()
        .filter(|&len| {
            len <= if flags & COMMAND == 0 {
                room
            } else {
                MAX_COMMAND_BYTES
            }
        })
        .ok_or(Error::TooLarge)?;
    if from.len() < header + len {
        return Ok(None);
    }
    from.advance(header);
    Ok(Some((flags, from.split_to(len).freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(units: &[Unit]) -> BytesMut {
        let mut wire = BytesMut::new();
        for unit in units {
            Codec::default().encode(unit.clone(), &mut wire).unwrap();
        }
        wire
    }

    #[test]
    fn what_is_encoded_is_decoded_however_it_is_cut() {
        let units = [
            Unit::Greeting,
            Unit::Command(Bytes::from_static(b"\x05READY")),
            Unit::Message(vec![
                Bytes::from_static(b"topic"),
                Bytes::new(),
                Bytes::from(vec![7; 300]),
            ]),
            Unit::Message(vec![Bytes::from(vec![8; 70_000])]),
        ];
        let wire = ready(&units);
        for step in [1, 7, 64, 1_000, wire.len()] {
            let (mut codec, mut from, mut got) = (Codec::default(), BytesMut::new(), Vec::new());
            for piece in wire.chunks(step) {
                from.extend_from_slice(piece);
                while let Some(unit) = codec.decode(&mut from).unwrap() {
                    got.push(unit);
                }
            }
            assert_eq!(got, units, "{step}");
        }
    }

    #[test]
    fn a_frame_that_claims_to_be_huge_is_refused_before_room_is_made_for_it() {
        for len in [MAX_MESSAGE_BYTES as u64 + 1, 1 << 60, u64::MAX] {
            let mut wire = ready(&[Unit::Greeting]);
            wire.put_u8(LONG);
            wire.put_u64(len);
            let mut codec = Codec::default();
            assert_eq!(codec.decode(&mut wire).unwrap(), Some(Unit::Greeting));
            assert!(
                matches!(codec.decode(&mut wire), Err(Error::TooLarge)),
                "{len}"
            );
            assert!(wire.capacity() < 1 << 16);
        }
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut wire = ready(&[Unit::Greeting]);
        for _ in 0..=MAX_FRAMES {
            put_frame(MORE, b"x", &mut wire);
        }
        let mut codec = Codec::default();
        assert_eq!(codec.decode(&mut wire).unwrap(), Some(Unit::Greeting));
        assert!(matches!(codec.decode(&mut wire), Err(Error::TooLarge)));
    }

    #[test]
    fn other_protocols_and_mechanisms_are_refused() {
        let mut plain = greeting();
        plain[12..17].copy_from_slice(b"PLAIN");
        let mut old = greeting();
        old[10] = 2;
        for wire in [&b"HTTP/1.1 400 Bad Request"[..], &plain, &old] {
            let error = Codec::default()
                .decode(&mut BytesMut::from(wire))
                .unwrap_err();
            assert!(matches!(error, Error::Protocol(_)), "{error}");
        }
    }
}
