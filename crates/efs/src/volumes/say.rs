//! The words: what the status of a SharedVolume says in each situation. Every message tells what, where and what to do.

use aquifer_api::efs::ClaimRef;
use aquifer_engine::{Condition, Object, Seen, State, Status, Why};
use serde_json::{Value, json};

use super::world::World;

/// How many names a message lists.
const NAMES: usize = 5;

/// What keeps a pair from vanishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocked {
    pub pods: Vec<String>,
    pub claim_finalizers: Vec<String>,
    /// A volume without a claim that does not go: its name and finalizers.
    pub volume: Option<(String, Vec<String>)>,
}

type Pair<'a> = (Option<&'a Object>, Option<&'a Object>);

pub(super) fn ready(world: &World, volume: &Object, claim: &Object) -> Status {
    let condition =
        Condition::new("Ready", State::True, "Bound", format!("pods can mount the claim {}", claim.name()));
    status(world, "Ready", &(Some(volume), Some(claim)), condition, false)
}

pub(super) fn provisioning(world: &World, volume: Option<&Object>, claim: Option<&Object>) -> Status {
    let message = "the volume and its claim are being made and bound to each other";
    let condition = Condition::new("Ready", State::False, "Provisioning", message);
    status(world, "Pending", &(volume, claim), condition, true).soon()
}

pub(super) fn replacing(world: &World, pair: &Pair<'_>) -> Status {
    let message = "the volume and its claim no longer serve; they are deleted and made anew";
    status(world, "Pending", pair, Condition::new("Ready", State::False, "Replacing", message), true)
}

pub(super) fn in_use(world: &World, pair: &Pair<'_>, blocked: &Blocked) -> Status {
    let message = format!(
        "the volume and its claim must be replaced, but they are still held by {}; they are made anew as soon as that has gone",
        holders(blocked)
    );
    status(world, "Pending", pair, Condition::new("Ready", State::False, "InUse", message).warning(), true)
}

pub(super) fn deleting(world: &World, pair: &Pair<'_>, blocked: &Blocked) -> Status {
    if blocked == &Blocked::default() {
        let condition =
            Condition::new("Ready", State::False, "Deleting", "the volume and its claim are being deleted");
        return status(world, "Deleting", pair, condition, true);
    }
    let message = format!(
        "the volume and its claim are being deleted, but they are still held by {}; the deletion finishes as soon as that has gone",
        holders(blocked)
    );
    status(world, "Deleting", pair, Condition::new("Ready", State::False, "InUse", message).warning(), true)
}

pub(super) fn conflict(world: &World, pair: &Pair<'_>, thing: &Object) -> Status {
    let message = format!(
        "{} {} exists and does not belong to this SharedVolume; it is left alone. Delete or rename it, or give this SharedVolume another name",
        thing.text("/kind"),
        thing.key()
    );
    status(world, "Failed", pair, Condition::new("Ready", State::False, "Conflict", message).warning(), true)
}

pub(super) fn invalid(world: &World) -> Status {
    let message = "spec.fileSystemID is missing; set it to the ID of an EFS file system, for example fs-0123456789abcdef0";
    status(
        world,
        "Failed",
        &(None, None),
        Condition::new("Ready", State::False, "Invalid", message).warning(),
        true,
    )
}

pub(super) fn namespace_ends(world: &World) -> Status {
    let message = "the namespace is being deleted: nothing is made in it any more";
    status(
        world,
        "Pending",
        &(None, None),
        Condition::new("Ready", State::False, "Terminating", message),
        true,
    )
}

pub(super) fn unknown(world: &World, why: Option<&Why>) -> Status {
    let message =
        format!("volumes or claims cannot be read: {}", why.map(ToString::to_string).unwrap_or_default());
    status(world, "Pending", &(None, None), Condition::new("Ready", State::Unknown, "Unknown", message), true)
}

fn status(world: &World, phase: &str, (volume, claim): &Pair<'_>, ready: Condition, tell: bool) -> Status {
    let message = if tell { ready.message.clone() } else { String::new() };
    let mut status = Status::default().field("phase", phase).field("message", message).condition(ready);
    if let Some(claim) = claim {
        let reference = serde_json::to_value(ClaimRef::to(claim.name())).unwrap_or(Value::Null);
        status = status.field("claimRef", reference).field("claimUID", claim.uid());
    }
    if let Some(volume) = volume {
        status = status.field("volumeRef", json!({"name": volume.name(), "uid": volume.uid()}));
    }
    if !world.twins.is_empty() {
        let message = format!(
            "the same data is also meant by SharedVolume {} of this namespace; a pod that mounts both may hang, so use one of them",
            some(&world.twins)
        );
        status =
            status.condition(Condition::new("Duplicate", State::True, "SameAccessPoint", message).warning());
    }
    status.condition(driver(world))
}

/// Whether what mounts volumes on the nodes is there. Apart from Ready: a bound claim stays bound while the driver restarts.
fn driver(world: &World) -> Condition {
    let make = |state, reason: &str, message: String| Condition::new("DriverReady", state, reason, message);
    let component = match &world.driver {
        Seen::Known { value: Some(component), .. } => component,
        Seen::Known { value: None, .. } => {
            return make(State::Unknown, "DriverUnknown", "the driver has not reported yet".into());
        }
        Seen::Unknown(why) => {
            return make(State::Unknown, "DriverUnknown", format!("the driver's status is {why}"));
        }
    };
    let Some(ready) = component.condition("Ready") else {
        return make(State::Unknown, "DriverUnknown", "the driver has not reported yet".into());
    };
    let text = |field: &str| ready.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    match (text("status").as_str(), text("reason").as_str()) {
        ("True", _) => make(State::True, "DriverRunning", "the driver is installed".into()),
        (_, "External") => make(State::Unknown, "DriverExternal", text("message")),
        _ => make(State::False, "DriverNotReady", text("message")),
    }
}

fn holders(blocked: &Blocked) -> String {
    if !blocked.pods.is_empty() {
        return format!("pods that mount the claim: {}", list(&blocked.pods));
    }
    match (&blocked.volume, blocked.claim_finalizers.as_slice()) {
        (Some((name, finalizers)), _) => {
            format!("the finalizers of PersistentVolume {name}: {}", list(finalizers))
        }
        (None, []) => "something that does not say so".into(),
        (None, finalizers) => format!("the claim's finalizers: {}", list(finalizers)),
    }
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES);
    let shown = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Names without their number: where it grows with every newcomer, the message of each of them would change every time.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMES { format!("{shown} and others") } else { shown }
}
