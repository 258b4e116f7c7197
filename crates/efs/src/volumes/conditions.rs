//! What the status of a SharedVolume says in each situation. Every message says what, where and what to do. Decides nothing.

use aquifer_api::component::ComponentReason;
use aquifer_api::efs::{ClaimRef, Phase, SharedVolumeReason, SharedVolumeStatus, VolumeRef};
use aquifer_engine::{Condition, FailureReason, Group, ObjectRef, Report, Seen, State, Why};

use super::access::Verdict;
use super::facts::{ClaimFacts, DriverFacts, VolumeFacts};
use super::nodes::Share;
use super::pair::Pair;
use super::world::World;
use crate::kinds::CLAIM;
use crate::message::{list, some};

/// What keeps a pair from vanishing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The claim is held by pods that mount it, or by its finalizers.
    Claim { pods: Vec<String>, finalizers: Vec<String> },
    /// A volume without a claim is held by its finalizers.
    Volume { name: String, finalizers: Vec<String> },
}

/// What there is of a volume and claim where a new pair is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// Nothing.
    Nothing,
    /// What serves nobody, and is deleted.
    Goes,
    /// A pair, which pods may use.
    Stays,
    /// A pair that an earlier SharedVolume had: it may have been restored before what allows it.
    Waits,
}

/// That it serves is an event only when something was wrong before: otherwise every SharedVolume would cost one.
pub(super) fn ready(world: &World, volume: &VolumeFacts, claim: &ClaimFacts, after_trouble: bool) -> Report {
    let message = format!("pods can mount the claim {}", claim.key.name);
    let condition = Condition::new("Ready", State::True, SharedVolumeReason::Bound, message);
    let condition = if after_trouble { condition.news() } else { condition };
    report(world, Pair { volume: Some(volume), claim: Some(claim) }, condition)
}

pub(super) fn provisioning(world: &World, pair: Pair<'_>) -> Report {
    let message = "the volume and its claim are being made and bound to each other";
    report(world, pair, not_ready(SharedVolumeReason::Provisioning, message)).soon()
}

pub(super) fn replacing(world: &World, pair: Pair<'_>) -> Report {
    let message = "the volume and its claim do not fit the spec any more; they are deleted and made again";
    report(world, pair, not_ready(SharedVolumeReason::Replacing, message))
}

pub(super) fn in_use(world: &World, pair: Pair<'_>, blocked: &Blocked) -> Report {
    let message = format!(
        "the volume and its claim must be replaced, but they are still held by {}; they are made anew as soon as that has gone",
        holders(blocked)
    );
    report(world, pair, not_ready(SharedVolumeReason::InUse, message).warning())
}

pub(super) fn deleting(world: &World, pair: Pair<'_>, blocked: Option<&Blocked>) -> Report {
    let Some(blocked) = blocked else {
        let message = "the volume and its claim are being deleted";
        return report(world, pair, not_ready(SharedVolumeReason::Deleting, message));
    };
    let message = format!(
        "the volume and its claim are being deleted, but they are still held by {}; the deletion finishes as soon as that has gone",
        holders(blocked)
    );
    report(world, pair, not_ready(SharedVolumeReason::InUse, message).warning())
}

pub(super) fn conflict(world: &World, pair: Pair<'_>, thing: &ObjectRef) -> Report {
    let remedy = if thing.kind == CLAIM {
        "Delete it, set another spec.claimName here, or give this SharedVolume another name"
    } else {
        "Delete or rename it, or give this SharedVolume another name"
    };
    let message =
        format!("{thing} exists and does not belong to this SharedVolume; it is left alone. {remedy}");
    report(world, pair, not_ready(SharedVolumeReason::Conflict, message).warning())
}

pub(super) fn not_allowed(world: &World, pair: Pair<'_>, said: &str, remains: Remains) -> Report {
    let message = match remains {
        Remains::Nothing => said.to_owned(),
        Remains::Goes => format!("{said}. What is left of a volume and claim is being deleted"),
        Remains::Stays => format!("{said}. The volume and claim that it has stay as they are"),
        Remains::Waits => format!(
            "{said}. The volume and claim of an earlier SharedVolume of this name stay for an hour after they were bound, and are then deleted unless it is allowed"
        ),
    };
    report(world, pair, not_ready(SharedVolumeReason::NotAllowed, message).warning())
}

