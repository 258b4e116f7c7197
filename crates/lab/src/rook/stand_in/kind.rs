//! The kinds of Rook that the stand-in serves, and the names that Rook derives from them. Pure.

use kube::Api;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;

/// The API group of all kinds of Rook.
const GROUP: &str = "ceph.rook.io";

/// A kind of Rook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The Ceph cluster itself.
    CephCluster,
    /// A pool for block images.
    CephBlockPool,
    /// A part of a pool, which keeps the pool from being deleted.
    CephBlockPoolRadosNamespace,
    /// A user of Ceph.
    CephClient,
    /// A shared file system.
    CephFilesystem,
    /// A directory of a file system.
    CephFilesystemSubVolumeGroup,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CephCluster,
        Self::CephBlockPool,
        Self::CephBlockPoolRadosNamespace,
        Self::CephClient,
        Self::CephFilesystem,
        Self::CephFilesystemSubVolumeGroup,
    ];

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::CephCluster => "CephCluster",
            Self::CephBlockPool => "CephBlockPool",
            Self::CephBlockPoolRadosNamespace => "CephBlockPoolRadosNamespace",
            Self::CephClient => "CephClient",
            Self::CephFilesystem => "CephFilesystem",
            Self::CephFilesystemSubVolumeGroup => "CephFilesystemSubVolumeGroup",
        }
    }

    /// The finalizer that Rook puts on objects of this kind.
    pub fn finalizer(self) -> String {
        format!("{}.{GROUP}", self.name().to_lowercase())
    }

    /// What the API server needs to know.
    pub fn resource(self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(GROUP, "v1", self.name());
        ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", self.name().to_lowercase()))
    }

    /// The objects of this kind in a namespace.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// Who signs the events; none for kinds whose controller writes no events.
    pub(super) fn reporter(self) -> Option<&'static str> {
        match self {
            Self::CephCluster => Some("rook-ceph-cluster-controller"),
            Self::CephBlockPool => Some("rook-ceph-block-pool-controller"),
            Self::CephClient => Some("rook-ceph-client-controller"),
            Self::CephFilesystem => Some("rook-ceph-file-controller"),
            Self::CephBlockPoolRadosNamespace | Self::CephFilesystemSubVolumeGroup => None,
        }
    }
}
