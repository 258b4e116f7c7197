//! The steps of a plan, one by one. No judgement: what to do was decided; here it is only done safely, once,
//! and not at all when nothing would change.

mod replace;
mod secrets;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use aquifer_base::{ResourceVersion, Uid};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value, json};

use crate::cluster::{ApiError, Verb};
use crate::compare::{Difference, difference};
use crate::failure::{Class, Failure};
use crate::intent::{OWNER_KIND, drift, marked, owner_kind};
use crate::merge::merge;
use crate::object::{Key, Kind, Object, ObjectRef, revision};
use crate::outside::Outside;
use crate::panic_text::panic_text;
use crate::plan::{Amend, Child, Deletion, Effect, Expect, Record, Stage, Step};
use crate::secret::{Composition, SecretContent};
use crate::store::Progress;
use crate::stores::Stores;
use crate::view::Fresh;
use crate::writer::Writer;

/// Steps of one stage that run at the same time.
const CONCURRENT_STEPS: usize = 8;

/// An effect that takes longer is given up; whether it happened is then not known.
const EFFECT_DEADLINE: Duration = Duration::from_secs(30);

/// What one step came to.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nothing had to be written.
    Unchanged,
    /// The object as the server answered (none when it is gone).
    Wrote(ObjectRef, Option<Object>, Progress),
    /// An outside effect was carried out: look again before anything else.
    Acted,
    /// What we decided on is out of date there: read it and decide again.
    Stale(ObjectRef),
    /// It would destroy something: everything is read anew first, and decided again.
    NeedsFirmGround,
    /// It was written, and something made it other than it was sent.
    Altered(ObjectRef, Object, Failure),
    /// It failed.
    Failed(Failure),
    /// It failed by a panic.
    Panicked(Failure),
}

impl Done {
    /// A write that the caches have reached when they show the version that it made.
    pub fn wrote(target: ObjectRef, object: Option<Object>) -> Self {
        let version = object.as_ref().map(|object| revision(object.resource_version()));
        Self::Wrote(target, object, Progress::Revision(version.unwrap_or_default()))
    }

    /// A write that was refused, or to which no answer came.
    pub fn failed(target: &ObjectRef, doing: &str, error: &ApiError) -> Self {
        if error.is_stale() {
            return Self::Stale(target.clone());
        }
        Self::Failed(Failure::api(&format!("{doing} {target}"), error))
    }
}

/// What a family supplies for its steps: the name that its fields are written under, its recipes and its effects.
#[async_trait]
pub(crate) trait StepCode: Send + Sync {
    fn name(&self) -> &'static str;
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure>;
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure>;
    async fn effect(&self, effect: &Effect) -> Result<(), Failure>;
}

/// Carries out the steps of one pass.
pub(crate) struct Executor<'a> {
    pub writer: Writer<'a>,
    pub code: &'a dyn StepCode,
    pub stores: &'a Stores,
    pub outside: &'a Outside,
    pub owner: &'a Key,
    /// The kind of the owner; a server's requests need not have one.
    pub owner_kind: Option<Kind>,
    /// None when the owner is gone: then nothing can be made in its name.
    pub owner_uid: Option<&'a Uid>,
    /// Our own writes of this pass to the owner: a compare-and-swap decided before them may build on them.
    pub owner_version: Option<(ResourceVersion, ResourceVersion)>,
}

