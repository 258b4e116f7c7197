//! What was seen of a Rook, as flat data, and where two Rooks differ. Talks to nobody.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// What was seen: a path such as `pool.status.phase`, and its value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observations(BTreeMap<String, Value>);

/// One thing that the stand-in shows otherwise than the real Rook.
#[derive(Debug, PartialEq)]
pub struct Difference {
    pub path: String,
    pub stand_in: Option<Value>,
    pub real: Option<Value>,
}

/// How much of a value has to be the same.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Class {
    /// All of it. What is not in [`VOLATILE`] is of this class.
    Exact,
    /// It is there on both sides, and is the same kind of value.
    Kind,
    /// It comes and goes with what happens to a cluster; where it is on both sides, it is the same kind of value.
    Sometimes,
    /// A list of steps. Rook's first write of a status is lost when its cache is older than its own finalizer, so
    /// `Progressing` may be missing.
    Story,
}

/// Everything that may differ, and why. A star is one part of a path.
const VOLATILE: [(&str, Class, &str); 15] = [
    ("*.story", Class::Story, "see Class::Story"),
    ("*.status.conditions.*.lastHeartbeatTime", Class::Kind, "a time"),
    ("*.status.conditions.*.lastTransitionTime", Class::Kind, "a time"),
    ("cluster.generation", Class::Kind, "how often the lab changed its spec"),
    (
        "cluster.status.observedGeneration",
        Class::Sometimes,
        "Rook loses the last write of a pass when its cache is behind",
    ),
    ("cluster.status.ceph.fsid", Class::Kind, "each cluster has its own"),
    ("cluster.status.ceph.lastChecked", Class::Kind, "a time"),
    ("cluster.status.ceph.capacity.*", Class::Kind, "sizes and a time"),
    ("cluster.status.ceph.versions.*.*", Class::Kind, "number of daemons"),
    ("cluster.status.version.image", Class::Kind, "an address of the lab"),
    ("cluster.status.ceph.health", Class::Kind, "warnings of a small machine are allowed"),
    ("cluster.status.ceph.details.*.*", Class::Sometimes, "the warnings"),
    ("cluster.status.ceph.lastChanged", Class::Sometimes, "only after the health has changed"),
    ("cluster.status.ceph.previousHealth", Class::Sometimes, "only after the health has changed"),
    (
        "cluster.status.storage.deviceClasses.*.name",
        Class::Sometimes,
        "only when the OSDs were up at the end of Rook's last pass",
    ),
];

impl Observations {
    pub fn note(&mut self, path: &str, value: Value) {
        self.0.insert(path.to_owned(), value);
    }

    /// Notes every leaf below a value. `open` names maps whose keys are no names of fields: a star stands for them.
    pub fn note_tree(&mut self, path: &str, value: &Value, open: &[&str]) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, field) in fields {
                    let name = if open.iter().any(|pattern| fits(pattern, path)) { "*" } else { name };
                    self.note_tree(&format!("{path}.{name}"), field, open);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (place, item) in items.iter().enumerate() {
                    self.note_tree(&format!("{path}.{place}"), item, open);
                }
            }
            leaf => self.note(path, leaf.clone()),
        }
    }

    pub fn get(&self, path: &str) -> Option<&Value> {
        self.0.get(path)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes one thing away or changes it, to see whether that is noticed.
    pub fn damage(&mut self, path: &str, value: Option<Value>) {
        match value {
            Some(value) => self.0.insert(path.to_owned(), value),
            None => self.0.remove(path),
        };
    }
}

impl fmt::Display for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, value)| writeln!(f, "{path} = {value}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        write!(f, "{}: the stand-in has {}, Rook has {}", self.path, show(&self.stand_in), show(&self.real))
    }
}

/// Everything in which the stand-in differs from the real Rook, as far as users see it.
pub fn compare(stand_in: &Observations, real: &Observations) -> Vec<Difference> {
    let mut paths: Vec<&String> = stand_in.0.keys().chain(real.0.keys()).collect();
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| !agree(class(path), stand_in.0.get(*path), real.0.get(*path)))
        .map(|path| Difference {
            path: path.clone(),
            stand_in: stand_in.0.get(path).cloned(),
            real: real.0.get(path).cloned(),
        })
        .collect()
}

fn class(path: &str) -> Class {
    VOLATILE.iter().find(|(pattern, ..)| fits(pattern, path)).map_or(Class::Exact, |(_, class, _)| *class)
}

fn agree(class: Class, stand_in: Option<&Value>, real: Option<&Value>) -> bool {
    let (Some(stand_in), Some(real)) = (stand_in, real) else { return class == Class::Sometimes };
    match class {
        Class::Exact => stand_in == real,
        Class::Kind | Class::Sometimes => std::mem::discriminant(stand_in) == std::mem::discriminant(real),
        Class::Story => {
            let short = |story: &Value| -> Option<Vec<Value>> {
                Some(story.as_array()?.iter().filter(|step| **step != "Progressing").cloned().collect())
            };
            stand_in == real || short(stand_in) == short(real)
        }
    }
}

fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), path.split('.').collect());
    pattern.len() == path.len() && pattern.iter().zip(&path).all(|(want, is)| *want == "*" || want == is)
}

fn example() -> Observations {
    let mut seen = Observations::default();
    let status = json!({
        "phase": "Ready", "observedGeneration": 1, "info": { "type": "Replicated" },
        "conditions": [{ "type": "DeletionIsBlocked", "lastHeartbeatTime": "2026-01-01T00:00:00Z" }],
    });
    seen.note_tree("pool.status", &status, &[]);
    seen.note("pool.story", json!(["created", "finalizer", "Progressing", "Ready"]));
    seen.note_tree("cluster.status", &json!({ "ceph": { "fsid": "a", "health": "HEALTH_OK" } }), &[]);
    seen
}

#[test]
fn a_rook_does_not_differ_from_itself() {
    assert_eq!(compare(&example(), &example()), []);
}

#[test]
fn one_changed_status_field_is_one_difference() {
    for (path, value) in [
        ("pool.status.phase", json!("Created")),
        ("pool.status.observedGeneration", json!(2)),
        ("pool.status.info.type", json!("Erasure Coded")),
        ("pool.status.conditions.0.lastHeartbeatTime", json!(1)),
        ("pool.status.poolID", json!(1)),
        ("pool.story", json!(["created", "Progressing", "Ready"])),
        ("cluster.status.ceph.fsid", json!(1)),
    ] {
        let mut damaged = example();
        damaged.damage(path, Some(value));
        let differences = compare(&damaged, &example());
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert_eq!(differences[0].path, path);
        assert_eq!(compare(&example(), &damaged).len(), 1, "{path}, the other way round");
    }
}

#[test]
fn a_missing_status_field_is_a_difference_on_either_side() {
    for path in ["pool.status.info.type", "cluster.status.ceph.fsid", "pool.story"] {
        let mut damaged = example();
        damaged.damage(path, None);
        assert_eq!(compare(&damaged, &example()).len(), 1, "{path}");
        assert_eq!(compare(&example(), &damaged).len(), 1, "{path}");
    }
}

#[test]
fn what_is_called_volatile_may_differ() {
    let mut other = example();
    other.damage("pool.status.conditions.0.lastHeartbeatTime", Some(json!("2027-01-01T00:00:00Z")));
    other.damage("cluster.status.ceph.fsid", Some(json!("b")));
    other.damage("cluster.status.ceph.previousHealth", Some(json!("HEALTH_WARN")));
    other.damage("pool.story", Some(json!(["created", "finalizer", "Ready"])));
    assert_eq!(compare(&example(), &other), []);
}
