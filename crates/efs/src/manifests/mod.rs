//! What the EFS driver consists of: the desired objects, from a configuration. Pure content: nothing here looks at
//! the cluster, writes to it or decides when.
//!
//! The objects say only what matters. Values that the API server fills in are left out, so that an object compares
//! equal with its live self; what is said although it is also the default is said to be repaired when it drifts.

mod access;
mod config;
mod daemon_set;
mod storage;
#[cfg(test)]
mod tests;

pub use config::{ConfigError, DriverConfig, Images, parse_node_selector, parse_tolerations};

use std::collections::BTreeMap;

use aquifer_base::NamespaceName;
use aquifer_engine::{Intent, Kind, ObjectRef};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::Serialize;

use crate::names::labels;

/// The label by which a namespace says which pods it lets in.
pub const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

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
    /// For a namespace, which pods it must let in.
    pub pod_security: Option<&'static str>,
}

impl Manifest {
    fn new(kind: &Kind, object: &(impl ResourceExt + Serialize), tolerate: Vec<&'static str>) -> Self {
        let target = kind.at(&object.namespace().unwrap_or_default(), &object.name_any());
        Self { target, intent: Intent::of(object), tolerate, pod_security: None }
    }
}

/// All objects of the driver, in the order in which they are made.
pub fn manifests(config: &DriverConfig) -> Vec<Manifest> {
    let mut all = vec![
        access::namespace(config),
        access::service_account(config),
        access::cluster_role(),
        access::cluster_role_binding(config),
    ];
    if config.scc_api {
        all.push(access::security_context_constraints(config));
    }
    all.extend([daemon_set::daemon_set(config), storage::csi_driver(), storage::storage_class()]);
    all
}

/// The metadata of an object without a namespace.
fn cluster_metadata(name: &str) -> ObjectMeta {
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
        ("app.kubernetes.io/part-of", labels::MANAGER),
        (labels::MANAGED_BY, labels::MANAGER),
        (labels::OWNED, "true"),
    ];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
