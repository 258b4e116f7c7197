//! What makes the driver known to the cluster: the CSIDriver object and the class of our volumes.

use crate::names::driver;
use serde_json::json;

use super::{Manifest, common_labels};
use crate::kinds::{CSI_DRIVER, STORAGE_CLASS};

/// EFS has nothing to attach: a mount is all there is.
pub(super) fn csi_driver() -> Manifest {
    Manifest::new(
        &CSI_DRIVER,
        &json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": driver::DRIVER_NAME, "labels": common_labels()},
            "spec": {"attachRequired": false, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"]},
        }),
        vec![],
    )
}

/// Without parameters: it marks volumes that were made by hand or by us, and provisions nothing.
pub(super) fn storage_class() -> Manifest {
    Manifest::new(
        &STORAGE_CLASS,
        &json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": driver::STORAGE_CLASS, "labels": common_labels()},
            "provisioner": driver::DRIVER_NAME,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }),
        vec![],
    )
}
