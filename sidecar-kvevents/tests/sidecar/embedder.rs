//! A provider of embeddings that does as it is told, and remembers what it was asked.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What it does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// Every text has the same vector.
    Same,
    /// A text has the numbers that are in it, and zeros after them.
    Numbers,
    /// Answers so late, every text with the same vector.
    Late(Duration),
    Says(u16, &'static str),
    Never,
}

/// The dimension of its vectors.
pub(crate) const DIMENSION: usize = 8;

pub(crate) struct Embedder {
    pub(crate) url: String,
    told: Arc<Told>,
    task: JoinHandle<()>,
}

struct Told {
    manner: Mutex<Manner>,
    asked: Mutex<Vec<Asked>>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

impl Embedder {
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let told = Arc::new(Told {
            manner: Mutex::new(manner),
            asked: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&told));
        let serve = async move { axum::serve(listener, router).await.unwrap() };
        let task = tokio::spawn(serve);
        Self { url, told, task }
    }

    pub(crate) fn be(&self, manner: Manner) {
        *self.told.manner.lock().unwrap() = manner;
    }

    /// All that it was asked.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.told.asked.lock().unwrap().clone()
    }

    /// The texts that it was asked for vectors of.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |asked: Asked| asked.body["input"].as_str().unwrap().to_owned();
        self.asked().into_iter().map(text).collect()
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    State(told): State<Arc<Told>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let authorization = headers.get("authorization");
    told.asked.lock().unwrap().push(Asked {
        path: uri.path().to_owned(),
        authorization: authorization.map(|value| value.to_str().unwrap().to_owned()),
        body: body.clone(),
    });
    let manner = told.manner.lock().unwrap().clone();
    let same = vec![1.0; DIMENSION];
    match manner {
        Manner::Same => embedding(&same),
        Manner::Numbers => {
            let text = body["input"].as_str().unwrap_or_default();
            let words = text.split_whitespace().filter_map(|word| word.parse().ok());
            let mut numbers: Vec<f64> = words.collect();
            numbers.resize(DIMENSION, 0.0);
            embedding(&numbers)
        }
        Manner::Late(time) => {
            tokio::time::sleep(time).await;
            embedding(&same)
        }
        Manner::Says(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Manner::Never => std::future::pending().await,
    }
}

fn embedding(numbers: &[f64]) -> Response {
    let answer = json!({"object": "list", "data": [
        {"object": "embedding", "index": 0, "embedding": numbers}
    ]});
    answer.to_string().into_response()
}
