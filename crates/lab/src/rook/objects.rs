//! What the lab gives to Kubernetes for Rook and Ceph: the operator, disks, the Ceph cluster, a file system. Applies nothing.

use serde_json::{Value, json};

use super::disks::{Disk, GIBIBYTES};

/// Where Rook, Ceph and everything that is theirs lives.
pub const NAMESPACE: &str = "rook-ceph";
/// The name of the Ceph cluster.
pub const CLUSTER: &str = "rook-ceph";
/// The name of the file system.
pub const FILE_SYSTEM: &str = "lab-fs";
/// The pod that `ceph` is run in, and the label that finds it.
pub(crate) const TOOLS: &str = "rook-ceph-tools";
pub(crate) const OPERATOR: &str = "rook-ceph-operator";

const DISK_CLASS: &str = "lab-disk";

/// How many mons and OSDs the cluster has, and what a replica must not share with another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) mons: usize,
    pub(crate) osds: usize,
    pub(crate) failure_domain: &'static str,
}

impl Size {
    /// The largest that so many nodes can bear.
    pub(crate) fn for_nodes(nodes: usize) -> Self {
        let spread = nodes >= 3;
        Self {
            mons: if spread { 3 } else { 1 },
            osds: 3,
            failure_domain: if spread { "host" } else { "osd" },
        }
    }
}

/// The operator with its settings. Its namespace, accounts and rights come with Rook's release.
pub(crate) fn operator(image: &str, size: Size) -> Vec<Value> {
    let labels = json!({"app": OPERATOR});
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rook-ceph-operator-config", "namespace": NAMESPACE},
        "data": {
            "ROOK_LOG_LEVEL": "INFO",
            "ROOK_CEPH_ALLOW_LOOP_DEVICES": "true",
            // There is no CSI driver's image here, and nothing in this kernel to map a volume with.
            "ROOK_CSI_DISABLE_DRIVER": "true",
            "ROOK_CSI_ENABLE_CEPHFS": "false",
            "ROOK_CSI_ENABLE_NFS": "false",
            "ROOK_CSI_ENABLE_RBD": "false",
            "ROOK_ENABLE_DISCOVERY_DAEMON": "false",
        }}),
        // Read by every daemon of Ceph when it starts.
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rook-config-override", "namespace": NAMESPACE},
        "data": {"config": ceph_config(size)}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": "rook-ceph-system",
                "containers": [{
                    "name": OPERATOR,
                    "image": image,
                    "imagePullPolicy": "Never",
                    "args": ["ceph", "operator"],
                    "env": [
                        {"name": "ROOK_CURRENT_NAMESPACE_ONLY", "value": "false"},
                        field("NODE_NAME", "spec.nodeName"),
                        field("POD_NAME", "metadata.name"),
                        field("POD_NAMESPACE", "metadata.namespace"),
                    ],
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 2016, "runAsGroup": 2016,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "rook-config", "mountPath": "/var/lib/rook"},
                        {"name": "ceph-config", "mountPath": "/etc/ceph"},
                    ],
                }],
                "volumes": [{"name": "rook-config", "emptyDir": {}}, {"name": "ceph-config", "emptyDir": {}}],
            }},
        }}),
    ]
}

/// What differs from Ceph's defaults.
fn ceph_config(size: Size) -> String {
    // Without enough hosts for all replicas, Ceph's own pools are spread over OSDs too.
    let leaf = if size.failure_domain == "osd" { "osd_crush_chooseleaf_type = 0\n" } else { "" };
    format!("{CEPH_CONFIG}{leaf}")
}

const CEPH_CONFIG: &str = "\
[global]
# The disk of the lab is the machine's.
mon_data_avail_warn = 1
mon_data_avail_crit = 1
# Small disks, few objects.
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
# Some room for each OSD, but the machine has to be enough for all.
osd_memory_target = 939524096
# Debian's default is a path without its first slash, which holds only for daemons that work in the root directory.
osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes
";

/// A volume for each disk, on the node that owns it.
pub(crate) fn disks(disks: &[Disk]) -> Vec<Value> {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": DISK_CLASS},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    let volume = |(n, disk): (usize, &Disk)| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{DISK_CLASS}-{n}")},
        "spec": {
            "capacity": {"storage": format!("{GIBIBYTES}Gi")},
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
            "storageClassName": DISK_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": disk.device},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [disk.node]},
            ]}]}},
        }})
    };
    std::iter::once(class).chain(disks.iter().enumerate().map(volume)).collect()
}

/// The Ceph cluster.
pub(crate) fn ceph(image: &str, size: Size) -> Value {
    let without = json!({"disabled": true});
    let same = json!({"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["rook-ceph-osd", "rook-ceph-osd-prepare"]},
    ]});
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": same}]});
    json!({"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
    "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
    "spec": {
        "dataDirHostPath": "/var/lib/rook",
        "cephVersion": {"image": image, "imagePullPolicy": "Never", "allowUnsupported": true},
        "mon": {"count": size.mons, "allowMultiplePerNode": false},
        "mgr": {"count": 1},
        "dashboard": {"enabled": false},
        // There is no exporter in Debian's packages.
        "monitoring": {"enabled": false, "metricsDisabled": true},
        "crashCollector": {"disable": true},
        "logCollector": {"enabled": false},
        "disruptionManagement": {"managePodBudgets": true},
        "healthCheck": {
            // Status is what tests wait for, and a minute is the default. Each look runs several commands of Ceph, a second of a core each.
            "daemonHealth": {"status": {"interval": "15s"}},
            // On a busy machine they would end daemons that are well. Those of the start begin after 10 s, and Rook waits for them.
            "livenessProbe": {"mon": without, "mgr": without, "osd": without},
            "startupProbe": {"mon": without, "mgr": without, "osd": without},
        },
        "storage": {
            "useAllNodes": false,
            "useAllDevices": false,
            "storageClassDeviceSets": [{
                "name": "lab",
                "count": size.osds,
                "portable": false,
                "placement": spread,
                "preparePlacement": spread,
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "volumeMode": "Block",
                        "storageClassName": DISK_CLASS,
                        "resources": {"requests": {"storage": format!("{GIBIBYTES}Gi")}},
                    },
                }],
            }],
        },
    }})
}

/// A file system in it.
pub(crate) fn file_system(size: Size) -> Value {
    let pool = json!({"failureDomain": size.failure_domain, "replicated": {"size": size.osds}});
    json!({"apiVersion": "ceph.rook.io/v1", "kind": "CephFilesystem",
    "metadata": {"name": FILE_SYSTEM, "namespace": NAMESPACE},
    "spec": {
        "metadataPool": pool,
        "dataPools": [{"name": "data0", "failureDomain": size.failure_domain, "replicated": {"size": size.osds}}],
        "metadataServer": {"activeCount": 1, "activeStandby": true,
            "livenessProbe": {"disabled": true}, "startupProbe": {"disabled": true}},
    }})
}

/// A pod with the programs of Ceph and the key of one of its users, which it finds in a Secret of its own namespace.
pub(crate) fn tools(namespace: &str, name: &str, image: &str, secret: &str, key: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": name, "namespace": namespace, "labels": {"app": TOOLS}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "tools",
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["sleep", "infinity"],
            "volumeMounts": [{"name": "key", "mountPath": "/etc/ceph-key", "readOnly": true}],
        }],
        "volumes": [{"name": "key", "secret": {"secretName": secret, "items": [{"key": key, "path": "key"}]}}],
    }})
}
