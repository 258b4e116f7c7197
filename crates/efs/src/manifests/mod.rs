//! What the EFS driver consists of: the desired objects, from a configuration. Pure content: nothing here looks at
//! the cluster, writes to it or decides when.
//!
//! The objects say only what matters. Values that the API server fills in are left out, so that an object compares
//! equal with its live self; what is said although it is also the default is said to be repaired when it drifts.

mod config;
mod daemon_set;
mod storage;
#[cfg(test)]
mod tests;

pub use config::{
    ConfigError, ContainerResources, DriverConfig, Images, parse_kubelet_dir, parse_node_selector,
    parse_pull_secrets, parse_resources, parse_tolerations,
};

use std::collections::BTreeMap;

use aquifer_base::NamespaceName;
use aquifer_engine::{Intent, Kind, ObjectRef};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::Serialize;

use crate::names::labels;

/// One object of the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Which object.
    pub target: ObjectRef,
    /// The whole object.
    pub intent: Intent,
    /// JSON pointers of what others write by right; a `*` at the end stands for anything. Whatever else they add
    /// is removed.
    pub tolerate: Vec<&'static str>,
}

impl Manifest {
    fn new(kind: &Kind, object: &(impl ResourceExt + Serialize), tolerate: Vec<&'static str>) -> Self {
        let target = kind.at(&object.namespace().unwrap_or_default(), &object.name_any());
        Self { target, intent: Intent::of(object), tolerate }
    }
}

/// All objects of the driver that the operator makes, in the order in which they are made. Its namespace and its rights are made by the
/// installation: see [`crate::installed`].
pub fn manifests(config: &DriverConfig) -> Vec<Manifest> {
    vec![daemon_set::daemon_set(config), storage::csi_driver(), storage::storage_class()]
}

/// The metadata of an object without a namespace.
pub(crate) fn cluster_metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), labels: Some(common_labels()), ..ObjectMeta::default() }
}

/// The metadata of an object in a namespace.
fn namespaced_metadata(namespace: &NamespaceName, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_string()), ..cluster_metadata(name) }
}

/// The labels of every object: the recommended ones, and the one by which aws-efs-operator knew its own.
fn common_labels() -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "aws-efs-csi-driver"),
        ("app.kubernetes.io/component", "node-plugin"),
        (labels::PART_OF, labels::MANAGER),
        (labels::MANAGED_BY, labels::MANAGER),
        (labels::OWNED, "true"),
    ];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
