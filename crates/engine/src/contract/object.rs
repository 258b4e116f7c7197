//! Kinds, keys and objects as the engine addresses them. Plain data: no client, no typed Kubernetes structs.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aquifer_base::{ResourceVersion, Uid};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::State;

/// A Kubernetes kind with everything that is needed to address it. Written as a constant by the families.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// API group; empty for core.
    pub group: Cow<'static, str>,
    /// API version, such as `v1`.
    pub version: Cow<'static, str>,
    /// The kind, such as `PersistentVolume`.
    pub kind: Cow<'static, str>,
    /// The plural in URLs, such as `persistentvolumes`.
    pub plural: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// A kind whose objects live in namespaces.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::new(group, version, kind, plural, true)
    }

    /// A kind whose objects belong to the cluster.
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::new(group, version, kind, plural, false)
    }

    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// An object of this kind by name; the namespace is dropped for cluster kinds.
    pub fn at(&self, namespace: &str, name: &str) -> ObjectRef {
        let key = if self.namespaced { Key::namespaced(namespace, name) } else { Key::cluster(name) };
        ObjectRef { kind: self.clone(), key }
    }

    /// An object of this kind by key.
    pub fn key(&self, key: &Key) -> ObjectRef {
        ObjectRef { kind: self.clone(), key: key.clone() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}

/// Namespace (empty for cluster objects) and name: what a pass is keyed on. Copies share their text: caches and queues hold many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Namespace; empty for cluster objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// Key of an object in a namespace.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: namespace.as_ref().into(), name: name.as_ref().into() }
    }

    /// Key of a cluster object.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self { namespace: Arc::default(), name: name.as_ref().into() }
    }

    /// Reads what [`fmt::Display`] prints; none for what is not a name, or a namespace and a name.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        match *parts {
            [name] if !name.is_empty() => Some(Self::cluster(name)),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Some(Self::namespaced(namespace, name))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One object of one kind, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// Which object, in which version: what a write is guarded with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
}

/// An object as it was read: JSON with the few accessors that are needed everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

impl Object {
    /// An item of a list. Lists leave out what their items are; an object that we hand on always says it.
    pub(crate) fn of_kind(kind: &Kind, mut item: Value) -> Self {
        item["apiVersion"] = Value::from(kind.api_version());
        item["kind"] = Value::from(kind.kind.as_ref());
        Self(item)
    }

    /// A value by JSON pointer.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        // Made by hand, because `Value::pointer` makes two strings for each name, to replace what is escaped: a twentieth of all that
        // `cargo xtask bench engine` measures.
        match pointer.strip_prefix('/').filter(|names| !names.contains('~')) {
            Some(names) => names.split('/').try_fold(&self.0, |value, name| match value {
                Value::Object(fields) => fields.get(name),
                _ => value.pointer(&format!("/{name}")),
            }),
            None => self.0.pointer(pointer),
        }
    }

    /// A string by JSON pointer; empty when it is absent.
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`; empty for cluster objects.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::namespaced(self.namespace(), self.name())
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }

    /// Uid and version.
    pub fn identity(&self) -> Identity {
        Identity { uid: Uid::new(self.uid()), version: ResourceVersion::new(self.resource_version()) }
    }

    /// `metadata.generation`; 0 when the kind has none.
    pub fn generation(&self) -> i64 {
        self.at("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether somebody has asked for its deletion.
    pub fn deleting(&self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
    }

    /// Since when it is being deleted. A time that cannot be read counts as long ago.
    pub fn deleting_since(&self) -> Option<Timestamp> {
        let since = self.text("/metadata/deletionTimestamp").parse();
        self.deleting().then(|| since.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.at("/metadata/labels")?.get(name)?.as_str()
    }

    /// An annotation's value.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.at("/metadata/annotations")?.get(name)?.as_str()
    }

    /// The finalizers, in their order.
    pub fn finalizers(&self) -> Vec<&str> {
        self.at("/metadata/finalizers")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    /// The condition of a type, from the status.
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        let all = self.at("/status/conditions")?.as_array()?;
        all.iter().find(|condition| condition.get("type").is_some_and(|t| t == kind))
    }

    /// What a condition says of the present generation; none when it is absent, or about an earlier one. Where neither it nor the status
    /// says which one it is about, as in some schemas, it counts.
    pub fn current_state(&self, kind: &str) -> Option<State> {
        let condition = self.condition(kind)?;
        let current = self.observed(condition).is_none_or(|observed| observed >= self.generation());
        current.then(|| State::parse(condition["status"].as_str().unwrap_or_default()))
    }

    /// Which generation a condition is about, as far as it is known.
    pub(crate) fn observed(&self, condition: &Value) -> Option<i64> {
        let said = condition.get("observedGeneration").or_else(|| self.at("/status/observedGeneration"));
        said.and_then(Value::as_i64)
    }

    /// Reads the object as a typed one.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.0)
    }
}

/// The revision as a number. Revisions of one server are ordered; anything unreadable counts as oldest.
pub(crate) fn revision(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_found_where_its_json_pointer_says() {
        let object = Object(json!({"a": {"b/c": 1, "": 2, "d": [{"e": 3}, 4], "~": 5}, "f": "g"}));
        let pointers =
            ["", "/", "a", "a/d", "/a", "/a/", "/a/d/0/e", "/a/d/1", "/a/d/01", "/a/d/+1", "/a/d/2"];
        let more = ["/a/b~1c", "/a/~0", "/a/~", "/f", "/f/g", "/x", "/a/x/y"];
        for pointer in pointers.into_iter().chain(more) {
            assert_eq!(object.at(pointer), object.0.pointer(pointer), "{pointer}");
        }
        assert_eq!((object.text("/f"), object.text("/a/d/1"), object.text("/x")), ("g", "", ""));
    }

    #[test]
    fn a_condition_counts_when_it_is_about_the_present_generation_or_does_not_say() {
        let cases = [
            (json!({"observedGeneration": 3}), json!({}), true),
            (json!({"observedGeneration": 2}), json!({"observedGeneration": 3}), false),
            (json!({}), json!({"observedGeneration": 3}), true),
            (json!({}), json!({"observedGeneration": 2}), false),
            (json!({}), json!({}), true),
        ];
        for (mut condition, mut status, counts) in cases {
            (condition["type"], condition["status"]) = (json!("Ready"), json!("True"));
            status["conditions"] = json!([condition]);
            let object = Object(json!({"metadata": {"generation": 3}, "status": status}));
            assert_eq!(object.current_state("Ready"), counts.then_some(State::True), "{}", object.0);
            assert_eq!(object.current_state("Other"), None);
        }
    }
}
