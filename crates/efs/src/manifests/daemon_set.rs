//! The node plugin: one pod on every worker that mounts EFS file systems for the other pods there.

use crate::names::driver;
use serde_json::{Value, json};

use super::{DriverConfig, Manifest, WORKER_LABEL, common_labels};
use crate::kinds::DAEMON_SET;

/// The kubelet asks here whether the driver works; the pod uses the host's network, so the port is the host's.
const HEALTH_PORT: u16 = 9809;

pub(super) fn daemon_set(config: &DriverConfig) -> Manifest {
    let mut pod_labels = common_labels();
    pod_labels["app"] = json!(driver::DAEMON_SET);
    Manifest::new(
        &DAEMON_SET,
        &json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": driver::DAEMON_SET,
                "namespace": config.namespace,
                "labels": common_labels(),
            },
            "spec": {
                // The selector can never change; one label that nothing else depends on.
                "selector": {"matchLabels": {"app": driver::DAEMON_SET}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
                "template": {"metadata": {"labels": pod_labels}, "spec": pod(config)},
            },
        }),
        vec![
            "/metadata/annotations/deprecated.daemonset.template.generation",
            // Left by `kubectl rollout restart`: undoing it would restart everything once more.
            "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt",
        ],
    )
}

fn pod(config: &DriverConfig) -> Value {
    let mut pod = json!({
        "serviceAccountName": driver::SERVICE_ACCOUNT,
        "priorityClassName": "system-node-critical",
        "hostNetwork": true,
        // The cluster's names and, for file systems behind a peered network, those of the cluster's resolver.
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": node_selector(config),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": node_expressions(config)}],
        }}},
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false},
        "containers": [plugin(config), registrar(config), liveness(config)],
        "volumes": [
            host_path("kubelet-dir", "/var/lib/kubelet", "Directory"),
            host_path("plugin-dir", "/var/lib/kubelet/plugins/efs.csi.aws.com/", "DirectoryOrCreate"),
            host_path("registration-dir", "/var/lib/kubelet/plugins_registry/", "Directory"),
            host_path("efs-state-dir", "/var/run/efs", "DirectoryOrCreate"),
            // Where the mount helper keeps its TLS state and settings: they must outlive the pod.
            host_path("efs-utils-config", "/var/amazon/efs", "DirectoryOrCreate"),
            host_path("efs-utils-config-legacy", "/etc/amazon/efs", "DirectoryOrCreate"),
        ],
    });
    if !config.tolerations.is_empty() {
        pod["tolerations"] = json!(config.tolerations);
    }
    pod
}

fn node_selector(config: &DriverConfig) -> Value {
    let mut selector = json!({"kubernetes.io/os": "linux"});
    for (key, value) in config.node_selector.iter().flatten() {
        selector[key] = json!(value);
    }
    selector
}

/// The configured selector alone; else the worker label where it exists (by presence: its value differs between
/// distributions); else everything that is not control plane. Never Fargate, which has no host to run on.
fn node_expressions(config: &DriverConfig) -> Value {
    let fargate =
        json!({"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]});
    let without = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    if config.node_selector.is_some() {
        json!([fargate])
    } else if config.worker_label_exists {
        json!([{"key": WORKER_LABEL, "operator": "Exists"}, fargate])
    } else {
        json!([
            without("node-role.kubernetes.io/control-plane"),
            without("node-role.kubernetes.io/master"),
            fargate
        ])
    }
}

fn plugin(config: &DriverConfig) -> Value {
    json!({
        "name": "efs-plugin",
        "image": config.images.plugin,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": true},
        "args": ["--endpoint=$(CSI_ENDPOINT)", "--logtostderr", "--v=2"],
        "env": [{"name": "CSI_ENDPOINT", "value": "unix:/csi/csi.sock"}, node_name("CSI_NODE_NAME")],
        "ports": [{"name": "healthz", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "healthz"},
            "initialDelaySeconds": 10,
            "timeoutSeconds": 3,
            "periodSeconds": 2,
            "failureThreshold": 5,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "volumeMounts": [
            {"name": "kubelet-dir", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional"},
            {"name": "plugin-dir", "mountPath": "/csi"},
            {"name": "efs-state-dir", "mountPath": "/var/run/efs"},
            {"name": "efs-utils-config", "mountPath": "/var/amazon/efs"},
            {"name": "efs-utils-config-legacy", "mountPath": "/etc/amazon/efs-legacy"},
        ],
    })
}

fn registrar(config: &DriverConfig) -> Value {
    json!({
        "name": "csi-driver-registrar",
        "image": config.images.registrar,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
        "args": ["--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(DRIVER_REG_SOCK_PATH)", "--v=2"],
        "env": [
            {"name": "ADDRESS", "value": "/csi/csi.sock"},
            {"name": "DRIVER_REG_SOCK_PATH", "value": "/var/lib/kubelet/plugins/efs.csi.aws.com/csi.sock"},
            node_name("KUBE_NODE_NAME"),
        ],
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
        "volumeMounts": [
            {"name": "plugin-dir", "mountPath": "/csi"},
            {"name": "registration-dir", "mountPath": "/registration"},
        ],
    })
}

fn liveness(config: &DriverConfig) -> Value {
    json!({
        "name": "liveness-probe",
        "image": config.images.liveness,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
        "args": ["--csi-address=/csi/csi.sock", format!("--health-port={HEALTH_PORT}"), "--v=2"],
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
        "volumeMounts": [{"name": "plugin-dir", "mountPath": "/csi"}],
    })
}

fn node_name(variable: &str) -> Value {
    json!({"name": variable, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
}

fn host_path(name: &str, path: &str, kind: &str) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": kind}})
}
