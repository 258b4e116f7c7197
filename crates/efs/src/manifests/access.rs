//! Where the node plugin lives and what it may do: namespace, account, role, and constraints on OpenShift.

use crate::names::driver;
use serde_json::json;

use super::{DriverConfig, Manifest, common_labels};
use crate::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SECURITY_CONTEXT_CONSTRAINTS, SERVICE_ACCOUNT,
};

pub(super) fn namespace(config: &DriverConfig) -> Manifest {
    let mut labels = common_labels();
    let mut tolerate = vec![
        "/spec/finalizers",
        "/metadata/labels/kubernetes.io~1metadata.name",
        // OpenShift assigns ranges of ids and SELinux levels to every namespace, and notes what it found of them.
        "/metadata/annotations/openshift.io~1*",
        "/metadata/annotations/security.openshift.io~1*",
        "/metadata/labels/security.openshift.io~1*",
    ];
    if config.pod_security_labels {
        for mode in ["enforce", "audit", "warn"] {
            labels[format!("pod-security.kubernetes.io/{mode}")] = json!("privileged");
        }
        tolerate.extend([
            "/metadata/labels/pod-security.kubernetes.io~1enforce-version",
            "/metadata/labels/pod-security.kubernetes.io~1audit-version",
            "/metadata/labels/pod-security.kubernetes.io~1warn-version",
        ]);
    } else {
        tolerate.push("/metadata/labels/pod-security.kubernetes.io~1*");
    }
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": config.namespace, "labels": labels},
    });
    if config.scc_api {
        // Else a default node selector of the cluster keeps the node plugin from nodes that have pods with volumes.
        object["metadata"]["annotations"] = json!({"openshift.io/node-selector": ""});
    }
    let pod_security = config.pod_security_labels.then_some("privileged");
    Manifest { pod_security, ..Manifest::new(&NAMESPACE, &object, tolerate) }
}

pub(super) fn service_account(config: &DriverConfig) -> Manifest {
    Manifest::new(
        &SERVICE_ACCOUNT,
        &json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": driver::SERVICE_ACCOUNT,
                "namespace": config.namespace,
                "labels": common_labels(),
            },
        }),
        vec![
            // Written by the cluster's own controllers.
            "/secrets",
            "/imagePullSecrets",
            "/metadata/annotations/openshift.io~1*",
            // Written by administrators who give the node plugin an AWS role.
            "/metadata/annotations/eks.amazonaws.com~1*",
        ],
    )
}

/// The driver reads its zone from its node; patching takes the start-up taint off.
pub(super) fn cluster_role() -> Manifest {
    Manifest::new(
        &CLUSTER_ROLE,
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": driver::CLUSTER_ROLE, "labels": common_labels()},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}],
        }),
        vec![],
    )
}

pub(super) fn cluster_role_binding(config: &DriverConfig) -> Manifest {
    Manifest::new(
        &CLUSTER_ROLE_BINDING,
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": driver::CLUSTER_ROLE_BINDING, "labels": common_labels()},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": driver::CLUSTER_ROLE,
            },
            "subjects": [{
                "kind": "ServiceAccount",
                "name": driver::SERVICE_ACCOUNT,
                "namespace": config.namespace,
            }],
        }),
        vec![],
    )
}

/// For the node plugin's account alone, and only what its pods use: a privileged container, paths and network of
/// the host.
pub(super) fn security_context_constraints(config: &DriverConfig) -> Manifest {
    let any = json!({"type": "RunAsAny"});
    Manifest::new(
        &SECURITY_CONTEXT_CONSTRAINTS,
        &json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": {
                "name": driver::SECURITY_CONTEXT_CONSTRAINTS,
                "labels": common_labels(),
                "annotations": {
                    "kubernetes.io/description":
                        "Lets the EFS node plugin mount file systems for pods. Not for anything else.",
                },
            },
            "allowHostDirVolumePlugin": true,
            "allowHostIPC": false,
            "allowHostNetwork": true,
            "allowHostPID": false,
            "allowHostPorts": true,
            "allowPrivilegeEscalation": true,
            "allowPrivilegedContainer": true,
            "readOnlyRootFilesystem": false,
            "fsGroup": any,
            "runAsUser": any,
            "seLinuxContext": any,
            "supplementalGroups": any,
            "seccompProfiles": ["*"],
            // Sorted, as OpenShift stores it.
            "volumes": ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"],
            "users": [format!("system:serviceaccount:{}:{}", config.namespace, driver::SERVICE_ACCOUNT)],
        }),
        vec![],
    )
}
