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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_asks_for_the_labels_and_leaves_a_name_out_that_no_label_can_hold() {
        let selector = |name: &str| owner_selector(&Key::namespaced("team", name));
        let owned = format!("{}=true,{}=team", labels::OWNED, labels::OWNER_NAMESPACE);
        let parts =
            |text: &str| text.split(',').map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(parts(&selector("data")), parts(&format!("{owned},{}=data", labels::OWNER_NAME)));
        assert_eq!(parts(&selector(&"x".repeat(64))), parts(&owned));
    }
}
