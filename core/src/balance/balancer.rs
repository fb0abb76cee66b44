//! A strategy at work for one group of targets.

use super::cache_aware::CacheAware;
use super::consistent_hash::ConsistentHash;
use super::decision::{Choice, Decision, Followers, MAX_FOLLOWERS, News, Pick, Reason};
use super::pipeline::Scorers;
use super::random::{power_of_two, random};
use super::round_robin::RoundRobin;
use super::scored::{EXPECTED_MILLIS, Precise, lmcache, rank_by_room};
use super::view::{Fleet, Lookup, Request, View};
use super::weighted::Weighted;
use super::{Asks, Guard, Need, Signal, Strategy, TargetInfo};
use crate::affinity::{Observed, PromptRef};
use crate::memory::Memory;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// Decides where requests go. The memory is shared with the other generations of the route, and
/// with its other groups of targets.
pub struct Balancer {
    rule: Rule,
    memory: Rc<RefCell<Memory>>,
}

/// A strategy, with the state that it has.
enum Rule {
    CacheAware(CacheAware),
    PreciseCacheAware(Precise),
    LmcacheAware(Guard),
    LeastLoad,
    RoundRobin(RoundRobin),
    Random,
    PowerOfTwo,
    Weighted(Weighted),
    ConsistentHash(ConsistentHash),
    Pipeline(Scorers),
}

impl Balancer {
    /// A strategy for these targets. The memory takes over how long the strategy remembers
    /// sessions.
    pub fn new(
        strategy: Strategy,
        targets: &[TargetInfo],
        memory: Rc<RefCell<Memory>>,
        rng: &mut Rng,
    ) -> Self {
        let rule = match strategy {
            Strategy::CacheAware { margins } => Rule::CacheAware(CacheAware(margins)),
            Strategy::PreciseCacheAware(exact) => Rule::PreciseCacheAware(Precise(exact)),
            Strategy::LmcacheAware { guard } => Rule::LmcacheAware(guard),
            Strategy::LeastLoad => Rule::LeastLoad,
            Strategy::RoundRobin => Rule::RoundRobin(RoundRobin::new(targets, rng)),
            Strategy::Random => Rule::Random,
            Strategy::PowerOfTwo => Rule::PowerOfTwo,
            Strategy::Weighted => Rule::Weighted(Weighted::new(targets)),
            Strategy::ConsistentHash => Rule::ConsistentHash(ConsistentHash::new(targets)),
            Strategy::Pipeline(pipeline) => {
                let ttl = pipeline.session_ttl;
                memory.borrow_mut().sessions.set_ttl(ttl);
                Rule::Pipeline(Scorers::new(&pipeline, targets))
            }
        };
        Self { rule, memory }
    }

    /// What decisions take into account.
    pub fn asks(&self) -> Asks {
        let nothing = Asks::NOTHING;
        match &self.rule {
            Rule::CacheAware(_) => Asks {
                prompt: Need::Always,
                pending: true,
                ..nothing
            },
            Rule::PreciseCacheAware(rule) => Asks {
                prompt: Need::Always,
                pending: true,
                scores: Some(Signal::Blocks(rule.0.weights)),
                ..nothing
            },
            Rule::LmcacheAware(_) => Asks {
                scores: Some(Signal::Occupancy),
                ..nothing
            },
            Rule::ConsistentHash(_) => Asks {
                prompt: Need::WithoutSession,
                digest: true,
                session: true,
                ..nothing
            },
            Rule::Pipeline(scorers) => scorers.asks(),
            _ => nothing,
        }
    }

    /// Decides where a request goes, and teaches the memory at once: a request that follows finds
    /// the prompt and the session there. Nothing only where the fleet has no targets.
    ///
    /// `followers` is how many further targets to rank, up to [`MAX_FOLLOWERS`]. `admit` is asked
    /// for the target that was chosen; where it says no, the choice is made again without that
    /// one, and where it says no to all, the first choice stands.
    pub fn decide(
        &mut self,
        fleet: &Fleet<'_>,
        request: &Request<'_>,
        followers: usize,
        rng: &mut Rng,
        admit: impl FnMut(TargetId) -> bool,
    ) -> Option<Decision> {
        let lookup = self.look(fleet, request);
        let choice = self.choose(fleet, &lookup, followers, rng, admit)?;
        let missing = self.missing(choice.target, fleet, &lookup);
        let (prompt, news) = self.teach(choice.target, &lookup);
        Some(Decision {
            target: choice.target,
            reason: choice.reason,
            matched: lookup.matched(choice.target),
            missing,
            followers: choice.followers,
            prompt,
            news,
        })
    }

