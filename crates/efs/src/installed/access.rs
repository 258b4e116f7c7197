//! Where the node plugin lives and what it may do: namespace, account, role, and constraints on OpenShift. The operator makes none of
//! them: whoever may make them could give any account the power over all nodes.

use std::collections::BTreeMap;

use aquifer_api::openshift::{Constraints, SecurityContextConstraints, Strategy};
use aquifer_family::rights::RBAC;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::ObjectMeta;

use crate::manifests::cluster_metadata;
use crate::names::driver;

/// It lets privileged pods in, because the node plugin is one.
pub(super) fn namespace(name: &str) -> Namespace {
    let mut metadata = cluster_metadata(name);
    let label = |mode: &str| (format!("pod-security.kubernetes.io/{mode}"), "privileged".to_owned());
    metadata.labels.get_or_insert_default().extend(["enforce", "audit", "warn"].map(label));
    // On OpenShift a default node selector of the cluster would keep the node plugin from nodes that have pods with volumes.
    metadata.annotations = Some(BTreeMap::from([("openshift.io/node-selector".to_owned(), String::new())]));
    Namespace { metadata, ..Namespace::default() }
}

pub(super) fn service_account(namespace: &str) -> ServiceAccount {
    let metadata =
        ObjectMeta { namespace: Some(namespace.to_owned()), ..cluster_metadata(driver::SERVICE_ACCOUNT) };
    ServiceAccount { metadata, ..ServiceAccount::default() }
}

/// The driver reads its zone from its node; patching takes the start-up taint off.
pub(super) fn cluster_role() -> ClusterRole {
    ClusterRole {
        metadata: cluster_metadata(driver::CLUSTER_ROLE),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["nodes".into()]),
            verbs: ["get", "list", "watch", "patch"].map(String::from).into(),
            ..PolicyRule::default()
        }]),
        ..ClusterRole::default()
    }
}

pub(super) fn cluster_role_binding(namespace: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: cluster_metadata(driver::CLUSTER_ROLE_BINDING),
        role_ref: RoleRef {
            api_group: RBAC.into(),
            kind: "ClusterRole".into(),
            name: driver::CLUSTER_ROLE.into(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: driver::SERVICE_ACCOUNT.into(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        }]),
    }
}

/// For the node plugin's account alone, and only what its pods use: a privileged container, paths and network of
/// the host.
pub(super) fn security_context_constraints(namespace: &str) -> SecurityContextConstraints {
    let description = "Lets the EFS node plugin mount file systems for pods. Not for anything else.";
    let account = format!("system:serviceaccount:{namespace}:{}", driver::SERVICE_ACCOUNT);
    let mut constraints = SecurityContextConstraints::new(
        driver::SECURITY_CONTEXT_CONSTRAINTS,
        Constraints {
            allow_host_dir_volume_plugin: true,
            allow_host_ipc: false,
            allow_host_network: true,
            allow_host_pid: false,
            allow_host_ports: true,
            allow_privilege_escalation: true,
            allow_privileged_container: true,
            read_only_root_filesystem: false,
            fs_group: Strategy::run_as_any(),
            run_as_user: Strategy::run_as_any(),
            se_linux_context: Strategy::run_as_any(),
            supplemental_groups: Strategy::run_as_any(),
            seccomp_profiles: vec!["*".into()],
            volumes: ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"]
                .map(String::from)
                .into(),
            users: vec![account],
        },
    );
    constraints.metadata = ObjectMeta {
        annotations: Some(BTreeMap::from([("kubernetes.io/description".to_owned(), description.to_owned())])),
        ..cluster_metadata(driver::SECURITY_CONTEXT_CONSTRAINTS)
    };
    constraints
}
