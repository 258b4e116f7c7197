//! Confirm: before anything is destroyed, what the decision rests on is read from the API server. Caches of two kinds can
//! disagree, and a pair that only looks broken must not be torn down.

use super::observe::Looked;
use super::{Pass, PassState};
use crate::object::Object;

impl Pass<'_> {
    /// False when the decision must be made again, on what is read live.
    ///
    /// For a subject that is being deleted there is nothing to read: a deletion cannot be taken back, all that is its own goes,
    /// and every child is deleted only in the version in which it was seen to be its own.
    pub(super) fn confirm(looked: &Looked, state: &mut PassState) -> bool {
        let is_ending = looked.subject.as_ref().is_some_and(Object::deleting);
        let confirmed = is_ending || state.fresh.live;
        state.fresh.live |= !confirmed;
        confirmed
    }
}

#[cfg(test)]
mod tests;
