//! The part of OpenShift's API that we write: SecurityContextConstraints. A partial type: build objects from it,
//! never read one, change it and send it back, or the fields that are not here are lost.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

/// API group of [`SecurityContextConstraints`].
pub const GROUP: &str = "security.openshift.io";

/// What pods of the named users may do on their host.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "security.openshift.io",
    version = "v1",
    kind = "SecurityContextConstraints",
    plural = "securitycontextconstraints",
    singular = "securitycontextconstraints",
    derive = "PartialEq",
    no_spec,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools)] // the API has them
pub struct Constraints {
    /// Allow hostPath volumes.
    pub allow_host_dir_volume_plugin: bool,
    /// Allow the host's IPC namespace.
    #[serde(rename = "allowHostIPC")]
    pub allow_host_ipc: bool,
    /// Allow the host's network namespace.
    pub allow_host_network: bool,
    /// Allow the host's process namespace.
    #[serde(rename = "allowHostPID")]
    pub allow_host_pid: bool,
    /// Allow ports of the host.
    pub allow_host_ports: bool,
    /// Allow a process to gain more privileges than its parent.
    pub allow_privilege_escalation: bool,
    /// Allow privileged containers.
    pub allow_privileged_container: bool,
    /// Require a read-only root file system.
    pub read_only_root_filesystem: bool,
    /// Allowed values of fsGroup.
    pub fs_group: Strategy,
    /// Allowed values of runAsUser.
    pub run_as_user: Strategy,
    /// Allowed SELinux contexts.
    pub se_linux_context: Strategy,
    /// Allowed supplemental groups.
    pub supplemental_groups: Strategy,
    /// Allowed seccomp profiles.
    pub seccomp_profiles: Vec<String>,
    /// Allowed kinds of volumes, sorted: OpenShift stores the list sorted.
    pub volumes: Vec<String>,
    /// Users and service accounts that may use these constraints.
    pub users: Vec<String>,
}

/// How a value is chosen.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// Name of the strategy, for example RunAsAny.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Strategy {
    /// No restriction.
    pub fn run_as_any() -> Self {
        Self { kind: "RunAsAny".into() }
    }
}

/// A definition of the kind for clusters that are not OpenShift: it takes everything and checks nothing. For tests.
pub fn test_crd() -> CustomResourceDefinition {
    let kind = "SecurityContextConstraints";
    let plural = "securitycontextconstraints";
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{plural}.{GROUP}")), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.into(),
            names: CustomResourceDefinitionNames {
                kind: kind.into(),
                list_kind: Some(format!("{kind}List")),
                plural: plural.into(),
                singular: Some(plural.into()),
                short_names: Some(vec!["scc".into()]),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Cluster".into(),
            versions: vec![CustomResourceDefinitionVersion {
                name: "v1".into(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(JSONSchemaProps {
                        type_: Some("object".into()),
                        x_kubernetes_preserve_unknown_fields: Some(true),
                        ..JSONSchemaProps::default()
                    }),
                }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}
