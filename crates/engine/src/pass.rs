//! One pass over one key: observe, decide, act, report. Holds nothing between passes, so that a crash anywhere is just
//! another starting state; the queue, the watches and the clock are the runner's.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::act::{Done, Executor, refresh};
use crate::cluster::{Cluster, Verb};
use crate::erased::{Erased, Observation};
use crate::failure::{Class, Failure, combined};
use crate::intent::OWNER_UID;
use crate::lease::Leadership;
use crate::object::{Identity, Key, Object, ObjectRef, revision};
use crate::outside::{Outside, Question};
use crate::plan::{Finalizer, Plan, Stage, Step};
use crate::status::{Condition, Report, State, Urgency, change};
use crate::store::Progress;
use crate::stores::Stores;
use crate::view::{Fresh, View, Want};

/// Decisions of one pass before it gives up and lets the queue come back.
const ROUNDS: usize = 8;
/// Looks at the world before one decision: each may ask for what the one before revealed.
const LOOKS: usize = 6;
/// The condition that sums up all others.
const READY: &str = "Ready";
/// When somebody else was faster, and only in case their event got lost.
const SOON: Duration = Duration::from_secs(1);

/// What a pass needs that is not the cluster: the time, and answers from outside.
#[async_trait]
pub(crate) trait Environment: Send + Sync {
    /// What time it is.
    fn now(&self) -> Timestamp;
    /// Puts a question to the outside for a key; true when the answer is there at once.
    async fn ask(&self, question: Question, key: &Key) -> bool;
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
    /// Own writes that the caches have not reached in time: these, and all of their kinds, are read live.
    pub lagging: &'a [ObjectRef],
    /// Failures in a row before this pass; a transient one is not worth telling the user yet.
    pub failures: u32,
    /// A status that could wait has waited long enough.
    pub status_due: bool,
}

/// What a pass came to.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state")]
pub(crate) struct Outcome {
    /// How far the caches must come before the next pass.
    pub written: Vec<(ObjectRef, Progress)>,
    /// What failed.
    pub failures: Vec<Failure>,
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
    /// A panic was caught.
    pub panicked: bool,
    /// It ended before there was a decision to report.
    undecided: bool,
}

/// What a pass has looked at when nothing is missing any more.
struct Looked {
    subject: Option<Object>,
    observation: Observation,
    asked: Vec<Question>,
}

enum Round {
    Finished,
    Again,
}

