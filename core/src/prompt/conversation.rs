//! The conversation of a request in the order in which the model sees it, turn by turn as
//! `role: text\n`.

use super::Dialect;
use super::json::{Cursor, Json, Result, Str, Unreadable};
use super::measure::Measure;

/// The fields of a body that matter, the last of each name, as JSON readers of the engines take
/// them.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<Str<'a>>,
    pub(super) stream: bool,
    system: Option<Json<'a>>,
    instructions: Option<Json<'a>>,
    messages: Option<Json<'a>>,
    input: Option<Json<'a>>,
    prompt: Option<Json<'a>>,
}

impl<'a> Fields<'a> {
    /// Reads the object that `body` consists of. After an error the fields before it are there.
    pub(super) fn read(&mut self, body: &'a [u8]) -> Result<()> {
        let mut cursor = Cursor::new(body);
        cursor.object(|name, value| {
            let given = (!value.is_null()).then_some(value);
            match name {
                b"model" => self.model = value.string(),
                b"stream" => self.stream = matches!(value, Json::Scalar(b"true")),
                b"system" => self.system = given,
                b"instructions" => self.instructions = given,
                b"messages" => self.messages = given,
                b"input" => self.input = given,
                b"prompt" => self.prompt = given,
                _ => {}
            }
            Ok(())
        })?;
        match cursor.peek() {
            None => Ok(()),
            Some(_) => Err(Unreadable),
        }
    }

    /// The dialect that the fields speak, for a path that does not tell.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        if self.messages.is_some() {
            // An OpenAI chat has no `system` of its own, so reading it as well does no harm.
            Some(Dialect::Messages)
        } else if self.input.is_some() {
            Some(Dialect::Responses)
        } else {
            self.prompt.map(|_| Dialect::Completions)
        }
    }

    /// Takes the measure of the conversation, and returns its token ids where it consists of them.
    pub(super) fn measure(&self, dialect: Dialect, to: &mut Measure) -> Result<Option<Json<'a>>> {
        match dialect {
            Dialect::Chat => turns(self.messages.ok_or(Unreadable)?, to)?,
            Dialect::Messages => {
                if let Some(system) = self.system {
                    turn_of(SYSTEM, system, to)?;
                }
                turns(self.messages.ok_or(Unreadable)?, to)?;
            }
            Dialect::Responses => {
                if self.input.or(self.instructions).is_none() {
                    return Err(Unreadable);
                }
                if let Some(instructions) = self.instructions {
                    turn_of(SYSTEM, instructions, to)?;
                }
                match self.input {
                    Some(input @ Json::String(_)) => turn_of(USER, input, to)?,
                    Some(items) => turns(items, to)?,
                    None => {}
                }
            }
            Dialect::Completions => return batch(self.prompt.ok_or(Unreadable)?, to),
            Dialect::Embeddings => match (self.input, self.messages) {
                (Some(input), _) => return batch(input, to),
                (None, Some(messages)) => turns(messages, to)?,
                (None, None) => return Err(Unreadable),
            },
        }
        Ok(None)
    }
}

const SYSTEM: &[u8] = b"system";
const USER: &[u8] = b"user";

/// The turns of `messages`, or the items of a Responses `input`.
fn turns(list: Json<'_>, to: &mut Measure) -> Result<()> {
    list.elements(|cursor| Turn::read(cursor)?.measure(to))
}

/// A turn that is told by position rather than by a role of its own.
fn turn_of(role: &[u8], content: Json<'_>, to: &mut Measure) -> Result<()> {
    to.text(role);
    to.text(b": ");
    self::content(content, to)?;
    to.text(b"\n");
    Ok(())
}

/// One element of the conversation: a message, or an item of the Responses API.
struct Turn<'a> {
    item: Json<'a>,
    role: Option<Str<'a>>,
    kind: Option<Str<'a>>,
    content: Json<'a>,
    tool_calls: Json<'a>,
    /// What older clients send in place of `tool_calls`.
    function_call: Json<'a>,
}

