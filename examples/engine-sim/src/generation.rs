//! One request from the queue to its last token, as a task that ends when nobody listens.
//!
//! The task keeps its own time: a client that reads slowly gets its tokens late and holds up
//! nobody. What it has not read is bounded by the answer's length.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::answer::Answer;
use crate::api::Inference;
use crate::blocks::{BlockChain, Scope};
use crate::reply::ApiError;
use crate::scheduler::{Finish, Job, Ticket};
use crate::state::Shared;
use crate::tokens::text_token;

/// Tokens of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) completion: usize,
}

/// What happens to a request, in order: it is admitted, then its tokens come.
#[derive(Debug)]
pub(crate) enum Step {
    Admitted { cached_tokens: usize },
    Token(String),
}

/// A request that is being answered. Dropping it takes the request off the engine.
#[derive(Debug)]
pub(crate) struct Generation {
    steps: mpsc::UnboundedReceiver<Step>,
    task: AbortHandle,
    /// Why the answer will end.
    pub(crate) finish: Finish,
    /// What has been used so far.
    pub(crate) usage: Usage,
}

impl Generation {
    /// Puts a request into the engine's queue.
    ///
    /// Fails if prompt and answer exceed the context, or the queue is full.
    pub(crate) fn start(shared: &Arc<Shared>, request: &Inference) -> Result<Self, ApiError> {
        let config = &shared.config;
        let prompt = request.prompt.tokens();
        let (answer_tokens, finish) = answer_length(
            prompt.len(),
            request.max_tokens,
            config.default_max_tokens,
            config.context_tokens(),
        )?;
        let rank = shared.rank(request.rank).ok_or_else(|| {
            let ranks = config.ranks;
            ApiError::bad_request(format!("data_parallel_rank must be 0 to {}", ranks - 1))
        })?;
        let scope = Scope {
            adapter: config.adapter(&request.model),
            salt: request.cache_salt.clone(),
        };
        let chain = BlockChain::new(scope, config.block_tokens);
        let ticket = rank
            .scheduler
            .enqueue(Job::new(prompt, chain, answer_tokens))
            .map_err(|_| ApiError::unavailable("The engine's queue is full."))?;
        let (sender, steps) = mpsc::unbounded_channel();
        let plan = Plan {
            answer: Answer::new(request.prompt.hash(), config.seed),
            answer_tokens,
            finish,
            pace: config.decode_time_per_token,
        };
        Ok(Self {
            steps,
            task: tokio::spawn(plan.run(ticket, sender)).abort_handle(),
            finish,
            usage: Usage {
                prompt: prompt.len(),
                ..Usage::default()
            },
        })
    }

    /// The text of the next token, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            match self.steps.recv().await? {
                Step::Admitted { cached_tokens } => self.usage.cached = cached_tokens,
                Step::Token(text) => {
                    self.usage.completion += 1;
                    return Some(text);
                }
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Plan {
    answer: Answer,
    answer_tokens: usize,
    finish: Finish,
    pace: std::time::Duration,
}

impl Plan {
    async fn run(self, ticket: Ticket, steps: mpsc::UnboundedSender<Step>) {
        let Some(mut running) = ticket.admitted().await else {
            return;
        };
        let cached_tokens = running.cached_tokens();
        // A receiver that is gone aborts this task; there is nobody to tell.
        drop(steps.send(Step::Admitted { cached_tokens }));
        running.prefill().await;
        for index in 0..self.answer_tokens {
            if index > 0 {
                let before = text_token(&self.answer.token(index - 1));
                running.decode(before, self.pace).await;
            }
            running.generated();
            drop(steps.send(Step::Token(self.answer.token(index))));
        }
        running.finish(self.finish);
    }
}

/// How long an answer is, and why it ends there.
pub(crate) fn answer_length(
    prompt: usize,
    asked: Option<usize>,
    default: usize,
    context: usize,
) -> Result<(usize, Finish), ApiError> {
    let room = context.saturating_sub(prompt);
    if room == 0 || asked.is_some_and(|asked| asked > room) {
        let asked = asked.map_or_else(String::new, |asked| {
            format!(" and {asked} completion tokens")
        });
        return Err(ApiError::bad_request(format!(
            "This model's maximum context length is {context} tokens. \
             The request has {prompt} prompt tokens{asked}. Please shorten it."
        )));
    }
    Ok(match asked {
        Some(asked) => (asked, Finish::Length),
        None if default > room => (room, Finish::Length),
        None => (default, Finish::Stop),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_asked_or_fits() {
        let length = |prompt, asked| answer_length(prompt, asked, 32, 100);
        assert_eq!(length(10, Some(5)).ok(), Some((5, Finish::Length)));
        assert_eq!(length(10, None).ok(), Some((32, Finish::Stop)));
        assert_eq!(length(90, None).ok(), Some((10, Finish::Length)));
        assert_eq!(length(90, Some(10)).ok(), Some((10, Finish::Length)));
        assert!(length(90, Some(11)).is_err());
        assert!(length(100, None).is_err());
    }
}
