//! What can be configured about the driver, and how the flags for it are read. No defaults beyond these.

use std::collections::BTreeMap;

use crate::names::driver;
use aquifer_base::NamespaceName;
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use serde::{Deserialize, Serialize};

/// Everything that the driver's objects depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriverConfig {
    /// Where the node plugin runs.
    pub namespace: NamespaceName,
    /// What it runs.
    pub images: Images,
    /// Labels of the nodes that it runs on; none means workers and all that is not control plane. Linux is required either way.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that it runs in spite of.
    pub tolerations: Vec<Toleration>,
    /// The directory of the kubelet on every node, without a slash at its end.
    pub kubelet_dir: String,
    /// What its containers get instead of our defaults.
    pub resources: ContainerResources,
    /// Secrets in its namespace by which its images are pulled.
    pub pull_secrets: Vec<String>,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            namespace: driver::DEFAULT_NAMESPACE.into(),
            images: Images::default(),
            node_selector: None,
            tolerations: vec![everything()],
            kubelet_dir: "/var/lib/kubelet".into(),
            resources: ContainerResources::default(),
            pull_secrets: Vec::new(),
        }
    }
}

/// The images of the node plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Images {
    /// The driver itself.
    pub plugin: String,
    /// Tells the kubelet that the driver is there.
    pub registrar: String,
    /// Answers the kubelet's question whether the driver still works.
    pub liveness: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            plugin: "public.ecr.aws/efs-csi-driver/amazon/aws-efs-csi-driver:v3.4.1".into(),
            registrar: "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0".into(),
            liveness: "registry.k8s.io/sig-storage/livenessprobe:v2.19.0".into(),
        }
    }
}

/// What each container of the node plugin gets; none means our default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerResources {
    /// The driver itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<ResourceRequirements>,
    /// Tells the kubelet that the driver is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registrar: Option<ResourceRequirements>,
    /// Answers the kubelet's question whether the driver still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<ResourceRequirements>,
}

/// A flag that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not `key=value`.
    #[error("node selector `{0}` is not of the form key=value (several are separated by commas)")]
    NodeSelector(String),
    /// Not `key[=value][:effect]`.
    #[error(
        "toleration `{0}` is not of the form key[=value][:NoSchedule|PreferNoSchedule|NoExecute] \
         (several are separated by commas; `*` tolerates everything)"
    )]
    Toleration(String),
    /// Not the resources of containers.
    #[error(
        "`{0}` are not the resources of containers ({1}); they are written like \
         {{\"plugin\": {{\"requests\": {{\"cpu\": \"10m\"}}}}}}, for plugin, registrar and liveness"
    )]
    Resources(String, String),
    /// Not the directory of a kubelet.
    #[error(
        "`{0}` is not a directory of the nodes: it must begin with / and be no more than letters, digits and /._-"
    )]
    Directory(String),
    /// Not the name of a Secret.
    #[error("`{0}` is not the name of a Secret (several are separated by commas)")]
    Secret(String),
}

/// Reads `key=value,key=value`. An empty text selects every Linux node.
pub fn parse_node_selector(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    items(text)
        .map(|item| match item.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().into(), value.trim().into())),
            _ => Err(ConfigError::NodeSelector(item.into())),
        })
        .collect()
}

/// Reads `key[=value][:effect],…`; `*` tolerates everything, an empty text nothing.
pub fn parse_tolerations(text: &str) -> Result<Vec<Toleration>, ConfigError> {
    items(text).map(toleration).collect()
}

fn toleration(item: &str) -> Result<Toleration, ConfigError> {
    if item == "*" {
        return Ok(everything());
    }
    let (taint, effect) = item.split_once(':').map_or((item, None), |(taint, effect)| (taint, Some(effect)));
    let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value)));
    let known_effect = effect.is_none_or(|e| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&e));
    if key.is_empty() || !known_effect {
        return Err(ConfigError::Toleration(item.into()));
    }
    Ok(Toleration {
        key: Some(key.into()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.into()),
        value: value.map(Into::into),
        effect: effect.map(Into::into),
        toleration_seconds: None,
    })
}

