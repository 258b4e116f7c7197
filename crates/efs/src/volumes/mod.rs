//! The controller of SharedVolumes: each gets one claim in its namespace, and one volume for that claim.
//!
//! `world` says what is looked at, `decide` what follows from it, `conditions` what the status says of it. `access` says whether the
//! administrator allows it, `ownership` whose a volume or claim is, `pair` what of them serves the `wish`. `facts` reads objects; `volume`
//! and `claim` are what we make.

mod absence;
mod access;
mod claim;
mod conditions;
mod data;
mod decide;
mod facts;
mod names;
mod nodes;
mod owner;
mod ownership;
mod pair;
#[cfg(test)]
mod tests;
mod volume;
mod wish;
mod world;

use std::time::Duration;

use aquifer_api::efs::{SharedVolumeSpec, SharedVolumeStatus};
use aquifer_engine::{Controller, Key, Kind, Object, Plan, Report, Shape, View, Wakes, Watch};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;

use crate::fields::FIELDS;
use crate::kinds::{CLAIM, COMPONENT, NAMESPACE, SHARED_FILE_SYSTEM, SHARED_VOLUME, VOLUME};
use crate::names::{driver, labels};
pub(crate) use access::readable;
pub use access::{AccessPoints, FileSystemFacts, Tenancy};
pub use data::Data;
pub use facts::{ClaimFacts, ClaimPhase, ClaimReference, DriverFacts, OwnerMarks, VolumeFacts};
pub use names::{claim_name, volume_name};
pub use nodes::Nodes;
pub use world::World;

use owner::owner_selector;

/// What the names of aws-efs-operator's labels begin with.
const UPSTREAM_MARKS: &str = "openshift.io/aws-efs-operator-";
/// Seconds after which something that was deleted is slow to go: then the pods that hold it are asked for.
const LINGERING: i64 = 3;
/// Seconds after which it is reported that a deleted object stays although nothing is known to hold it.
const OVERDUE: i64 = 120;
/// Seconds after which it is asked whether the other half of a pair that goes, and that no cache shows, is really gone. When many
/// pairs are deleted at once Kubernetes needs more than a minute; `aquifer efs uninstall` waits for two.
const UNSEEN: i64 = 90;

/// How long what a SharedVolume has left stays; see [`Volumes::grace`].
const GRACE: Duration = Duration::from_hours(1);

/// Where the labels of a namespace are kept: what is looked at of it is nothing else.
const LABELS: &str = "labelsOfNamespace";

type Subject = aquifer_engine::Subject<SharedVolumeSpec, SharedVolumeStatus>;

/// Field manager and name in logs and metrics.
pub const NAME: &str = "aquifer-efs-volumes";

/// The controller.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// Who may use a file system that no SharedFileSystem names.
    pub tenancy: Tenancy,
    /// How long a volume and claim stay whose SharedVolume is missing, counted from when they were made or bound: a restore may bring it
    /// later.
    pub grace: Duration,
}

impl Default for Volumes {
    fn default() -> Self {
        Self { tenancy: Tenancy::default(), grace: GRACE }
    }
}

#[async_trait]
impl Controller for Volumes {
    type Spec = SharedVolumeSpec;
    type Status = SharedVolumeStatus;
    type World = World;

    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> Kind {
        SHARED_VOLUME
    }

    fn watches(&self) -> Vec<Watch> {
        let owned = format!("{}=true", labels::OWNED);
        vec![
            Watch::subjects(SHARED_VOLUME).grouped(data_group_of).topics(topics_of),
            Watch::new(SHARED_FILE_SYSTEM, |found| Wakes::Topic(file_system_of(found)))
                .topics(|found| vec![file_system_of(found)])
                .facts(|found| json!({"spec": found.0["spec"]})),
            Watch::new(VOLUME, wake_owner)
                .labelled(&owned)
                .named_by(owner_selector)
                .marked(UPSTREAM_MARKS)
                .keep(&["/spec", "/status/phase", "/status/lastPhaseTransitionTime"]),
            Watch::new(CLAIM, wake_owner)
                .labelled(&owned)
                .named_by(owner_selector)
                .marked(UPSTREAM_MARKS)
                .marked(facts::BIND_COMPLETED)
                .marked(facts::BOUND_BY_CONTROLLER)
                .topics(|claim| vec![claims_topic(claim.namespace(), claim.text("/spec/volumeName"))])
                .keep(&["/spec", "/status/phase"]),
            Watch::new(NAMESPACE, |namespace| Wakes::Topic(namespace_topic(namespace.name())))
                .facts(|namespace| json!({LABELS: namespace.at("/metadata/labels")})),
            Watch::new(COMPONENT, |_| Wakes::AllKeys).named(driver::COMPONENT).facts(DriverFacts::kept),
        ]
    }

    fn finalizers(&self) -> &'static [&'static str] {
        &[labels::SHARED_VOLUME_FINALIZER, labels::UPSTREAM_FINALIZER]
    }

    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &SHARED_VOLUME.kind, NAME)
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> World {
        world::observe(subject, view)
    }

    fn decide(&self, subject: &Subject, world: &World, now: Timestamp) -> Plan {
        decide::decide(subject, world, self, now)
    }

    fn summarize(&self, report: &Report, deleting: bool, status: &mut SharedVolumeStatus) {
        conditions::summarize(report, deleting, status);
    }
}

/// What a SharedVolume is about: its file system and its namespace, which decide whether it is allowed.
fn topics_of(shared: &Object) -> Vec<String> {
    vec![file_system_of(shared), namespace_topic(shared.namespace())]
}

/// The topic of the file system that a SharedVolume or a SharedFileSystem names.
pub(crate) fn file_system_of(object: &Object) -> String {
    file_system_topic(object.text("/spec/fileSystemID"))
}

pub(crate) fn file_system_topic(id: &str) -> String {
    format!("file-system/{id}")
}

fn namespace_topic(namespace: &str) -> String {
    format!("namespace/{namespace}")
}

/// The topic of the claims of a namespace that ask for a volume.
fn claims_topic(namespace: &str, volume: &str) -> String {
    format!("claims/{namespace}/{volume}")
}

/// Whom a volume or claim belongs to: our annotation, or the labels of aws-efs-operator where that is missing.
fn wake_owner(child: &Object) -> Wakes {
    let ours = aquifer_engine::owner_key(child);
    let upstream = || {
        let (namespace, name) = (child.label(labels::OWNER_NAMESPACE)?, child.label(labels::OWNER_NAME)?);
        Some(Key::namespaced(namespace, name))
    };
    // Users write the marks of claims: one cannot be of a SharedVolume in another namespace.
    let near = |key: &Key| child.namespace().is_empty() || *key.namespace == *child.namespace();
    ours.or_else(upstream).filter(near).map_or(Wakes::NoKey, |key| Wakes::Keys(vec![key]))
}

/// The group of the SharedVolumes of one namespace that mean the same data.
fn data_group(namespace: &str, data: &Data) -> String {
    format!("{namespace}/{}", data.handle())
}

fn data_group_of(shared: &Object) -> Option<String> {
    if shared.deleting() {
        return None;
    }
    let data = Data::asked_for(shared.text("/spec/fileSystemID"), shared.text("/spec/accessPointID"))?;
    Some(data_group(shared.namespace(), &data))
}
