//! What `decide` returns: ordered stages of independent steps, a word for every child, a status, and the next look.
//! Plans are data: they can be printed, compared, replayed and sent over HTTP. Nothing here does anything.

use std::time::Duration;

use aquifer_base::Uid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::intent::Intent;
use crate::object::{Identity, Key, ObjectRef};
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
}

/// What happens to our finalizer on the subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finalizer {
    /// Nothing.
    #[default]
    Leave,
    /// It is put on before any other step.
    Hold,
    /// It comes off after every step has succeeded; so do the finalizers of a predecessor that we took over from.
    Release,
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
    /// The object shall be exactly the intent: foreign additions go, immutable drift means delete and create.
    Replace {
        /// The object.
        child: Child,
        /// JSON pointers below which others write by right.
        tolerate: Vec<String>,
    },
    /// Delete this very object.
    Delete(Deletion),
    /// A Secret made by a recipe, create-only: where decisions get keys and randomness from.
    Mint(Mint),
    /// An intent into a status, by compare-and-swap, before an effect that is not idempotent by key.
    Record(Record),
    /// Something outside Kubernetes.
    Effect(Effect),
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
}

/// What was seen at a child's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Nothing; the write creates, or conflicts.
    Absent,
    /// This object; the write is refused if it is another one.
    Uid(Uid),
}

impl Expect {
    /// What an observation says.
    pub fn seen(object: Option<&Identity>) -> Self {
        object.map_or(Self::Absent, |seen| Self::Uid(seen.uid.clone()))
    }
}

/// An object to delete, as it was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deletion {
    /// Which object.
    pub target: ObjectRef,
    /// What was seen: when the object has changed since, the engine looks and decides again.
    pub seen: Identity,
}

/// A Secret to make once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mint {
    /// The Secret.
    pub secret: Key,
    /// The recipe, understood by the controller's `mint`.
    pub recipe: String,
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
}

impl Effect {
    /// An effect with typed arguments.
    pub fn new(operation: &str, key: String, arguments: &impl Serialize) -> Self {
        let arguments = serde_json::to_value(arguments).unwrap_or_default();
        Self { operation: operation.to_owned(), key, arguments }
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

    /// Every object that the plan has a word for: these are not pruned.
    pub fn named(&self) -> impl Iterator<Item = &ObjectRef> {
        let steps = self.stages.iter().flat_map(|stage| &stage.steps).filter_map(Step::target);
        self.keep.iter().chain(steps)
    }

    /// Every step, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flat_map(|stage| &stage.steps)
    }

    /// Whether the plan destroys anything, so that its ground must be read anew.
    pub fn is_destructive(&self) -> bool {
        self.steps().any(|step| matches!(step, Step::Delete(_)))
    }
}

impl Step {
    /// Makes `intent` of a target be there.
    pub fn apply(target: ObjectRef, intent: Intent, expect: Expect) -> Self {
        Self::Apply(Child { target, intent, expect })
    }

    /// Deletes an object that was seen.
    pub fn delete(target: ObjectRef, seen: Identity) -> Self {
        Self::Delete(Deletion { target, seen })
    }

    fn target(&self) -> Option<&ObjectRef> {
        match self {
            Self::Apply(child) | Self::Replace { child, .. } => Some(&child.target),
            Self::Delete(deletion) => Some(&deletion.target),
            Self::Mint(_) | Self::Record(_) | Self::Effect(_) => None,
        }
    }
}
