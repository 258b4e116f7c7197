//! The PersistentVolumeClaim of a SharedVolume, as we make it. Content only.

use std::collections::BTreeMap;

use aquifer_base::Uid;
use aquifer_engine::{Amend, Intent, Key, Step};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde_json::json;

use super::facts::ClaimFacts;
use super::owner::owner_labels;
use super::volume::SIZE;
use crate::kinds::CLAIM;
use crate::names::driver;

/// Annotation of a claim: the uid of the volume that was made for it. Kubernetes looks at a waiting claim only every 15 seconds or when the
/// claim changes; writing this is such a change. Nothing else is decided by it.
pub(super) const VOLUME_MADE: &str = "aquifer.storage/volume-made";

/// Notes on a claim which volume was made for it. Optional: without it Kubernetes binds the two some seconds later.
pub(super) fn note_volume(claim: &ClaimFacts, volume: &Uid) -> Step {
    let patch = json!({"metadata": {"annotations": {VOLUME_MADE: volume}}});
    let patch = patch.as_object().cloned().unwrap_or_default();
    Step::Amend(Amend {
        target: CLAIM.key(&claim.key),
        seen: claim.identity.clone(),
        patch,
        status: false,
        optional: true,
    })
}

/// The claim of this name, of the SharedVolume `key`, on the volume of this name.
pub(super) fn claim_intent(key: &Key, name: &str, volume: &str) -> Intent {
    Intent::of(&PersistentVolumeClaim {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.to_string()),
            name: Some(name.to_owned()),
            labels: Some(owner_labels(key)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteMany".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(SIZE.to_owned()))])),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: Some(driver::STORAGE_CLASS.to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            volume_name: Some(volume.to_owned()),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}
