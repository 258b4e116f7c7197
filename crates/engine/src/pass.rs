//! One pass over one key: observe, decide, act, report; each is a file here. Holds nothing between passes, so that a crash
//! anywhere is just another starting state; the queue, the watches and the clock are the runner's.

mod act;
mod confirm;
mod decide;
mod erased;
mod finalizer;
mod observe;
mod prune;
mod report;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::failure::{Class, Failure};
use crate::lease::Leadership;
use crate::object::{Key, Object, ObjectRef, revision};
use crate::outside::Outside;
use crate::panic_text::panic_text;
#[cfg(any(test, feature = "simulation"))]
use crate::plan::Plan;
use crate::question::Question;
use crate::status::Condition;
use crate::store::Progress;
use crate::stores::Stores;
use crate::view::Fresh;
use crate::writer::Writer;

pub(crate) use erased::Erased;
use erased::Observation;
pub(crate) use observe::{read_list, refresh};
pub(crate) use steps::{Done, Executor, StepCode};

/// Decisions of one pass before it gives up and lets the queue come back.
const ROUNDS: usize = 8;

/// What a pass needs that is not the cluster: the time, and answers from outside.
#[async_trait]
pub(crate) trait Environment: Send + Sync {
    /// What time it is.
    fn now(&self) -> Timestamp;
    /// Puts a question to the outside for a key; true when the answer is there at once.
    async fn ask(&self, question: Question, key: &Key) -> bool;
    /// What a key wants to be asked again and again from now on, and how often.
    fn poll(&self, key: &Key, questions: &BTreeMap<Question, Duration>);
}

/// Everything a pass works with.
pub(crate) struct Pass<'a> {
    pub controller: &'a dyn Erased,
    pub cluster: &'a dyn Cluster,
    pub stores: &'a Stores,
    pub outside: &'a Outside,
    pub leadership: &'a Leadership,
    pub environment: &'a dyn Environment,
    pub key: &'a Key,
    /// What the pass before has written or read and the caches do not show yet: this is read live.
    pub lagging: &'a [ObjectRef],
    /// Failures in a row before this pass; a transient one is not worth telling the user yet.
    pub failures: u32,
    /// A status that could wait has waited long enough.
    pub status_due: bool,
}

/// What a pass has learned and done so far.
#[derive(Default)]
struct PassState {
    /// What it has read live, its own writes included.
    fresh: Fresh,
    /// What its last look at the world asked of the outside.
    asked: Vec<Question>,
    /// What it wants to be asked again and again; none when it has not looked at all.
    polled: Option<BTreeMap<Question, Duration>>,
    /// A decision was made and carried out, so that there was a status to report.
    decided: bool,
    outcome: Outcome,
}

/// What a pass came to.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not a state
pub(crate) struct Outcome {
    /// What was written, and how far the caches must come before the next pass.
    pub written: BTreeMap<ObjectRef, Progress>,
    /// What was read live and the caches do not show yet, and how far they must come: the next pass must not decide by less than
    /// this one has seen.
    pub seen: BTreeMap<ObjectRef, Progress>,
    /// Something was written that no cache shows: no event will tell of it.
    pub unwatched: bool,
    /// What failed.
    pub failures: Vec<Failure>,
    /// When to look again.
    pub wake_after: Option<Duration>,
    /// What became of the status.
    pub status: StatusOutcome,
    /// Waits for an answer from outside.
    pub parked: bool,
    /// A question could not be answered: it must be asked again after a while.
    pub unanswered: bool,
    /// Conditions that came about and deserve an event.
    pub news: Vec<Condition>,
    /// The subject after the pass.
    pub subject: Option<Object>,
    /// Effects carried out.
    pub effects: u32,
    /// A panic was caught.
    pub panicked: bool,
}

/// What became of the status that a pass decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StatusOutcome {
    /// The pass did not get that far, or the write was refused.
    #[default]
    Unreported,
    /// It can wait, and does.
    Waits,
    /// It says what was decided.
    Reported,
}

/// How a round of a pass ended.
enum Round {
    Finished,
    /// Look and decide again: the world is not as it was decided on, or the plan asks for it.
    Again,
}

