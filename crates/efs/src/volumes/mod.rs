//! The controller of SharedVolumes: each gets one volume, pre-bound to one claim in its namespace.
//!
//! [`observe`](world) says what is looked at, [`decide`](decide) what follows from it; `pair` knows how volume and claim look
//! and to whom they belong.

mod decide;
mod pair;
mod say;
#[cfg(test)]
mod tests;
mod world;

use crate::names::{driver, labels};
use aquifer_engine::{
    ChildKind, Controller, Fault, Key, Kind, Object, Plan, Shape, State, Status, Subject, View, Wakes, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{CLAIM, COMPONENT, NAMESPACE, SHARED_VOLUME, VOLUME};
pub use pair::{claim_name, volume_name};
pub use world::World;

/// Field manager and name in logs and metrics.
pub const NAME: &str = "aquifer-efs-volumes";

/// The controller; it has no settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Volumes;

#[async_trait]
impl Controller for Volumes {
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
            Watch::subjects(SHARED_VOLUME).grouped(|shared| Some(same_data(shared))),
            Watch::new(VOLUME, wake_owner).labelled(&owned),
            Watch::new(CLAIM, wake_owner).labelled(&owned),
            Watch::new(NAMESPACE, |_| Wakes::Nobody).slim(only_liveness),
            Watch::new(COMPONENT, |_| Wakes::Everybody).named(driver::COMPONENT).slim(only_readiness),
        ]
    }

    fn children(&self) -> Vec<ChildKind> {
        // Both stand for somebody's data: they are deleted only where `decide` says so.
        vec![ChildKind { kind: VOLUME, prune: false }, ChildKind { kind: CLAIM, prune: false }]
    }

    fn finalizers(&self) -> &'static [&'static str] {
        &[labels::SHARED_VOLUME_FINALIZER, labels::UPSTREAM_FINALIZER]
    }

    fn shape(&self) -> Shape {
        Shape {
            fields: &["phase", "message", "claimRef", "claimUID", "volumeRef"],
            conditions: &["Ready", "DriverReady", "Duplicate", "Progressing"],
        }
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> World {
        world::observe(subject, view)
    }

    fn decide(&self, subject: &Subject, world: &World, now: Timestamp) -> Plan {
        decide::decide(subject, world, now)
    }

    fn explain(&self, status: &mut Status, fault: &Fault) {
        status.failed(fault);
        if status
            .get("Ready")
            .is_some_and(|ready| ready.state == State::False && ready.message == fault.message)
        {
            status.fields.insert("phase".into(), "Failed".into());
            status.fields.insert("message".into(), fault.message.clone().into());
        }
    }
}

/// Whom a volume or claim belongs to: our annotation, or the labels of aws-efs-operator where that is missing.
fn wake_owner(child: &Object) -> Wakes {
    let ours = aquifer_engine::intent::owner_key(child);
    let upstream = || {
        let (namespace, name) = (child.label(labels::OWNER_NAMESPACE)?, child.label(labels::OWNER_NAME)?);
        Some(Key::namespaced(namespace, name))
    };
    ours.or_else(upstream).map_or(Wakes::Nobody, |key| Wakes::Keys(vec![key]))
}

/// SharedVolumes of one namespace that mean the same data.
fn same_data(shared: &Object) -> String {
    let access_point = shared.text("/spec/accessPointID");
    format!("{}/{}::{access_point}", shared.namespace(), shared.text("/spec/fileSystemID"))
}

fn only_liveness(namespace: &mut Value) {
    let mut metadata = json!({"name": namespace["metadata"]["name"], "uid": namespace["metadata"]["uid"]});
    if let Some(time) = namespace["metadata"].get("deletionTimestamp") {
        metadata["deletionTimestamp"] = time.clone();
    }
    *namespace = json!({"metadata": metadata});
}

/// Every SharedVolume looks at the driver's readiness: nothing else about it may wake them all.
fn only_readiness(component: &mut Value) {
    let ready = Object(component.clone()).condition("Ready").map(|ready| {
        json!({"type": "Ready", "status": ready["status"], "reason": ready["reason"], "message": ready["message"]})
    });
    let metadata = json!({"name": component["metadata"]["name"], "uid": component["metadata"]["uid"]});
    *component =
        json!({"metadata": metadata, "status": {"conditions": ready.into_iter().collect::<Vec<_>>()}});
}
