//! Prune: children of the subject that its plan has no word for, and those that an object of the same name has left before it, which
//! nobody else would ever tidy up. They are deleted last, after everything else succeeded.

use std::collections::BTreeSet;

use super::Pass;
use super::erased::Observation;
use super::observe::Looked;
use crate::intent::OWNER_UID;
use crate::object::{Object, ObjectRef};
use crate::plan::{Plan, Stage, Step};
use crate::view::Fresh;

impl Pass<'_> {
    /// The deletions. None while the spec that would name the children cannot be read.
    pub(super) fn prune(&self, looked: &Looked, plan: &Plan, fresh: &Fresh) -> Option<Stage> {
        let Looked { subject: Some(subject), observation: Observation::Seen(_) } = looked else {
            return None;
        };
        let uid = subject.uid();
        let kinds = self.controller.pruned();
        let named: BTreeSet<ObjectRef> = plan.named().collect();
        let steps: Vec<Step> = kinds
            .iter()
            .flat_map(|kind| {
                // Nothing of a kind that is not known.
                let found = self.stores.waking(kind, self.key).known().cloned().unwrap_or_default();
                // What was read meanwhile is newer.
                let newest = move |object: Object| match fresh.objects.get(&kind.key(&object.key())) {
                    Some((read, _)) => read.clone(),
                    None => Some(object),
                };
                found.into_iter().filter_map(newest).map(move |object| (kind, object))
            })
            .filter(|(kind, object)| {
                object.label(OWNER_UID).is_some()
                    && !object.deleting()
                    && !named.contains(&kind.key(&object.key()))
            })
            // While the owner is being deleted, its own go with it; else `confirm` has everything read anew first.
            .map(|(kind, object)| {
                let own = object.label(OWNER_UID) == Some(uid);
                let delete = if own { Step::delete_with_owner } else { Step::delete };
                delete(kind.key(&object.key()), object.identity())
            })
            .collect();
        (!steps.is_empty()).then_some(Stage { steps })
    }
}
