//! What the status of the driver's Component says in each situation. Decides nothing.

use aquifer_api::component::{ComponentObject, ComponentReason, ComponentStatus, ObjectState};
use aquifer_base::NamespaceName;
use aquifer_engine::{Condition, Key, Report, Seen, State};

use super::facts::PartFacts;
use crate::kinds::DAEMON_SET;
use crate::manifests::{Manifest, POD_SECURITY};
use crate::message::list;

/// One object of the driver as it should be and as it is.
pub(super) struct Part<'a> {
    pub manifest: Manifest,
    pub live: &'a Seen<Option<PartFacts>>,
    /// Whether what is there is ours.
    pub ours: bool,
}

impl Part<'_> {
    pub fn ours(&self) -> Option<&PartFacts> {
        self.live.present().filter(|_| self.ours)
    }

    pub fn foreign(&self) -> bool {
        self.live.present().is_some() && !self.ours
    }
}

pub(super) fn moved(key: &Key, from: &str, to: &NamespaceName, objects: Vec<ComponentObject>) -> Report {
    let message = format!(
        "the driver is in namespace {from}, but the operator is told to keep it in {to} (--efs-namespace, efs.namespace of the chart): set that back to {from}. To move it, take it away first with `aquifer efs uninstall`. If it is gone already: kubectl delete component {}",
        key.name
    );
    let status = ComponentStatus { objects, ..ComponentStatus::default() };
    Report::new(&status).condition(not_ready(ComponentReason::Conflict, message).warning())
}

pub(super) fn installed(parts: &[Part<'_>], in_the_way: &[String], absent: bool) -> Report {
    let ready = if !in_the_way.is_empty() {
        let message = format!(
            "these objects exist and are not ours, so they are left alone: {}. Delete them, or run with --efs-driver=external",
            list(in_the_way)
        );
        not_ready(ComponentReason::Conflict, message).warning()
    } else if absent {
        not_ready(ComponentReason::Installing, "the driver's objects are being made")
    } else {
        Condition::new("Ready", State::True, ComponentReason::Installed, "the driver is installed").news()
    };
    let soon = absent && in_the_way.is_empty();
    let report = report(parts, ready).condition(nodes(parts));
    if soon { report.soon() } else { report }
}

pub(super) fn external_by_flag(parts: &[Part<'_>]) -> Report {
    external(parts, "the driver is managed by another tool (--efs-driver=external)")
}

pub(super) fn external_by_driver(parts: &[Part<'_>]) -> Report {
    let why = "a CSIDriver efs.csi.aws.com exists that is not ours: the driver is managed by another tool and nothing is installed. To let Aquifer manage it, remove that driver first";
    external(parts, why)
}

fn external(parts: &[Part<'_>], why: &str) -> Report {
    report(parts, Condition::new("Ready", State::Unknown, ComponentReason::External, why).news())
}

pub(super) fn needed(parts: &[Part<'_>], by: &[String]) -> Report {
    let message =
        format!("the driver goes when nothing needs it any more; it is still needed by {}", list(by));
    report(parts, not_ready(ComponentReason::Removing, message)).soon()
}

pub(super) fn removing(parts: &[Part<'_>], left: &[String]) -> Report {
    let message = format!("the driver is being removed; still there: {}", list(left));
    report(parts, not_ready(ComponentReason::Removing, message)).soon()
}

pub(super) fn removed(parts: &[Part<'_>], asked_for: bool) -> Report {
    let message = if asked_for {
        "the driver has been removed; to have it again: kubectl delete component efs-driver"
    } else {
        "SharedVolumes are not defined in this cluster, so there is no driver; it comes with their definition (`aquifer crds`)"
    };
    report(parts, not_ready(ComponentReason::Removed, message).news())
}

/// The message sums up `Ready`.
pub(super) fn summarize(report: &Report, status: &mut ComponentStatus) {
    if let Some(ready) = report.get("Ready") {
        status.message = Some(ready.message.clone());
    }
}

fn not_ready(reason: ComponentReason, message: impl Into<String>) -> Condition {
    Condition::new("Ready", State::False, reason, message)
}

fn report(parts: &[Part<'_>], ready: Condition) -> Report {
    let objects = parts.iter().map(|part| {
        let (state, message) = state(part);
        let target = &part.manifest.target;
        ComponentObject {
            kind: target.kind.kind.to_string(),
            namespace: Some(target.key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: target.key.name.to_string(),
            uid: part.live.present().map(|live| live.identity.uid.to_string()),
            state,
            message,
        }
    });
    let status = ComponentStatus { objects: objects.collect(), ..ComponentStatus::default() };
    Report::new(&status).condition(ready)
}

fn state(part: &Part<'_>) -> (ObjectState, Option<String>) {
    match part.live {
        Seen::Known { value: None, .. } => (ObjectState::Missing, None),
        Seen::Known { value: Some(live), .. } if !part.ours => {
            (ObjectState::Foreign, Some(foreign(part, live)))
        }
        Seen::Known { value: Some(live), .. } if live.deleting => (ObjectState::Deleting, None),
        Seen::Known { .. } => (ObjectState::Current, None),
        Seen::Unknown(why) => (ObjectState::Missing, Some(format!("cannot be read: {why}"))),
    }
}

/// A namespace that was there before is used as it is, so it must allow what the node plugin needs.
fn foreign(part: &Part<'_>, live: &PartFacts) -> String {
    let left_alone = "it was not made by Aquifer and is left alone";
    match part.manifest.pod_security {
        Some(level) if live.pod_security.as_deref() != Some(level) => format!(
            "{left_alone}; it is used, but without the label {POD_SECURITY}={level} the node plugin's pods may be refused"
        ),
        _ => left_alone.to_owned(),
    }
}

/// Whether the node plugin runs where it should.
fn nodes(parts: &[Part<'_>]) -> Condition {
    use ComponentReason::{NoNodes, NotInstalled, NotRunning, Running};
    let plugin = parts.iter().find(|part| part.manifest.target.kind == DAEMON_SET);
    let found = plugin.and_then(|part| Some((part.live.present()?.nodes, &part.manifest.target.key)));
    let (state, reason, message) = match found {
        None => (State::Unknown, NotInstalled, "the node plugin is not there yet".to_owned()),
        Some((nodes, _)) if nodes.wanted == 0 => {
            (State::Unknown, NoNodes, "no node matches the node plugin's selector".to_owned())
        }
        Some((nodes, _)) if nodes.ready >= nodes.wanted => {
            (State::True, Running, format!("the node plugin runs on all {} nodes", nodes.wanted))
        }
        Some((nodes, key)) => (
            State::False,
            NotRunning,
            format!(
                "the node plugin is ready on {} of {} nodes; see DaemonSet {key}",
                nodes.ready, nodes.wanted
            ),
        ),
    };
    Condition::new("NodesReady", state, reason, message)
}
