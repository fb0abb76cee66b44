//! `POST /v1/embeddings`: small vectors that depend on nothing but the input. They take no time
//! and no place in the batch.

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{completions, fields, served};
use crate::reply::ApiError;
use crate::state::Shared;
use crate::tokens::Prompt;

/// Length of a vector.
const DIMENSIONS: u64 = 8;
/// The most inputs of one request.
const MAX_INPUTS: usize = 2048;

/// One vector for each input: a text, token ids, or a list of either.
pub(crate) fn embeddings(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let model = served(
        &shared.config,
        fields::text(body, "model")?.unwrap_or_default(),
    )?;
    let inputs = inputs(fields::field(body, "input").unwrap_or(&Value::Null))?;
    let tokens: usize = inputs.iter().map(|input| input.tokens().len()).sum();
    let embedding = |(index, input): (usize, &Prompt)| json!({"object": "embedding", "index": index, "embedding": vector(input)});
    let data: Vec<Value> = inputs.iter().enumerate().map(embedding).collect();
    Ok(json!({
        "id": format!("embd-{:016x}", shared.new_id()),
        "object": "list",
        "model": model,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }))
}

fn inputs(input: &Value) -> Result<Vec<Prompt>, ApiError> {
    match input {
        Value::Array(items) if items.iter().all(|item| item.is_string() || item.is_array()) => {
            if items.is_empty() || items.len() > MAX_INPUTS {
                return Err(fields::wrong("input", &format!("1 to {MAX_INPUTS} inputs")));
            }
            items.iter().map(completions::prompt).collect()
        }
        one => Ok(vec![completions::prompt(one)?]),
    }
}

/// Numbers from -1 to 1.
fn vector(input: &Prompt) -> Vec<f64> {
    let hash = input.hash().to_le_bytes();
    let number = |place| {
        let bits = xxh3_64_with_seed(&hash, place) >> 32;
        f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX) * 2.0 - 1.0
    };
    (0..DIMENSIONS).map(number).collect()
}
