//! Vectors of texts, from a provider of embeddings.
//!
//! Invariant: a text is asked about once, however many wait for its vector, and the question goes on
//! when none of them waits any more. Questions are bounded in number, in time and in the bytes of
//! their answers; a provider that does not answer is left alone for a moment.

use super::bounded::{Bounded, Size};
use crate::metrics::{CacheCounts, Part};
use crate::poll::{self, ask};
use crate::secrets::Secrets;
use reqwest::{Client, StatusCode, header};
use rolter_core::cache::entry::TextId;
use rolter_core::cache::vector::Vector;
use rolter_core::config::{Provider, SemanticCache};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Questions at once.
const MAX_QUESTIONS: usize = 256;
/// Bytes of vectors that are remembered.
const MAX_KNOWN_BYTES: u64 = 64 << 20;
/// For how long: longer than most answers take to be complete and stored.
const REMEMBERED: Duration = Duration::from_mins(10);
/// For how long it is remembered that there is none, and a provider is left alone that does not
/// answer.
const REST: Duration = Duration::from_secs(1);
/// How long operators are not told again of a provider.
const SILENCE: Duration = Duration::from_mins(1);
/// Bytes of an answer for each number, however it is written, and beside the numbers.
const BYTES_A_NUMBER: usize = 32;
const MORE_BYTES: usize = 64 << 10;
/// Where the model decides on its dimension: more than any has.
const USUAL_DIMENSION: usize = 16 << 10;

/// Who makes vectors, and how.
#[derive(Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The name of its provider.
    pub provider: String,
    place: usize,
    url: String,
    dimensions: Option<usize>,
    timeout: Duration,
}

impl Model {
    /// The one of a route's cache.
    pub fn new(cache: &SemanticCache, providers: &[Provider]) -> Option<Self> {
        let provider = providers.get(cache.provider)?;
        let base = provider.api_base.as_deref()?;
        Some(Self {
            name: cache.model.clone(),
            provider: provider.name.clone(),
            place: cache.provider,
            url: format!("{base}/v1/embeddings"),
            dimensions: cache.dimensions,
            timeout: Duration::from_millis(cache.timeout_ms),
        })
    }

    /// Of a text's vector, so that routes that have it made alike share it.
    fn key(&self, text: TextId) -> VectorKey {
        (self.place, self.name.as_str().into(), self.dimensions, text)
    }
}

type VectorKey = (usize, Arc<str>, Option<usize>, TextId);

/// A text's vector, where there is one.
pub type Outcome = Option<Arc<Vector>>;

/// A vector that is there or on its way.
pub enum Answer {
    /// It is known, or that there is none.
    Known(Outcome),
    /// It was asked for.
    Awaited(watch::Receiver<Option<Outcome>>),
}

impl Answer {
    /// Waits as long as it takes, which is bounded by the model's timeout.
    pub async fn wait(self) -> Outcome {
        match self {
            Self::Known(outcome) => outcome,
            Self::Awaited(mut answer) => {
                let outcome = answer.wait_for(Option::is_some).await;
                outcome.ok()?.clone()?
            }
        }
    }
}

/// Asks for vectors, and remembers them.
pub struct Embedder {
    client: Client,
    secrets: Arc<Secrets>,
    known: Bounded<VectorKey, Outcome>,
    questions: Mutex<Questions>,
    counts: Arc<CacheCounts>,
}

#[derive(Default)]
struct Questions {
    under_way: HashMap<VectorKey, watch::Receiver<Option<Outcome>>>,
    /// When providers may be asked again, by their places.
    resting: HashMap<usize, Instant>,
    /// When operators were told last that one does not do what it is asked, by their places.
    told: HashMap<usize, Instant>,
}

impl Embedder {
    /// Knows nothing yet.
    pub fn new(client: Client, secrets: Arc<Secrets>, counts: Arc<CacheCounts>) -> Self {
        let bytes = |outcome: &Outcome| {
            let vector = outcome.as_ref();
            vector.map_or(0, |vector| size_of::<f32>() * vector.dimension())
        };
        Self {
            client,
            secrets,
            known: Bounded::new(MAX_KNOWN_BYTES, bytes),
            questions: Mutex::default(),
            counts,
        }
    }

    /// The vector of a text, which is asked for where it is not known. Nothing where that cannot be
    /// now.
    pub fn vector(self: &Arc<Self>, model: &Arc<Model>, text: &str) -> Option<Answer> {
        let key = model.key(TextId::of(text));
        let mut questions = self.questions();
        if let Some(answer) = self.look(&questions, &key) {
            return Some(answer);
        }
        let now = Instant::now();
        let is_resting = questions.resting.get(&model.place);
        if is_resting.is_some_and(|until| now < *until)
            || questions.under_way.len() >= MAX_QUESTIONS
        {
            self.counts.failed(Part::Embedding);
            return None;
        }
        let (told, answer) = watch::channel(None);
        questions.under_way.insert(key.clone(), answer.clone());
        drop(questions);
        let question = UnderWay {
            embedder: Arc::clone(self),
            key,
            told,
        };
        tokio::spawn(question.ask(Arc::clone(model), text.to_owned()));
        Some(Answer::Awaited(answer))
    }

