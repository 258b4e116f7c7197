//! The labels of volume and claim that name their SharedVolume, as aws-efs-operator wrote them.

use std::collections::BTreeMap;

use crate::names::labels;
use aquifer_base::names;
use aquifer_engine::Key;

pub(super) fn owner_labels(key: &Key) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        (labels::OWNED.to_owned(), "true".to_owned()),
        (labels::OWNER_NAMESPACE.to_owned(), key.namespace.to_string()),
    ]);
    // A label cannot hold a longer name; the owner annotation does.
    if key.name.len() <= names::LABEL_MAX {
        all.insert(labels::OWNER_NAME.to_owned(), key.name.to_string());
    }
    all
}

/// The selector of the volumes and claims that name a SharedVolume.
pub(super) fn owner_selector(key: &Key) -> String {
    let labels = owner_labels(key).into_iter().map(|(name, value)| format!("{name}={value}"));
    labels.collect::<Vec<_>>().join(",")
}
