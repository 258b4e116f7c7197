//! The PersistentVolume of a SharedVolume, as we make it. Content only.

use std::collections::BTreeMap;

use aquifer_base::Uid;
use aquifer_engine::{Intent, Key};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};

use super::owner::owner_labels;
use super::wish::Wish;
use crate::names::driver;

/// Counted against quotas, and of no other meaning: EFS has no size.
pub(super) const SIZE: &str = "1Gi";

/// The annotation that says with which mount options we have made a volume; absent when without. Options that a volume has besides are
/// aws-efs-operator's or an administrator's, and stay.
pub(super) const MOUNT_OPTIONS: &str = "aquifer.storage/mount-options";
/// What stands between them there. No option that a user may choose contains it.
pub(super) const SEPARATOR: char = ',';

/// The volume of this name with this handle, for the claim of the name that the SharedVolume `key` asks for.
pub(super) fn volume_intent(key: &Key, name: &str, handle: &str, wish: &Wish) -> Intent {
    let options = Some(&wish.options).filter(|options| !options.is_empty());
    let made_with = options.map(|options| options.join(&SEPARATOR.to_string()));
    Intent::of(&PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(owner_labels(key)),
            annotations: made_with.map(|options| BTreeMap::from([(MOUNT_OPTIONS.to_owned(), options)])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(SIZE.to_owned()))])),
            volume_mode: Some("Filesystem".to_owned()),
            // Also where it is read-only: the driver mounts nothing that is `ReadOnlyMany`.
            access_modes: Some(vec!["ReadWriteMany".to_owned()]),
            mount_options: options.cloned(),
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(driver::STORAGE_CLASS.to_owned()),
            claim_ref: Some(ObjectReference {
                namespace: Some(key.namespace.to_string()),
                name: Some(wish.claim.clone()),
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

/// What only the creation of a volume has: of all claims of that name it is for this one only. Kubernetes writes the same field when it binds
/// a volume that is for any claim of a name, so it is not ours afterwards.
pub(super) fn only_for(claim: &Uid) -> Map<String, Value> {
    Map::from_iter([("spec".to_owned(), json!({"claimRef": {"uid": claim}}))])
}
