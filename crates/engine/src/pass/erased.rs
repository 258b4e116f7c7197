//! A controller without its types, as the engine runs it: one trait object for all families, so that the engine is compiled
//! once. Converts between objects and typed subjects, worlds and statuses; decides nothing itself.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::StepCode;
use crate::controller::{Controller, SubjectOf};
use crate::failure::Failure;
use crate::intent::Intent;
use crate::object::{Key, Kind, Object};
use crate::plan::{Effect, Plan};
use crate::question::{Answers, Question};
use crate::secret::{Composition, SecretContent};
use crate::status::{Report, Shape, fields_of};
use crate::subject::{Present, Subject, Unreadable};
use crate::view::View;
use crate::watch::Watch;

/// What a look at the world gave.
pub(crate) enum Observation {
    /// The user wants nothing to be written for the subject: it is not looked at any further.
    Paused,
    /// The spec cannot be read and the subject is not being deleted: there is nothing to decide.
    Unreadable(Unreadable),
    /// The controller's subject and world.
    Seen(Box<dyn Any + Send + Sync>),
}

/// A controller without its types.
#[async_trait]
pub(crate) trait Erased: StepCode {
    fn kind(&self) -> Kind;
    fn watches(&self) -> Vec<Watch>;
    fn pruned(&self) -> Vec<Kind>;
    fn finalizers(&self) -> &'static [&'static str];
    fn shape(&self) -> Shape;
    fn observe(&self, key: &Key, object: Option<&Object>, view: &View<'_>) -> Observation;
    /// Decides on what `observe` has seen.
    async fn decision(&self, seen: &(dyn Any + Send + Sync), now: Timestamp) -> Result<Plan, Failure>;
    fn summarize(&self, report: &mut Report, deleting: bool);
    async fn look(&self, question: &Question) -> Result<Value, Failure>;
    async fn listen(&self, answers: Answers);
    fn bootstrap(&self) -> Vec<Value>;
    fn longest_backoff(&self) -> Option<Duration>;
    fn resync(&self) -> Duration;
}

#[async_trait]
impl<C: Controller> StepCode for C {
    fn name(&self) -> &'static str {
        Controller::name(self)
    }
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        Controller::mint(self, recipe)
    }
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        Controller::compose(self, composition)
    }
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        Controller::effect(self, effect).await
    }
}

#[async_trait]
impl<C: Controller> Erased for C {
    fn kind(&self) -> Kind {
        Controller::kind(self)
    }
    fn watches(&self) -> Vec<Watch> {
        let kind = Controller::kind(self);
        Controller::watches(self).into_iter().map(|watch| watch.of_subjects(kind.clone())).collect()
    }
    fn pruned(&self) -> Vec<Kind> {
        Controller::pruned(self)
    }
    fn finalizers(&self) -> &'static [&'static str] {
        Controller::finalizers(self)
    }
    fn shape(&self) -> Shape {
        Controller::shape(self)
    }

    fn observe(&self, key: &Key, object: Option<&Object>, view: &View<'_>) -> Observation {
        let object =
            object.map(|object| Present::read(object, |name| view.is_ours(&Controller::kind(self), name)));
        let subject: SubjectOf<C> = Subject { key: key.clone(), object };
        if let Some(Present { spec: Err(unreadable), deleting: None, .. }) = &subject.object {
            return Observation::Unreadable(unreadable.clone());
        }
        let world = Controller::observe(self, &subject, view);
        Observation::Seen(Box::new((subject, world)))
    }

    async fn decision(&self, seen: &(dyn Any + Send + Sync), now: Timestamp) -> Result<Plan, Failure> {
        let Some((subject, world)) = seen.downcast_ref::<(SubjectOf<C>, C::World)>() else {
            return Err(Failure::bug(format!(
                "{} was given the world of another controller",
                Controller::name(self)
            )));
        };
        Controller::decision(self, subject, world, now).await
    }

    /// Takes over only the fields that the summary changes: whatever else the report says is kept as it is.
    fn summarize(&self, report: &mut Report, deleting: bool) {
        let Ok(mut status) = serde_json::from_value::<C::Status>(Value::Object(report.fields.clone())) else {
            return;
        };
        let before = fields_of(&status);
        Controller::summarize(self, report, deleting, &mut status);
        let after = fields_of(&status);
        report.fields.retain(|name, _| after.contains_key(name) || !before.contains_key(name));
        report.fields.extend(after.into_iter().filter(|(name, value)| before.get(name) != Some(value)));
    }

    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        Controller::look(self, question).await
    }
    async fn listen(&self, answers: Answers) {
        Controller::listen(self, answers).await;
    }
    fn bootstrap(&self) -> Vec<Value> {
        Controller::bootstrap(self).into_iter().map(Intent::into_value).collect()
    }
    fn longest_backoff(&self) -> Option<Duration> {
        Controller::longest_backoff(self)
    }
    fn resync(&self) -> Duration {
        Controller::resync(self)
    }
}