    /// The first step of a decision: what the memory knows about the request. Allocates nothing.
    pub fn look<'a>(&self, fleet: &Fleet<'_>, request: &Request<'a>) -> Lookup<'a> {
        let Request {
            prompt,
            session,
            now,
        } = *request;
        if let Some(millis) = self.rule.forgets_prompts_after() {
            let mut memory = self.memory.borrow_mut();
            memory.tree.forget_older(now, millis);
        }
        let memory = self.memory.borrow();
        // What is not asked for is not copied either: both tables are of some KiB.
        let mut lookup = Lookup {
            request: *request,
            found: None,
            session: session
                .filter(|_| self.rule.keeps_sessions())
                .and_then(|session| memory.sessions.find(session, now)),
            predicted: None,
        };
        let Some(prompt) = prompt else { return lookup };
        // A salt keeps equal texts apart, of which the tree does not know.
        let is_apart = prompt.cache_salt.is_some() && self.rule.forgets_prompts_after().is_some();
        if self.rule.reads_prefix() && !is_apart {
            lookup.found = Some(memory.tree.find(request.model(), &prompt.text));
        }
        if self.asks().first_token {
            let targets = fleet.candidates();
            lookup.predicted = memory.latency.predict_all(targets, prompt.tokens(), now);
        }
        lookup
    }

    /// The second step of a decision: the target. Allocates nothing.
    pub fn choose(
        &mut self,
        fleet: &Fleet<'_>,
        lookup: &Lookup<'_>,
        followers: usize,
        rng: &mut Rng,
        mut admit: impl FnMut(TargetId) -> bool,
    ) -> Option<Choice> {
        let all = fleet.candidates();
        let first = self.pick(all, fleet, lookup, rng)?;
        let (mut pick, mut candidates) = (first, all);
        // Where none may be used all are weighed, and there is nothing to ask.
        while !fleet.fails_open() && !admit(pick.target) {
            candidates.remove(pick.target);
            match self.pick(candidates, fleet, lookup, rng) {
                Some(next) => pick = next,
                None => {
                    (pick, candidates) = (first, all);
                    break;
                }
            }
        }
        self.rule.advance(candidates, pick.target);
        candidates.remove(pick.target);
        let followers = match pick.followers {
            Some(ranked) => ranked.first(followers),
            None => self.rank(candidates, fleet, lookup, followers, rng),
        };
        Some(Choice {
            target: pick.target,
            reason: pick.reason,
            followers,
        })
    }

    /// The third step of a decision: the target has the prompt and the session from now on.
    pub fn teach(&mut self, target: TargetId, lookup: &Lookup<'_>) -> (Option<PromptRef>, News) {
        let Request {
            prompt,
            session,
            now,
        } = lookup.request;
        let memory = &mut *self.memory.borrow_mut();
        let mut observed = match (prompt, &lookup.found) {
            (Some(prompt), Some(found)) => {
                let model = lookup.request.model();
                memory.tree.observe(model, &prompt.text, target, found, now)
            }
            _ => Observed::default(),
        };
        let session = session.filter(|_| self.rule.keeps_sessions());
        if self.rule.forgets_prompts_after().is_some() {
            // Others hear it from the engine.
            observed.news = false;
        }
        let news = News {
            prompt: observed.news,
            session: session.is_some_and(|session| memory.sessions.remember(session, target, now)),
        };
        (observed.prompt, news)
    }