    /// The vector of a text that was asked for before, where it is remembered.
    pub fn remembered(&self, model: &Model, text: TextId) -> Option<Answer> {
        let questions = self.questions();
        self.look(&questions, &model.key(text))
    }

    fn look(&self, questions: &Questions, key: &VectorKey) -> Option<Answer> {
        if let Some(answer) = questions.under_way.get(key) {
            return Some(Answer::Awaited(answer.clone()));
        }
        self.known.get(key).map(Answer::Known)
    }

    /// What is remembered.
    pub fn size(&self) -> Size {
        self.known.size()
    }

    /// Tells operators that there was no vector, now and then.
    fn complain(&self, model: &Model, failure: &poll::Failure) {
        let now = Instant::now();
        let mut questions = self.questions();
        let told = questions.told.get(&model.place);
        if told.is_none_or(|told| now.duration_since(*told) > SILENCE) {
            questions.told.insert(model.place, now);
            tracing::warn!(
                provider = model.provider,
                %failure,
                "there are embeddings that cannot be had; without them only equal requests are answered"
            );
        }
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        // What a panic elsewhere has left is whole.
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, model: &Model, text: &str) -> Result<Vector, poll::Failure> {
        let question = Question {
            model: &model.name,
            input: text,
            dimensions: model.dimensions,
            encoding_format: "float",
        };
        let question = serde_json::to_vec(&question)
            .map_err(|_| poll::Failure::Malformed("nothing to answer"))?;
        let request = self
            .client
            .post(&model.url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(question);
        let request = self.secrets.authorize(model.place, request);
        let dimension = model.dimensions.unwrap_or(USUAL_DIMENSION);
        let most = MORE_BYTES + BYTES_A_NUMBER * dimension;
        let answer = ask(request, model.timeout, most).await?;
        read(&answer, model.dimensions)
    }
}

/// A question that is taken out of those under way however it ends.
struct UnderWay {
    embedder: Arc<Embedder>,
    key: VectorKey,
    told: watch::Sender<Option<Outcome>>,
}

impl UnderWay {
    async fn ask(self, model: Arc<Model>, text: String) {
        let embedder = &self.embedder;
        let began = Instant::now();
        let answer = embedder.ask(&model, &text).await;
        embedder.counts.embedded(began.elapsed());
        let (outcome, lifetime) = match answer {
            Ok(vector) => (Some(Arc::new(vector)), REMEMBERED),
            Err(failure) => {
                embedder.counts.failed(Part::Embedding);
                tracing::debug!(provider = model.provider, %failure, "no vector");
                embedder.complain(&model, &failure);
                if is_of_the_provider(&failure) {
                    let until = Instant::now() + REST;
                    embedder.questions().resting.insert(model.place, until);
                }
                (None, REST)
            }
        };
        embedder
            .known
            .put(self.key.clone(), outcome.clone(), lifetime);
        self.told.send_replace(Some(outcome));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.embedder.questions().under_way.remove(&self.key);
    }
}

/// Whether other texts would fare no better.
fn is_of_the_provider(failure: &poll::Failure) -> bool {
    match failure {
        poll::Failure::Http(_) => true,
        poll::Failure::Status(status) => matches!(
            *status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ),
        poll::Failure::TooLarge(_) | poll::Failure::Malformed(_) => false,
    }
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    input: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    embedding: Vec<f32>,
}

fn read(answer: &[u8], dimensions: Option<usize>) -> Result<Vector, poll::Failure> {
    let answer: Embeddings = serde_json::from_slice(answer)
        .map_err(|_| poll::Failure::Malformed("no list of embeddings"))?;
    let Ok([embedding]) = <[Embedding; 1]>::try_from(answer.data) else {
        return Err(poll::Failure::Malformed("not one embedding"));
    };
    let vector = Vector::new(embedding.embedding)
        .ok_or(poll::Failure::Malformed("an embedding without a direction"))?;
    if dimensions.is_some_and(|dimensions| dimensions != vector.dimension()) {
        return Err(poll::Failure::Malformed(
            "an embedding of another dimension",
        ));
    }
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_vector_of_the_right_dimension_is_an_answer() {
        let good =
            br#"{"object": "list", "data": [{"index": 0, "embedding": [3, -4.0]}], "usage": {}}"#;
        assert_eq!(read(good, None).unwrap().dimension(), 2);
        assert_eq!(read(good, Some(2)).unwrap().dimension(), 2);
        assert!(read(good, Some(3)).is_err());
        for nonsense in [
            "",
            "[]",
            r#"{"data": []}"#,
            r#"{"data": [{"embedding": []}]}"#,
            r#"{"data": [{"embedding": [0, 0]}]}"#,
            r#"{"data": [{"embedding": [1e39]}]}"#,
            r#"{"data": [{"embedding": [null]}]}"#,
            r#"{"data": [{"embedding": ["1"]}]}"#,
            r#"{"data": [{"embedding": "AACAPw=="}]}"#,
            r#"{"data": [{"embedding": [1]}, {"embedding": [1]}]}"#,
        ] {
            assert!(read(nonsense.as_bytes(), None).is_err(), "{nonsense}");
        }
    }
}