impl<'a> Turn<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        let mut turn = Self {
            item: Json::Null,
            role: None,
            kind: None,
            content: Json::Null,
            tool_calls: Json::Null,
            function_call: Json::Null,
        };
        turn.item = cursor.object(|name, value| {
            match name {
                b"role" => turn.role = value.string(),
                b"type" => turn.kind = value.string(),
                b"content" => turn.content = value,
                b"tool_calls" => turn.tool_calls = value,
                b"function_call" => turn.function_call = value,
                _ => {}
            }
            Ok(())
        })?;
        Ok(turn)
    }

    fn measure(self, to: &mut Measure) -> Result<()> {
        if let (None, Some(kind)) = (self.role, self.kind) {
            match kind.name(&mut [0; 32]) {
                b"message" => {}
                kind if is_media(kind) => {
                    to.media(self.item);
                    return Ok(());
                }
                _ => return tool_block(self.item, to),
            }
        }
        match self.role {
            Some(role) => to.string(role)?,
            None => to.text(USER),
        }
        to.text(b": ");
        let mut name = [0; 32];
        match self.role.map(|role| role.name(&mut name)) {
            Some(b"tool" | b"function") => tool_result(self.content, to)?,
            _ => content(self.content, to)?,
        }
        for calls in [self.tool_calls, self.function_call] {
            if !calls.is_null() {
                to.tool(calls)?;
            }
        }
        to.text(b"\n");
        Ok(())
    }
}

/// What a turn says: a string, a list of parts, or nothing.
fn content(content: Json<'_>, to: &mut Measure) -> Result<()> {
    match content {
        Json::Array(_) => content.elements(|cursor| part(cursor.value()?, to)),
        _ => part(content, to),
    }
}

fn part(part: Json<'_>, to: &mut Measure) -> Result<()> {
    match part {
        Json::Null => Ok(()),
        Json::String(text) => to.string(text),
        Json::Object(_) => match Part::of(part)? {
            Part::Text(text) => to.string(text),
            Part::Media => {
                to.media(part);
                Ok(())
            }
            Part::Tool => tool_block(part, to),
        },
        Json::Scalar(_) | Json::Array(_) => to.tool(part),
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
    fn of(part: Json<'a>) -> Result<Self> {
        let (mut kind, mut text, mut media) = (None, None, false);
        part.fields(|name, value| {
            match name {
                b"type" => kind = value.string(),
                b"text" => text = value.string(),
                name => media |= is_media(name),
            }
            Ok(())
        })?;
        let mut name = [0; 32];
        Ok(match (kind.map(|kind| kind.name(&mut name)), text) {
            (None | Some(b"text" | b"input_text" | b"output_text"), Some(text)) => Self::Text(text),
            (Some(kind), _) if is_media(kind) => Self::Media,
            (None, None) if media => Self::Media,
            _ => Self::Tool,
        })
    }
}

/// A tool call or result as a block of its own. Names of fields are left out: they cost no tokens.
fn tool_block(block: Json<'_>, to: &mut Measure) -> Result<()> {
    block.fields(|name, value| match name {
        b"content" | b"output" => tool_result(value, to),
        _ => to.tool(value),
    })
}

/// What a tool returned: a string, or a list of parts that may hold images.
fn tool_result(result: Json<'_>, to: &mut Measure) -> Result<()> {
    match result {
        Json::Null => Ok(()),
        Json::Array(_) => result.elements(|cursor| {
            let part = cursor.value()?;
            match part {
                Json::Object(_) if matches!(Part::of(part)?, Part::Media) => {
                    to.media(part);
                    Ok(())
                }
                _ => to.tool(part),
            }
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

/// The prompts of a completion or the inputs of an embedding: text or token ids, one or many.
/// Returns the ids where there is one prompt that consists of them.
fn batch<'a>(prompts: Json<'a>, to: &mut Measure) -> Result<Option<Json<'a>>> {
    if let Json::String(text) = prompts {
        to.string(text)?;
        return Ok(None);
    }
    let mut first = None;
    let mut count = 0;
    prompts.elements(|cursor| {
        let prompt = cursor.value()?;
        first = first.or(Some(prompt));
        count += 1;
        match (first, prompt) {
            (Some(Json::Scalar(_)), id) => return token_id(id, to),
            _ if count > 1 => to.text(b"\n"),
            _ => {}
        }
        match prompt {
            Json::String(text) => to.string(text),
            _ => prompt.elements(|cursor| token_id(cursor.value()?, to)),
        }
    })?;
    Ok(match first {
        Some(Json::Scalar(_)) => Some(prompts),
        ids @ Some(Json::Array(_)) if count == 1 => ids,
        _ => None,
    })
}

fn token_id(id: Json<'_>, to: &mut Measure) -> Result<()> {
    to.text(&id.token_id().ok_or(Unreadable)?.to_le_bytes());
    Ok(())
}
