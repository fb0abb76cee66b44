//! `GET /metrics`: the figures that routers poll, under the names that vLLM or `SGLang` gives them.

use std::fmt::{Display, Write};

use crate::config::MetricNames;
use crate::counts::Counts;
use crate::state::Shared;

/// One figure of every rank.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// The label that it has beside those of all, with the comma before it.
    label: &'static str,
    of: fn(&Counts, usize) -> f64,
}

/// The engine's figures as Prometheus text.
pub(crate) fn render(shared: &Shared) -> String {
    let model = escape(shared.config.first_model());
    let (metrics, rank_label) = match shared.config.metrics {
        MetricNames::Vllm => (VLLM, "engine"),
        MetricNames::Sglang => (SGLANG, "dp_rank"),
    };
    let ranks = shared.ranks.iter();
    let counts: Vec<Counts> = ranks.map(|rank| rank.scheduler.counts()).collect();
    let mut page = Page(String::new());
    let mut last = "";
    for metric in metrics {
        if metric.name != last {
            page.head(metric);
            last = metric.name;
        }
        for (rank, counts) in counts.iter().enumerate() {
            let labels = format!(
                "{rank_label}=\"{rank}\",model_name=\"{model}\"{}",
                metric.label
            );
            let value = (metric.of)(counts, shared.config.kv_blocks);
            page.sample(metric.name, &labels, value);
        }
    }
    page.0
}

const VLLM: &[Metric] = &[
    gauge(
        "vllm:num_requests_running",
        "Requests in the batch.",
        running,
    ),
    gauge(
        "vllm:num_requests_waiting",
        "Requests in the queue.",
        waiting,
    ),
    gauge(
        "vllm:kv_cache_usage_perc",
        "Share of KV blocks in use, 0 to 1.",
        usage,
    ),
    counter(
        "vllm:prefix_cache_queries_total",
        "Tokens looked up in the prefix cache.",
        |counts, _| number(counts.queried_tokens),
    ),
    counter(
        "vllm:prefix_cache_hits_total",
        "Tokens found in the prefix cache.",
        |counts, _| number(counts.hit_tokens),
    ),
    counter(
        "vllm:prompt_tokens_total",
        "Prompt tokens of admitted requests.",
        prompts,
    ),
    counter(
        "vllm:generation_tokens_total",
        "Tokens generated.",
        generated,
    ),
    ended(",finished_reason=\"stop\"", |counts, _| {
        number(counts.finished.stop)
    }),
    ended(",finished_reason=\"length\"", |counts, _| {
        number(counts.finished.length)
    }),
    ended(",finished_reason=\"abort\"", |counts, _| {
        number(counts.finished.abort)
    }),
];

const SGLANG: &[Metric] = &[
    gauge("sglang:num_running_reqs", "Requests in the batch.", running),
    gauge("sglang:num_queue_reqs", "Requests in the queue.", waiting),
    gauge(
        "sglang:token_usage",
        "Share of KV tokens in use, 0 to 1.",
        usage,
    ),
    counter(
        "sglang:prompt_tokens_total",
        "Prompt tokens of admitted requests.",
        prompts,
    ),
    counter(
        "sglang:generation_tokens_total",
        "Tokens generated.",
        generated,
    ),
];

const fn gauge(name: &'static str, help: &'static str, of: fn(&Counts, usize) -> f64) -> Metric {
    Metric {
        name,
        kind: "gauge",
        help,
        label: "",
        of,
    }
}

const fn counter(name: &'static str, help: &'static str, of: fn(&Counts, usize) -> f64) -> Metric {
    Metric {
        name,
        kind: "counter",
        help,
        label: "",
        of,
    }
}

const fn ended(label: &'static str, of: fn(&Counts, usize) -> f64) -> Metric {
    Metric {
        label,
        ..counter(
            "vllm:request_success_total",
            "Requests that ended, by how they did.",
            of,
        )
    }
}

fn running(counts: &Counts, _: usize) -> f64 {
    count(counts.running)
}

fn waiting(counts: &Counts, _: usize) -> f64 {
    count(counts.waiting)
}

fn prompts(counts: &Counts, _: usize) -> f64 {
    number(counts.prompt_tokens)
}

fn generated(counts: &Counts, _: usize) -> f64 {
    number(counts.generation_tokens)
}

fn usage(counts: &Counts, total: usize) -> f64 {
    count(counts.blocks_used) / count(total)
}

fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Exact up to 2^53, as Prometheus has every number.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
fn number(count: u64) -> f64 {
    count as f64
}

struct Page(String);

impl Page {
    fn head(&mut self, metric: &Metric) {
        let Metric {
            name, kind, help, ..
        } = metric;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("{name}{{{labels}}} {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
