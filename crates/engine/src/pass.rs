//! One pass over one key: observe, decide, act, report. Holds nothing between passes, so that a crash anywhere is just
//! another starting state; the queue, the watches and the clock are the runner's.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::act::{Done, Hands, refresh};
use crate::cluster::{Cluster, Verb};
use crate::controller::{Controller, Subject};
use crate::fault::{Class, Fault, together};
use crate::intent::OWNER_UID;
use crate::lease::Leadership;
use crate::object::{Key, Object, ObjectRef, revision};
use crate::outside::{Outside, Question};
use crate::plan::{Doomed, Finalizer, Plan, Stage, Step};
use crate::status::{Condition, Status, Urgency, change};
use crate::store::{Progress, Stores};
use crate::view::{Fresh, View, Want};

/// Decisions of one pass before it gives up and lets the queue come back.
const ROUNDS: usize = 8;
/// Looks at the world before one decision: each may ask for what the one before revealed.
const LOOKS: usize = 6;
/// When somebody else was faster, and only in case their event got lost.
const SOON: Duration = Duration::from_secs(1);

/// What a pass needs that is not the cluster: the time, and answers from outside.
#[async_trait]
pub(crate) trait Around: Send + Sync {
    /// What time it is.
    fn now(&self) -> Timestamp;
    /// Puts a question to the outside for a key; true when the answer is there at once.
    async fn ask(&self, question: Question, key: &Key) -> bool;
}

/// Everything a pass works with.
pub(crate) struct Pass<'a, C: Controller> {
    pub controller: &'a C,
    pub cluster: &'a dyn Cluster,
    pub stores: &'a Stores,
    pub outside: &'a Outside,
    pub leadership: &'a Leadership,
    pub around: &'a dyn Around,
    pub key: &'a Key,
    /// Own writes that the caches have not reached in time: these, and all of their kinds, are read live.
    pub lagging: &'a [ObjectRef],
    /// Failures in a row before this pass; a transient one is not worth telling the user yet.
    pub failures: u32,
    /// A status that could wait has waited long enough.
    pub status_due: bool,
}

/// What a pass came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How far the caches must come before the next pass.
    pub written: Vec<(ObjectRef, Progress)>,
    /// What failed.
    pub faults: Vec<Fault>,
    /// When to look again.
    pub wake_after: Option<Duration>,
    /// A status change was put off.
    pub status_waits: bool,
    /// Waits for an answer from outside.
    pub parked: bool,
    /// Conditions that came about and deserve an event.
    pub warnings: Vec<Condition>,
    /// The subject after the pass.
    pub subject: Option<Object>,
    /// Effects carried out.
    pub effects: u32,
    /// It ended before there was a decision to report.
    undecided: bool,
}

enum Round {
    Finished,
    Again,
}

