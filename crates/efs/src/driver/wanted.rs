//! Whether the driver is to be there. Pure; both the look at the world and the decision depend on it.

use aquifer_api::component::Desired;
use aquifer_engine::Seen;

use super::Subject;
use super::facts::DefinitionFacts;

/// Whether the driver is to go: by the marker that an uninstall writes, or because SharedVolumes are no longer defined.
pub(super) fn unwanted(subject: &Subject, definition: &Seen<Option<DefinitionFacts>>) -> bool {
    let ends = |found: &Option<DefinitionFacts>| found.as_ref().is_none_or(|found| found.deleting);
    marked(subject) || definition.known().is_some_and(ends)
}

/// Whether a user has asked for the driver's removal.
pub(super) fn marked(subject: &Subject) -> bool {
    let spec = subject.object.as_ref().and_then(|component| component.spec.as_ref().ok());
    spec.is_some_and(|spec| spec.desired() == Desired::Removed)
}
