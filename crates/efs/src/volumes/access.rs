//! Whether a SharedVolume may have the data that it asks for. Pure.

use std::collections::BTreeMap;

use aquifer_api::shared_file_system::{AllowedAccessPoints, SharedFileSystemSpec};
use aquifer_engine::{Object, Seen, Why};
use clap::ValueEnum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::{Deserialize, Serialize};

use super::data::Data;

/// Who may use a file system that no SharedFileSystem names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Tenancy {
    /// Every namespace, with all of its data
    #[default]
    Open,
    /// No namespace
    Restricted,
}

/// Access points that a namespace may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessPoints {
    /// Every one.
    All,
    /// These, and no others.
    Listed(Vec<String>),
}

impl Default for AccessPoints {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl AccessPoints {
    /// Those that a SharedFileSystem gives to a namespace. All of them only where it says so and lists none.
    fn of(allowed: AllowedAccessPoints, namespace: &str) -> Self {
        if allowed.all && allowed.per_namespace.is_empty() {
            return Self::All;
        }
        let of_it = allowed.per_namespace.into_iter().filter(|one| one.namespace == namespace);
        Self::Listed(of_it.flat_map(|one| one.access_points).collect())
    }

    fn contains(&self, access_point: &String) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.contains(access_point),
        }
    }
}

/// What a SharedFileSystem says to one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSystemFacts {
    /// Its name.
    pub name: String,
    /// Whether it names the namespace.
    pub names_namespace: bool,
    /// The labels of namespaces that it allows besides.
    pub selector: Option<LabelSelector>,
    /// The access points that the namespace may use.
    pub access_points: AccessPoints,
    /// Whether the root may be mounted.
    pub root: bool,
}

impl FileSystemFacts {
    /// What a SharedFileSystem says to a namespace; none when it names another file system. One that cannot be read allows nothing.
    pub(super) fn of(object: &Object, file_system: &str, namespace: &str) -> Option<Self> {
        if object.text("/spec/fileSystemID") != file_system {
            return None;
        }
        let name = object.name().to_owned();
        let spec = object.at("/spec").and_then(|spec| SharedFileSystemSpec::deserialize(spec).ok());
        let Some(spec) = spec else { return Some(Self { name, ..Self::default() }) };
        let allowed = spec.allowed_access_points.unwrap_or_default();
        Some(Self {
            name,
            names_namespace: spec.allowed_namespaces.names.iter().any(|name| name == namespace),
            selector: spec.allowed_namespaces.selector,
            access_points: AccessPoints::of(allowed, namespace),
            root: spec.allow_root.unwrap_or_default(),
        })
    }

    /// Whether it allows the namespace with these labels, when they are known.
    fn allows_namespace(&self, labels: &Seen<Option<BTreeMap<String, String>>>) -> Result<bool, Why> {
        // A selector that cannot be read selects nothing.
        let selector = self.selector.as_ref().and_then(|selector| readable(selector).ok());
        match (selector, labels) {
            _ if self.names_namespace => Ok(true),
            (None, _) => Ok(false),
            (Some(selector), Seen::Known { value, .. }) => {
                Ok(value.as_ref().is_some_and(|labels| selector.matches(labels)))
            }
            (Some(_), Seen::Unknown(why)) => Err(why.clone()),
        }
    }
}

/// The selector, when Kubernetes would take it: others could select everything.
pub(crate) fn readable(selector: &LabelSelector) -> Result<Selector, String> {
    for one in selector.match_expressions.iter().flatten() {
        let has_values = one.values.as_ref().is_some_and(|values| !values.is_empty());
        let wants_values = matches!(one.operator.as_str(), "In" | "NotIn");
        if has_values != wants_values {
            let need = if wants_values { "needs values" } else { "takes no values" };
            return Err(format!("{} of {} {need}", one.operator, one.key));
        }
    }
    Selector::try_from(selector.clone()).map_err(|error| error.to_string())
}

/// What was found out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// This SharedFileSystem allows it.
    Allowed { by: String },
    /// Nobody says anything about this file system, and that is enough.
    Unrestricted,
    /// It is not allowed; who must change what.
    Denied(String),
    /// It cannot be known now, because this cannot be read.
    Unknown(&'static str, Why),
}

impl Verdict {
    /// Whether new pairs may be made.
    pub fn allows(&self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::Unrestricted)
    }
}

/// What is looked at for a verdict.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub tenancy: Tenancy,
    /// The SharedFileSystems that name the file system.
    pub file_systems: &'a Seen<Vec<FileSystemFacts>>,
    pub namespace: &'a str,
    /// The labels of the namespace; none when it is not there.
    pub labels: &'a Seen<Option<BTreeMap<String, String>>>,
}

impl Case<'_> {
    /// Each SharedFileSystem is judged by itself: one that allows all of it is enough.
    pub fn judge(&self, data: &Data) -> Verdict {
        let found = match self.file_systems {
            Seen::Known { value, .. } => value.as_slice(),
            // Also when the cluster says that it has no such kind: what is made by mistake could not be taken away again.
            Seen::Unknown(why) => return Verdict::Unknown("SharedFileSystems", why.clone()),
        };
        if found.is_empty() {
            return match self.tenancy {
                Tenancy::Open => Verdict::Unrestricted,
                Tenancy::Restricted => Verdict::Denied(self.unnamed(data)),
            };
        }
        let (mut denied, mut unknown) = (None, None);
        for one in found {
            match one.allows_namespace(self.labels).map(|allowed| (allowed, self.refusal(one, allowed, data)))
            {
                Err(why) => unknown = Some(why),
                Ok((_, None)) => return Verdict::Allowed { by: one.name.clone() },
                // What is refused to a namespace that is allowed says more.
                Ok((allowed, Some(said))) if allowed || denied.is_none() => denied = Some(said),
                Ok(_) => {}
            }
        }
        match unknown {
            Some(why) => Verdict::Unknown("the labels of the namespace", why),
            None => Verdict::Denied(denied.unwrap_or_default()),
        }
    }

    fn unnamed(&self, Data { file_system, .. }: &Data) -> String {
        let namespace = self.namespace;
        format!(
            "no SharedFileSystem names {file_system}, and this cluster allows only what one allows; ask an administrator of the cluster \
             to make one for {file_system} that allows the namespace {namespace}"
        )
    }

    /// Why one of them does not allow it.
    fn refusal(&self, one: &FileSystemFacts, allows_namespace: bool, data: &Data) -> Option<String> {
        let Data { file_system, access_point } = data;
        let (name, namespace) = (&one.name, self.namespace);
        if !allows_namespace {
            return Some(format!(
                "SharedFileSystem {name} does not allow the namespace {namespace} to use {file_system}; ask an administrator of the \
                 cluster to add it to spec.allowedNamespaces"
            ));
        }
        match access_point {
            None if !one.root => Some(format!(
                "SharedFileSystem {name} does not allow the root of {file_system}; set spec.accessPointID here, or ask an \
                     administrator of the cluster to set spec.allowRoot"
            )),
            Some(point) if !one.access_points.contains(point) => Some(format!(
                "SharedFileSystem {name} does not allow {point} to the namespace {namespace}; use another access point, or ask an \
                     administrator of the cluster to add it to spec.allowedAccessPoints"
            )),
            _ => None,
        }
    }
}