impl Pass<'_> {
    /// Runs the pass. A panic in it is a bug of this object only.
    pub async fn run(&self) -> Outcome {
        let mut outcome = Outcome { undecided: true, ..Outcome::default() };
        let ran = AssertUnwindSafe(self.rounds(&mut outcome)).catch_unwind().await;
        if let Err(panic) = ran {
            let said = panic.downcast_ref::<String>().cloned();
            let said =
                said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
            outcome.panicked = true;
            outcome.failures.push(Failure::bug(format!("a pass over {} panicked: {said}", self.key)));
        }
        if outcome.undecided {
            self.report_undecided(&mut outcome).await;
        }
        outcome
    }

    /// The pass failed before there was a plan: the status stays as it is, except that it tells the failure.
    async fn report_undecided(&self, outcome: &mut Outcome) {
        let (Some(subject), Some(failure)) = (outcome.subject.clone(), combined(&outcome.failures)) else {
            return;
        };
        if failure.class == Class::Transient && self.failures < 2 {
            return;
        }
        let mut report = Report::of(&subject, &self.controller.shape());
        report.failed(&failure);
        if let Err(failure) = self.write_status(&subject, report, outcome).await {
            outcome.failures.push(failure);
        }
    }

    /// What would be decided now. Reads, but writes nothing.
    #[cfg(any(test, feature = "simulation"))]
    pub async fn plan(&self) -> Result<Option<Plan>, Failure> {
        let looked = self.observe(&mut Fresh::default(), &mut Outcome::default()).await?;
        let Some(looked) = looked else { return Ok(None) };
        self.decide(&looked, self.environment.now()).await.map(Some)
    }

    /// The controller's decision; for a subject whose spec cannot be read, the engine's own: to say so and to do nothing.
    async fn decide(&self, looked: &Looked, now: Timestamp) -> Result<Plan, Failure> {
        let unreadable = match &looked.observation {
            Observation::Seen(seen) => return self.controller.decision(&**seen, now).await,
            Observation::Unreadable(unreadable) => unreadable,
        };
        let mut report = looked
            .subject
            .as_ref()
            .map(|subject| Report::of(subject, &self.controller.shape()))
            .unwrap_or_default();
        let message = format!("{unreadable}; correct it, until then nothing is done for this object");
        report.set(Condition::new("Ready", State::False, Class::Invalid.reason(), message).warning());
        Ok(Plan::none().status(report))
    }

    async fn rounds(&self, outcome: &mut Outcome) {
        let mut fresh = Fresh::default();
        for target in self.lagging {
            if let Err(failure) =
                refresh(self.cluster, &mut fresh, target.clone(), self.environment.now()).await
            {
                outcome.failures.push(failure);
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
                Err(failure) => {
                    outcome.failures.push(failure);
                    return;
                }
            }
        }
        outcome.failures.push(Failure::new(
            Class::Transient,
            format!("the world around {} keeps changing; looking again later", self.key),
        ));
    }

    async fn round(&self, fresh: &mut Fresh, outcome: &mut Outcome) -> Result<Round, Failure> {
        let Some(looked) = self.observe(fresh, outcome).await? else {
            return Ok(Round::Finished);
        };
        let plan = self.decide(&looked, self.environment.now()).await?;
        let Looked { subject, observation, asked } = &looked;
        let subject = subject.as_ref();
        tracing::debug!(controller = self.controller.name(), key = %self.key, ?plan, "Decided");
        let prune = match observation {
            Observation::Seen(_) => self.prune(subject, &plan),
            Observation::Unreadable(_) => None,
        };
        if (plan.is_destructive() || prune.is_some()) && !self.on_firm_ground(subject, fresh).await? {
            return Ok(Round::Again);
        }
        outcome.wake_after = plan.wake_after;
        match self.carry_out(subject, &plan, prune, asked, fresh, outcome).await? {
            Round::Again => Ok(Round::Again),
            Round::Finished => self.report(&plan, outcome).await,
        }
    }

    /// Looks until nothing is missing. None when the pass must wait for something.
    async fn observe(&self, fresh: &mut Fresh, outcome: &mut Outcome) -> Result<Option<Looked>, Failure> {
        let target = self.controller.kind().key(self.key);
        for _ in 0..LOOKS {
            let now = self.environment.now();
            let (looked, wants) = {
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
                    None => (None, view.wants.take()),
                    Some(object) => {
                        outcome.subject.clone_from(object);
                        let observation = self.controller.observe(self.key, object.as_ref(), &view);
                        let asked = view.asked.take();
                        (Some(Looked { subject: object.clone(), observation, asked }), view.wants.take())
                    }
                }
            };
            if let Some(looked) = looked
                && wants.is_empty()
            {
                return Ok(Some(looked));
            }
            if !self.read_missing(wants, fresh, now).await? {
                outcome.parked = true;
                return Ok(None);
            }
        }
        Err(Failure::bug(format!("{} never stops asking about {}", self.controller.name(), self.key)))
    }

    /// Reads what was missing; false when an answer from outside is still to come.
    async fn read_missing(
        &self,
        wants: Vec<Want>,
        fresh: &mut Fresh,
        now: Timestamp,
    ) -> Result<bool, Failure> {
        let mut complete = true;
        for want in wants {
            match want {
                Want::Object(target) => refresh(self.cluster, fresh, target, now).await?,
                Want::List(listing) => {
                    let objects = self.cluster.list(&listing).await;
                    let objects =
                        objects.map_err(|error| Failure::api(&format!("list {listing}"), &error))?;
                    let objects: Arc<[Object]> = objects.into();
                    self.outside.keep_list(listing.clone(), Arc::clone(&objects), now);
                    fresh.lists.insert(listing, (objects, now));
                }
                Want::Answer(question) => complete &= self.environment.ask(question, self.key).await,
            }
        }
        Ok(complete)
    }

    /// Before anything is destroyed, the ground of the decision is read from the source of truth: caches of two kinds can
    /// disagree, and a pair that only looks broken must not be torn down. False when the decision must be made again on it.
    ///
    /// A subject that is being deleted never comes back, and all that is its own goes: it is enough that it is still there.
    async fn on_firm_ground(&self, subject: Option<&Object>, fresh: &mut Fresh) -> Result<bool, Failure> {
        if fresh.live {
            return Ok(true);
        }
        let Some(deleting) = subject.filter(|object| object.deleting()) else {
            fresh.live = true;
            return Ok(false);
        };
        let target = self.controller.kind().key(self.key);
        if !fresh.objects.contains_key(&target) {
            refresh(self.cluster, fresh, target.clone(), self.environment.now()).await?;
        }
        let now = fresh.objects.get(&target).and_then(|(now, _)| now.as_ref());
        Ok(now.is_some_and(|now| now.uid() == deleting.uid()))
    }

    async fn carry_out(
        &self,
        subject: Option<&Object>,
        plan: &Plan,
        prune: Option<Stage>,
        asked: &[Question],
        fresh: &mut Fresh,
        outcome: &mut Outcome,
    ) -> Result<Round, Failure> {
        let seen = subject.map(Object::identity);
        let mut executor = Executor {
            code: self.controller,
            cluster: self.cluster,
            stores: self.stores,
            leadership: self.leadership,
            owner: self.key,
            owner_uid: seen.as_ref().map(|seen| &seen.uid),
            owner_version: None,
        };
        if plan.finalizer == Finalizer::Hold {
            let stage = self.hold(&executor, subject).await;
            if let Some(done) = stage {
                if !self.settle(vec![done], asked, fresh, outcome).await? {
                    return Ok(Round::Again);
                }
                if !outcome.failures.is_empty() {
                    return Ok(Round::Finished);
                }
                let version = |seen: Option<Identity>| seen.unwrap_or_default().version;
                let after = outcome.subject.as_ref().map(Object::identity);
                executor.owner_version = Some((version(seen.clone()), version(after)));
            }
        }
        for stage in plan.stages.iter().chain(&prune) {
            let done = executor.stage(stage, fresh).await;
            if !self.settle(done, asked, fresh, outcome).await? {
                return Ok(Round::Again);
            }
            if !outcome.failures.is_empty() {
                return Ok(Round::Finished);
            }
        }
        if plan.finalizer == Finalizer::Release
            && let Some(done) = self.release(&executor, subject).await
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
    ) -> Result<bool, Failure> {
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
                    fresh.objects.insert(target, (object, self.environment.now()));
                }
                Done::Acted => {
                    outcome.effects += 1;
                    self.outside.forget(asked);
                    current = false;
                }
                Done::Stale(target) => {
                    refresh(self.cluster, fresh, target, self.environment.now()).await?;
                    current = false;
                }
                Done::Failed(failure) => {
                    // Whether an effect happened is not known: what we believed about the outside is not either.
                    self.outside.forget(asked);
                    outcome.failures.push(failure);
                }
            }
        }
        // A failure is reported before looking again, or it could hide behind a step that keeps changing.
        Ok(current || !outcome.failures.is_empty())
    }

    async fn hold(&self, executor: &Executor<'_>, subject: Option<&Object>) -> Option<Done> {
        let object = subject?;
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
        Some(match executor.write(&target, Verb::Apply(body), "our finalizer goes on").await {
            Ok(written) => {
                let version = written.as_ref().map(|o| revision(o.resource_version())).unwrap_or_default();
                Done::Wrote(target, written, Progress::Revision(version))
            }
            Err(error) if error.is_stale() => Done::Stale(target),
            Err(error) => Done::Failed(Failure::api(&format!("hold {target}"), &error)),
        })
    }

    async fn release(&self, executor: &Executor<'_>, subject: Option<&Object>) -> Option<Done> {
        let object = subject?;
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
        Some(match executor.write(&target, verb, "our finalizer comes off").await {
            Ok(written) => {
                let held = revision(object.resource_version());
                Done::Wrote(target, written, Progress::Released(uid, held))
            }
            Err(error) if error.is_stale() => Done::Stale(target),
            Err(error) => Done::Failed(Failure::api(&format!("release {target}"), &error)),
        })
    }

    /// Children that carry our owner's uid and that the plan has no word for. Nothing while any kind is not synced.
    fn prune(&self, subject: Option<&Object>, plan: &Plan) -> Option<Stage> {
        let uid = subject?.uid().to_owned();
        let kinds = self.controller.pruned();
        if kinds.iter().any(|kind| !self.stores.synced(kind)) {
            return None;
        }
        let named: Vec<&ObjectRef> = plan.named().collect();
        let steps: Vec<Step> = kinds
            .iter()
            .flat_map(|kind| {
                let found = self.stores.waking(kind, self.key).known().cloned().unwrap_or_default();
                found.into_iter().map(move |object| (kind, object))
            })
            .filter(|(kind, object)| {
                object.label(OWNER_UID) == Some(&uid)
                    && !object.deleting()
                    && !named.contains(&&kind.key(&object.key()))
            })
            .map(|(kind, object)| Step::delete(kind.key(&object.key()), object.identity()))
            .collect();
        (!steps.is_empty()).then_some(Stage { steps })
    }

    /// Writes the status, if it says something new, and if it is time to say it.
    async fn report(&self, plan: &Plan, outcome: &mut Outcome) -> Result<Round, Failure> {
        let Some(subject) = outcome.subject.clone() else { return Ok(Round::Finished) };
        let Some(mut report) = plan.status.clone() else { return Ok(Round::Finished) };
        keep_records(&mut report, plan, &self.controller.kind().key(self.key));
        if let Some(failure) = combined(&outcome.failures) {
            if failure.class == Class::Transient && self.failures < 2 {
                return Ok(Round::Finished); // probably gone with the next try
            }
            report.failed(&failure);
        }
        self.write_status(&subject, report, outcome).await
    }

    async fn write_status(
        &self,
        subject: &Object,
        mut report: Report,
        outcome: &mut Outcome,
    ) -> Result<Round, Failure> {
        self.controller.summarize(&mut report, subject.deleting());
        let Some(change) = change(subject, &report, &self.controller.shape(), self.environment.now()) else {
            return Ok(Round::Finished);
        };
        let ready = report.get(READY);
        let why = ready
            .map(|ready| format!("Ready is {}: {}", ready.state.as_str(), ready.reason))
            .unwrap_or_default();
        if report.urgency == Urgency::Soon && !self.status_due {
            outcome.status_waits = true;
            return Ok(Round::Finished);
        }
        let target = self.controller.kind().key(self.key);
        let body: Value = json!({
            "metadata": {"resourceVersion": subject.resource_version(), "uid": subject.uid()},
            "status": change.body,
        });
        let executor = Executor {
            code: self.controller,
            cluster: self.cluster,
            stores: self.stores,
            leadership: self.leadership,
            owner: self.key,
            owner_uid: None,
            owner_version: None,
        };
        match executor.write(&target, Verb::Merge { body, status: true }, &why).await {
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
            Err(error) => Err(Failure::api(&format!("update the status of {target}"), &error)),
        }
    }
}

/// A status never takes back what its own plan has recorded: that is all a crash would leave to go by.
fn keep_records(report: &mut Report, plan: &Plan, subject: &ObjectRef) {
    for step in plan.steps() {
        if let Step::Record(record) = step
            && record.target == *subject
        {
            report.fields.extend(record.fields.clone());
        }
    }
}

#[cfg(test)]
mod firm_ground;
#[cfg(test)]
mod tests;