/// Reads the resources of containers, as JSON by container. An empty text leaves all as they are.
pub fn parse_resources(text: &str) -> Result<ContainerResources, ConfigError> {
    if text.trim().is_empty() {
        return Ok(ContainerResources::default());
    }
    serde_json::from_str(text).map_err(|error| ConfigError::Resources(text.into(), error.to_string()))
}

/// Reads a directory of the nodes. It becomes a path that the node plugin mounts from its host, so it has no steps upwards.
pub fn parse_kubelet_dir(text: &str) -> Result<String, ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let dir = text.trim_end_matches('/');
    let good = dir.starts_with('/') && dir.chars().all(plain) && !dir.split('/').any(|step| step == "..");
    if good { Ok(dir.to_owned()) } else { Err(ConfigError::Directory(text.into())) }
}

/// Reads names of Secrets, separated by commas.
pub fn parse_pull_secrets(text: &str) -> Result<Vec<String>, ConfigError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let name = |item: &str| {
        let good = item.chars().all(plain);
        if good { Ok(item.to_owned()) } else { Err(ConfigError::Secret(item.into())) }
    };
    items(text).map(name).collect()
}

fn everything() -> Toleration {
    Toleration { operator: Some("Exists".into()), ..Toleration::default() }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_pull_secrets_and_the_kubelets_directory_are_read_or_refused_with_a_sentence() {
        let read = parse_resources(r#"{"plugin": {"limits": {"memory": "1Gi"}}}"#).unwrap();
        assert_eq!(read.plugin.unwrap().limits.unwrap()["memory"].0, "1Gi");
        assert_eq!(read.registrar, None);
        assert_eq!(parse_resources("").unwrap(), ContainerResources::default());
        for bad in ["plugin", r#"{"driver": {}}"#, r#"{"plugin": 1}"#] {
            let error = parse_resources(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("requests"), "{error}");
        }
        assert_eq!(parse_kubelet_dir("/var/data/kubelet/").unwrap(), "/var/data/kubelet");
        for bad in ["", "/", "kubelet", "/var/../etc", "/var/lib kubelet", "/a:b"] {
            assert!(parse_kubelet_dir(bad).unwrap_err().to_string().contains("begin with /"), "{bad}");
        }
        assert_eq!(parse_pull_secrets("one, two.three").unwrap(), ["one", "two.three"]);
        assert!(parse_pull_secrets("").unwrap().is_empty());
        assert!(parse_pull_secrets("One").unwrap_err().to_string().contains("One"));
    }

    #[test]
    fn node_selectors_are_pairs() {
        let parsed = parse_node_selector("pool=storage, node-role.kubernetes.io/infra=").unwrap();
        assert_eq!(parsed["pool"], "storage");
        assert_eq!(parsed["node-role.kubernetes.io/infra"], "");
        assert!(parse_node_selector("").unwrap().is_empty());
        for bad in ["pool", "=x", "a=b,c"] {
            let error = parse_node_selector(bad).unwrap_err().to_string();
            assert!(error.contains("key=value"), "{error}");
        }
    }

    #[test]
    fn tolerations_have_key_value_and_effect() {
        let parsed = parse_tolerations("dedicated=db:NoSchedule,spot:NoExecute,gpu").unwrap();
        let brief: Vec<_> = parsed
            .iter()
            .map(|t| (t.key.as_deref(), t.operator.as_deref(), t.value.as_deref(), t.effect.as_deref()))
            .collect();
        assert_eq!(
            brief,
            [
                (Some("dedicated"), Some("Equal"), Some("db"), Some("NoSchedule")),
                (Some("spot"), Some("Exists"), None, Some("NoExecute")),
                (Some("gpu"), Some("Exists"), None, None),
            ]
        );
        assert_eq!(parse_tolerations("*").unwrap(), DriverConfig::default().tolerations);
        assert!(parse_tolerations("").unwrap().is_empty());
        for bad in ["a:Sometimes", ":NoExecute", "=x"] {
            let error = parse_tolerations(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
