//! Who writes which field of SharedVolumes and of the driver's Component. A table; nothing reads it at run time.

use aquifer_family::{Field, Writer};

use crate::names::driver::COMPONENT;
use crate::{driver, volumes};

const VOLUMES: Writer = Writer::Controller(volumes::NAME);
const DRIVER: Writer = Writer::Controller(driver::NAME);

/// Every field.
pub(crate) const FIELDS: &[Field] = &[
    Field::of("SharedVolume", "spec.fileSystemID", Writer::User),
    Field::of("SharedVolume", "spec.accessPointID", Writer::User),
    Field::of("SharedVolume", "metadata.finalizers", VOLUMES),
    Field::of("SharedVolume", "status.phase", VOLUMES),
    Field::of("SharedVolume", "status.message", VOLUMES),
    Field::of("SharedVolume", "status.claimRef", VOLUMES),
    Field::of("SharedVolume", "status.claimUID", VOLUMES),
    Field::of("SharedVolume", "status.volumeRef", VOLUMES),
    Field::of("SharedVolume", "status.observedGeneration", VOLUMES),
    Field::of("SharedVolume", "status.conditions", VOLUMES),
    Field::of_object("Component", COMPONENT, "spec.desired", Writer::Administrator),
    Field::of_object("Component", COMPONENT, "status.message", DRIVER),
    Field::of_object("Component", COMPONENT, "status.observedGeneration", DRIVER),
    Field::of_object("Component", COMPONENT, "status.objects", DRIVER),
    Field::of_object("Component", COMPONENT, "status.conditions", DRIVER),
];
