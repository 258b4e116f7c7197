//! What `decide` returns: ordered stages of independent steps, a word for every child, a status, and the next look.
//! Plans are data: they can be printed, compared, replayed and sent over HTTP. Nothing here does anything.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_base::Uid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::intent::Intent;
use crate::object::{Identity, Key, ObjectRef};
use crate::question::Question;
use crate::secret::SECRET;
use crate::status::Report;

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Plan {
    /// Whether our finalizer must be on the subject before the first stage, or come off after the last.
    pub finalizer: Finalizer,
    /// In order; a stage starts only after full success of the one before.
    pub stages: Vec<Stage>,
    /// Children that can not be decided yet: neither written nor pruned.
    pub keep: Vec<ObjectRef>,
    /// What the world shows of the subject. None leaves the status alone (the subject is gone).
    pub status: Option<Report>,
    /// When to look again although nothing happened.
    pub wake_after: Option<Duration>,
    /// After the last stage the same pass looks and decides again.
    pub looks_again: bool,
}

/// What happens to our finalizer on the subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finalizer {
    /// Nothing.
    #[default]
    Leave,
    /// It is put on before any other step.
    Hold,
    /// It comes off after every step has succeeded; so do the finalizers of a predecessor that we took over from. What was kept by it
    /// goes then, so everything that the decision rests on is read anew first.
    Release,
    /// The same where nothing needs to be read anew: that all is gone was asked of [`crate::View::get`], which proves it.
    ReleaseProved,
}

/// Steps that do not depend on each other: run together, all tried, errors collected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Server-side apply of the full intent. Fields of others stay.
    Apply(Child),
    /// The object shall be exactly the intent: foreign additions go.
    Replace {
        /// The object.
        child: Child,
        /// JSON pointers below which others write by right.
        tolerate: Vec<String>,
        /// What happens when it cannot be changed in place.
        recreate: Recreate,
    },
    /// Delete this very object.
    Delete(Deletion),
    /// A Secret made by a recipe, create-only: where decisions get keys and randomness from.
    Mint(Mint),
    /// A Secret composed of others by a recipe, kept as the recipe says.
    Seal(Seal),
    /// Fields that are part of no intent of ours, mostly of somebody else's object, by compare-and-swap and without our marks.
    Amend(Amend),
    /// An intent into a status, by compare-and-swap, before an effect that is not idempotent by key.
    Record(Record),
    /// Something outside Kubernetes.
    Effect(Effect),
}

/// What happens to an object that cannot be changed in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recreate {
    /// It stays, and that is reported.
    #[default]
    Never,
    /// It is deleted and made again, when the server would take the new one. Never a namespace or a definition:
    /// all that is in it would go.
    Allowed,
}

/// A child with its full intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// Which object.
    pub target: ObjectRef,
    /// What it shall be.
    pub intent: Intent,
    /// What `decide` saw at that name.
    pub expect: Expect,
    /// Fields that belong to somebody else once the object is there: they are sent when it is created, and neither compared nor taken away
    /// later. Empty for none. Only for what is applied, and nothing of the metadata.
    ///
    /// The object is then created and not applied, so every field of that first intent stays: a later apply that leaves one out does not take
    /// it away.
    pub only_at_creation: Map<String, Value>,
}

impl Child {
    /// A child and what was seen at its name.
    pub fn new(target: ObjectRef, intent: Intent, expect: Expect) -> Self {
        Self { target, intent, expect, only_at_creation: Map::new() }
    }

    /// The same, and when it has to be created, with these fields besides.
    #[must_use]
    pub fn only_at_creation(mut self, fields: Map<String, Value>) -> Self {
        self.only_at_creation = fields;
        self
    }
}

/// What was seen at a child's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Nothing; the write creates, or conflicts.
    Absent,
    /// This object; the write is refused if it is another one.
    Uid(Uid),
    /// This object in this version. For what a late write of a former leader must not take back, such as a quota.
    Version(Identity),
}

impl Expect {
    /// What an observation says.
    pub fn seen(object: Option<&Identity>) -> Self {
        object.map_or(Self::Absent, |seen| Self::Uid(seen.uid.clone()))
    }

    /// What an observation says, in its very version.
    pub fn unchanged(object: Option<&Identity>) -> Self {
        object.map_or(Self::Absent, |seen| Self::Version(seen.clone()))
    }

