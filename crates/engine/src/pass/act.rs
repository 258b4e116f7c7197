//! Act: carry the plan out, stage after stage, and take note of what came of it. Decides nothing.

use super::observe::{Looked, refresh};
use super::steps::{Done, Executor};
use super::{Pass, PassState, Round};
use crate::failure::Failure;
use crate::object::{Object, revision};
use crate::plan::{Finalizer, Plan, Stage};
use crate::store::Progress;

impl Pass<'_> {
    pub(super) async fn act(
        &self,
        looked: &Looked,
        plan: &Plan,
        prune: Option<Stage>,
        state: &mut PassState,
    ) -> Result<Round, Failure> {
        let subject = looked.subject.as_ref();
        let seen = subject.map(Object::identity);
        let mut executor = Executor {
            writer: self.writer(),
            code: self.controller,
            stores: self.stores,
            outside: self.outside,
            owner: self.key,
            owner_kind: Some(self.controller.kind()),
            owner_uid: seen.as_ref().map(|seen| &seen.uid),
            owner_version: None,
        };
        if plan.finalizer == Finalizer::Hold
            && let Some(done) = self.hold(subject).await
        {
            if !self.settle(vec![done], state).await? {
                return Ok(Round::Again);
            }
            if !state.outcome.failures.is_empty() {
                return Ok(Round::Finished);
            }
            let after = state.outcome.subject.as_ref().map(Object::identity);
            executor.owner_version =
                Some((seen.clone().unwrap_or_default().version, after.unwrap_or_default().version));
        }
        for stage in plan.stages.iter().chain(&prune) {
            let done = executor.stage(stage, &state.fresh).await;
            if !self.settle(done, state).await? {
                return Ok(Round::Again);
            }
            if !state.outcome.failures.is_empty() {
                return Ok(Round::Finished);
            }
        }
        if matches!(plan.finalizer, Finalizer::Release | Finalizer::ReleaseProved)
            && let Some(done) = self.release(subject).await
        {
            let released = matches!(done, Done::Wrote(..));
            if !self.settle(vec![done], state).await? {
                return Ok(Round::Again);
            }
            if released {
                state.outcome.subject = None;
            }
        }
        if !plan.looks_again {
            return Ok(Round::Finished);
        }
        if state.fresh.firm.is_some() {
            // What was read before these writes is not firm any more.
            self.stand_firm(state);
        }
        Ok(Round::Again)
    }

    /// Takes note of what the steps of a stage came to. False when the world must be looked at again first.
    async fn settle(&self, done: Vec<Done>, state: &mut PassState) -> Result<bool, Failure> {
        let subject = self.target();
        let PassState { fresh, asked, outcome, .. } = state;
        let (mut current, mut outdated) = (true, Vec::new());
        let (mut acted, mut needs_firm_ground) = (false, false);
        for done in done {
            outcome.panicked |= matches!(done, Done::Panicked(_));
            match done {
                Done::Unchanged => {}
                Done::Wrote(target, object, progress) => {
                    if target == subject {
                        outcome.subject.clone_from(&object);
                    }
                    self.note_write(outcome, target.clone(), object.as_ref(), progress);
                    fresh.objects.insert(target, (object, self.environment.now()));
                }
                Done::Altered(target, object, failure) => {
                    if target == subject {
                        outcome.subject = Some(object.clone());
                    }
                    let progress = Progress::Revision(revision(object.resource_version()));
                    self.note_write(outcome, target.clone(), Some(&object), progress);
                    fresh.objects.insert(target, (Some(object), self.environment.now()));
                    outcome.failures.push(failure);
                }
                Done::NeedsFirmGround => needs_firm_ground = true,
                Done::Acted => {
                    outcome.effects += 1;
                    self.outside.forget(&*asked);
                    (current, acted) = (false, true);
                }
                Done::Stale(target) => outdated.push(target),
                Done::Failed(failure) | Done::Panicked(failure) => {
                    // Whether an effect happened is not known: what we believed about the outside is not either.
                    self.outside.forget(&*asked);
                    outcome.failures.push(failure);
                }
            }
        }
        if needs_firm_ground {
            // Once in a pass. What else has failed fails again then, and is reported.
            outcome.failures.clear();
            self.stand_firm(state);
            return Ok(false);
        }
        if acted && fresh.firm.is_some() {
            // It took its time: what was read before it is not firm any more.
            self.stand_firm(state);
        }
        let PassState { fresh, outcome, .. } = state;
        current &= outdated.is_empty();
        // Only now: a read that fails must not make us forget what the other steps have done.
        for target in outdated {
            refresh(self.cluster, fresh, target, self.environment.now()).await?;
        }
        // A failure is reported before looking again, or it could hide behind a step that keeps changing.
        Ok(current || !outcome.failures.is_empty())
    }
}
