//! One turn of a conversation, as `role: text\n`: what counts as text, as tool, as media.

use super::json::{Cursor, Json, Result, Str, Unreadable};
use super::measure::Measure;

pub(super) const SYSTEM: &[u8] = b"system";
pub(super) const USER: &[u8] = b"user";

/// A turn that is told by its field's name rather than by a role of its own.
pub(super) fn turn_of(role: &[u8], content: Json<'_>, to: &mut Measure) -> Result<()> {
    to.text(role);
    to.text(b": ");
    self::content(&mut content.cursor(), to)?;
    to.text(b"\n");
    Ok(())
}

/// What is to be known of a turn besides its content.
#[derive(Default)]
struct Turn<'a> {
    role: Option<Str<'a>>,
    kind: Option<Str<'a>>,
    tool_calls: Option<Json<'a>>,
    /// What older clients send in place of `tool_calls`.
    function_call: Option<Json<'a>>,
}

/// Reads one element of the conversation: a message, or an item of the Responses API.
///
/// `in_place` measures the content as it is reached, where the role came before it. That saves a
/// scan, and it is an error if either comes again: then the last counts, and all has to be read
/// anew without it.
pub(super) fn turn(cursor: &mut Cursor<'_>, to: &mut Measure, in_place: bool) -> Result<()> {
    let mut turn = Turn::default();
    let mut content = None;
    let mut said = false;
    let item = cursor.object(|name, cursor| {
        match name {
            b"content" if in_place && !said && turn.role.is_some() => {
                said = true;
                return turn.say(cursor, to);
            }
            b"content" | b"role" if said => return Err(Unreadable),
            _ => {}
        }
        let value = cursor.value()?;
        match name {
            b"role" => turn.role = value.string(),
            b"type" => turn.kind = value.string(),
            b"content" => content = Some(value),
            b"tool_calls" => turn.tool_calls = Some(value),
            b"function_call" => turn.function_call = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    if let (None, Some(kind)) = (turn.role, turn.kind) {
        match kind.name(&mut [0; 32]) {
            b"message" => {}
            kind if is_media(kind) => return to.media(item),
            _ => return tool_block(item, to),
        }
    }
    if !said {
        turn.say(&mut content.unwrap_or(Json::Null).cursor(), to)?;
    }
    for calls in [turn.tool_calls, turn.function_call].into_iter().flatten() {
        if !calls.is_null() {
            to.tool(calls)?;
        }
    }
    to.text(b"\n");
    Ok(())
}

impl Turn<'_> {
    /// Measures the role, and the content that is at the cursor.
    fn say(&self, cursor: &mut Cursor<'_>, to: &mut Measure) -> Result<()> {
        match self.role {
            Some(role) => to.string(role)?,
            None => to.text(USER),
        }
        to.text(b": ");
        let mut name = [0; 32];
        match self.role.map(|role| role.name(&mut name)) {
            Some(b"tool" | b"function") => tool_result(cursor, to),
            _ => content(cursor, to),
        }
    }
}

/// What a turn says: a string, a list of parts, or nothing.
fn content(cursor: &mut Cursor<'_>, to: &mut Measure) -> Result<()> {
    match cursor.peek() {
        Some(b'[') => cursor.array(|cursor| part(cursor, to)),
        _ => part(cursor, to),
    }
}

fn part(cursor: &mut Cursor<'_>, to: &mut Measure) -> Result<()> {
    match cursor.peek() {
        Some(b'"') => cursor.text(|run| to.text(run)),
        Some(b'{') => {
            let part = Part::read(cursor)?;
            match (part.kind, part.text) {
                (Kind::Tool, _) => tool_block(part.whole, to),
                (kind, text) => {
                    if let Some(text) = text {
                        to.string(text)?;
                    }
                    match kind {
                        Kind::Media => to.media(part.whole),
                        _ => Ok(()),
                    }
                }
            }
        }
        _ => match cursor.value()? {
            Json::Null => Ok(()),
            other => to.tool(other),
        },
    }
}

/// An object in a list of parts.
struct Part<'a> {
    whole: Json<'a>,
    kind: Kind,
    text: Option<Str<'a>>,
}

/// What a part is, which decides what it counts to.
#[derive(PartialEq)]
enum Kind {
    Text,
    /// An image, audio, a file; a text may stand beside it.
    Media,
    /// Tool use, tool results, reasoning, and what is not known: the model reads it, so it counts
    /// as something that is prefilled.
    Tool,
}

impl<'a> Part<'a> {
    /// Reads the object that is at the cursor.
    fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        let (mut kind, mut text, mut media) = (None, None, false);
        let whole = cursor.object(|name, cursor| {
            let value = cursor.value()?;
            match name {
                b"type" => kind = value.string(),
                b"text" => text = value.string(),
                name => media |= is_media(name),
            }
            Ok(())
        })?;
        let mut name = [0; 32];
        let kind = match kind.map(|kind| kind.name(&mut name)) {
            Some(b"text" | b"input_text" | b"output_text") if text.is_some() => Kind::Text,
            Some(kind) if is_media(kind) => Kind::Media,
            None if media => Kind::Media,
            None if text.is_some() => Kind::Text,
            _ => Kind::Tool,
        };
        Ok(Self { whole, kind, text })
    }
}

/// A tool call or result as a block of its own. Its ids and its type are left out where it is of a
/// known shape: they are no part of what is prefilled.
fn tool_block(block: Json<'_>, to: &mut Measure) -> Result<()> {
    const CALL: [&[u8]; 3] = [b"name", b"input", b"arguments"];
    const RESULT: [&[u8]; 2] = [b"content", b"output"];
    let mut call = [None; CALL.len()];
    let mut result = [None; RESULT.len()];
    block.cursor().object(|name, cursor| {
        let value = cursor.value()?;
        let places = CALL.iter().zip(&mut call);
        for (known, place) in places.chain(RESULT.iter().zip(&mut result)) {
            if name == *known {
                *place = Some(value);
            }
        }
        Ok(())
    })?;
    if call.iter().chain(&result).all(Option::is_none) {
        return to.tool(block);
    }
    for part in call.into_iter().flatten() {
        to.tool(part)?;
    }
    for result in result.into_iter().flatten() {
        tool_result(&mut result.cursor(), to)?;
    }
    Ok(())
}

/// What a tool returned: a text, or parts that may be images.
fn tool_result(cursor: &mut Cursor<'_>, to: &mut Measure) -> Result<()> {
    match cursor.peek() {
        Some(b'[') => cursor.array(|cursor| tool_result_part(cursor, to)),
        _ => tool_result_part(cursor, to),
    }
}

fn tool_result_part(cursor: &mut Cursor<'_>, to: &mut Measure) -> Result<()> {
    match cursor.peek() {
        Some(b'{') => match Part::read(cursor)? {
            Part {
                kind: Kind::Media,
                whole,
                ..
            } => to.media(whole),
            Part { whole, .. } => to.tool(whole),
        },
        _ => match cursor.value()? {
            Json::Null => Ok(()),
            other => to.tool(other),
        },
    }
}

/// Whether this type, or this field of a part without a type, is media.
fn is_media(name: &[u8]) -> bool {
    matches!(
        name,
        b"image"
            | b"image_url"
            | b"input_image"
            | b"image_pil"
            | b"image_embeds"
            | b"image_generation_call"
            | b"computer_screenshot"
            | b"audio"
            | b"audio_url"
            | b"input_audio"
            | b"audio_embeds"
            | b"video"
            | b"video_url"
            | b"input_video"
            | b"file"
            | b"input_file"
            | b"document"
            | b"container_upload"
    )
}
