//! Secrets with their content. Only the steps that make Secrets and the effects of a family see any of this; caches, worlds, plans
//! and logs never do.

use std::collections::BTreeMap;

use aquifer_base::Sealed;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::intent::{OWNER, OWNER_KIND, OWNER_UID};
use crate::object::{Identity, Kind, Object};

/// The kind.
pub const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");

/// What is in a Secret, by the names of its entries.
pub type SecretContent = BTreeMap<String, Sealed>;

/// What the content of a Secret is composed of.
#[derive(Clone, Copy, Debug)]
pub struct Composition<'a> {
    /// The recipe, in the family's words.
    pub recipe: &'a str,
    /// Its arguments.
    pub arguments: &'a Value,
    /// The Secrets that it is made of, in the order of the plan.
    pub sources: &'a [&'a SecretContent],
    /// What it has now.
    pub current: Option<&'a SecretContent>,
}

/// A Secret as it was read.
#[derive(Clone, Debug)]
pub struct StoredSecret {
    /// Which, in which version.
    pub identity: Identity,
    /// The uid of the owner that it names, when it carries our mark.
    pub owner_uid: Option<String>,
    /// The owner that it names.
    pub owner: Option<String>,
    /// The kind of the owner that it names.
    pub owner_kind: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its type.
    pub secret_type: String,
    /// Its content.
    pub content: SecretContent,
}

impl StoredSecret {
    /// Reads an object with its content.
    pub fn of(object: &Object) -> Self {
        let entries = object.at("/data").and_then(Value::as_object).into_iter().flatten();
        let content = entries.map(|(name, value)| {
            // The server refuses what is not base64.
            let bytes = ByteString::deserialize(value).unwrap_or_default();
            (name.clone(), Sealed::new(bytes.0))
        });
        let labels = object.at("/metadata/labels").and_then(|labels| BTreeMap::deserialize(labels).ok());
        Self {
            identity: object.identity(),
            owner_uid: object.label(OWNER_UID).map(str::to_owned),
            owner: object.annotation(OWNER).map(str::to_owned),
            owner_kind: object.annotation(OWNER_KIND).map(str::to_owned),
            labels: labels.unwrap_or_default(),
            secret_type: object.text("/type").to_owned(),
            content: content.collect(),
        }
    }
}

/// The content as a Secret has it in its `data`.
pub(crate) fn encoded(content: &SecretContent) -> Map<String, Value> {
    content.iter().map(|(name, bytes)| (name.clone(), json!(ByteString(bytes.expose().to_vec())))).collect()
}

/// The object without its content, when it is a Secret.
pub(crate) fn without_content(kind: &Kind, mut object: Object) -> Object {
    if *kind == SECRET
        && let Some(fields) = object.0.as_object_mut()
    {
        fields.remove("data");
        fields.remove("stringData");
    }
    object
}
