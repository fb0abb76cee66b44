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
            kind if is_media(kind) => {
                to.media(item);
                return Ok(());
            }
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
            Some(b"tool" | b"function") => tool_result(cursor.value()?, to),
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
        Some(b'{') => match Part::read(cursor)? {
            (Part::Text(text), _) => to.string(text),
            (Part::Media, part) => {
                to.media(part);
                Ok(())
            }
            (Part::Tool, part) => tool_block(part, to),
        },
        _ => match cursor.value()? {
            Json::Null => Ok(()),
            other => to.tool(other),
        },
    }
}

/// What a part of a turn is, which decides what it counts to.
enum Part<'a> {
    Text(Str<'a>),
    Media,
    /// Tool use, tool results, reasoning, and what is not known: the model reads it, so it counts
    /// as something that is prefilled.
    Tool,
}

impl<'a> Part<'a> {
    /// Reads the object that is at the cursor; returns what it is, and itself.
    fn read(cursor: &mut Cursor<'a>) -> Result<(Self, Json<'a>)> {
        let (mut kind, mut text, mut media) = (None, None, false);
        let part = cursor.object(|name, cursor| {
            let value = cursor.value()?;
            match name {
                b"type" => kind = value.string(),
                b"text" => text = value.string(),
                name => media |= is_media(name),
            }
            Ok(())
        })?;
        let mut name = [0; 32];
        let kind = match (kind.map(|kind| kind.name(&mut name)), text) {
            (None | Some(b"text" | b"input_text" | b"output_text"), Some(text)) => Self::Text(text),
            (Some(kind), _) if is_media(kind) => Self::Media,
            (None, None) if media => Self::Media,
            _ => Self::Tool,
        };
        Ok((kind, part))
    }
}

/// A tool call or result as a block of its own. Names of fields are left out: they cost no tokens.
fn tool_block(block: Json<'_>, to: &mut Measure) -> Result<()> {
    block.cursor().object(|name, cursor| match name {
        b"content" | b"output" => tool_result(cursor.value()?, to),
        _ => to.tool(cursor.value()?),
    })?;
    Ok(())
}

/// What a tool returned: a string, or a list of parts that may hold images.
fn tool_result(result: Json<'_>, to: &mut Measure) -> Result<()> {
    match result {
        Json::Null => Ok(()),
        Json::Array(_) => result.cursor().array(|cursor| match cursor.peek() {
            Some(b'{') => match Part::read(cursor)? {
                (Part::Media, part) => {
                    to.media(part);
                    Ok(())
                }
                (_, part) => to.tool(part),
            },
            _ => to.tool(cursor.value()?),
        }),
        _ => to.tool(result),
    }
}

/// Whether a part of this type, or a part without one that has this field, is no text.
fn is_media(name: &[u8]) -> bool {
    matches!(
        name,
        b"image"
            | b"image_url"
            | b"input_image"
            | b"image_pil"
            | b"image_embeds"
            | b"image_generation_call"
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
