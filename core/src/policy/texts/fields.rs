//! What the fields of requests and answers hold, by their names.
//!
//! Invariant: what no list here has is text, within what a request's prompt is made of and anywhere
//! in an answer. A field that an engine comes up with must not slip past the policy.

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    /// The whole of a request.
    Request,
    /// The whole of a request of which the instructions alone are looked at.
    Beginning,
    /// A request's prompt as such, which may consist of token ids.
    Prompt,
    /// What the model reads of a request.
    Messages,
    /// The whole of an answer.
    Answer,
    /// The same without what it repeats of the request.
    Completion,
    /// What the model says.
    Output,
    /// What the model says aloud.
    Audio,
    /// What a tool is called with: all strings and numbers are texts there, keys as well.
    Call,
    /// An answer of which no text is looked at, but what tells its texts again.
    Tokens,
    /// What was said aloud of such an answer.
    Recording,
}

/// What becomes of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// Nothing in it is text.
    Skip,
    /// It is no text itself. In place of a string some engine may have more there.
    Label(Within),
    /// It is no text itself if the object's `type` says so: see [`is_opaque`].
    ByType(Within),
    /// What a tool is called with, as JSON text or as such.
    Arguments,
    /// What a tool is called with where it is an object.
    Input(Within),
    /// What is in it is text.
    Texts(Within),
    /// A prompt in a form that cannot be read.
    Unread,
    /// It tells a text again.
    Forget,
}

/// What a field's value is.
pub(super) fn field(name: &[u8], within: Within) -> Field {
    match within {
        Within::Request => of_request(name),
        Within::Beginning if !is_in(name, &["system", "instructions"]) => Field::Skip,
        Within::Beginning => Field::Texts(Within::Messages),
        Within::Prompt | Within::Messages => of_messages(name),
        Within::Answer | Within::Completion if is_in(name, ECHOES) => Field::Skip,
        Within::Completion if name == b"instructions" => Field::Skip,
        Within::Answer | Within::Completion | Within::Output | Within::Audio => {
            of_output(name, within)
        }
        Within::Call => Field::Texts(within),
        Within::Recording if name == b"data" => Field::Forget,
        Within::Tokens | Within::Recording => of_tokens(name),
    }
}

/// Whether a string that its name does not tell is none of the model's text.
pub(super) fn is_opaque(name: &[u8], kind: &[u8], within: Within) -> bool {
    match (name, kind) {
        (b"result", _) => kind == b"image_generation_call",
        (_, b"redacted_thinking" | b"reasoning.encrypted") => true,
        // A document's words are given in the way of its bytes.
        _ => within == Within::Messages && kind != b"text",
    }
}

fn of_request(name: &[u8]) -> Field {
    match name {
        b"prompt" | b"input" => Field::Texts(Within::Prompt),
        b"messages" | b"system" | b"instructions" | b"suffix" | b"prediction" | b"documents" => {
            Field::Texts(Within::Messages)
        }
        b"prompt_embeds" | b"prompt_token_ids" | b"input_embeds" | b"input_ids"
        // What the engine remembers has the placeholders of another request.
        | b"previous_response_id" | b"conversation" => Field::Unread,
        _ => Field::Skip,
    }
}

fn of_messages(name: &[u8]) -> Field {
    const WITHIN: Within = Within::Messages;
    match name {
        b"arguments" => Field::Arguments,
        b"input" => Field::Input(WITHIN),
        b"data" | b"result" => Field::ByType(WITHIN),
        _ if is_in(name, MEDIA) => Field::Skip,
        _ if is_in(name, LABELS) || is_in(name, FILES) => Field::Label(WITHIN),
        _ => Field::Texts(WITHIN),
    }
}

fn of_output(name: &[u8], within: Within) -> Field {
    const WITHIN: Within = Within::Output;
    match name {
        b"arguments" => Field::Arguments,
        b"input" => Field::Input(WITHIN),
        b"data" if within == Within::Audio => Field::Label(WITHIN),
        b"data" | b"result" => Field::ByType(WITHIN),
        b"audio" => Field::Texts(Within::Audio),
        _ if is_in(name, MEASURES) => Field::Skip,
        _ if is_in(name, LABELS) || is_in(name, STATES) => Field::Label(WITHIN),
        _ => Field::Texts(WITHIN),
    }
}

fn of_tokens(name: &[u8]) -> Field {
    match name {
        b"logprobs" | b"prompt_logprobs" | b"token_ids" | b"prompt_token_ids" => Field::Forget,
        b"arguments" | b"input" => Field::Skip,
        b"audio" => Field::Texts(Within::Recording),
        _ => Field::Texts(Within::Tokens),
    }
}

fn is_in(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|other| other.as_bytes() == name)
}

/// What tells things apart, in requests and in answers, and what engines sign or encrypt.
const LABELS: &[&str] = &[
    "type",
    "id",
    "role",
    "name",
    "status",
    "format",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "item_id",
    "file_id",
    "container_id",
    "media_type",
    "signature",
    "thought_signature",
    "encrypted_content",
    "encrypted_index",
];

/// Media, and what is said to the engine about how to keep them.
const MEDIA: &[&str] = &[
    "image_url",
    "video_url",
    "audio_url",
    "input_audio",
    "audio",
    "image_embeds",
    "audio_embeds",
    "cache_control",
];

/// Files, by name or by their bytes.
const FILES: &[&str] = &["url", "file_url", "file_data", "detail"];

/// How an answer came about.
const STATES: &[&str] = &[
    "object",
    "model",
    "finish_reason",
    "stop_reason",
    "stop_sequence",
    "system_fingerprint",
    "service_tier",
    "token",
    "b64_json",
];

/// What an answer counts and measures, and what it repeats of the tools.
const MEASURES: &[&str] = &[
    "usage",
    "logprobs",
    "prompt_logprobs",
    "token_ids",
    "prompt_token_ids",
    "embedding",
    "tools",
    "tool_choice",
];

/// What an answer repeats of the request's structure, at its top.
const ECHOES: &[&str] = &[
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "previous_response_id",
    "conversation",
    "truncation",
];
