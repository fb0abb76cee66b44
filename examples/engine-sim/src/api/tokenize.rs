//! `POST /tokenize`: the token ids that the engine would use.

use serde_json::{Value, json};

use super::{chat, completions, fields, served};
use crate::reply::ApiError;
use crate::state::Shared;

/// The ids of a chat's `messages`, or of a completion's `prompt`. More than the model's context is
/// an error.
pub(crate) fn tokenize(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    served(
        &shared.config,
        fields::text(body, "model")?.unwrap_or_default(),
    )?;
    let prompt = if let Some(prompt) = fields::field(body, "prompt") {
        completions::prompt(prompt)?
    } else {
        let conversation = chat::conversation(body)?;
        if fields::flag(body, "add_generation_prompt")?.unwrap_or(true) {
            conversation.generate(fields::field(body, "chat_template_kwargs"))
        } else {
            conversation.finish()
        }
    };
    let context = shared.config.context_tokens();
    let count = prompt.tokens().len();
    if count > context {
        let message =
            format!("The model's context is {context} tokens, and the prompt has {count}.");
        return Err(ApiError::bad_request(message));
    }
    Ok(json!({
        "count": count,
        "max_model_len": context,
        "tokens": prompt.tokens(),
        "token_strs": null,
    }))
}