/// Whether it is allowed. Apart from Ready: what serves goes on serving when it is revoked.
pub(super) fn allowed(verdict: &Verdict, serves: bool) -> Condition {
    use SharedVolumeReason::{Allowed, AllowedUnknown, NotAllowed, Revoked, Unrestricted};
    let (state, reason, message) = match verdict {
        Verdict::Allowed { by } => (State::True, Allowed, format!("SharedFileSystem {by} allows it")),
        Verdict::Unrestricted => {
            let message =
                "no SharedFileSystem names the file system: every namespace may use all of its data";
            (State::True, Unrestricted, message.to_owned())
        }
        Verdict::Denied(said) if !serves => (State::False, NotAllowed, said.clone()),
        Verdict::Denied(said) => {
            let message =
                format!("the volume and claim stay as they are, but new ones would not be made: {said}");
            return Condition::new("Allowed", State::False, Revoked, message).warning();
        }
        Verdict::Unknown(what, why) => (State::Unknown, AllowedUnknown, unread(what, why)),
    };
    Condition::new("Allowed", state, reason, message)
}

pub(super) fn invalid(world: &World, pair: Pair<'_>) -> Report {
    let message = "spec.fileSystemID is missing; set it to the ID of an EFS file system, for example fs-0123456789abcdef0";
    let condition = Condition::new("Ready", State::False, FailureReason::Invalid, message);
    report(world, pair, condition.warning())
}

/// Nothing is made, and nothing is held: who re-creates SharedVolumes meanwhile does not keep the driver from going.
pub(super) fn driver_removed(world: &World, pair: Pair<'_>) -> Report {
    let message = "the EFS driver is being removed from this cluster, so nothing is made; delete this SharedVolume, or ask an administrator of the cluster to bring the driver back (kubectl delete component efs-driver)";
    report(world, pair, not_ready(SharedVolumeReason::DriverRemoved, message).warning())
}

pub(super) fn namespace_ends(world: &World, pair: Pair<'_>) -> Report {
    let message = "the namespace is being deleted: nothing is made in it any more";
    report(world, pair, not_ready(SharedVolumeReason::Terminating, message))
}

pub(super) fn unknown(world: &World, pair: Pair<'_>, what: &str, why: &Why) -> Report {
    report(world, pair, unknown_condition(what, why))
}

/// Volumes or claims cannot be read. What the status names stays: it may be the only proof of whose a volume is.
pub(super) fn pair_unknown(world: &World, recorded: &SharedVolumeStatus, why: &Why) -> Report {
    let SharedVolumeStatus { claim_ref, claim_uid, volume_ref, .. } = recorded.clone();
    let status = SharedVolumeStatus { claim_ref, claim_uid, volume_ref, ..SharedVolumeStatus::default() };
    report_of(world, &status, unknown_condition("volumes or claims", why))
}

fn unknown_condition(what: &str, why: &Why) -> Condition {
    Condition::new("Ready", State::Unknown, SharedVolumeReason::Unknown, unread(what, why))
}

fn unread(what: &str, why: &Why) -> String {
    let remedy = match why {
        Why::NotServed => "; install our kinds: aquifer crds --families efs | kubectl apply -f -",
        _ => "",
    };
    format!("{what} cannot be read: {why}{remedy}")
}

fn not_ready(reason: SharedVolumeReason, message: impl Into<String>) -> Condition {
    Condition::new("Ready", State::False, reason, message)
}

/// Phase and message sum up `Ready`. Without it, or with a reason that is not ours, they stay as they are.
pub(super) fn summarize(report: &Report, deleting: bool, status: &mut SharedVolumeStatus) {
    use SharedVolumeReason as Is;
    let Some(ready) = report.get("Ready") else { return };
    let phase = match (ready.state, ready.reason::<Is>()) {
        (State::True, _) => Phase::Ready,
        (_, Some(Is::Conflict | Is::NotAllowed | Is::DriverRemoved)) => Phase::Failed,
        (_, Some(Is::Deleting)) => Phase::Deleting,
        (_, Some(Is::InUse)) if deleting => Phase::Deleting,
        (_, Some(_)) => Phase::Pending,
        (_, None) if ready.reason::<FailureReason>().is_some() => Phase::Failed,
        (_, None) => return,
    };
    status.phase = Some(phase);
    status.message = Some(if phase == Phase::Ready { String::new() } else { ready.message.clone() });
}

fn report(world: &World, pair: Pair<'_>, ready: Condition) -> Report {
    let status = SharedVolumeStatus {
        claim_ref: pair.claim.map(|claim| ClaimRef::to(&*claim.key.name)),
        claim_uid: pair.claim.map(|claim| claim.identity.uid.to_string()),
        volume_ref: pair.volume.map(|volume| VolumeRef {
            name: volume.name.clone(),
            uid: Some(volume.identity.uid.to_string()),
        }),
        ..SharedVolumeStatus::default()
    };
    report_of(world, &status, ready)
}

