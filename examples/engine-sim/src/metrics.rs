//! `GET /metrics`: the figures that routers poll, under the names that vLLM gives them.

use std::fmt::{Display, Write};

use crate::state::{Shared, Stats};

/// The engine's figures as Prometheus text.
pub(crate) fn render(shared: &Shared) -> String {
    let stats = shared.stats();
    let model = escape(shared.config.first_model());
    let mut page = Page {
        text: String::new(),
        label: format!("engine=\"0\",model_name=\"{model}\""),
    };
    page.single(
        "vllm:num_requests_running",
        "gauge",
        "Requests in the batch.",
        stats.running,
    );
    page.single(
        "vllm:num_requests_waiting",
        "gauge",
        "Requests in the queue.",
        stats.waiting,
    );
    page.single(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of KV blocks in use, 0 to 1.",
        usage(&stats),
    );
    for (name, help, value) in [
        (
            "vllm:prefix_cache_queries_total",
            "Tokens looked up in the prefix cache.",
            stats.prefix_queried_tokens,
        ),
        (
            "vllm:prefix_cache_hits_total",
            "Tokens found in the prefix cache.",
            stats.prefix_hit_tokens,
        ),
        (
            "vllm:prompt_tokens_total",
            "Prompt tokens of admitted requests.",
            stats.prompt_tokens,
        ),
        (
            "vllm:generation_tokens_total",
            "Tokens generated.",
            stats.generation_tokens,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
    page.head(
        "vllm:request_success_total",
        "counter",
        "Requests that ended, by how they did.",
    );
    for (reason, count) in [
        ("stop", stats.finished.stop),
        ("length", stats.finished.length),
        ("abort", stats.finished.abort),
    ] {
        page.sample(
            "vllm:request_success_total",
            &format!(",finished_reason=\"{reason}\""),
            count,
        );
    }
    page.text
}

struct Page {
    text: String,
    label: String,
}

impl Page {
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, more: &str, value: impl Display) {
        let label = std::mem::take(&mut self.label);
        self.line(format_args!("{name}{{{label}{more}}} {value}"));
        self.label = label;
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

fn usage(stats: &Stats) -> f64 {
    let count = |blocks: usize| f64::from(u32::try_from(blocks).unwrap_or(u32::MAX));
    count(stats.blocks_used) / count(stats.blocks_total)
}

fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