impl Pass<'_> {
    /// Runs the pass. A panic in it is a bug of this object only.
    pub async fn run(&self) -> Outcome {
        let mut state = PassState::default();
        let ran = AssertUnwindSafe(self.rounds(&mut state)).catch_unwind().await;
        self.note_end(ran, &mut state.outcome);
        if !state.decided {
            let reported = AssertUnwindSafe(self.report_undecided(&mut state)).catch_unwind().await;
            self.note_end(reported, &mut state.outcome);
        }
        if let Some(polled) = &state.polled {
            self.environment.poll(self.key, polled);
        }
        self.note_seen(&mut state);
        state.outcome
    }

    /// Takes note of what was read live and the caches do not show yet.
    fn note_seen(&self, PassState { fresh, outcome, .. }: &mut PassState) {
        let lagging: BTreeSet<&ObjectRef> = self.lagging.iter().collect();
        let listed = fresh.lists.iter().flat_map(|(listing, list)| {
            list.objects.iter().map(|object| (listing.kind.key(&object.key()), Some(object)))
        });
        let by_name = fresh.objects.iter().map(|(target, (object, _))| (target.clone(), object.as_ref()));
        // What was read by its name is not older than the lists.
        for (target, object) in listed.chain(by_name) {
            let progress = match object {
                Some(object) if self.stores.shows(&target, Some(object)) => {
                    Progress::Revision(revision(object.resource_version()))
                }
                // It is gone, or the watches do not show it any more.
                _ => self.stores.uid(&target).map_or(Progress::Revision(0), Progress::Gone),
            };
            let written_later = match (outcome.written.get(&target), &progress) {
                (Some(Progress::Revision(written)), Progress::Revision(read)) => written >= read,
                // We have deleted it or let go of it: that tells more than this read, unless another object has its name now.
                (Some(Progress::Deleted(uid) | Progress::Released(uid, _)), Progress::Revision(_)) => {
                    object.is_none_or(|object| object.uid() == uid)
                }
                _ => false,
            };
            if written_later {
                continue;
            }
            // What was waited for in vain, or noted before, is replaced by what is known now.
            if lagging.contains(&target) || !self.stores.reached(&target, &progress) {
                outcome.seen.insert(target, progress);
            } else {
                outcome.seen.remove(&target);
            }
        }
    }

    /// From now on everything is read anew: something is to be destroyed. What was seen until now is not forgotten by the next pass.
    fn stand_firm(&self, state: &mut PassState) {
        self.note_seen(state);
        state.fresh.stand_firm(self.outside.firm_since(self.key));
    }

    fn note_end(&self, ended: std::thread::Result<Result<(), Failure>>, outcome: &mut Outcome) {
        let failure = match ended {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => {
                outcome.panicked = true;
                let said = panic_text(&*panic);
                Failure::bug(format!("a pass over {} panicked: {said}", self.key))
            }
        };
        outcome.failures.push(failure);
    }

    /// What would be decided now. Reads, but writes nothing.
    #[cfg(any(test, feature = "simulation"))]
    pub async fn plan(&self) -> Result<Option<Plan>, Failure> {
        let looked = self.observe(&mut PassState::default()).await?;
        let Some(looked) = looked else { return Ok(None) };
        self.decide(&looked).await.map(Some)
    }

    async fn rounds(&self, state: &mut PassState) -> Result<(), Failure> {
        self.read_lagging(&mut state.fresh).await?;
        for _ in 0..ROUNDS {
            if let Round::Finished = self.round(state).await? {
                state.decided = true;
                return Ok(());
            }
        }
        Err(Failure::new(
            Class::Transient,
            format!("the world around {} keeps changing; looking again later", self.key),
        ))
    }

    async fn round(&self, state: &mut PassState) -> Result<Round, Failure> {
        let Some(looked) = self.observe(state).await? else { return Ok(Round::Finished) };
        if let (Observation::Paused, Some(subject)) = (&looked.observation, &looked.subject) {
            return self.report_paused(subject, &mut state.outcome).await.map(|()| Round::Finished);
        }
        let plan = self.decide(&looked).await?;
        tracing::debug!(controller = self.controller.name(), key = %self.key, ?plan, "Decided");
        let prune = self.prune(&looked, &plan, &state.fresh);
        if !self.confirm(&looked, &plan, prune.as_ref(), state).await? {
            return Ok(Round::Again);
        }
        state.outcome.wake_after = plan.wake_after;
        match self.act(&looked, &plan, prune, state).await? {
            Round::Again => Ok(Round::Again),
            Round::Finished => self.report(&plan, state).await.map(|()| Round::Finished),
        }
    }

    /// The object that the pass is about.
    fn target(&self) -> ObjectRef {
        self.controller.kind().key(self.key)
    }

    fn writer(&self) -> Writer<'_> {
        Writer { cluster: self.cluster, leadership: self.leadership, manager: self.controller.name() }
    }
}
