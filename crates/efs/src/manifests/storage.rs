//! What makes the driver known to the cluster: the CSIDriver object and the class of our volumes.

use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, StorageClass};

use super::{Manifest, cluster_metadata};
use crate::kinds::{CSI_DRIVER, STORAGE_CLASS};
use crate::names::driver;

/// EFS has nothing to attach: a mount is all there is.
pub(super) fn csi_driver() -> Manifest {
    let csi_driver = CSIDriver {
        metadata: cluster_metadata(driver::DRIVER_NAME),
        spec: CSIDriverSpec {
            attach_required: Some(false),
            pod_info_on_mount: Some(false),
            volume_lifecycle_modes: Some(vec!["Persistent".into()]),
            ..CSIDriverSpec::default()
        },
    };
    Manifest::new(&CSI_DRIVER, &csi_driver, vec![])
}

/// Without parameters: it marks volumes that were made by hand or by us, and provisions nothing.
pub(super) fn storage_class() -> Manifest {
    let class = StorageClass {
        metadata: cluster_metadata(driver::STORAGE_CLASS),
        provisioner: driver::DRIVER_NAME.into(),
        reclaim_policy: Some("Delete".into()),
        volume_binding_mode: Some("Immediate".into()),
        ..StorageClass::default()
    };
    Manifest::new(&STORAGE_CLASS, &class, vec![])
}
