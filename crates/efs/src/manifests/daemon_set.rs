//! The node plugin: one pod on every worker that mounts EFS file systems for the other pods there.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, HostPathVolumeSource,
    LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;

use super::{DriverConfig, Manifest, common_labels, namespaced_metadata};
use crate::kinds::DAEMON_SET;
use crate::names::driver;

/// The kubelet asks here whether the driver works; the pod uses the host's network, so the port is the host's.
const HEALTH_PORT: u16 = 9809;

const KUBELET_DIR: &str = "kubelet-dir";
const PLUGIN_DIR: &str = "plugin-dir";
const REGISTRATION_DIR: &str = "registration-dir";
const STATE_DIR: &str = "efs-state-dir";
const CONFIG_DIR: &str = "efs-utils-config";
const LEGACY_CONFIG_DIR: &str = "efs-utils-config-legacy";

pub(super) fn daemon_set(config: &DriverConfig) -> Manifest {
    // The selector can never change; one label that nothing else depends on.
    let selector = BTreeMap::from([("app".to_owned(), driver::DAEMON_SET.to_owned())]);
    let mut pod_labels = common_labels();
    pod_labels.extend(selector.clone());
    let daemon_set = DaemonSet {
        metadata: namespaced_metadata(&config.namespace, driver::DAEMON_SET),
        spec: Some(DaemonSetSpec {
            selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String("10%".into())),
                    ..RollingUpdateDaemonSet::default()
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(pod_labels), ..ObjectMeta::default() }),
                spec: Some(pod(config)),
            },
            ..DaemonSetSpec::default()
        }),
        status: None,
    };
    let tolerate = vec![
        "/metadata/annotations/deprecated.daemonset.template.generation",
        // Left by `kubectl rollout restart`: undoing it would restart everything once more.
        "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt",
    ];
    Manifest::new(&DAEMON_SET, &daemon_set, tolerate)
}

fn pod(config: &DriverConfig) -> PodSpec {
    PodSpec {
        service_account_name: Some(driver::SERVICE_ACCOUNT.into()),
        priority_class_name: Some("system-node-critical".into()),
        host_network: Some(true),
        // The cluster's names and, for file systems behind a peered network, those of the cluster's resolver.
        dns_policy: Some("ClusterFirstWithHostNet".into()),
        node_selector: Some(node_selector(config)),
        affinity: Some(Affinity {
            node_affinity: Some(NodeAffinity {
                required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                    node_selector_terms: node_terms(config),
                }),
                ..NodeAffinity::default()
            }),
            ..Affinity::default()
        }),
        security_context: Some(PodSecurityContext {
            run_as_user: Some(0),
            run_as_group: Some(0),
            run_as_non_root: Some(false),
            ..PodSecurityContext::default()
        }),
        containers: vec![plugin(config), registrar(config), liveness(config)],
        image_pull_secrets: Some(config.pull_secrets.iter().map(|name| reference(name)).collect::<Vec<_>>())
            .filter(|secrets| !secrets.is_empty()),
        volumes: Some(vec![
            host_path(KUBELET_DIR, &config.kubelet_dir, "Directory"),
            host_path(PLUGIN_DIR, &format!("{}/", plugin_dir(config)), "DirectoryOrCreate"),
            host_path(REGISTRATION_DIR, &format!("{}/plugins_registry/", config.kubelet_dir), "Directory"),
            host_path(STATE_DIR, "/var/run/efs", "DirectoryOrCreate"),
            // Where the mount helper keeps its TLS state and settings: they must outlive the pod.
            host_path(CONFIG_DIR, "/var/amazon/efs", "DirectoryOrCreate"),
            host_path(LEGACY_CONFIG_DIR, "/etc/amazon/efs", "DirectoryOrCreate"),
        ]),
        tolerations: Some(config.tolerations.clone()).filter(|tolerations| !tolerations.is_empty()),
        ..PodSpec::default()
    }
}

fn node_selector(config: &DriverConfig) -> BTreeMap<String, String> {
    let mut selector = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
    selector.extend(config.node_selector.clone().unwrap_or_default());
    selector
}

/// The plugin runs on a node that has the worker label, whatever its value, or that is not control plane. So no label on one node takes
/// the plugin from another, whose mounts need it. With a configured selector that alone counts. Never Fargate, which has no host to run
/// on.
fn node_terms(config: &DriverConfig) -> Vec<NodeSelectorTerm> {
    let requirement = |key: &str, operator: &str| NodeSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: None,
    };
    let alternatives = if config.node_selector.is_some() {
        vec![vec![]]
    } else {
        let control_plane = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
        vec![
            vec![requirement("node-role.kubernetes.io/worker", "Exists")],
            control_plane.map(|label| requirement(label, "DoesNotExist")).into(),
        ]
    };
    let term = |mut expressions: Vec<NodeSelectorRequirement>| {
        expressions.push(NodeSelectorRequirement {
            values: Some(vec!["fargate".into()]),
            ..requirement("eks.amazonaws.com/compute-type", "NotIn")
        });
        NodeSelectorTerm { match_expressions: Some(expressions), ..NodeSelectorTerm::default() }
    };
    alternatives.into_iter().map(term).collect()
}

