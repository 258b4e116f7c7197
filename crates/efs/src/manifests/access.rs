//! Where the node plugin lives and what it may do: namespace, account, role, and constraints on OpenShift.

use std::collections::BTreeMap;

use aquifer_api::openshift::{Constraints, SecurityContextConstraints, Strategy};
use aquifer_family::rights::RBAC;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::ObjectMeta;

use super::{DriverConfig, Manifest, cluster_metadata, namespaced_metadata};
use crate::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SECURITY_CONTEXT_CONSTRAINTS, SERVICE_ACCOUNT,
};
use crate::names::driver;

pub(super) fn namespace(config: &DriverConfig) -> Manifest {
    let mut metadata = cluster_metadata(config.namespace.as_str());
    let mut tolerate = vec![
        "/spec/finalizers",
        "/metadata/labels/kubernetes.io~1metadata.name",
        // OpenShift assigns ranges of ids and SELinux levels to every namespace, and notes what it found of them.
        "/metadata/annotations/openshift.io~1*",
        "/metadata/annotations/security.openshift.io~1*",
        "/metadata/labels/security.openshift.io~1*",
    ];
    if config.pod_security_labels {
        let label = |mode: &str| (format!("pod-security.kubernetes.io/{mode}"), "privileged".to_owned());
        metadata.labels.get_or_insert_default().extend(["enforce", "audit", "warn"].map(label));
        tolerate.extend([
            "/metadata/labels/pod-security.kubernetes.io~1enforce-version",
            "/metadata/labels/pod-security.kubernetes.io~1audit-version",
            "/metadata/labels/pod-security.kubernetes.io~1warn-version",
        ]);
    } else {
        tolerate.push("/metadata/labels/pod-security.kubernetes.io~1*");
    }
    if config.scc_api {
        // Else a default node selector of the cluster keeps the node plugin from nodes that have pods with volumes.
        metadata.annotations =
            Some(BTreeMap::from([("openshift.io/node-selector".to_owned(), String::new())]));
    }
    let namespace = Namespace { metadata, ..Namespace::default() };
    let pod_security = config.pod_security_labels.then_some("privileged");
    Manifest { pod_security, ..Manifest::new(&NAMESPACE, &namespace, tolerate) }
}

pub(super) fn service_account(config: &DriverConfig) -> Manifest {
    let metadata = namespaced_metadata(&config.namespace, driver::SERVICE_ACCOUNT);
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    let tolerate = vec![
        // Written by the cluster's own controllers.
        "/secrets",
        "/imagePullSecrets",
        "/metadata/annotations/openshift.io~1*",
        // Written by administrators who give the node plugin an AWS role.
        "/metadata/annotations/eks.amazonaws.com~1*",
    ];
    Manifest::new(&SERVICE_ACCOUNT, &account, tolerate)
}

/// The driver reads its zone from its node; patching takes the start-up taint off.
pub(super) fn cluster_role() -> Manifest {
    let role = ClusterRole {
        metadata: cluster_metadata(driver::CLUSTER_ROLE),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["nodes".into()]),
            verbs: ["get", "list", "watch", "patch"].map(String::from).into(),
            ..PolicyRule::default()
        }]),
        ..ClusterRole::default()
    };
    Manifest::new(&CLUSTER_ROLE, &role, vec![])
}

pub(super) fn cluster_role_binding(config: &DriverConfig) -> Manifest {
    let binding = ClusterRoleBinding {
        metadata: cluster_metadata(driver::CLUSTER_ROLE_BINDING),
        role_ref: RoleRef {
            api_group: RBAC.into(),
            kind: "ClusterRole".into(),
            name: driver::CLUSTER_ROLE.into(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: driver::SERVICE_ACCOUNT.into(),
            namespace: Some(config.namespace.to_string()),
            ..Subject::default()
        }]),
    };
    Manifest::new(&CLUSTER_ROLE_BINDING, &binding, vec![])
}

/// For the node plugin's account alone, and only what its pods use: a privileged container, paths and network of
/// the host.
pub(super) fn security_context_constraints(config: &DriverConfig) -> Manifest {
    let description = "Lets the EFS node plugin mount file systems for pods. Not for anything else.";
    let account = format!("system:serviceaccount:{}:{}", config.namespace, driver::SERVICE_ACCOUNT);
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
    Manifest::new(&SECURITY_CONTEXT_CONSTRAINTS, &constraints, vec![])
}
