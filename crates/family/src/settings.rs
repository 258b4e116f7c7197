//! What an administrator chooses for a family, as far as its rights and its installed objects depend on it.

use std::collections::BTreeMap;

use crate::Family;

/// A chart value that rights or installed objects depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The chart value, such as `efs.namespace`. One that names namespaces may be one name or a list of names.
    pub value: &'static str,
    /// The default of that value.
    pub default: &'static str,
}

/// The setting under which something is needed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The chart value.
    pub value: &'static str,
    /// What it must be.
    pub is: &'static str,
}

/// The chart value that stands for the operator's own namespace, which Helm calls the namespace of the release.
const OWN_NAMESPACE: &str = "namespace of the operator";

/// What was chosen, by chart value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// The defaults of a family, for an operator in this namespace.
    pub fn defaults(family: &dyn Family, own_namespace: &str) -> Self {
        let of_family = family.settings().into_iter().map(|one| (one.value, one.default.to_owned()));
        Self(of_family.chain([(OWN_NAMESPACE, own_namespace.to_owned())]).collect())
    }

    /// Expressions for a Helm template, which knows the administrator's choice.
    pub fn expressions(family: &dyn Family) -> Self {
        let expression = |one: Setting| (one.value, format!("{{{{ .Values.{} }}}}", one.value));
        let own = (OWN_NAMESPACE, "{{ .Release.Namespace }}".to_owned());
        Self(family.settings().into_iter().map(expression).chain([own]).collect())
    }

    /// The same with another choice for one value.
    #[must_use]
    pub fn with(mut self, value: &'static str, choice: impl Into<String>) -> Self {
        self.0.insert(value, choice.into());
        self
    }

    /// What was chosen; empty for a value that the family does not have.
    pub fn get(&self, value: &str) -> &str {
        self.0.get(value).map_or("", String::as_str)
    }

    /// The namespace that the operator runs in.
    pub fn own_namespace(&self) -> &str {
        self.get(OWN_NAMESPACE)
    }

    /// Whether something is needed that depends on a setting.
    pub fn meet(&self, when: Option<When>) -> bool {
        when.is_none_or(|when| self.get(when.value) == when.is)
    }
}
