//! Prune: children of the subject that its plan has no word for, and those that an object of the same name has left before it, which
//! nobody else would ever tidy up. They are deleted last, after everything else succeeded.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Pass;
use super::erased::Observation;
use super::observe::Looked;
use crate::intent::{OWNER_KIND, OWNER_UID, owner_kind};
use crate::object::{Kind, Object, ObjectRef};
use crate::plan::{Plan, Stage, Step};
use crate::store::Store;
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
                found.into_values().filter_map(newest).map(move |object| (kind, object))
            })
            .filter(|(kind, object)| {
                (object.label(OWNER_UID) == Some(uid) || self.is_predecessors(kind, object))
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

    /// Whether an object of the same kind and name as the subject has left it. Its marks must say all of that as it is now: it may have
    /// got another owner since the cache saw it.
    fn is_predecessors(&self, kind: &Kind, object: &Object) -> bool {
        let children = |store: &&Arc<Store>| store.watch().children && store.would_wake(object, self.key);
        object.label(OWNER_UID).is_some()
            && object.annotation(OWNER_KIND) == Some(&owner_kind(&self.controller.kind()))
            && self.stores.of(kind).iter().any(|store| children(&store))
    }
}
