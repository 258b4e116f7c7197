//! Decide: the controller's decision. For a subject whose spec cannot be read, the engine's own: to say so and to do nothing.

use super::Pass;
use super::erased::Observation;
use super::observe::Looked;
use crate::bounds;
use crate::failure::{Class, Failure};
use crate::object::Kind;
use crate::plan::Plan;
use crate::status::{Condition, READY, Report, State};

impl Pass<'_> {
    pub(super) async fn decide(&self, looked: &Looked) -> Result<Plan, Failure> {
        let unreadable = match &looked.observation {
            Observation::Seen(seen) => {
                let plan = self.controller.decision(&**seen, self.environment.now()).await?;
                return self.within_bounds(plan);
            }
            Observation::Paused => return Ok(Plan::none()), // `round` has reported it
            Observation::Unreadable(unreadable) => unreadable,
        };
        let shape = self.controller.shape();
        let mut report =
            looked.subject.as_ref().map(|subject| Report::of(subject, &shape)).unwrap_or_default();
        let message = format!("{unreadable}; correct it, until then nothing is done for this object");
        report.set(Condition::new(READY, State::False, Class::Invalid.reason(), message).warning());
        Ok(Plan::none().status(report))
    }

    fn within_bounds(&self, plan: Plan) -> Result<Plan, Failure> {
        let target = self.target();
        let watched = |kind: &Kind| !self.stores.of(kind).is_empty();
        match bounds::beyond(&plan, &target, watched) {
            Some(why) => Err(Failure::bug(format!("the plan for {target} is not carried out: {why}"))),
            None => Ok(plan),
        }
    }
}