impl Executor<'_> {
    /// Runs a stage: all steps are tried.
    pub async fn stage(&self, stage: &Stage, fresh: &Fresh) -> Vec<Done> {
        // Boxed: the compiler cannot see through a stream of borrowing futures that they may be sent.
        let steps: Vec<_> = stage.steps.iter().map(|step| self.caught(step, fresh).boxed()).collect();
        futures::stream::iter(steps).buffer_unordered(CONCURRENT_STEPS).collect().await
    }

    /// A panic in one step must not make us forget what the others have done.
    async fn caught(&self, step: &Step, fresh: &Fresh) -> Done {
        let done = AssertUnwindSafe(self.step(step, fresh)).catch_unwind().await;
        done.unwrap_or_else(|panic| {
            let said = match step {
                // These have the content of Secrets in hand: the words of their panics may hold some of it.
                Step::Mint(_) | Step::Seal(_) | Step::Effect(_) => "what it said is not shown".to_owned(),
                _ => panic_text(&*panic),
            };
            Done::Panicked(Failure::bug(format!("a step for {} panicked: {said}", self.owner)))
        })
    }

    async fn step(&self, step: &Step, fresh: &Fresh) -> Done {
        match step {
            Step::Apply(child) => self.apply(child, fresh).await,
            Step::Replace { child, tolerate, recreate } => {
                self.replace(child, tolerate, *recreate, fresh).await
            }
            Step::Delete(deletion) => self.delete(deletion).await,
            Step::Mint(mint) => self.mint(mint).await,
            Step::Seal(seal) => self.seal(seal).await,
            Step::Amend(amend) if amend.optional => without_failure(self.amend(amend).await),
            Step::Amend(amend) => self.amend(amend).await,
            Step::Record(record) => self.record(record).await,
            Step::Effect(effect) => self.effect(effect).await,
        }
    }

    async fn apply(&self, child: &Child, fresh: &Fresh) -> Done {
        let Some(intent) = self.marked(child) else { return self.ownerless(&child.target) };
        let mut body = self.with_owner_kind(&intent);
        let why = match &child.expect {
            Expect::Absent => {
                let verb = if child.only_at_creation.is_empty() {
                    // No object has ever had revision 1, so this creates or conflicts.
                    body["metadata"]["resourceVersion"] = json!("1");
                    Verb::Apply(body)
                } else {
                    merge(&mut body, &Value::Object(child.only_at_creation.clone()));
                    // Not applied: what an apply has set, the next one takes away when it does not say it.
                    Verb::Create(body)
                };
                return self.write_child(&child.target, &intent, verb, ABSENT).await;
            }
            Expect::Uid(_) | Expect::Version(_) => {
                let Some(live) = self.live(&child.target, fresh) else {
                    return Done::Stale(child.target.clone());
                };
                let drift = self.drift_with_owner_kind(&intent, &live);
                if Some(live.uid()) == child.expect.uid().map(Uid::as_str) && drift.is_none() {
                    return Done::Unchanged;
                }
                body["metadata"]["uid"] = json!(child.expect.uid());
                if let Expect::Version(seen) = &child.expect {
                    body["metadata"]["resourceVersion"] = json!(seen.version);
                }
                drift.unwrap_or_else(|| "it is another object".to_owned())
            }
        };
        self.write_child(&child.target, &intent, Verb::Apply(body), &why).await
    }

    async fn delete(&self, Deletion { target, seen, .. }: &Deletion) -> Done {
        let uid = seen.uid.to_string();
        let version = Some(seen.version.to_string()).filter(|version| !version.is_empty());
        let verb = Verb::Delete { uid: uid.clone(), resource_version: version };
        match self.writer.write(target, verb, "no longer wanted").await {
            Ok(object) => Done::Wrote(target.clone(), object, Progress::Deleted(uid)),
            Err(ApiError::NotFound) => Done::Unchanged,
            Err(error) => Done::failed(target, "delete", &error),
        }
    }

    async fn record(&self, record: &Record) -> Done {
        let version = match &self.owner_version {
            Some((seen, now)) if *seen == record.seen.version && record.target.key == *self.owner => now,
            _ => &record.seen.version,
        };
        let body = json!({"metadata": {"resourceVersion": version, "uid": record.seen.uid}, "status": record.fields});
        match self
            .writer
            .write(&record.target, Verb::Merge { body, status: true }, "an intent is recorded")
            .await
        {
            Ok(object) => {
                match not_kept(&record.fields, object.as_ref().and_then(|object| object.at("/status"))) {
                    Some(path) => Done::Failed(Failure::bug(format!(
                        "the server does not keep status.{path} of {}: its CRD is older than this operator; apply that of this version",
                        record.target
                    ))),
                    None => Done::wrote(record.target.clone(), object),
                }
            }
            Err(error) => Done::failed(&record.target, "record an intent in", &error),
        }
    }

    async fn amend(&self, amend: &Amend) -> Done {
        let Amend { target, seen, patch, status, .. } = amend;
        let mut body = Value::Object(patch.clone());
        body["metadata"]["resourceVersion"] = json!(seen.version);
        body["metadata"]["uid"] = json!(seen.uid);
        let verb = Verb::Merge { body, status: *status };
        match self.writer.write(target, verb, "some of its fields").await {
            Ok(Some(object)) => match difference(&Value::Object(patch.clone()), &object.0) {
                Some(Difference { path, .. }) => {
                    let message = format!(
                        "{target} does not keep {path} as it was sent: a webhook or policy changes it"
                    );
                    Done::Altered(target.clone(), object, Failure::new(Class::Altered, message))
                }
                None => Done::wrote(target.clone(), Some(object)),
            },
            Ok(None) => Done::Stale(target.clone()),
            Err(error) => Done::failed(target, "change", &error),
        }
    }

    async fn effect(&self, effect: &Effect) -> Done {
        if let Err(error) = self.writer.may_write() {
            return Done::Failed(Failure::api(&effect.operation, &error));
        }
        let Some(_permit) = self.outside.permit(&effect.target).await else {
            let message = format!(
                "cannot {} yet: as many calls to {} as are allowed at once are under way",
                effect.operation,
                if effect.target.is_empty() { "the outside" } else { &effect.target }
            );
            return Done::Failed(Failure::new(Class::Transient, message));
        };
        let deadline = effect.deadline.unwrap_or(EFFECT_DEADLINE);
        let done = tokio::time::timeout(deadline, self.code.effect(effect)).await;
        // Also when it failed: it may have happened all the same.
        self.outside.forget(&effect.outdates);
        match done {
            Ok(Ok(())) => Done::Acted,
            Ok(Err(failure)) => Done::Failed(failure),
            Err(_) => Done::Failed(Failure::new(
                Class::Transient,
                format!(
                    "cannot {}: no answer within {} s; whether it happened is not known",
                    effect.operation,
                    deadline.as_secs()
                ),
            )),
        }
    }

    async fn write_child(&self, target: &ObjectRef, intent: &Value, verb: Verb, why: &str) -> Done {
        let word = verb.as_str();
        written_child(target, intent, word, self.writer.write(target, verb, why).await)
    }

    fn marked(&self, child: &Child) -> Option<Value> {
        Some(marked(child.intent.as_value().clone(), self.owner, self.owner_uid?))
    }

    /// The first place where a live child is not as it is sent, the kind of its owner included.
    pub(super) fn drift_with_owner_kind(&self, intent: &Value, live: &Object) -> Option<String> {
        let wrong = self.is_of_another_kind(live.annotation(OWNER_KIND));
        let wrong = wrong.then(|| format!("/metadata/annotations/{OWNER_KIND}"));
        drift(intent, live).map(|difference| difference.path).or(wrong)
    }

    /// Whether this mark of a child says that its owner is of another kind than ours. A child without it was made before there was that
    /// mark, and is as good.
    fn is_of_another_kind(&self, mark: Option<&str>) -> bool {
        let another = |kind: &Kind| mark.is_some_and(|mark| mark != owner_kind(kind));
        self.owner_kind.as_ref().is_some_and(another)
    }

    /// An intent as it is sent: with the kind of its owner.
    pub(super) fn with_owner_kind(&self, intent: &Value) -> Value {
        let mut body = intent.clone();
        self.add_owner_kind(&mut body["metadata"]["annotations"]);
        body
    }

    fn add_owner_kind(&self, annotations: &mut Value) {
        if let Some(kind) = &self.owner_kind {
            annotations[OWNER_KIND] = json!(owner_kind(kind));
        }
    }

    fn ownerless(&self, target: &ObjectRef) -> Done {
        Done::Failed(Failure::bug(format!(
            "{target} was to be made for {}, which does not exist",
            self.owner
        )))
    }

    fn live(&self, target: &ObjectRef, fresh: &Fresh) -> Option<Object> {
        match fresh.objects.get(target) {
            Some((object, _)) => object.clone(),
            None => self.stores.get(target).known().cloned().flatten(),
        }
    }
}