fn report_of(world: &World, status: &SharedVolumeStatus, ready: Condition) -> Report {
    let mut report = Report::new(status).condition(ready);
    let duplicates = match &world.duplicates {
        Group::Few(others) if others.is_empty() => None,
        Group::Few(others) => {
            let names: Vec<String> = others.iter().map(|other| other.name.to_string()).collect();
            Some(format!(
                "SharedVolume {} of this namespace uses the same file system and access point; a pod that mounts both may hang, so use one of them",
                some(&names)
            ))
        }
        Group::Many => Some(format!(
            "{} SharedVolumes of this namespace or more use the same file system and access point, this one included; a pod that mounts several of them may hang, so use one of them",
            Group::NAMED + 1
        )),
    };
    if let Some(message) = duplicates {
        let reason = SharedVolumeReason::SameAccessPoint;
        report = report.condition(Condition::new("Duplicate", State::True, reason, message).warning());
    }
    report.condition(driver(world))
}

/// Whether what mounts volumes on the nodes serves. Apart from Ready: a bound claim stays bound while the driver restarts. Says nothing in the
/// words of the driver's Component, which may name objects of other tenants.
fn driver(world: &World) -> Condition {
    use SharedVolumeReason::{DriverExternal, DriverNotReady, DriverUnknown};
    const ASK: &str = "ask an administrator of the cluster to look at the Component efs-driver";
    let not_ready = |said: String| (State::False, DriverNotReady, said);
    let (state, reason, message) = match &world.driver {
        Seen::Unknown(why) => (State::Unknown, DriverUnknown, format!("the driver's status is {why}")),
        Seen::Known { value: None | Some(DriverFacts { installed: None, .. }), .. } => {
            (State::Unknown, DriverUnknown, "the driver has not reported yet".to_owned())
        }
        Seen::Known { value: Some(driver), .. } => match (driver.installed, driver.reason) {
            (Some(State::True), _) => served(driver),
            (_, Some(ComponentReason::External)) => {
                (State::Unknown, DriverExternal, "another owner runs the driver".to_owned())
            }
            (_, Some(ComponentReason::Installing)) => not_ready("the driver is being installed".to_owned()),
            (_, Some(ComponentReason::Removing)) => not_ready("the driver is being removed".to_owned()),
            (_, Some(ComponentReason::Removed)) => not_ready("the driver has been removed".to_owned()),
            (_, Some(ComponentReason::Conflict)) => {
                not_ready(format!("objects of another owner are in the way of the driver; {ASK}"))
            }
            _ => not_ready(format!("the driver is not installed; {ASK}")),
        },
    };
    Condition::new("DriverReady", state, reason, message)
}

/// Whether the node plugin of a driver that is installed serves.
fn served(driver: &DriverFacts) -> (State, SharedVolumeReason, String) {
    use SharedVolumeReason::{DriverNotReady, DriverPartlyRunning, DriverRunning, DriverUnknown};
    const NO_NODES: &str = "the node plugin is meant for no node, so that no pod can mount a volume; ask an administrator of the cluster to look at the driver's node selector";
    if let Some(nodes) = driver.nodes {
        let said = nodes.said();
        return match nodes.share() {
            Share::NoNodes => (State::False, DriverNotReady, NO_NODES.to_owned()),
            Share::None => (
                State::False,
                DriverNotReady,
                format!("the node plugin serves on {said}: new pods wait until it does"),
            ),
            Share::Some => (
                State::True,
                DriverPartlyRunning,
                format!("the node plugin serves on {said}; pods on the other nodes wait until it does"),
            ),
            Share::All => (State::True, DriverRunning, format!("the node plugin serves on {said}")),
        };
    }
    match driver.nodes_ready {
        Some(ComponentReason::Running) => {
            let message = "the node plugin serves on all nodes that it is meant for";
            (State::True, DriverRunning, message.to_owned())
        }
        Some(ComponentReason::NoNodes) => (State::False, DriverNotReady, NO_NODES.to_owned()),
        Some(ComponentReason::NotRunning) => {
            let message =
                "the node plugin does not serve on all nodes; pods on the others wait until it does";
            (State::False, DriverNotReady, message.to_owned())
        }
        _ => (State::Unknown, DriverUnknown, "the node plugin has not reported yet".to_owned()),
    }
}

fn holders(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Claim { pods, .. } if !pods.is_empty() => {
            format!("pods that mount the claim: {}", list(pods))
        }
        Blocked::Claim { finalizers, .. } if finalizers.is_empty() => {
            "an unknown holder: the claim has no finalizers".into()
        }
        Blocked::Claim { finalizers, .. } => format!("the claim's finalizers: {}", list(finalizers)),
        Blocked::Volume { name, finalizers } => {
            format!("the finalizers of PersistentVolume {name}: {}", list(finalizers))
        }
    }
}
