//! What the status of the driver's Component says in each situation. Decides nothing.

use aquifer_api::component::{ComponentObject, ComponentReason, ComponentStatus, NodeCounts, ObjectState};
use aquifer_base::NamespaceName;
use aquifer_engine::{Condition, Key, Report, Seen, State};

use super::facts::PartFacts;
use super::place::Trouble;
use crate::kinds::DAEMON_SET;
use crate::manifests::Manifest;
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

/// All that the status lists.
pub(super) struct Parts<'a> {
    /// What the installation makes.
    pub place: Vec<ComponentObject>,
    /// What we make.
    pub parts: Vec<Part<'a>>,
}

impl Parts<'_> {
    /// As the status lists them.
    pub fn listed(&self) -> Vec<ComponentObject> {
        self.place.iter().cloned().chain(self.parts.iter().map(listed)).collect()
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

pub(super) fn installed(
    all: &Parts<'_>,
    trouble: Option<&Trouble>,
    in_the_way: &[String],
    absent: bool,
) -> Report {
    let ready = if let Some(Trouble::Foreign(why)) = trouble {
        let message = format!(
            "{why}, so nothing is put there. If you made it yourself, install Aquifer again (helm upgrade --take-ownership, or aquifer install --take-over) and then: kubectl delete component efs-driver. Otherwise delete it first"
        );
        not_ready(ComponentReason::Conflict, message).warning()
    } else if !in_the_way.is_empty() {
        let message = format!(
            "these objects exist and are not ours, so they are left alone: {}. Delete them, or run with --efs-driver=external",
            list(in_the_way)
        );
        not_ready(ComponentReason::Conflict, message).warning()
    } else if let Some(Trouble::Missing(what)) = trouble {
        let message = format!(
            "{what} is missing, which is made when Aquifer is installed; install it again: helm upgrade, or aquifer install"
        );
        not_ready(ComponentReason::NotPrepared, message).warning()
    } else if let Some(Trouble::Unread(said)) = trouble {
        let message = format!(
            "{said}. The right to read it is given when Aquifer is installed; install it again: helm upgrade, or aquifer install"
        );
        not_ready(ComponentReason::NotPrepared, message).warning()
    } else if absent {
        not_ready(ComponentReason::Installing, "the driver's objects are being made")
    } else {
        Condition::new("Ready", State::True, ComponentReason::Installed, "the driver is installed").news()
    };
    let soon = absent && in_the_way.is_empty() && trouble.is_none();
    let status = ComponentStatus {
        objects: all.listed(),
        nodes: node_counts(&all.parts),
        ..ComponentStatus::default()
    };
    let report = Report::new(&status).condition(ready).condition(nodes(&all.parts));
    if soon { report.soon() } else { report }
}

pub(super) fn external_by_flag(recorded: Vec<ComponentObject>) -> Report {
    external(recorded, "the driver is managed by another tool (--efs-driver=external)")
}

pub(super) fn external_by_driver(all: &Parts<'_>) -> Report {
    let why = "a CSIDriver efs.csi.aws.com exists that is not ours: the driver is managed by another tool and nothing is installed. To let Aquifer manage it, remove that driver first";
    external(all.listed(), why)
}

fn external(objects: Vec<ComponentObject>, why: &str) -> Report {
    report(objects, Condition::new("Ready", State::Unknown, ComponentReason::External, why).news())
}

pub(super) fn needed(objects: Vec<ComponentObject>, by: &[String]) -> Report {
    let message =
        format!("the driver goes when nothing needs it any more; it is still needed by {}", list(by));
    report(objects, not_ready(ComponentReason::Removing, message)).soon()
}

pub(super) fn removing(all: &Parts<'_>, left: &[String]) -> Report {
    let message = format!("the driver is being removed; still there: {}", list(left));
    report(all.listed(), not_ready(ComponentReason::Removing, message)).soon()
}

pub(super) fn left_behind(objects: Vec<ComponentObject>, left: &[String]) -> Report {
    let message = format!(
        "Aquifer made {} and has no rights to them with --efs-driver=external. Set it to managed until the driver is removed; if they are gone already: kubectl delete component efs-driver",
        list(left)
    );
    report(objects, not_ready(ComponentReason::Removing, message).warning())
}

pub(super) fn removed(objects: Vec<ComponentObject>, asked_for: bool) -> Report {
    let message = if asked_for {
        "the driver has been removed; to have it again: kubectl delete component efs-driver"
    } else {
        "SharedVolumes are not defined in this cluster, so there is no driver; it comes with their definition (`aquifer crds`)"
    };
    report(objects, not_ready(ComponentReason::Removed, message).news())
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

fn report(objects: Vec<ComponentObject>, ready: Condition) -> Report {
    Report::new(&ComponentStatus { objects, ..ComponentStatus::default() }).condition(ready)
}

fn listed(part: &Part<'_>) -> ComponentObject {
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
}

fn state(part: &Part<'_>) -> (ObjectState, Option<String>) {
    match part.live {
        Seen::Known { value: None, .. } => (ObjectState::Missing, None),
        Seen::Known { value: Some(_), .. } if !part.ours => {
            let message = "it was not made by Aquifer and is left alone";
            (ObjectState::Foreign, Some(message.to_owned()))
        }
        Seen::Known { value: Some(live), .. } if live.deleting => (ObjectState::Deleting, None),
        Seen::Known { .. } => (ObjectState::Current, None),
        Seen::Unknown(why) => (ObjectState::Missing, Some(format!("cannot be read: {why}"))),
    }
}

/// On how many nodes the node plugin should run and does; none while there is none of ours.
fn node_counts(parts: &[Part<'_>]) -> Option<NodeCounts> {
    let plugin = parts.iter().find(|part| part.manifest.target.kind == DAEMON_SET)?;
    Some(plugin.ours()?.nodes)
}

/// Whether the node plugin runs where it should.
fn nodes(parts: &[Part<'_>]) -> Condition {
    use ComponentReason::{NoNodes, NotInstalled, NotRunning, Running};
    let plugin = parts.iter().find(|part| part.manifest.target.kind == DAEMON_SET);
    let found = plugin.and_then(|part| Some((node_counts(parts)?, &part.manifest.target.key)));
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
