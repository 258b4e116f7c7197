//! The PersistentVolumeClaim of a SharedVolume, as we make it. Content only.

use std::collections::BTreeMap;

use aquifer_engine::{Intent, Key};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use super::owner::owner_labels;
use super::volume::SIZE;
use crate::names::driver;

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
