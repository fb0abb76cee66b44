//! The conversation of a request in the order in which the model sees it.

use super::Dialect;
use super::json::{Cursor, Json, Result, Str, Unreadable};
use super::measure::Measure;
use super::turn::{SYSTEM, USER, turn, turn_of};

/// The fields of a body that matter, the last of each name, as JSON readers of the engines take
/// them.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<Str<'a>>,
    pub(super) cache_salt: Option<Str<'a>>,
    pub(super) stream: bool,
    system: Option<Json<'a>>,
    instructions: Option<Json<'a>>,
    messages: Option<Json<'a>>,
    input: Option<Json<'a>>,
    prompt: Option<Json<'a>>,
}

impl<'a> Fields<'a> {
    /// Reads the object that `body` consists of. After an error the fields before it are there.
    ///
    /// With a measure to take, `messages` are a chat that is measured in passing, which saves a
    /// scan; an error if there are none, or if they come twice, since then the last count.
    pub(super) fn read(&mut self, body: &'a [u8], mut chat: Option<&mut Measure>) -> Result<()> {
        let mut cursor = Cursor::new(body);
        cursor.object(|name, cursor| {
            if name == b"messages"
                && let Some(to) = &mut chat
            {
                if self.messages.replace(Json::Null).is_some() {
                    return Err(Unreadable);
                }
                return cursor.array(|cursor| turn(cursor, to, true));
            }
            let value = cursor.value()?;
            let given = (!value.is_null()).then_some(value);
            match name {
                b"model" => self.model = value.string(),
                b"cache_salt" => self.cache_salt = value.string(),
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
        let ends = cursor.peek().is_none();
        let measured = chat.is_none() || self.messages.is_some();
        (ends && measured).then_some(()).ok_or(Unreadable)
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
    /// For `in_place` see [`turn`].
    pub(super) fn measure(
        &self,
        dialect: Dialect,
        to: &mut Measure,
        in_place: bool,
    ) -> Result<Option<Json<'a>>> {
        let turns = |list: Json<'a>, to: &mut Measure| {
            let mut cursor = list.cursor();
            cursor.array(|cursor| turn(cursor, to, in_place))
        };
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

/// The prompts of a completion or the inputs of an embedding: text or token ids, one or many.
/// Returns the ids where there is one prompt that consists of them.
fn batch<'a>(prompts: Json<'a>, to: &mut Measure) -> Result<Option<Json<'a>>> {
    if let Json::String(_) = prompts {
        prompts.cursor().text(|run| to.text(run))?;
        return Ok(None);
    }
    let mut first = None;
    let mut count = 0;
    prompts.cursor().array(|cursor| {
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
            _ => prompt
                .cursor()
                .array(|cursor| token_id(cursor.value()?, to)),
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
