//! How busy an engine is, out of its metrics.

/// What an engine says of itself, over all its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) running: f64,
    pub(super) waiting: f64,
    /// Of the fullest rank.
    pub(super) kv_usage: Option<f64>,
}

/// Nothing where it does not say what runs and what waits.
pub(super) fn read(text: &str) -> Option<Said> {
    let (mut running, mut waiting, mut kv_usage) = (None, None, None::<f64>);
    for line in text.lines() {
        let Some((name, value)) = sample(line) else {
            continue;
        };
        match name {
            "vllm:num_requests_running" | "sglang:num_running_reqs" => {
                *running.get_or_insert(0.0) += value;
            }
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => {
                *waiting.get_or_insert(0.0) += value;
            }
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" | "sglang:token_usage" => {
                kv_usage = Some(kv_usage.map_or(value, |usage| usage.max(value)));
            }
            _ => {}
        }
    }
    Some(Said {
        running: running?,
        waiting: waiting?,
        kv_usage,
    })
}

/// The name and the value of a line. What is no finite number from zero on says nothing.
fn sample(line: &str) -> Option<(&str, f64)> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at_checked(end)?;
    if !name.starts_with("vllm:") && !name.starts_with("sglang:") {
        return None;
    }
    // Values of labels may have braces of their own, but not after the last.
    let rest = rest
        .rfind('}')
        .map_or(rest, |end| rest.get(end + 1..).unwrap_or_default());
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_added_up_and_the_fullest_counts() {
        let text = "# HELP vllm:num_requests_running …\n\
            # TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 2.0\n\
            vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 3 1700000000000\n\
            vllm:num_requests_waiting{engine=\"0\"} 1\n\
            vllm:num_requests_waiting_by_reason{reason=\"x\"} 50\n\
            vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
            vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n";
        let said = Said {
            running: 5.0,
            waiting: 1.0,
            kv_usage: Some(0.75),
        };
        assert_eq!(read(text), Some(said));
    }

    #[test]
    fn sglang_has_names_of_its_own() {
        let text = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n";
        let said = Said {
            running: 1.0,
            waiting: 2.0,
            kv_usage: Some(0.5),
        };
        assert_eq!(read(text), Some(said));
    }

    #[test]
    fn what_does_not_say_enough_says_nothing() {
        for text in [
            "",
            "vllm:num_requests_running 1",
            "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1",
            "vllm:num_requests_running -1\nvllm:num_requests_waiting 1",
            "go_goroutines 7",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
