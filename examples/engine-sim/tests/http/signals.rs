//! What an engine tells those who poll: models, metrics, occupancy.

use engine_sim::{EngineConfig, MetricNames, Occupancy};
use serde_json::{Value, json};

use super::client::{fast, get, post, start};

#[tokio::test]
async fn adapters_are_listed_as_children_of_the_base_model() {
    let engine = start(EngineConfig {
        models: vec!["base".to_owned()],
        adapters: vec!["sql".to_owned()],
        ..EngineConfig::default()
    });
    let listed = get(&engine, "/v1/models").await.json();
    let listed = listed["data"].as_array().expect("a list").iter();
    let listed: Vec<_> = listed
        .map(|model| (&model["id"], &model["parent"]))
        .collect();
    let (base, sql) = (json!("base"), json!("sql"));
    assert_eq!(listed, [(&base, &Value::Null), (&sql, &base)]);
    for (model, status) in [("base", 200), ("sql", 200), ("other", 404)] {
        let body = json!({"model": model, "prompt": "hello", "max_tokens": 1});
        assert_eq!(post(&engine, "/v1/completions", &body).await.status, status);
        assert_eq!(post(&engine, "/tokenize", &body).await.status, status);
    }
}

#[tokio::test]
async fn tokenize_has_the_ids_of_a_chat_with_tools() {
    let engine = fast();
    let mut body = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "What is the weather like in a far away place?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
    });
    let tokens = post(&engine, "/tokenize", &body).await.json();
    let chat = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(chat["usage"]["prompt_tokens"], tokens["count"]);
    let ids = json!({"prompt": tokens["tokens"], "max_tokens": 1});
    let again = post(&engine, "/v1/completions", &ids).await.json();
    let count = tokens["count"].as_u64().expect("a count");
    assert_eq!(
        again["usage"]["prompt_tokens_details"]["cached_tokens"],
        (count - 1) / 16 * 16
    );
    body["add_generation_prompt"] = json!(false);
    let without = post(&engine, "/tokenize", &body).await.json();
    let (all, without) = (&tokens["tokens"], &without["tokens"]);
    let (all, without) = (
        all.as_array().expect("ids"),
        without.as_array().expect("ids"),
    );
    assert!(without.len() < all.len() && all.starts_with(without));
}

#[tokio::test]
async fn a_stream_ends_with_usage_where_it_is_asked_for() {
    let engine = fast();
    let body = json!({
        "prompt": "the same words again ".repeat(20),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    for cached in [0, 96] {
        let data = post(&engine, "/v1/completions", &body).await.data();
        let last = data.last().expect("a last chunk");
        assert_eq!(
            last["usage"]["prompt_tokens_details"]["cached_tokens"],
            cached
        );
    }
}

#[tokio::test]
async fn metrics_have_the_names_of_sglang_where_they_are_asked_for() {
    let engine = start(EngineConfig {
        metrics: MetricNames::Sglang,
        ranks: 2,
        ..EngineConfig::default()
    });
    let page = get(&engine, "/metrics").await.body;
    for name in ["num_running_reqs", "num_queue_reqs", "token_usage"] {
        for rank in 0..2 {
            let line = format!("\nsglang:{name}{{dp_rank=\"{rank}\",model_name=\"sim-a\"}} 0\n");
            assert!(page.contains(&line), "{line}{page}");
        }
    }
    assert!(!page.contains("vllm:"));
}

#[tokio::test]
async fn occupancy_is_the_caches_own_unless_told_otherwise() {
    let engine = start(EngineConfig {
        kv_blocks: 64,
        prefill_tokens_per_sec: 1e9,
        ..EngineConfig::default()
    });
    let path = "/v1/occupancy";
    let empty = json!({"occupancy": 0.0, "cache_available": true});
    assert_eq!(get(&engine, path).await.json(), empty);
    // 1024 bytes are 256 tokens or 16 blocks.
    let body = json!({"prompt": "x".repeat(1024), "max_tokens": 1});
    post(&engine, "/v1/completions", &body).await;
    let quarter = json!({"occupancy": 0.25, "cache_available": true});
    assert_eq!(get(&engine, path).await.json(), quarter);

    let body = json!({"occupancy": 0.75});
    assert_eq!(post(&engine, "/sim/occupancy", &body).await.status, 200);
    assert_eq!(get(&engine, path).await.json()["occupancy"], 0.75);
    engine.set_occupancy(Occupancy::Unavailable);
    assert_eq!(get(&engine, path).await.json()["cache_available"], false);
    engine.set_occupancy(Occupancy::Malformed);
    let malformed = get(&engine, path).await;
    assert!(serde_json::from_str::<Value>(&malformed.body).is_err());
    engine.set_occupancy(Occupancy::InternalError);
    assert_eq!(get(&engine, path).await.status, 500);
    let body = json!({"occupancy": "cache"});
    assert_eq!(post(&engine, "/sim/occupancy", &body).await.status, 200);
    assert_eq!(get(&engine, path).await.json(), quarter);
    let body = json!({"occupancy": "full"});
    assert_eq!(post(&engine, "/sim/occupancy", &body).await.status, 400);
}