    /// The object that was seen.
    pub fn uid(&self) -> Option<&Uid> {
        match self {
            Self::Absent => None,
            Self::Uid(uid) => Some(uid),
            Self::Version(seen) => Some(&seen.uid),
        }
    }
}

/// An object to delete, as it was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deletion {
    /// Which object.
    pub target: ObjectRef,
    /// What was seen: when the object has changed since, the engine looks and decides again.
    pub seen: Identity,
    /// Its owner, the subject, is being deleted, and it goes for no other reason: nothing else need be read anew first.
    pub with_owner: bool,
}

/// A Secret to make once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mint {
    /// The Secret.
    pub secret: Key,
    /// The recipe, understood by the controller's `mint`.
    pub recipe: String,
    /// Labels, besides our mark.
    pub labels: BTreeMap<String, String>,
}

impl Mint {
    /// A Secret to make once by a recipe.
    pub fn new(secret: Key, recipe: &str) -> Self {
        Self { secret, recipe: recipe.to_owned(), labels: BTreeMap::new() }
    }
}

/// A Secret that is composed. What it is composed of is read when it is written, so that no content is in a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seal {
    /// The Secret.
    pub secret: Key,
    /// The recipe, understood by the controller's `compose`.
    pub recipe: String,
    /// Arguments of the recipe. No secrets.
    pub arguments: Value,
    /// Secrets that it is made of, in the order of the recipe.
    pub sources: Vec<Key>,
    /// Labels, besides our mark.
    pub labels: BTreeMap<String, String>,
    /// Its type. It cannot be changed later.
    pub secret_type: String,
}

impl Seal {
    /// A Secret of type `Opaque` by a recipe, made of nothing yet.
    pub fn new(secret: Key, recipe: &str, arguments: &impl Serialize) -> Self {
        Self {
            secret,
            recipe: recipe.to_owned(),
            arguments: serde_json::to_value(arguments).unwrap_or_default(),
            sources: Vec::new(),
            labels: BTreeMap::new(),
            secret_type: "Opaque".to_owned(),
        }
    }

    /// It is also made of this Secret.
    #[must_use]
    pub fn source(mut self, secret: Key) -> Self {
        self.sources.push(secret);
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With this type.
    #[must_use]
    pub fn secret_type(mut self, secret_type: &str) -> Self {
        secret_type.clone_into(&mut self.secret_type);
        self
    }
}

/// A compare-and-swap on fields that are part of no intent of ours, mostly of an object that is somebody else's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amend {
    /// Which object.
    pub target: ObjectRef,
    /// What was seen: when the object has changed since, the engine looks and decides again.
    pub seen: Identity,
    /// A merge patch: null clears a field.
    pub patch: Map<String, Value>,
    /// Whether it goes to the status.
    pub status: bool,
    /// Whether all is well without it: a failure is then logged, and not tried again for its own sake.
    pub optional: bool,
}

/// A compare-and-swap on a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Whose status; the subject itself, or a claimant of a shared supply.
    pub target: ObjectRef,
    /// What was seen.
    pub seen: Identity,
    /// The fields of the status to set; null clears.
    pub fields: Map<String, Value>,
}

impl Record {
    /// A record in the status of an object, without fields yet.
    pub fn new(target: ObjectRef, seen: Identity) -> Self {
        Self { target, seen, fields: Map::new() }
    }

    /// Sets a field of the status.
    #[must_use]
    pub fn set(mut self, name: &str, value: &impl Serialize) -> Self {
        self.fields.insert(name.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// Clears a field of the status.
    #[must_use]
    pub fn clear(mut self, name: &str) -> Self {
        self.fields.insert(name.to_owned(), Value::Null);
        self
    }
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// What, in the family's words.
    pub operation: String,
    /// The key that makes a repetition harmless: uid and operation.
    pub key: String,
    /// Its arguments. No secrets.
    pub arguments: Value,
    /// It destroys something: everything that the decision rests on is read anew first, and asked for anew.
    pub destroys: bool,
    /// What it may change the answers to, besides what its own pass has asked.
    pub outdates: Vec<Question>,
    /// Whom it is done to, such as one storage cluster; only a few effects on each are under way at once.
    pub target: String,
    /// It is given up after so long; whether it happened is then not known. Half a minute when left out.
    pub deadline: Option<Duration>,
}

impl Effect {
    /// An effect with typed arguments.
    pub fn new(operation: &str, key: String, arguments: &impl Serialize) -> Self {
        let arguments = serde_json::to_value(arguments).unwrap_or_default();
        Self {
            operation: operation.to_owned(),
            key,
            arguments,
            destroys: false,
            outdates: Vec::new(),
            target: String::new(),
            deadline: None,
        }
    }

    /// The same effect, after which this answer is out of date.
    #[must_use]
    pub fn outdates(mut self, question: Question) -> Self {
        self.outdates.push(question);
        self
    }

    /// The same effect, on this target.
    #[must_use]
    pub fn on(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// The same effect, which may take so long.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same effect, which destroys something.
    #[must_use]
    pub fn destroying(mut self) -> Self {
        self.destroys = true;
        self
    }

    /// The arguments, as the type that they were made from.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.arguments).map_err(|error| {
            Failure::bug(format!("cannot read the arguments of {}: {error}", self.operation))
        })
    }
}

