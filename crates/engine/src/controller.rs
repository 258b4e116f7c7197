//! What a family supplies for one controller: what it looks at, what it decides, and the code of its outside effects.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_base::Sealed;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fault::Fault;
use crate::object::{Key, Kind, Object};
use crate::outside::Question;
use crate::plan::{Effect, Plan};
use crate::status::{Shape, Status};
use crate::store::Watch;
use crate::view::View;

/// What a pass is about: a key, and the object if there is one. Children whose owner is gone are decided with none.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Subject {
    /// Namespace and name.
    pub key: Key,
    /// The object as it is known.
    pub object: Option<Object>,
}

/// A kind of children.
#[derive(Clone, Debug)]
pub struct ChildKind {
    /// The kind.
    pub kind: Kind,
    /// Whether children that `decide` no longer names are deleted. Never for what holds data.
    pub prune: bool,
}

/// One controller.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// What `observe` sees: plain data.
    type World: Serialize + DeserializeOwned + Send + Sync;

    /// Its name in logs, metrics and as field manager, such as `aquifer-efs-volumes`.
    fn name(&self) -> &'static str;
    /// The kind of its subjects.
    fn kind(&self) -> Kind;
    /// What is watched, the subjects included.
    fn watches(&self) -> Vec<Watch>;
    /// The kinds of its children.
    fn children(&self) -> Vec<ChildKind>;
    /// Our finalizer on subjects; the first is put on, all are taken off. Empty when none is needed.
    fn finalizers(&self) -> &'static [&'static str] {
        &[]
    }
    /// Which part of the subject's status is ours.
    fn shape(&self) -> Shape;

    /// Builds the world from what the sources hold. Does no IO: what is missing is asked of the view.
    fn observe(&self, subject: &Subject, view: &View<'_>) -> Self::World;
    /// Decides. Pure: no clock, no randomness, no environment.
    fn decide(&self, subject: &Subject, world: &Self::World, now: Timestamp) -> Plan;

    /// Where the decision is made; by default here. A controller whose decisions are made by another process asks it.
    async fn decision(&self, subject: &Subject, world: &Self::World, now: Timestamp) -> Result<Plan, Fault> {
        Ok(self.decide(subject, world, now))
    }
    /// Carries out an outside effect. Must be harmless when repeated with the same key.
    async fn effect(&self, effect: &Effect) -> Result<(), Fault> {
        Err(Fault::bug(format!("{} has no effect named {}", self.name(), effect.operation)))
    }
    /// Answers a question about the outside.
    async fn look(&self, question: &Question) -> Result<Value, Fault> {
        Err(Fault::bug(format!("{} cannot answer {question}", self.name())))
    }
    /// Makes the content of a Secret.
    fn mint(&self, recipe: &str) -> Result<BTreeMap<String, Sealed>, Fault> {
        Err(Fault::bug(format!("{} has no recipe named {recipe}", self.name())))
    }
    /// How a failure shows in the status. Pure.
    fn explain(&self, status: &mut Status, fault: &Fault) {
        status.failed(fault);
    }
    /// Objects that must exist for the controller to have subjects at all; created when absent, never changed.
    fn bootstrap(&self) -> Vec<Value> {
        Vec::new()
    }
    /// How long a key waits at most after a failure, where the engine's own patience is too long: for one key that stands
    /// for many things, of which one that fails must not keep the others waiting.
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }
    /// How often every key is looked at although nothing happened.
    fn resync(&self) -> Duration {
        Duration::from_mins(30)
    }
}
