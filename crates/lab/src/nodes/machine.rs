//! The programs of one node and their files: containerd, kubelet, kube-proxy. Starts none of them.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::host::{self, CNI_PLUGINS};
use super::plan::{DNS_ADDRESS, NodePlan, POD_RANGE};
use crate::access::write_private;
use crate::certificates;
use crate::leftovers;
use crate::programs::{KUBE_PROXY, KUBELET, Programs};
use crate::supervisor::{Place, Program};

pub(crate) const CONTAINERD: &str = "containerd";
/// Inside the node; each node has a `/run` of its own.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// An empty file: pods get the cluster's DNS server and no other.
const NO_RESOLVER: &str = "resolv.conf";

/// Writes the files of a node and says how its programs are started: containerd, kubelet, kube-proxy.
pub(crate) fn prepare(
    dir: &Path,
    node_plan: &NodePlan,
    programs: &Programs,
    pause: &str,
) -> Result<[Program; 3]> {
    let own = dir.join(&node_plan.name);
    std::fs::create_dir_all(own.join("cni"))?;
    write_private(&dir.join(NO_RESOLVER), "")?;
    write_private(&own.join("containerd.toml"), &containerd_config(&own, pause))?;
    write_private(&own.join("cni/lab.conflist"), &network(node_plan).to_string())?;
    let kubelet =
        serde_saphyr::to_string(&kubelet_config(dir, node_plan)).context("a kubelet's configuration")?;
    write_private(&own.join("kubelet.yaml"), &kubelet)?;

    let place = || Place::Inside(node_plan.name.clone());
    Ok([
        Program {
            name: node_plan.program(CONTAINERD),
            path: host::find(CONTAINERD).context("containerd is not installed")?,
            args: vec!["--config".into(), own.join("containerd.toml").display().to_string()],
            place: place(),
        },
        Program {
            name: node_plan.program(KUBELET),
            path: programs.path(KUBELET),
            args: vec![
                format!("--config={}", own.join("kubelet.yaml").display()),
                format!("--kubeconfig={}", dir.join(node_plan.kubelet_kubeconfig()).display()),
                format!("--hostname-override={}", node_plan.name),
                format!("--node-ip={}", node_plan.address),
            ],
            place: place(),
        },
        proxy(dir, &node_plan.name, &node_plan.name, &node_plan.proxy_kubeconfig(), programs)?,
    ])
}

/// A kube-proxy, for a node or for the control plane, in the namespaces `inside`.
pub(crate) fn proxy(
    dir: &Path,
    inside: &str,
    node: &str,
    kubeconfig: &str,
    programs: &Programs,
) -> Result<Program> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": dir.join(kubeconfig)},
        "mode": "nftables",
        // The default is a second, by which every test of a service would be slower.
        "nftables": {"minSyncPeriod": "100ms"},
        "clusterCIDR": POD_RANGE,
        // The table of connections is the whole machine's; only its owner may change its size.
        "conntrack": {"maxPerCore": 0},
        "oomScoreAdj": 0,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    });
    let name = format!("{inside}-{KUBE_PROXY}");
    let path = dir.join(format!("{name}.yaml"));
    write_private(&path, &serde_saphyr::to_string(&config).context("a proxy's configuration")?)?;
    Ok(Program {
        name,
        path: programs.path(KUBE_PROXY),
        args: vec![format!("--config={}", path.display()), format!("--hostname-override={node}")],
        place: Place::Inside(inside.to_owned()),
    })
}

fn containerd_config(own: &Path, pause: &str) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{}"
"#,
        own.join("cni").display()
    )
}

fn network(node_plan: &NodePlan) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            // A pod may be behind the service that it asks.
            "hairpinMode": true,
            // Every node and the core know the way to every pod, so addresses are never hidden.
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": node_plan.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet_config(dir: &Path, node_plan: &NodePlan) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": dir.join(certificates::CA)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}/{}", leftovers::cgroup_name(dir), node_plan.name),
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": dir.join(NO_RESOLVER),
        // The disk is the machine's; a test must not fail because other programs have filled most of it.
        "evictionHard": {
            "memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
            "imagefs.available": "1%", "imagefs.inodesFree": "1%",
        },
        // Images are imported once and can be pulled from nowhere.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "imageMaximumGCAge": "0s",
        // Renewed every 3 s, so that the loss of a node is seen within the 16 s that the controller manager allows.
        "nodeLeaseDurationSeconds": 12,
        "nodeStatusUpdateFrequency": "5s",
        // What has not changed is not written, as with kubelet's defaults; else each node would be an event for every watcher every 5 s.
        "nodeStatusReportFrequency": "5m",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "serializeImagePulls": false,
        "registerWithTaints": [],
    })
}