impl Plan {
    /// A plan that does nothing and says so.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a stage, unless it is empty.
    pub fn stage(mut self, steps: Vec<Step>) -> Self {
        if !steps.is_empty() {
            self.stages.push(Stage { steps });
        }
        self
    }

    /// Our finalizer must be on before the first stage.
    pub fn hold(mut self) -> Self {
        self.finalizer = Finalizer::Hold;
        self
    }

    /// Our finalizer comes off after the last stage.
    pub fn release(mut self) -> Self {
        self.finalizer = Finalizer::Release;
        self
    }

    /// Our finalizer comes off after the last stage, and that nothing is left was proved by reads by name.
    pub fn release_proved(mut self) -> Self {
        self.finalizer = Finalizer::ReleaseProved;
        self
    }

    /// A child that is not decided now.
    pub fn keep(mut self, target: ObjectRef) -> Self {
        self.keep.push(target);
        self
    }

    /// What the status shall say.
    pub fn status(mut self, status: Report) -> Self {
        self.status = Some(status);
        self
    }

    /// Look again after a while.
    pub fn wake_after(mut self, after: Duration) -> Self {
        self.wake_after = Some(self.wake_after.map_or(after, |now| now.min(after)));
        self
    }

    /// What the stages make decides what comes next, as the uid of one child does for another: after the last stage the same pass looks and
    /// decides again, with what was written in view. The status is that of the last decision. This plan must have a word for every child all
    /// the same, because others are pruned first. One that looks again without end fails after eight decisions.
    pub fn look_again(mut self) -> Self {
        self.looks_again = true;
        self
    }

    /// Every object that the plan has a word for: these are not pruned.
    pub fn named(&self) -> impl Iterator<Item = ObjectRef> {
        self.keep.iter().cloned().chain(self.steps().filter_map(Step::target))
    }

    /// Every step, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flat_map(|stage| &stage.steps)
    }
}

impl Step {
    /// Makes `intent` of a target be there.
    pub fn apply(target: ObjectRef, intent: Intent, expect: Expect) -> Self {
        Self::Apply(Child::new(target, intent, expect))
    }

    /// Deletes an object that was seen.
    pub fn delete(target: ObjectRef, seen: Identity) -> Self {
        Self::Delete(Deletion { target, seen, with_owner: false })
    }

    /// Deletes an object that was seen because its owner, the subject, is being deleted, and for no other reason.
    pub fn delete_with_owner(target: ObjectRef, seen: Identity) -> Self {
        Self::Delete(Deletion { target, seen, with_owner: true })
    }

    /// Whether it destroys something.
    pub fn destroys(&self) -> bool {
        match self {
            Self::Delete(_) => true,
            Self::Effect(effect) => effect.destroys,
            Self::Apply(_)
            | Self::Replace { .. }
            | Self::Mint(_)
            | Self::Seal(_)
            | Self::Amend(_)
            | Self::Record(_) => false,
        }
    }

    /// The child that it is about.
    fn target(&self) -> Option<ObjectRef> {
        match self {
            Self::Apply(child) | Self::Replace { child, .. } => Some(child.target.clone()),
            Self::Delete(deletion) => Some(deletion.target.clone()),
            Self::Mint(Mint { secret, .. }) | Self::Seal(Seal { secret, .. }) => Some(SECRET.key(secret)),
            Self::Record(_) | Self::Amend(_) | Self::Effect(_) => None,
        }
    }
}
