//! `POST /v1/embeddings`: vectors that depend on the input, or on nothing. They take no time and no
//! place in the batch.

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{completions, fields, served};
use crate::config::{Embeddings, MAX_DIMENSIONS};
use crate::reply::ApiError;
use crate::state::Shared;
use crate::tokens::Prompt;

/// The most inputs of one request.
const MAX_INPUTS: usize = 2048;

/// One vector for each input: a text, token ids, or a list of either.
pub(crate) fn embeddings(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let model = served(
        &shared.config,
        fields::text(body, "model")?.unwrap_or_default(),
    )?;
    let inputs = inputs(fields::field(body, "input").unwrap_or(&Value::Null))?;
    let dimensions = fields::count(body, "dimensions")?;
    let dimensions = dimensions.unwrap_or(shared.config.embedding_dimensions);
    if dimensions > MAX_DIMENSIONS {
        let most = format!("{MAX_DIMENSIONS} at most");
        return Err(fields::wrong("dimensions", &most));
    }
    let vector = |input: &Prompt| match shared.config.embeddings {
        Embeddings::ByInput => vector(input.hash(), dimensions),
        Embeddings::Equal => vector(0, dimensions),
    };
    shared.embedded(body);
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
fn vector(hash: u64, dimensions: usize) -> Vec<f64> {
    let hash = hash.to_le_bytes();
    let number = |place: usize| {
        let place = u64::try_from(place).unwrap_or(u64::MAX);
        let bits = xxh3_64_with_seed(&hash, place) >> 32;
        f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX) * 2.0 - 1.0
    };
    (0..dimensions).map(number).collect()
}