    /// The tokens that the target would have to compute, where it matters how many there are.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no more than the prompt has"
    )]
    fn missing(&self, target: TargetId, fleet: &Fleet<'_>, lookup: &Lookup<'_>) -> u32 {
        let memory = &*self.memory.borrow();
        let view = View {
            candidates: fleet.candidates(),
            fleet,
            lookup,
            memory,
        };
        self.rule.missing(target, &view) as u32
    }

    fn pick(
        &self,
        candidates: TargetSet,
        fleet: &Fleet<'_>,
        lookup: &Lookup<'_>,
        rng: &mut Rng,
    ) -> Option<Pick> {
        let memory = &*self.memory.borrow();
        let view = View {
            candidates,
            fleet,
            lookup,
            memory,
        };
        self.rule.pick(&view, rng)
    }

    /// The best of the candidates, in order.
    fn rank(
        &self,
        candidates: TargetSet,
        fleet: &Fleet<'_>,
        lookup: &Lookup<'_>,
        count: usize,
        rng: &mut Rng,
    ) -> Followers {
        let memory = &*self.memory.borrow();
        let view = View {
            candidates,
            fleet,
            lookup,
            memory,
        };
        self.rule.rank(&view, count.min(MAX_FOLLOWERS), rng)
    }
}

impl Rule {
    /// Whether the tree is asked, and taught.
    fn reads_prefix(&self) -> bool {
        match self {
            Self::CacheAware(_) | Self::PreciseCacheAware(_) => true,
            Self::Pipeline(scorers) => scorers.reads_prefix(),
            _ => false,
        }
    }

    /// After how many milliseconds what the tree was taught is of no use, where it is not taught for
    /// good.
    fn forgets_prompts_after(&self) -> Option<u64> {
        matches!(self, Self::PreciseCacheAware(_)).then_some(EXPECTED_MILLIS)
    }

    /// See [`Balancer::missing`].
    fn missing(&self, target: TargetId, view: &View<'_>) -> f64 {
        match self {
            Self::CacheAware(rule) => rule.costs(view).missing(target),
            Self::PreciseCacheAware(rule) => match rule.costs(view) {
                Some(costs) => costs.missing(target),
                None => view.lookup.request.tokens(),
            },
            _ => 0.0,
        }
    }

    /// Whether sessions are asked for, and taught.
    fn keeps_sessions(&self) -> bool {
        match self {
            Self::Pipeline(scorers) => scorers.keeps_sessions(),
            _ => false,
        }
    }

    /// One of the candidates. Nothing only where there are none.
    fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let (target, reason) = match self {
            Self::CacheAware(rule) => return rule.pick(view, rng),
            Self::PreciseCacheAware(rule) => return rule.pick(view, rng),
            Self::LmcacheAware(guard) => return lmcache(*guard, view, rng),
            Self::ConsistentHash(hashes) => return hashes.pick(view, rng),
            Self::Pipeline(scorers) => return scorers.pick(view, rng),
            Self::LeastLoad => (view.least_loaded(rng)?, Reason::LeastLoad),
            Self::RoundRobin(turns) => (turns.pick(view.candidates)?, Reason::RoundRobin),
            Self::Random => (random(view.candidates, rng)?, Reason::Random),
            Self::PowerOfTwo => (power_of_two(view, rng)?, Reason::PowerOfTwo),
            Self::Weighted(turns) => (turns.pick(view.candidates, rng)?, Reason::Weighted),
        };
        Some(Pick::new(target, reason))
    }

    /// Those of the candidates that are best for a retry, best first. Strategies that do not rank
    /// targets take the least loaded: what they would pick next is the turn of another request.
    fn rank(&self, view: &View<'_>, count: usize, rng: &mut Rng) -> Followers {
        match self {
            Self::LmcacheAware(guard) => rank_by_room(*guard, view, count, rng),
            Self::ConsistentHash(hashes) => hashes.rank(view, count, rng),
            Self::Pipeline(scorers) => scorers.rank(view, count, rng),
            _ => view.rank_by_load(count, rng),
        }
    }

    /// Notes that a target was picked of these, where that decides who is next.
    fn advance(&mut self, candidates: TargetSet, picked: TargetId) {
        match self {
            Self::RoundRobin(turns) => turns.advance(picked),
            Self::Weighted(turns) => turns.advance(candidates, picked),
            _ => {}
        }
    }
}
