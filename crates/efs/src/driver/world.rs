//! What is looked at for the driver. Looks, does not judge.

use std::time::Duration;

use aquifer_api::component::{Component, Desired};
use aquifer_api::driver;
use aquifer_engine::{Object, Seen, Subject, View, Why};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Driver, SHARED_VOLUME_CRD};
use crate::kinds::{self, CRD, NODE, SECURITY_CONTEXT_CONSTRAINTS, SHARED_VOLUME, VOLUME};
use crate::statics::{self, DriverConfig};

/// What needed the driver this long ago is not asked again.
const LIST_AGE: Duration = Duration::from_secs(1);

/// The world of the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct World {
    /// What the objects depend on, as the cluster is.
    pub config: DriverConfig,
    /// The live objects, in the order of [`statics::objects`].
    pub objects: Vec<Seen<Option<Object>>>,
    /// The definition of SharedVolumes.
    pub crd: Seen<Option<Object>>,
    /// What still needs the driver; looked up only when it is to go.
    pub needed_by: Option<Seen<Vec<String>>>,
}

pub(super) fn observe(driver: &Driver, subject: &Subject, view: &View<'_>) -> World {
    let config = DriverConfig {
        worker_label_exists: view.list(&NODE).known().is_some_and(|workers| !workers.is_empty()),
        scc_api: view.list(&SECURITY_CONTEXT_CONSTRAINTS).known().is_some(),
        ..driver.config.clone()
    };
    let objects = statics::objects(&config)
        .iter()
        .map(|item| match kinds::of(&item.object) {
            Some(target) => view.cached(&target),
            None => Seen::Unknown(Why::NotServed),
        })
        .collect();
    let crd = view.cached(&CRD.at("", SHARED_VOLUME_CRD));
    let needed_by = unwanted(subject, &crd).then(|| needed_by(view, &crd));
    World { config, objects, crd, needed_by }
}

/// Whether the driver is to go: by the marker that an uninstall writes, or because SharedVolumes are no longer defined.
pub(super) fn unwanted(subject: &Subject, crd: &Seen<Option<Object>>) -> bool {
    marked(subject) || crd.known().is_some_and(|crd| crd.as_ref().is_none_or(Object::deleting))
}

/// Whether somebody has asked for the driver's removal.
pub(super) fn marked(subject: &Subject) -> bool {
    let component = subject.object.as_ref().and_then(|object| object.parse::<Component>().ok());
    component.is_some_and(|component| component.spec.desired() == Desired::Removed)
}

/// SharedVolumes, and volumes that somebody made for this driver by hand.
fn needed_by(view: &View<'_>, crd: &Seen<Option<Object>>) -> Seen<Vec<String>> {
    let volumes = view.list_live(&VOLUME, "", LIST_AGE).map(|volumes| {
        let ours = volumes.iter().filter(|volume| volume.text("/spec/csi/driver") == driver::DRIVER_NAME);
        ours.map(|volume| format!("PersistentVolume {}", volume.name())).collect::<Vec<_>>()
    });
    if crd.absent() {
        return volumes;
    }
    match (view.list_live(&SHARED_VOLUME, "", LIST_AGE), volumes) {
        (Seen::Known { value: shared, read_at }, Seen::Known { value: volumes, .. }) => {
            let shared = shared.iter().map(|shared| format!("SharedVolume {}", shared.key()));
            Seen::Known { value: shared.chain(volumes).collect(), read_at }
        }
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why),
    }
}

/// A number in an object; 0 when it is absent.
pub(super) fn number(object: &Object, pointer: &str) -> i64 {
    object.at(pointer).and_then(Value::as_i64).unwrap_or_default()
}
