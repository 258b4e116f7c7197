//! Who writes which field of our kinds: exactly one writer each. A table to look things up in and to test against;
//! nothing reads it at run time.

/// One field, or one field with everything below it, and its only writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Kind of the object.
    pub kind: &'static str,
    /// Path of the field in the JSON form; it covers everything below it.
    pub path: &'static str,
    /// Who writes it.
    pub writer: Writer,
}

/// A program or a person that writes fields of our kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Whoever made the object, a person or a pipeline. We never write these fields.
    User,
    /// The cluster's administrator, by hand or through `aquifer efs uninstall`.
    Administrator,
    /// The controller of SharedVolumes.
    SharedVolumes,
    /// The controller of the EFS driver's objects.
    EfsDriver,
}

impl Writer {
    /// The writer's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Administrator => "administrator",
            Self::SharedVolumes => "efs shared volumes",
            Self::EfsDriver => "efs driver",
        }
    }
}

/// Every field of every kind of ours.
pub const FIELDS: &[Field] = &[
    of("SharedVolume", "spec.fileSystemID", Writer::User),
    of("SharedVolume", "spec.accessPointID", Writer::User),
    of("SharedVolume", "metadata.finalizers", Writer::SharedVolumes),
    of("SharedVolume", "status.phase", Writer::SharedVolumes),
    of("SharedVolume", "status.message", Writer::SharedVolumes),
    of("SharedVolume", "status.claimRef", Writer::SharedVolumes),
    of("SharedVolume", "status.claimUID", Writer::SharedVolumes),
    of("SharedVolume", "status.volumeRef", Writer::SharedVolumes),
    of("SharedVolume", "status.observedGeneration", Writer::SharedVolumes),
    of("SharedVolume", "status.conditions", Writer::SharedVolumes),
    of("Component", "spec.desired", Writer::Administrator),
    of("Component", "status.message", Writer::EfsDriver),
    of("Component", "status.observedGeneration", Writer::EfsDriver),
    of("Component", "status.objects", Writer::EfsDriver),
    of("Component", "status.conditions", Writer::EfsDriver),
];

const fn of(kind: &'static str, path: &'static str, writer: Writer) -> Field {
    Field { kind, path, writer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

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

    fn covers(field: &Field, kind: &str, path: &str) -> bool {
        field.kind == kind && (path == field.path || path.starts_with(&format!("{}.", field.path)))
    }

    #[test]
    fn every_field_of_every_kind_has_exactly_one_writer() {
        for (kind, path) in schema_leaves() {
            let writers: Vec<_> =
                FIELDS.iter().filter(|f| covers(f, &kind, &path)).map(|f| f.writer.name()).collect();
            assert_eq!(writers.len(), 1, "{kind} {path}: {writers:?}");
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
