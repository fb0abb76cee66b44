//! A play: requests come at their times, a router sends each to an engine, engines do what they do.

use super::asked::Asked;
use super::engine::{Change, Counts, Engine, Happened};
use super::figures::Figures;
use crate::workload::{Request, Settings, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// One that sends requests to engines: all gateways of it together.
pub(crate) trait Router {
    /// The engine for a request.
    fn route(&mut self, asking: &Asking<'_>) -> usize;

    /// The answer to a request begins.
    fn first_token(&mut self, number: usize, now: Duration);

    /// The answer to a request is over.
    fn finished(&mut self, number: usize);

    /// What an engine tells of its blocks, at the time at which it does.
    fn heard(&mut self, engine: usize, changes: &[Change], now: Duration);

    /// What there is to say of its decisions.
    fn remarks(&self) -> String {
        String::new()
    }
}

/// A request that is to be sent, and what there is to know at that moment.
pub(crate) struct Asking<'a> {
    pub(crate) number: usize,
    pub(crate) request: &'a Request,
    pub(crate) asked: &'a Asked,
    /// All that goes on in the engines, which only the oracle may look at.
    pub(crate) engines: &'a [Engine],
    pub(crate) now: Duration,
}

/// The first part of a play finds everything cold, and does not count.
const WARM_UP: f64 = 0.2;

/// Plays a workload to its end.
pub(crate) fn play(
    workload: &Workload,
    asked: &[Asked],
    engines: usize,
    settings: &Settings,
    router: &mut dyn Router,
) -> Figures {
    let mut play = Play {
        engines: (0..engines).map(|_| Engine::new(settings)).collect(),
        events: BinaryHeap::new(),
        ttft: vec![None; asked.len()],
        happened: Vec::new(),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a number of requests"
    )]
    let warm = (asked.len() as f64 * WARM_UP) as usize;
    let mut before = Vec::new();
    for (number, (request, asked_now)) in workload.requests.iter().zip(asked).enumerate() {
        let now = asked_now.at;
        play.run(Some(now), asked, router);
        if number == warm {
            before = play.engines.iter().map(|engine| engine.counts).collect();
        }
        let engine = router.route(&Asking {
            number,
            request,
            asked: asked_now,
            engines: &play.engines,
            now,
        });
        play.engines[engine].enqueue(number, asked_now, now);
        play.look(engine, now, router);
    }
    play.run(None, asked, router);
    let counts = play.engines.iter().map(|engine| engine.counts);
    let counts = counts.zip(
        before
            .into_iter()
            .chain(std::iter::repeat(Counts::default())),
    );
    let time = match asked {
        [_, .., last] => last.at.saturating_sub(asked[warm.min(asked.len() - 1)].at),
        _ => Duration::ZERO,
    };
    let capacity = time.as_secs_f64() * settings.prefill_tokens_per_sec;
    Figures::new(&play.ttft[warm..], counts, capacity)
}

struct Play {
    engines: Vec<Engine>,
    /// When engines have something to do. One that is not the engine's present one is outdated.
    events: BinaryHeap<Reverse<(Duration, usize)>>,
    ttft: Vec<Option<Duration>>,
    happened: Vec<Happened>,
}

impl Play {
    /// Lets engines do what they have to do until some time, or until nothing is left.
    fn run(&mut self, until: Option<Duration>, asked: &[Asked], router: &mut dyn Router) {
        while let Some(&Reverse((at, engine))) = self.events.peek()
            && until.is_none_or(|until| at <= until)
        {
            self.events.pop();
            if self.engines[engine].next() != Some(at) {
                continue;
            }
            let mut happened = std::mem::take(&mut self.happened);
            self.engines[engine].advance(at, &mut happened);
            for event in happened.drain(..) {
                match event {
                    Happened::FirstToken(number) => {
                        self.ttft[number] = Some(at.saturating_sub(asked[number].at));
                        router.first_token(number, at);
                    }
                    Happened::Finished(number) => router.finished(number),
                }
            }
            self.happened = happened;
            self.look(engine, at, router);
        }
    }

    /// Notes when an engine has something to do, and tells what has happened to its blocks.
    fn look(&mut self, engine: usize, now: Duration, router: &mut dyn Router) {
        let changes = self.engines[engine].take_changes();
        if !changes.is_empty() {
            router.heard(engine, &changes, now);
        }
        if let Some(next) = self.engines[engine].next() {
            self.events.push(Reverse((next, engine)));
        }
    }
}
