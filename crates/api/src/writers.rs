//! Who writes which field of our kinds: exactly one writer each. The controllers compute from it which part of a status is
//! theirs.

pub use aquifer_base::fields::{Field, Writer};

/// The controller of SharedVolumes.
const SHARED_VOLUMES: Writer = Writer::Controller("aquifer-efs-volumes");
/// The controller of the EFS driver's objects.
const EFS_DRIVER: Writer = Writer::Controller("aquifer-efs-driver");

/// Every field of every kind of ours.
pub const FIELDS: &[Field] = &[
    of("SharedVolume", "spec.fileSystemID", Writer::User),
    of("SharedVolume", "spec.accessPointID", Writer::User),
    of("SharedVolume", "metadata.finalizers", SHARED_VOLUMES),
    of("SharedVolume", "status.phase", SHARED_VOLUMES),
    of("SharedVolume", "status.message", SHARED_VOLUMES),
    of("SharedVolume", "status.claimRef", SHARED_VOLUMES),
    of("SharedVolume", "status.claimUID", SHARED_VOLUMES),
    of("SharedVolume", "status.volumeRef", SHARED_VOLUMES),
    of("SharedVolume", "status.observedGeneration", SHARED_VOLUMES),
    of("SharedVolume", "status.conditions[Ready]", SHARED_VOLUMES),
    of("SharedVolume", "status.conditions[DriverReady]", SHARED_VOLUMES),
    of("SharedVolume", "status.conditions[Duplicate]", SHARED_VOLUMES),
    of("SharedVolume", "status.conditions[Progressing]", SHARED_VOLUMES),
    of("Component", "spec.desired", Writer::Administrator),
    of("Component", "status.message", EFS_DRIVER),
    of("Component", "status.observedGeneration", EFS_DRIVER),
    of("Component", "status.objects", EFS_DRIVER),
    of("Component", "status.conditions[Ready]", EFS_DRIVER),
    of("Component", "status.conditions[NodesReady]", EFS_DRIVER),
    of("Component", "status.conditions[Progressing]", EFS_DRIVER),
];

const fn of(kind: &'static str, path: &'static str, writer: Writer) -> Field {
    Field::new(kind, path, writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn leaves(schema: &Value, path: &str, into: &mut Vec<String>) {
        match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => {
                for (name, below) in properties {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    leaves(below, &path, into);
                }
            }
            None => into.push(path.to_owned()),
        }
    }

    fn schema_leaves() -> Vec<(String, String)> {
        let mut all = Vec::new();
        for crd in crate::crds() {
            let json = serde_json::to_value(&crd).unwrap();
            let mut paths = Vec::new();
            leaves(&json["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut paths);
            all.extend(paths.into_iter().map(|path| (crd.spec.names.kind.clone(), path)));
        }
        all
    }

    /// Conditions have one leaf in the schema and one entry per type in the table.
    fn covers(field: &Field, kind: &str, path: &str) -> bool {
        let own = if field.condition().is_some() { "status.conditions" } else { field.path };
        field.kind == kind && (path == own || path.starts_with(&format!("{own}.")))
    }

    #[test]
    fn every_field_of_every_kind_has_exactly_one_writer() {
        for (kind, path) in schema_leaves() {
            let entries: Vec<_> = FIELDS.iter().filter(|f| covers(f, &kind, &path)).collect();
            let conditions: BTreeSet<_> = entries.iter().filter_map(|f| f.condition()).collect();
            assert_eq!(entries.len(), conditions.len().max(1), "{kind} {path}: {entries:?}");
        }
    }

    #[test]
    fn the_table_names_no_field_that_does_not_exist() {
        let leaves = schema_leaves();
        for field in FIELDS.iter().filter(|f| !f.path.starts_with("metadata.")) {
            assert!(leaves.iter().any(|(kind, path)| covers(field, kind, path)), "{field:?}");
        }
    }
}