impl<C: Controller> Pass<'_, C> {
    /// Runs the pass. A panic in it is a bug of this object only.
    pub async fn run(&self) -> Outcome {
        let mut outcome = Outcome { undecided: true, ..Outcome::default() };
        let ran = AssertUnwindSafe(self.rounds(&mut outcome)).catch_unwind().await;
        if let Err(panic) = ran {
            let said = panic.downcast_ref::<String>().cloned();
            let said =
                said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
            outcome.faults.push(Fault::bug(format!("a pass over {} panicked: {said}", self.key)));
        }
        if outcome.undecided {
            self.report_undecided(&mut outcome).await;
        }
        outcome
    }

    /// The pass failed before there was a plan: the status stays as it is, except that it tells the failure.
    async fn report_undecided(&self, outcome: &mut Outcome) {
        let (Some(subject), Some(fault)) = (outcome.subject.clone(), together(&outcome.faults)) else {
            return;
        };
        if fault.class == Class::Transient && self.failures < 2 {
            return;
        }
        let mut status = Status::of(&subject, self.controller.shape());
        self.controller.explain(&mut status, &fault);
        if let Err(fault) = self.write_status(&subject, &status, outcome).await {
            outcome.faults.push(fault);
        }
    }

    /// What would be decided now. Reads, but writes nothing.
    pub async fn plan(&self) -> Result<Option<Plan>, Fault> {
        let looked = self.observe(&mut Fresh::default(), &mut Outcome::default()).await?;
        let Some((subject, world, _)) = looked else { return Ok(None) };
        self.controller.decision(&subject, &world, self.around.now()).await.map(Some)
    }

    async fn rounds(&self, outcome: &mut Outcome) {
        let mut fresh = Fresh::default();
        for target in self.lagging {
            if let Err(fault) = refresh(self.cluster, &mut fresh, target.clone(), self.around.now()).await {
                outcome.faults.push(fault);
                return;
            }
        }
        for _ in 0..ROUNDS {
            match self.round(&mut fresh, outcome).await {
                Ok(Round::Finished) => {
                    outcome.undecided = false;
                    return;
                }
                Ok(Round::Again) => {}
                Err(fault) => {
                    outcome.faults.push(fault);
                    return;
                }
            }
        }
        outcome.faults.push(Fault::new(
            Class::Transient,
            format!("the world around {} keeps changing; looking again later", self.key),
        ));
    }

    async fn round(&self, fresh: &mut Fresh, outcome: &mut Outcome) -> Result<Round, Fault> {
        let Some((subject, world, asked)) = self.observe(fresh, outcome).await? else {
            return Ok(Round::Finished);
        };
        let now = self.around.now();
        let plan = self.controller.decision(&subject, &world, now).await?;
        tracing::debug!(controller = self.controller.name(), key = %self.key, ?plan, "Decided");
        let prune = self.prune(&subject, &plan);
        if (plan.is_destructive() || prune.is_some()) && !self.on_firm_ground(&subject, fresh).await? {
            return Ok(Round::Again);
        }
        outcome.wake_after = plan.wake_after;
        match self.carry_out(&subject, &plan, prune, &asked, fresh, outcome).await? {
            Round::Again => Ok(Round::Again),
            Round::Finished => self.report(&plan, outcome).await,
        }
    }

    /// Looks until nothing is missing. None when the pass must wait for something.
    async fn observe(
        &self,
        fresh: &mut Fresh,
        outcome: &mut Outcome,
    ) -> Result<Option<(Subject, C::World, Vec<Question>)>, Fault> {
        let target = self.controller.kind().key(self.key);
        for _ in 0..LOOKS {
            let now = self.around.now();
            let (subject, world, wants, asked) = {
                let view = View {
                    stores: self.stores,
                    fresh,
                    outside: self.outside,
                    key: self.key,
                    now,
                    lagging: self.lagging,
                    wants: Vec::new().into(),
                    asked: Vec::new().into(),
                };
                // That the owner is gone is confirmed before anything is decided about its children.
                let seen = view.get(&target);
                match seen.known() {
                    None if view.wants.borrow().is_empty() => return Ok(None),
                    None => (None, None, view.wants.take(), Vec::new()),
                    Some(object) => {
                        outcome.subject.clone_from(object);
                        let subject = Subject { key: self.key.clone(), object: object.clone() };
                        let world = self.controller.observe(&subject, &view);
                        (Some(subject), Some(world), view.wants.take(), view.asked.take())
                    }
                }
            };
            match (subject, world) {
                (Some(subject), Some(world)) if wants.is_empty() => return Ok(Some((subject, world, asked))),
                _ => {}
            }
            if !self.fulfil(wants, fresh, now).await? {
                outcome.parked = true;
                return Ok(None);
            }
        }
        Err(Fault::bug(format!("{} never stops asking about {}", self.controller.name(), self.key)))
    }

    /// Reads what was missing; false when an answer from outside is still to come.
    async fn fulfil(&self, wants: Vec<Want>, fresh: &mut Fresh, now: Timestamp) -> Result<bool, Fault> {
        let mut complete = true;
        for want in wants {
            match want {
                Want::Object(target) => refresh(self.cluster, fresh, target, now).await?,
                Want::List(listing) => {
                    let objects = self.cluster.list(&listing).await;
                    let objects = objects.map_err(|error| Fault::api(&format!("list {listing}"), &error))?;
                    let objects: Arc<[Object]> = objects.into();
                    self.outside.keep_list(listing.clone(), Arc::clone(&objects), now);
                    fresh.lists.insert(listing, (objects, now));
                }
                Want::Answer(question) => complete &= self.around.ask(question, self.key).await,
            }
        }
        Ok(complete)
    }

    /// Before anything is destroyed, the ground of the decision is read from the source of truth: caches of two kinds can
    /// disagree, and a pair that only looks broken must not be torn down. False when the decision must be made again on it.
    ///
    /// A subject that is being deleted never comes back, and all that is its own goes: it is enough that it is still there.
    async fn on_firm_ground(&self, subject: &Subject, fresh: &mut Fresh) -> Result<bool, Fault> {
        if fresh.live {
            return Ok(true);
        }
        let Some(deleting) = subject.object.as_ref().filter(|object| object.deleting()) else {
            fresh.live = true;
            return Ok(false);
        };
        let target = self.controller.kind().key(self.key);
        if !fresh.objects.contains_key(&target) {
            refresh(self.cluster, fresh, target.clone(), self.around.now()).await?;
        }
        let now = fresh.objects.get(&target).and_then(|(now, _)| now.as_ref());
        Ok(now.is_some_and(|now| now.uid() == deleting.uid()))
    }

    async fn carry_out(
        &self,
        subject: &Subject,
        plan: &Plan,
        prune: Option<Stage>,
        asked: &[Question],
        fresh: &mut Fresh,
        outcome: &mut Outcome,
    ) -> Result<Round, Fault> {
        let uid = subject.object.as_ref().map(|o| o.uid().to_owned());
        let mut hands = Hands {
            craft: self.controller,
            cluster: self.cluster,
            stores: self.stores,
            leadership: self.leadership,
            owner: self.key,
            owner_uid: uid.as_deref(),
            owner_version: None,
        };
        if plan.finalizer == Finalizer::Hold {
            let stage = self.hold(&hands, subject).await;
            if let Some(done) = stage {
                let before =
                    subject.object.as_ref().map(|o| o.resource_version().to_owned()).unwrap_or_default();
                if !self.settle(vec![done], asked, fresh, outcome).await? {
                    return Ok(Round::Again);
                }
                if !outcome.faults.is_empty() {
                    return Ok(Round::Finished);
                }
                let after =
                    outcome.subject.as_ref().map(|o| o.resource_version().to_owned()).unwrap_or_default();
                hands.owner_version = Some((before, after));
            }
        }
        for stage in plan.stages.iter().chain(&prune) {
            let done = hands.stage(stage, fresh).await;
            if !self.settle(done, asked, fresh, outcome).await? {
                return Ok(Round::Again);
            }
            if !outcome.faults.is_empty() {
                return Ok(Round::Finished);
            }
        }
        if plan.finalizer == Finalizer::Release
            && let Some(done) = self.release(&hands, subject).await
        {
            let released = matches!(done, Done::Wrote(..));
            if !self.settle(vec![done], asked, fresh, outcome).await? {
                return Ok(Round::Again);
            }
            if released {
                outcome.subject = None;
            }
        }
        Ok(Round::Finished)
    }

    /// Takes note of what the steps of a stage came to. False when the world must be looked at again first.
    async fn settle(
        &self,
        done: Vec<Done>,
        asked: &[Question],
        fresh: &mut Fresh,
        outcome: &mut Outcome,
    ) -> Result<bool, Fault> {
        let subject = self.controller.kind().key(self.key);
        let mut current = true;
        for done in done {
            match done {
                Done::Unchanged => {}
                Done::Wrote(target, object, progress) => {
                    if target == subject {
                        outcome.subject.clone_from(&object);
                    }
                    outcome.written.retain(|(written, _)| *written != target);
                    outcome.written.push((target.clone(), progress));
                    fresh.objects.insert(target, (object, self.around.now()));
                }
                Done::Acted => {
                    outcome.effects += 1;
                    self.outside.forget(asked);
                    current = false;
                }
                Done::Stale(target) => {
                    refresh(self.cluster, fresh, target, self.around.now()).await?;
                    current = false;
                }
                Done::Failed(fault) => {
                    // Whether an effect happened is not known: what we believed about the outside is not either.
                    self.outside.forget(asked);
                    outcome.faults.push(fault);
                }
            }
        }
        // A failure is reported before looking again, or it could hide behind a step that keeps changing.
        Ok(current || !outcome.faults.is_empty())
    }

    async fn hold(&self, hands: &Hands<'_, C>, subject: &Subject) -> Option<Done> {
        let object = subject.object.as_ref()?;
        let name = self.controller.finalizers().first()?;
        if object.finalizers().contains(name) {
            return None;
        }
        let target = self.controller.kind().key(self.key);
        let mut body = json!({
            "apiVersion": target.kind.api_version(), "kind": target.kind.kind,
            "metadata": {"name": self.key.name, "uid": object.uid(), "finalizers": [name]},
        });
        if target.kind.namespaced {
            body["metadata"]["namespace"] = json!(self.key.namespace);
        }
        Some(match hands.write(&target, Verb::Apply(body)).await {
            Ok(written) => {
                let version = written.as_ref().map(|o| revision(o.resource_version())).unwrap_or_default();
                Done::Wrote(target, written, Progress::Revision(version))
            }
            Err(error) if error.is_stale() => Done::Stale(target),
            Err(error) => Done::Failed(Fault::api(&format!("hold {target}"), &error)),
        })
    }

    async fn release(&self, hands: &Hands<'_, C>, subject: &Subject) -> Option<Done> {
        let object = subject.object.as_ref()?;
        let ours = self.controller.finalizers();
        let held = object.finalizers();
        let finalizers: Vec<(usize, String)> = held
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, name)| ours.contains(name))
            .map(|(at, name)| (at, (*name).to_owned()))
            .collect();
        if finalizers.is_empty() {
            return None;
        }
        let target = self.controller.kind().key(self.key);
        let uid = object.uid().to_owned();
        let verb = Verb::Unfinalize { finalizers, uid: uid.clone() };
        Some(match hands.write(&target, verb).await {
            Ok(written) => {
                let held = revision(object.resource_version());
                Done::Wrote(target, written, Progress::Released(uid, held))
            }
            Err(error) if error.is_stale() => Done::Stale(target),
            Err(error) => Done::Failed(Fault::api(&format!("release {target}"), &error)),
        })
    }

    /// Children that carry our owner's uid and that the plan has no word for. Nothing while any kind is not synced.
    fn prune(&self, subject: &Subject, plan: &Plan) -> Option<Stage> {
        let uid = subject.object.as_ref()?.uid().to_owned();
        let kinds: Vec<_> = self.controller.children().into_iter().filter(|child| child.prune).collect();
        let stores: Option<Vec<_>> = kinds.iter().map(|child| self.stores.get(&child.kind)).collect();
        let stores = stores?;
        if stores.iter().any(|store| !store.synced()) {
            return None;
        }
        let named: Vec<&ObjectRef> = plan.named().collect();
        let steps: Vec<Step> = stores
            .iter()
            .flat_map(|store| {
                let found = store.waking(self.key).known().cloned().unwrap_or_default();
                found.into_iter().map(|object| (store.watch().kind.clone(), object))
            })
            .filter(|(kind, object)| {
                object.label(OWNER_UID) == Some(&uid)
                    && !object.deleting()
                    && !named.contains(&&kind.key(&object.key()))
            })
            .map(|(kind, object)| {
                Step::Delete(Doomed {
                    target: kind.key(&object.key()),
                    uid: object.uid().to_owned(),
                    resource_version: object.resource_version().to_owned(),
                })
            })
            .collect();
        (!steps.is_empty()).then_some(Stage { steps })
    }

    /// Writes the status, if it says something new, and if it is time to say it.
    async fn report(&self, plan: &Plan, outcome: &mut Outcome) -> Result<Round, Fault> {
        let Some(subject) = outcome.subject.clone() else { return Ok(Round::Finished) };
        let Some(mut status) = plan.status.clone() else { return Ok(Round::Finished) };
        keep_records(&mut status, plan, &self.controller.kind().key(self.key));
        if let Some(fault) = together(&outcome.faults) {
            if fault.class == Class::Transient && self.failures < 2 {
                return Ok(Round::Finished); // probably gone with the next try
            }
            self.controller.explain(&mut status, &fault);
        }
        self.write_status(&subject, &status, outcome).await
    }

    async fn write_status(
        &self,
        subject: &Object,
        status: &Status,
        outcome: &mut Outcome,
    ) -> Result<Round, Fault> {
        let Some(change) = change(subject, status, self.controller.shape(), self.around.now()) else {
            return Ok(Round::Finished);
        };
        if status.urgency == Urgency::Soon && !self.status_due {
            outcome.status_waits = true;
            return Ok(Round::Finished);
        }
        let target = self.controller.kind().key(self.key);
        let body: Value = json!({
            "metadata": {"resourceVersion": subject.resource_version(), "uid": subject.uid()},
            "status": change.body,
        });
        let hands = Hands {
            craft: self.controller,
            cluster: self.cluster,
            stores: self.stores,
            leadership: self.leadership,
            owner: self.key,
            owner_uid: None,
            owner_version: None,
        };
        match hands.write(&target, Verb::Merge { body, status: true }).await {
            Ok(written) => {
                let version = written.as_ref().map(|o| revision(o.resource_version())).unwrap_or_default();
                outcome.written.retain(|(other, _)| *other != target);
                outcome.written.push((target, Progress::Revision(version)));
                outcome.warnings = change.warnings;
                outcome.subject = written;
                Ok(Round::Finished)
            }
            // Somebody wrote to the subject since we looked: its event is on the way and wakes us.
            Err(error) if error.is_stale() => {
                outcome.wake_after = Some(outcome.wake_after.map_or(SOON, |after| after.min(SOON)));
                Ok(Round::Finished)
            }
            Err(error) => Err(Fault::api(&format!("update the status of {target}"), &error)),
        }
    }
}

/// A status never takes back what its own plan has recorded: that is all a crash would leave to go by.
fn keep_records(status: &mut Status, plan: &Plan, subject: &ObjectRef) {
    for step in plan.steps() {
        if let Step::Record(record) = step
            && record.target == *subject
        {
            status.fields.extend(record.fields.clone());
        }
    }
}

#[cfg(test)]
mod firm_ground;
#[cfg(test)]
mod tests;
