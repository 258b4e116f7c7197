//! Controllers of a history with faults: their worlds, plans and answers are searched for the content of Secrets, and their code panics
//! now and then.

use std::time::Duration;

use aquifer_engine::simulation::{Fault, World};
use aquifer_engine::{
    Answers, Composition, Controller, Effect, Failure, Intent, Kind, Plan, Question, Report, SecretContent,
    Shape, SubjectOf, View, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::leaks::Leaks;

/// A controller as it is, looked at and disturbed.
pub struct Disturbed<C> {
    pub controller: C,
    pub leaks: Leaks,
    pub world: World,
}

impl<C> Disturbed<C> {
    fn may_panic(&self) {
        if self.world.strikes(Fault::FamilyPanics) {
            // Without the panic hook, which would print each of them.
            std::panic::resume_unwind(Box::new("a mistake in the code of the family"));
        }
    }
}

#[async_trait]
impl<C: Controller> Controller for Disturbed<C> {
    type Spec = C::Spec;
    type Status = C::Status;
    type World = C::World;

    fn name(&self) -> &'static str {
        self.controller.name()
    }
    fn kind(&self) -> Kind {
        self.controller.kind()
    }
    fn watches(&self) -> Vec<Watch> {
        self.controller.watches()
    }
    fn pruned(&self) -> Vec<Kind> {
        self.controller.pruned()
    }
    fn finalizers(&self) -> &'static [&'static str] {
        self.controller.finalizers()
    }
    fn shape(&self) -> Shape {
        self.controller.shape()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> C::World {
        self.controller.observe(subject, view)
    }
    fn decide(&self, subject: &SubjectOf<Self>, world: &C::World, now: Timestamp) -> Plan {
        self.controller.decide(subject, world, now)
    }
    fn summarize(&self, report: &Report, deleting: bool, status: &mut C::Status) {
        self.controller.summarize(report, deleting, status);
    }
    async fn decision(
        &self,
        subject: &SubjectOf<Self>,
        world: &C::World,
        now: Timestamp,
    ) -> Result<Plan, Failure> {
        self.may_panic();
        self.leaks.look_in("a world", world);
        let plan = self.controller.decision(subject, world, now).await?;
        self.leaks.look_in("a plan", &plan);
        Ok(plan)
    }
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        self.may_panic();
        self.controller.effect(effect).await
    }
    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        self.may_panic();
        let answer = self.controller.look(question).await?;
        self.leaks.look_in("an answer", &answer);
        Ok(answer)
    }
    async fn listen(&self, answers: Answers) {
        self.controller.listen(answers).await;
    }
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        self.controller.mint(recipe)
    }
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        self.controller.compose(composition)
    }
    fn bootstrap(&self) -> Vec<Intent> {
        self.controller.bootstrap()
    }
    fn longest_backoff(&self) -> Option<Duration> {
        self.controller.longest_backoff()
    }
    fn resync(&self) -> Duration {
        self.controller.resync()
    }
}