/// The first field that the stored object does not have as it was sent.
fn not_kept(fields: &Map<String, Value>, stored: Option<&Value>) -> Option<String> {
    fields.iter().find_map(|(name, wanted)| {
        let stored = stored.and_then(|stored| stored.get(name));
        match wanted {
            Value::Null => stored.is_some_and(|stored| !stored.is_null()).then(|| name.clone()),
            Value::Object(below) => not_kept(below, stored).map(|path| format!("{name}.{path}")),
            leaf => (!is_kept(leaf, stored)).then(|| name.clone()),
        }
    })
}

/// Whether a value says what was sent. A schema may add defaults, and 1 and 1.0 are the same number.
fn is_kept(wanted: &Value, stored: Option<&Value>) -> bool {
    match (wanted, stored) {
        (Value::Array(wanted), Some(Value::Array(stored))) => {
            wanted.len() == stored.len() && wanted.iter().zip(stored).all(|(w, s)| is_kept(w, Some(s)))
        }
        (Value::Array(wanted), None) => wanted.is_empty(),
        (Value::Object(wanted), stored) => not_kept(wanted, stored).is_none(),
        (Value::Number(wanted), Some(Value::Number(stored))) => {
            // As integers where both are: not every large one has a float of its own.
            let floats = wanted.is_f64() || stored.is_f64();
            wanted == stored || (floats && wanted.as_f64() == stored.as_f64())
        }
        (wanted, stored) => Some(wanted) == stored,
    }
}

/// What is left of a step without which all is well.
fn without_failure(done: Done) -> Done {
    match done {
        Done::Failed(failure) => {
            tracing::warn!(message = %failure.message, "An optional step failed");
            Done::Unchanged
        }
        Done::Altered(target, object, failure) => {
            tracing::warn!(message = %failure.message, "An optional step was undone");
            Done::wrote(target, Some(object))
        }
        done => done,
    }
}

/// Why something is made.
const ABSENT: &str = "it was absent";

/// What the write of a child came to. The server must keep what we sent: if not, we would write for ever.
fn written_child(
    target: &ObjectRef,
    intent: &Value,
    word: &str,
    result: Result<Option<Object>, ApiError>,
) -> Done {
    match result {
        Ok(Some(object)) => match drift(intent, &object) {
            Some(difference) => {
                let message = format!(
                    "{target} was stored otherwise than it was sent, at {difference}: a webhook or policy changes it, or a definition is older than this operator"
                );
                Done::Altered(target.clone(), object, Failure::new(Class::Altered, message))
            }
            None => Done::wrote(target.clone(), Some(object)),
        },
        Ok(None) => Done::Failed(Failure::bug(format!("no answer to a write of {target}"))),
        Err(ApiError::Immutable(said)) => Done::Failed(Failure::new(
            Class::Invalid,
            format!("cannot {word} {target}: it cannot be changed in place: {said}"),
        )),
        Err(error) => Done::failed(target, word, &error),
    }
}

#[cfg(test)]
mod tests;
