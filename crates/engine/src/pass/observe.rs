//! Observe: look until nothing is missing. What a look finds missing is read, and then it looks again.

use std::sync::Arc;

use jiff::Timestamp;

use super::erased::Observation;
use super::{Pass, PassState};
use crate::cluster::{ApiError, Cluster};
use crate::failure::Failure;
use crate::object::{Object, ObjectRef};
use crate::seen::Why;
use crate::view::{Fresh, View, Want};

/// Looks at the world before one decision: each may ask for what the one before revealed.
const LOOKS: usize = 6;

/// What a pass has looked at when nothing is missing any more.
pub(super) struct Looked {
    pub subject: Option<Object>,
    pub observation: Observation,
}

impl Pass<'_> {
    /// Looks until nothing is missing. None when the pass must wait for something.
    pub(super) async fn observe(&self, state: &mut PassState) -> Result<Option<Looked>, Failure> {
        let target = self.target();
        for _ in 0..LOOKS {
            let now = self.environment.now();
            let (looked, wants) = {
                let view = View {
                    stores: self.stores,
                    fresh: &state.fresh,
                    outside: self.outside,
                    key: self.key,
                    now,
                    lagging: self.lagging,
                    wants: Vec::new().into(),
                    asked: Vec::new().into(),
                    unanswered: false.into(),
                };
                // That the owner is gone is confirmed before anything is decided about its children.
                let seen = view.get(&target);
                if let Some(Why::Unreachable(said)) = seen.why() {
                    return Err(Failure::bug(format!("cannot read {target}: {said}")));
                }
                match seen.known() {
                    None if view.wants.borrow().is_empty() => return Ok(None),
                    None => (None, view.wants.take()),
                    Some(subject) => {
                        state.outcome.subject.clone_from(subject);
                        let observation = self.controller.observe(self.key, subject.as_ref(), &view);
                        state.asked = view.asked.take();
                        state.outcome.unanswered = view.unanswered.get();
                        (Some(Looked { subject: subject.clone(), observation }), view.wants.take())
                    }
                }
            };
            if let Some(looked) = looked
                && wants.is_empty()
            {
                return Ok(Some(looked));
            }
            if !self.read_missing(wants, &mut state.fresh, now).await? {
                state.outcome.parked = true;
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
}

/// Reads one object into `fresh`.
pub(crate) async fn refresh(
    cluster: &dyn Cluster,
    fresh: &mut Fresh,
    target: ObjectRef,
    now: Timestamp,
) -> Result<(), Failure> {
    match cluster.get(&target).await {
        Ok(object) => {
            fresh.objects.insert(target, (object, now));
            Ok(())
        }
        // That is an answer too: nothing can be known of this kind.
        Err(ApiError::NotServed) => {
            fresh.unserved.insert(target.kind);
            Ok(())
        }
        Err(error) => Err(Failure::api(&format!("read {target}"), &error)),
    }
}
