//! What is looked at for the driver. Looks, does not judge.

use std::time::Duration;

use aquifer_engine::cluster::Listing;
use aquifer_engine::{Object, Seen, View};
use serde::{Deserialize, Serialize};

use super::facts::{DefinitionFacts, PartFacts};
use super::place::{Place, PlaceFacts};
use super::wanted::unwanted;
use super::{Driver, Management, SHARED_VOLUME_CRD, Subject};
use crate::kinds::{CRD, NAMESPACE, SERVICE_ACCOUNT, SHARED_VOLUME, VOLUME};
use crate::manifests;
use crate::names::{driver, labels};

/// What needed the driver this long ago is not asked again.
const LIST_AGE: Duration = Duration::from_secs(1);
/// What is looked at of a SharedVolume. Users write them, and hang on them what they like.
const SHARED_PARTS: [&str; 1] = ["/metadata/finalizers"];

/// The world of the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// What the installation makes for the node plugin; none where another owner manages the driver.
    pub place: Option<Place>,
    /// The live objects, in the order of [`manifests::manifests`]; none where another owner manages the driver.
    pub objects: Vec<Seen<Option<PartFacts>>>,
    /// The definition of SharedVolumes.
    pub definition: Seen<Option<DefinitionFacts>>,
    /// What still needs the driver; looked up only when it is to go.
    pub needed_by: Option<Seen<Vec<String>>>,
}

pub(super) fn observe(driver: &Driver, subject: &Subject, view: &View<'_>) -> World {
    let managed = driver.management == Management::Managed;
    let namespace = driver.config.namespace.as_str();
    let place = managed.then(|| {
        let facts = |found: Seen<Option<Object>>| found.map(|live| live.as_ref().map(PlaceFacts::of));
        Place {
            namespace: facts(view.cached(&NAMESPACE.at("", namespace))),
            account: facts(view.cached(&SERVICE_ACCOUNT.at(namespace, driver::SERVICE_ACCOUNT))),
        }
    });
    // Absence needs no proof: what is absent is created, and creating is refused if anything is there.
    let objects = manifests::manifests(&driver.config)
        .iter()
        .filter(|_| managed)
        .map(|manifest| view.cached(&manifest.target).map(|live| live.as_ref().map(PartFacts::of)))
        .collect();
    let definition = view.cached(&CRD.at("", SHARED_VOLUME_CRD));
    let definition = definition.map(|definition| definition.as_ref().map(DefinitionFacts::of));
    let needed_by = unwanted(subject, &definition).then(|| needed_by(view, &definition, managed));
    World { place, objects, definition, needed_by }
}

/// SharedVolumes that may have a volume, and volumes that a user made for this driver by hand. A SharedVolume without our finalizer has
/// nothing: one that is made while the driver goes does not hold it up.
fn needed_by(
    view: &View<'_>,
    definition: &Seen<Option<DefinitionFacts>>,
    managed: bool,
) -> Seen<Vec<String>> {
    let volumes = view.list_live(Listing::all(&VOLUME, ""), LIST_AGE).map(|volumes| {
        // Volumes for the driver of another owner do not need ours.
        let uses = |volume: &&Object| {
            let is_ours = volume.label(labels::OWNED) == Some("true");
            volume.text("/spec/csi/driver") == driver::DRIVER_NAME && (managed || is_ours)
        };
        let ours = volumes.iter().filter(uses);
        ours.map(|volume| format!("PersistentVolume {}", volume.name())).collect::<Vec<_>>()
    });
    if definition.absent() {
        return volumes;
    }
    let shared = Listing::all(&SHARED_VOLUME, "").parts(&SHARED_PARTS);
    match (view.list_live(shared, LIST_AGE), volumes) {
        (Seen::Known { value: shared, read_at }, Seen::Known { value: volumes, .. }) => {
            let holds = |shared: &&Object| shared.finalizers().contains(&labels::SHARED_VOLUME_FINALIZER);
            let shared = shared.iter().filter(holds);
            let shared = shared.map(|shared| format!("SharedVolume {}", shared.key()));
            Seen::Known { value: shared.chain(volumes).collect(), read_at }
        }
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why),
    }
}
