//! What a family supplies for one controller: what it looks at, what it decides, and the code of its outside effects.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;
use crate::intent::Intent;
use crate::object::Kind;
use crate::plan::{Effect, Plan};
use crate::question::{Answers, Question};
use crate::secret::{Composition, SecretContent};
use crate::status::{Report, Shape};
use crate::subject::Subject;
use crate::view::View;
use crate::watch::Watch;

/// The subject of a controller.
pub type SubjectOf<C> = Subject<<C as Controller>::Spec, <C as Controller>::Status>;

/// One controller.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// The spec of its subjects.
    type Spec: Serialize + DeserializeOwned + Send + Sync;
    /// The status of its subjects: the type that its definition has.
    type Status: Serialize + DeserializeOwned + Default + Send + Sync;
    /// What `observe` sees: small facts, plain data.
    type World: Serialize + DeserializeOwned + Send + Sync;

    /// Its name in logs, metrics and as field manager, such as `aquifer-efs-volumes`.
    fn name(&self) -> &'static str;
    /// The kind of its subjects.
    fn kind(&self) -> Kind;
    /// What is watched, the subjects included.
    fn watches(&self) -> Vec<Watch>;
    /// The kinds of children that are deleted when `decide` no longer names them. Never what holds data.
    fn pruned(&self) -> Vec<Kind> {
        Vec::new()
    }
    /// Our finalizer on subjects; the first is put on, all are taken off. Empty when none is needed.
    fn finalizers(&self) -> &'static [&'static str] {
        &[]
    }
    /// Which part of the subject's status is ours.
    fn shape(&self) -> Shape;

    /// Builds the world from what the sources hold. Does no IO: what is missing is asked of the view.
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World
    where
        Self: Sized;
    /// Decides. Pure: no clock, no randomness, no environment. The spec of a subject that is not being deleted can be read:
    /// one that cannot is reported by the engine, and nothing is done for it.
    fn decide(&self, subject: &SubjectOf<Self>, world: &Self::World, now: Timestamp) -> Plan
    where
        Self: Sized;
    /// Fills in the fields of the status that only sum up its conditions, such as a phase. Pure; called after every decision
    /// and after every failure, so that the two cannot say different things.
    fn summarize(&self, _report: &Report, _deleting: bool, _status: &mut Self::Status) {}

    /// Where the decision is made; by default here. A controller whose decisions are made by another process asks it.
    async fn decision(
        &self,
        subject: &SubjectOf<Self>,
        world: &Self::World,
        now: Timestamp,
    ) -> Result<Plan, Failure>
    where
        Self: Sized,
    {
        Ok(self.decide(subject, world, now))
    }
    /// Carries out an outside effect. Must be harmless when repeated with the same key.
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        Err(Failure::bug(format!("{} has no effect named {}", self.name(), effect.operation)))
    }
    /// Answers a question about the outside.
    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        Err(Failure::bug(format!("{} cannot answer {question}", self.name())))
    }
    /// Runs beside the passes while this replica leads, for sources that tell of changes by themselves, such as a stream of events: what
    /// they tell is handed in as the answer to a polled question, which is still polled in case something is missed. When it ends it
    /// is begun again after a while.
    async fn listen(&self, _answers: Answers) {
        std::future::pending::<()>().await;
    }
    /// Makes the content of a Secret.
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        Err(Failure::bug(format!("{} has no recipe named {recipe}", self.name())))
    }
    /// Composes the content of a Secret from others, and from what it has now. Given its own result, it must give that again: a
    /// key or certificate that is still good is kept.
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        Err(Failure::bug(format!("{} has no recipe named {}", self.name(), composition.recipe)))
    }
    /// Objects that must exist for the controller to have subjects at all; created when absent, never changed.
    fn bootstrap(&self) -> Vec<Intent> {
        Vec::new()
    }
    /// How long a key waits at most after a failure, where the engine's own limit is too long: for one key that stands
    /// for many things, of which one that fails must not keep the others waiting.
    fn longest_backoff(&self) -> Option<Duration> {
        None
    }
    /// How often every key is looked at although nothing happened.
    fn resync(&self) -> Duration {
        Duration::from_mins(30)
    }
}
