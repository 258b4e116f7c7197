//! The PersistentVolume of a SharedVolume, as we make it. Content only.

use std::collections::BTreeMap;

use aquifer_engine::{Intent, Key};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use super::names::claim_name;
use super::owner::owner_labels;
use crate::names::driver;

/// Counted against quotas, and of no other meaning: EFS has no size.
pub(super) const SIZE: &str = "1Gi";

/// The volume of this name with this handle, pre-bound to the claim of the SharedVolume `key`.
pub(super) fn volume_intent(key: &Key, name: &str, handle: &str) -> Intent {
    Intent::of(&PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(owner_labels(key)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(SIZE.to_owned()))])),
            volume_mode: Some("Filesystem".to_owned()),
            access_modes: Some(vec!["ReadWriteMany".to_owned()]),
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(driver::STORAGE_CLASS.to_owned()),
            claim_ref: Some(ObjectReference {
                namespace: Some(key.namespace.to_string()),
                name: Some(claim_name(key)),
                ..ObjectReference::default()
            }),
            csi: Some(CSIPersistentVolumeSource {
                driver: driver::DRIVER_NAME.to_owned(),
                volume_handle: handle.to_owned(),
                ..CSIPersistentVolumeSource::default()
            }),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}