fn plugin(config: &DriverConfig) -> Container {
    Container {
        security_context: Some(SecurityContext { privileged: Some(true), ..SecurityContext::default() }),
        args: Some(vec!["--endpoint=$(CSI_ENDPOINT)".into(), "--logtostderr".into(), "--v=2".into()]),
        env: Some(vec![variable("CSI_ENDPOINT", "unix:/csi/csi.sock"), node_name_variable("CSI_NODE_NAME")]),
        ports: Some(vec![ContainerPort {
            name: Some("healthz".into()),
            container_port: HEALTH_PORT.into(),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/healthz".into()),
                port: IntOrString::String("healthz".into()),
                ..HTTPGetAction::default()
            }),
            initial_delay_seconds: Some(10),
            timeout_seconds: Some(3),
            period_seconds: Some(2),
            failure_threshold: Some(5),
            ..Probe::default()
        }),
        volume_mounts: Some(vec![
            VolumeMount {
                mount_propagation: Some("Bidirectional".into()),
                ..mount(KUBELET_DIR, &config.kubelet_dir)
            },
            mount(PLUGIN_DIR, "/csi"),
            mount(STATE_DIR, "/var/run/efs"),
            mount(CONFIG_DIR, "/var/amazon/efs"),
            mount(LEGACY_CONFIG_DIR, "/etc/amazon/efs-legacy"),
        ]),
        ..container("efs-plugin", &config.images.plugin, config.resources.plugin.as_ref(), ["10m", "64Mi"])
    }
}

fn registrar(config: &DriverConfig) -> Container {
    Container {
        security_context: Some(confined()),
        args: Some(vec![
            "--csi-address=$(ADDRESS)".into(),
            "--kubelet-registration-path=$(DRIVER_REG_SOCK_PATH)".into(),
            "--v=2".into(),
        ]),
        env: Some(vec![
            variable("ADDRESS", "/csi/csi.sock"),
            variable("DRIVER_REG_SOCK_PATH", &format!("{}/csi.sock", plugin_dir(config))),
            node_name_variable("KUBE_NODE_NAME"),
        ]),
        volume_mounts: Some(vec![mount(PLUGIN_DIR, "/csi"), mount(REGISTRATION_DIR, "/registration")]),
        ..container(
            "csi-driver-registrar",
            &config.images.registrar,
            config.resources.registrar.as_ref(),
            ["5m", "16Mi"],
        )
    }
}

fn liveness(config: &DriverConfig) -> Container {
    Container {
        security_context: Some(confined()),
        args: Some(vec![
            "--csi-address=/csi/csi.sock".into(),
            format!("--health-port={HEALTH_PORT}"),
            "--v=2".into(),
        ]),
        volume_mounts: Some(vec![mount(PLUGIN_DIR, "/csi")]),
        ..container(
            "liveness-probe",
            &config.images.liveness,
            config.resources.liveness.as_ref(),
            ["5m", "16Mi"],
        )
    }
}

/// What all containers have: an image, and what they need at least (processor and memory) unless something else was chosen.
fn container(
    name: &str,
    image: &str,
    chosen: Option<&ResourceRequirements>,
    [cpu, memory]: [&str; 2],
) -> Container {
    let least = [("cpu", cpu), ("memory", memory)];
    let least = least.map(|(name, least)| (name.to_owned(), Quantity(least.to_owned())));
    let usual = || ResourceRequirements { requests: Some(least.into()), ..ResourceRequirements::default() };
    Container {
        name: name.into(),
        image: Some(image.into()),
        image_pull_policy: Some("IfNotPresent".into()),
        resources: Some(chosen.cloned().unwrap_or_else(usual)),
        ..Container::default()
    }
}

/// Where the driver has its socket.
fn plugin_dir(config: &DriverConfig) -> String {
    format!("{}/plugins/{}", config.kubelet_dir, driver::DRIVER_NAME)
}

fn reference(name: &str) -> LocalObjectReference {
    LocalObjectReference { name: name.to_owned() }
}

/// For containers that need nothing of their host.
fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.into(), value: Some(value.into()), ..EnvVar::default() }
}

fn node_name_variable(name: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: "spec.nodeName".into(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.into(), value_from: Some(source), ..EnvVar::default() }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn host_path(name: &str, path: &str, path_type: &str) -> Volume {
    Volume {
        name: name.into(),
        host_path: Some(HostPathVolumeSource { path: path.into(), type_: Some(path_type.into()) }),
        ..Volume::default()
    }
}
