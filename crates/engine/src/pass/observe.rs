//! Observe: look until nothing is missing. What a look finds missing is read, and then it looks again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::erased::Observation;
use super::{Pass, PassState};
use crate::bounds::is_address;
use crate::cluster::{ApiError, Cluster, Listing};
use crate::failure::Failure;
use crate::intent::PAUSED;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::outside::Outside;
use crate::seen::Why;
use crate::view::{Fresh, View, Want};

/// Looks at the world before one decision: each may ask for what the one before revealed.
const LOOKS: usize = 6;

/// So many objects of one kind are read one by one.
const MANY: usize = 16;

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
                let view = View::new(self.stores, &state.fresh, self.outside, self.key, Some(&target), now);
                // That the owner is gone is confirmed before anything is decided about its children.
                let seen = view.get(&target);
                if let Some(Why::Unreachable(said)) = seen.why() {
                    return Err(Failure::bug(format!("cannot read {target}: {said}")));
                }
                match seen.known() {
                    None if !view.wants_anything() => return Ok(None),
                    None => (None, view.noted().wants),
                    Some(subject) => {
                        state.outcome.subject.clone_from(subject);
                        if subject.as_ref().is_some_and(is_paused) {
                            let observation = Observation::Paused;
                            return Ok(Some(Looked { subject: subject.clone(), observation }));
                        }
                        let observation = self.controller.observe(self.key, subject.as_ref(), &view);
                        let noted = view.noted();
                        state.asked = noted.asked;
                        state.polled = Some(noted.polled);
                        // A read says that a kind is not served, and there is no watch that says so too: no event will tell when
                        // that ends.
                        let untold =
                            |kind: &Kind| self.stores.of(kind).is_empty() || self.stores.synced(kind);
                        let missed = state.fresh.unserved.iter().any(untold);
                        state.outcome.unanswered = noted.unanswered || missed;
                        (Some(Looked { subject: subject.clone(), observation }), noted.wants)
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

    /// Reads what the pass before has written or read and the caches do not show yet. Much of one kind is read as lists.
    pub(super) async fn read_lagging(&self, fresh: &mut Fresh) -> Result<(), Failure> {
        let mut by_kind: BTreeMap<&Kind, Vec<&ObjectRef>> = BTreeMap::new();
        for target in self.lagging {
            by_kind.entry(&target.kind).or_default().push(target);
        }
        for (kind, targets) in by_kind {
            let now = self.environment.now();
            // A list has no `managedFields`, which are compared where objects are replaced wholesale.
            let stores = self.stores.of(kind);
            let by_lists = targets.len() > MANY && stores.iter().all(|store| !store.watch().kept.is_whole());
            if by_lists {
                for store in stores {
                    let listing = store.watch().scope().listing();
                    read_list(self.cluster, self.outside, fresh, listing, now).await?;
                }
            }
            let lists = fresh.lists.iter().filter(|(listing, _)| by_lists && listing.kind == *kind);
            let mut listed: BTreeMap<Key, Object> = lists
                .flat_map(|(_, list)| list.objects.iter().map(|object| (object.key(), object.clone())))
                .collect();
            for target in targets {
                if let Some(object) = listed.remove(&target.key) {
                    fresh.objects.insert(target.clone(), (Some(object), now));
                    continue;
                }
                refresh(self.cluster, fresh, target.clone(), now).await?;
            }
        }
        Ok(())
    }

    /// Reads what was missing; false when an answer from outside is still to come.
    async fn read_missing(
        &self,
        wants: BTreeSet<Want>,
        fresh: &mut Fresh,
        now: Timestamp,
    ) -> Result<bool, Failure> {
        let mut complete = true;
        for want in wants {
            match want {
                Want::Object(target) => refresh(self.cluster, fresh, target, now).await?,
                Want::List(listing) => read_list(self.cluster, self.outside, fresh, listing, now).await?,
                Want::Answer(question) => complete &= self.environment.ask(question, self.key).await,
            }
        }
        Ok(complete)
    }
}

fn is_paused(subject: &Object) -> bool {
    subject.annotation(PAUSED) == Some("true")
}

/// Reads a list into `fresh`.
pub(crate) async fn read_list(
    cluster: &dyn Cluster,
    outside: &Outside,
    fresh: &mut Fresh,
    listing: Listing,
    now: Timestamp,
) -> Result<(), Failure> {
    match outside.read_list(cluster, &listing, now).await {
        Ok(list) => fresh.add_list(listing, list),
        Err(ApiError::NotServed) => {
            fresh.unserved.insert(listing.kind);
        }
        Err(error) => return Err(Failure::api(&format!("list {listing}"), &error)),
    }
    Ok(())
}

/// Reads one object into `fresh`.
pub(crate) async fn refresh(
    cluster: &dyn Cluster,
    fresh: &mut Fresh,
    target: ObjectRef,
    now: Timestamp,
) -> Result<(), Failure> {
    // A name may come from an object that anybody can write. What cannot be one is not there.
    if !is_address(&target) {
        fresh.objects.insert(target, (None, now));
        return Ok(());
    }
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
