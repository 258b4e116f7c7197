//! Confirm: before anything is destroyed, what the decision rests on is read from the API server and asked of the outside
//! again. Caches of two kinds can disagree, a pair that only looks broken must not be torn down, and what a list does not show
//! may be there.

use super::observe::{Looked, refresh};
use super::{Pass, PassState};
use crate::failure::Failure;
use crate::intent::OWNER_UID;
use crate::object::Object;
use crate::plan::{Deletion, Finalizer, Plan, Stage, Step};
use crate::view::Fresh;

impl Pass<'_> {
    /// False when the decision must be made again, on what is read live.
    ///
    /// A subject that is being deleted never comes back, and what goes with it for no other reason goes. What carries its uid is
    /// its own, whatever else has happened; for anything else it must still be there, because another object may have its
    /// name by now.
    pub(super) async fn confirm(
        &self,
        looked: &Looked,
        plan: &Plan,
        prune: Option<&Stage>,
        state: &mut PassState,
    ) -> Result<bool, Failure> {
        let steps = plan.steps().chain(prune.iter().flat_map(|stage| &stage.steps));
        let destroying: Vec<&Step> = steps.filter(|step| step.destroys()).collect();
        let releases = plan.finalizer == Finalizer::Release;
        if state.fresh.firm.is_some() || (destroying.is_empty() && !releases) {
            return Ok(true);
        }
        let deleting = looked.subject.as_ref().filter(|subject| subject.deleting());
        let with_owner: Option<Vec<&Deletion>> = destroying.into_iter().map(with_owner).collect();
        let with_owner = with_owner.filter(|_| !releases);
        let (Some(deleting), Some(deletions)) = (deleting, with_owner) else {
            self.stand_firm(state);
            return Ok(false);
        };
        let fresh = &mut state.fresh;
        if deletions.into_iter().all(|deletion| self.is_marked(deletion, deleting.uid(), fresh)) {
            return Ok(true);
        }
        let target = self.target();
        if !fresh.objects.contains_key(&target) {
            refresh(self.cluster, fresh, target.clone(), self.environment.now()).await?;
        }
        let now = fresh.objects.get(&target).and_then(|(now, _)| now.as_ref());
        Ok(now.is_some_and(|now| now.uid() == deleting.uid()))
    }

    /// Whether the object carries the mark of this owner, in the very version that is to be deleted.
    fn is_marked(&self, deletion: &Deletion, owner_uid: &str, fresh: &Fresh) -> bool {
        let cached = || self.stores.get(&deletion.target).known().cloned().flatten();
        let seen = fresh.objects.get(&deletion.target).map_or_else(cached, |(object, _)| object.clone());
        seen.is_some_and(|object: Object| {
            object.identity() == deletion.seen && object.label(OWNER_UID) == Some(owner_uid)
        })
    }
}

fn with_owner(step: &Step) -> Option<&Deletion> {
    match step {
        Step::Delete(deletion) if deletion.with_owner => Some(deletion),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
