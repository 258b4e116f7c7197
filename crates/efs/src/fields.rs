//! Who writes which field of SharedVolumes and of the driver's Component. The controllers compute from it which part
//! of a status is theirs.

use aquifer_family::{Field, Writer};

use crate::names::driver::COMPONENT;
use crate::{driver, file_systems, volumes};

const VOLUMES: Writer = Writer::Controller(volumes::NAME);
const FILE_SYSTEMS: Writer = Writer::Controller(file_systems::NAME);
const DRIVER: Writer = Writer::Controller(driver::NAME);

/// Every field.
pub(crate) const FIELDS: &[Field] = &[
    Field::of("SharedVolume", "spec.fileSystemID", Writer::User),
    Field::of("SharedVolume", "spec.accessPointID", Writer::User),
    Field::of("SharedVolume", "spec.readOnly", Writer::User),
    Field::of("SharedVolume", "spec.mountOptions", Writer::User),
    Field::of("SharedVolume", "spec.claimName", Writer::User),
    Field::of("SharedVolume", "metadata.finalizers", VOLUMES),
    Field::of("SharedVolume", "status.phase", VOLUMES),
    Field::of("SharedVolume", "status.message", VOLUMES),
    Field::of("SharedVolume", "status.claimRef", VOLUMES),
    Field::of("SharedVolume", "status.claimUID", VOLUMES),
    Field::of("SharedVolume", "status.volumeRef", VOLUMES),
    Field::of("SharedVolume", "status.observedGeneration", VOLUMES),
    Field::of("SharedVolume", "status.conditions[Ready]", VOLUMES),
    Field::of("SharedVolume", "status.conditions[Allowed]", VOLUMES),
    Field::of("SharedVolume", "status.conditions[DriverReady]", VOLUMES),
    Field::of("SharedVolume", "status.conditions[Duplicate]", VOLUMES),
    Field::of("SharedVolume", "status.conditions[Progressing]", VOLUMES),
    Field::of("SharedFileSystem", "spec", Writer::Administrator),
    Field::of("SharedFileSystem", "status.message", FILE_SYSTEMS),
    Field::of("SharedFileSystem", "status.sharedVolumes", FILE_SYSTEMS),
    Field::of("SharedFileSystem", "status.namespaces", FILE_SYSTEMS),
    Field::of("SharedFileSystem", "status.observedGeneration", FILE_SYSTEMS),
    Field::of("SharedFileSystem", "status.conditions[Ready]", FILE_SYSTEMS),
    Field::of("SharedFileSystem", "status.conditions[Progressing]", FILE_SYSTEMS),
    Field::of_object("Component", COMPONENT, "spec.desired", Writer::Administrator),
    Field::of_object("Component", COMPONENT, "status.message", DRIVER),
    Field::of_object("Component", COMPONENT, "status.observedGeneration", DRIVER),
    Field::of_object("Component", COMPONENT, "status.objects", DRIVER),
    Field::of_object("Component", COMPONENT, "status.nodes", DRIVER),
    Field::of_object("Component", COMPONENT, "status.reserved", DRIVER),
    Field::of_object("Component", COMPONENT, "status.conditions[Ready]", DRIVER),
    Field::of_object("Component", COMPONENT, "status.conditions[NodesReady]", DRIVER),
    Field::of_object("Component", COMPONENT, "status.conditions[Progressing]", DRIVER),
];
