//! The words of the made-up family. A `Spring` has water to give; a `Well` wants some of it, gets an allotment, orders a
//! pump from the pump house (which is outside Kubernetes), and keeps a key, a basin, a meter and taps.

use aquifer_base::{Field, Writer};
use aquifer_engine::supply::Reservation;
use aquifer_engine::{Kind, Object, Watch};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
pub const CLAIM: Kind = Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");
pub const GROUP: &str = "proving.aquifer.storage";
/// Label on everything of one run: runs share a cluster and must not see each other.
pub const RUN: &str = "proving.aquifer.storage/run";
/// Annotation of a well; at the value `watch` the code of a watch panics.
pub const PANIC: &str = "proving.aquifer.storage/panic";
pub const FINALIZER: &str = "proving.aquifer.storage/well";
/// On springs: it stays while a well has something of the spring, or may still get it.
pub const SPRING_FINALIZER: &str = "proving.aquifer.storage/spring";

/// The kinds of the family, in a group of their own where a test wants to serve them later.
#[derive(Clone, Debug)]
pub struct Kinds {
    pub well: Kind,
    pub spring: Kind,
    pub meter: Kind,
}

impl Kinds {
    pub fn new() -> Self {
        Self {
            well: Kind::namespaced(GROUP, "v1", "Well", "wells"),
            spring: Kind::namespaced(GROUP, "v1", "Spring", "springs"),
            meter: Kind::namespaced(GROUP, "v1", "Meter", "meters"),
        }
    }

    /// The same, with one kind moved to a group that nobody serves yet.
    pub fn moved(kind: &Kind, group: &str) -> Kind {
        Kind { group: group.to_owned().into(), ..kind.clone() }
    }
}

/// What a user asks of a well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WellSpec {
    pub spring: String,
    pub want: u64,
    pub taps: Vec<String>,
    pub basin: bool,
    pub metered: bool,
}

impl WellSpec {
    pub fn new(want: u64, taps: &[&str]) -> Self {
        let taps = taps.iter().map(|&tap| tap.to_owned()).collect();
        Self { spring: "spring".into(), want, taps, basin: true, metered: true }
    }
}

/// What is recorded before a pump is ordered: the order number finds it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub number: String,
    pub size: u64,
    /// When it was last attempted, or when another process took it over: until some time after that, it may still arrive at the
    /// house.
    pub at: Timestamp,
    /// The process whose clock says so. Another one has a clock of its own, and must wait by that.
    pub by: String,
}

/// The status of a well. `allotted` is written by the spring's controller, the rest by the well's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WellStatus {
    pub allotted: Option<u64>,
    /// The most that our pump may use now. Raised before the pump grows, lowered after it has shrunk.
    pub using: u64,
    pub order: Option<Order>,
    pub pump: Option<String>,
    /// The version of the pump at which a resize was attempted. While the pump has that version, the resize may still arrive.
    pub resizing: Option<u64>,
}

/// What a user says of a spring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpringSpec {
    pub capacity: u64,
}

/// The status of a spring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpringStatus {
    /// What was divided.
    pub capacity: Option<u64>,
    pub claimants: Option<usize>,
    pub allotted: Option<u64>,
    /// Allotments that are under way.
    pub reserved: Vec<Reservation>,
}

pub const WELLS: &str = "proving-wells";
pub const SPRINGS: &str = "proving-springs";

/// Who writes which field.
pub const FIELDS: &[Field] = &[
    Field::of("Well", "spec", Writer::User),
    Field::of("Well", "status.allotted", Writer::Controller(SPRINGS)),
    Field::of("Well", "status.using", Writer::Controller(WELLS)),
    Field::of("Well", "status.order", Writer::Controller(WELLS)),
    Field::of("Well", "status.pump", Writer::Controller(WELLS)),
    Field::of("Well", "status.resizing", Writer::Controller(WELLS)),
    Field::of("Well", "status.conditions[Ready]", Writer::Controller(WELLS)),
    Field::of("Well", "status.conditions[Metered]", Writer::Controller(WELLS)),
    Field::of("Well", "status.conditions[Progressing]", Writer::Controller(WELLS)),
    Field::of("Spring", "spec", Writer::User),
    Field::of("Spring", "status.capacity", Writer::Controller(SPRINGS)),
    Field::of("Spring", "status.claimants", Writer::Controller(SPRINGS)),
    Field::of("Spring", "status.allotted", Writer::Controller(SPRINGS)),
    Field::of("Spring", "status.reserved", Writer::Controller(SPRINGS)),
    Field::of("Spring", "status.conditions[Ready]", Writer::Controller(SPRINGS)),
    Field::of("Spring", "status.conditions[Progressing]", Writer::Controller(SPRINGS)),
];

aquifer_base::reasons! {
    /// The reasons of the family.
    pub enum WellReason {
        Flowing,
        NameTaken,
        Deleting,
        Unallotted,
        PumpHouse,
        Resizing,
        Dry,
        Basin,
        Key,
        Ordering,
        Taps,
        Fitted,
        NotInstalled,
        Divided,
        Up,
    }
}

pub fn well_status(well: &Object) -> WellStatus {
    well.at("/status")
        .map(|status| WellStatus::deserialize(status).expect("a valid status"))
        .unwrap_or_default()
}

/// A well as a user writes it.
pub fn well(kinds: &Kinds, namespace: &str, name: &str, run: &str, spec: &WellSpec) -> Value {
    json!({"apiVersion": kinds.well.api_version(), "kind": "Well", "spec": spec,
        "metadata": {"namespace": namespace, "name": name, "labels": {RUN: run}}})
}

/// A spring as a user writes it.
pub fn spring(kinds: &Kinds, namespace: &str, run: &str, capacity: u64) -> Value {
    spring_named(kinds, namespace, "spring", run, capacity)
}

/// One of several springs.
pub fn spring_named(kinds: &Kinds, namespace: &str, name: &str, run: &str, capacity: u64) -> Value {
    json!({"apiVersion": kinds.spring.api_version(), "kind": "Spring", "spec": {"capacity": capacity},
        "metadata": {"namespace": namespace, "name": name, "labels": {RUN: run}}})
}

/// Watches only what belongs to a run.
pub fn of_run(watch: Watch, run: &str) -> Watch {
    watch.labelled(&format!("{RUN}={run}"))
}

/// State and reason of a condition.
pub fn condition(object: &Object, kind: &str) -> (String, String) {
    let conditions = object.at("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}
