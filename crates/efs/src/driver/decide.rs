//! What follows for the driver from what is seen. Pure.

use std::time::Duration;

use aquifer_api::component::{ComponentObject, ObjectState};
use aquifer_engine::intent::OWNER;
use aquifer_engine::plan::Child;
use aquifer_engine::{Condition, Expect, Object, ObjectRef, Plan, Seen, State, Status, Step, Subject};
use serde_json::Value;

use super::world::{World, marked, number, unwanted};
use super::{Driver, Management};
use crate::kinds::{self, CSI_DRIVER, DAEMON_SET, NAMESPACE};
use crate::statics::{self, Static};

/// While something holds the driver, how often it is asked for again.
const HELD: Duration = Duration::from_secs(3);
const NAMES: usize = 5;

/// One object of the driver as it should be and as it is.
struct Part<'a> {
    item: Static,
    target: ObjectRef,
    live: &'a Seen<Option<Object>>,
}

impl Part<'_> {
    fn ours(&self, subject: &Subject) -> Option<&Object> {
        self.live.present().filter(|live| is_ours(live, subject))
    }

    fn foreign(&self, subject: &Subject) -> bool {
        self.live.present().is_some_and(|live| !is_ours(live, subject))
    }
}

/// What the status recorded, entry by entry.
fn recorded(subject: &Subject) -> impl Iterator<Item = &Value> {
    let objects =
        subject.object.as_ref().and_then(|object| object.at("/status/objects")).and_then(Value::as_array);
    objects.into_iter().flatten()
}

/// The namespace of a node plugin of ours that is not where it should be now.
fn elsewhere<'a>(subject: &'a Subject, namespace: &str) -> Option<&'a str> {
    let text = |object: &'a Value, field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    recorded(subject)
        .filter(|object| text(object, "kind") == DAEMON_SET.kind.as_ref())
        .filter(|object| ["Current", "Deleting", "Failed"].contains(&text(object, "state")))
        .map(|object| text(object, "namespace"))
        .find(|place| *place != namespace)
}

/// Ours by its mark, or because the status recorded its uid when the mark was still there.
fn is_ours(live: &Object, subject: &Subject) -> bool {
    live.annotation(OWNER) == Some(&subject.key.to_string())
        || recorded(subject).any(|object| {
            object.get("uid").is_some_and(|uid| uid == live.uid())
                && object.get("state").is_none_or(|s| s != "Foreign")
        })
}

pub(super) fn decide(driver: &Driver, subject: &Subject, world: &World) -> Plan {
    if subject.object.is_none() {
        return Plan::none(); // it is made again at once; until then nothing is touched
    }
    if let Some(place) = elsewhere(subject, &world.config.namespace) {
        return moved(subject, place, &world.config.namespace);
    }
    let parts: Vec<Part<'_>> = statics::objects(&world.config)
        .into_iter()
        .zip(&world.objects)
        .filter_map(|(item, live)| Some(Part { target: kinds::of(&item.object)?, item, live }))
        .collect();
    if unwanted(subject, &world.crd) {
        return remove(subject, world, &parts);
    }
    if driver.management == Management::External {
        return external(subject, &parts, "the driver is managed by somebody else (--efs-statics=external)");
    }
    if parts.iter().any(|part| part.target.kind == CSI_DRIVER && part.foreign(subject)) {
        let why = "a CSIDriver efs.csi.aws.com exists that is not ours: the driver is managed by somebody else and nothing is installed. To let Aquifer manage it, remove that driver first";
        return external(subject, &parts, why);
    }
    install(subject, &parts)
}

/// Two node plugins cannot serve one node, and the rights are those for the new place: nothing is touched, and what was made stays recorded.
fn moved(subject: &Subject, from: &str, to: &str) -> Plan {
    let message = format!(
        "the driver is in namespace {from}, but the operator is told to keep it in {to} (--efs-namespace, efs.namespace of the chart): set that back to {from}. To move it, take it away first with `aquifer efs uninstall`. If it is gone already: kubectl delete component {}",
        subject.key.name
    );
    let ready = Condition::new("Ready", State::False, "Conflict", message).warning();
    let objects: Vec<Value> = recorded(subject).cloned().collect();
    Plan::none().status(
        Status::default().field("message", ready.message.clone()).field("objects", objects).condition(ready),
    )
}

/// Every object as it should be; those of others are left alone and reported.
fn install(subject: &Subject, parts: &[Part<'_>]) -> Plan {
    let step = |part: &Part<'_>| {
        let known = part.live.known()?.as_ref();
        if part.foreign(subject) || known.is_some_and(Object::deleting) {
            return None;
        }
        Some(Step::Replace {
            child: Child {
                target: part.target.clone(),
                intent: part.item.object.clone(),
                expect: Expect::seen(known),
            },
            tolerate: part.item.tolerate.iter().map(ToString::to_string).collect(),
        })
    };
    // The namespace comes first; all others are independent, so that one that fails does not keep the rest away.
    let (first, rest): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.target.kind == NAMESPACE);
    let plan = Plan::none()
        .stage(first.into_iter().filter_map(step).collect())
        .stage(rest.into_iter().filter_map(step).collect());
    let missing: Vec<_> =
        parts.iter().filter(|part| part.ours(subject).is_none_or(Object::deleting)).collect();
    // A namespace that was there before is used as it is.
    let in_the_way: Vec<String> = missing
        .iter()
        .filter(|part| part.foreign(subject) && part.target.kind != NAMESPACE)
        .map(|part| part.target.to_string())
        .collect();
    let absent = missing.iter().any(|part| !part.foreign(subject));
    let ready = if !in_the_way.is_empty() {
        let message = format!(
            "these objects exist and are not ours, so they are left alone: {}. Delete them, or run with --efs-statics=external",
            list(&in_the_way)
        );
        Condition::new("Ready", State::False, "Conflict", message).warning()
    } else if absent {
        Condition::new("Ready", State::False, "Installing", "the driver's objects are being made")
    } else {
        Condition::new("Ready", State::True, "Installed", "the driver is installed")
    };
    let soon = absent && in_the_way.is_empty();
    let status = status(subject, parts, ready).condition(nodes(parts));
    plan.status(if soon { status.soon() } else { status })
}

/// Somebody else's driver: nothing is made, changed or taken away.
fn external(subject: &Subject, parts: &[Part<'_>], why: &str) -> Plan {
    Plan::none().status(status(subject, parts, Condition::new("Ready", State::Unknown, "External", why)))
}

/// The driver goes, but not while anything needs it. Repair has stopped.
fn remove(subject: &Subject, world: &World, parts: &[Part<'_>]) -> Plan {
    let needed: Vec<String> = match &world.needed_by {
        Some(Seen::Known { value, .. }) => value.clone(),
        _ => vec!["something that cannot be read yet".to_owned()],
    };
    if !needed.is_empty() {
        let message = format!(
            "the driver goes when nothing needs it any more; it is still needed by {}",
            list(&needed)
        );
        let ready = Condition::new("Ready", State::False, "Removing", message);
        return Plan::none().wake_after(HELD).status(status(subject, parts, ready).soon());
    }
    // What users can see goes first, the node plugin before its rights, the namespace at the very end.
    let rank = |part: &&Part<'_>| match part.target.kind.kind.as_ref() {
        "StorageClass" => 0,
        "CSIDriver" => 1,
        "DaemonSet" => 2,
        "Namespace" => 4,
        _ => 3,
    };
    let left: Vec<&Part<'_>> = parts.iter().filter(|part| part.ours(subject).is_some()).collect();
    let Some(next) = left.iter().map(rank).min() else {
        let message = if marked(subject) {
            "the driver has been removed; to have it again: kubectl delete component efs-driver"
        } else {
            "SharedVolumes are not defined in this cluster, so there is no driver; it comes with their definition (`aquifer crds`)"
        };
        let ready = Condition::new("Ready", State::False, "Removed", message);
        return Plan::none().status(status(subject, parts, ready));
    };
    let steps = left
        .iter()
        .filter(|part| rank(part) == next)
        .filter_map(|part| {
            part.ours(subject)
                .filter(|live| !live.deleting())
                .map(|live| Step::delete(part.target.clone(), live))
        })
        .collect();
    let names: Vec<String> = left.iter().map(|part| part.target.to_string()).collect();
    let message = format!("the driver is being removed; still there: {}", list(&names));
    let ready = Condition::new("Ready", State::False, "Removing", message);
    Plan::none().stage(steps).wake_after(HELD).status(status(subject, parts, ready).soon())
}

fn status(subject: &Subject, parts: &[Part<'_>], ready: Condition) -> Status {
    let objects: Vec<Value> = parts
        .iter()
        .map(|part| {
            let (state, message) = state(part, subject);
            ComponentObject {
                kind: part.target.kind.kind.to_string(),
                namespace: Some(part.target.key.namespace.to_string()).filter(|ns| !ns.is_empty()),
                name: part.target.key.name.to_string(),
                uid: part.live.present().map(|live| live.uid().to_owned()),
                state,
                message,
            }
        })
        .filter_map(|object| serde_json::to_value(object).ok())
        .collect();
    Status::default().field("message", ready.message.clone()).field("objects", objects).condition(ready)
}

fn state(part: &Part<'_>, subject: &Subject) -> (ObjectState, Option<String>) {
    match part.live {
        Seen::Known { value: None, .. } => (ObjectState::Missing, None),
        Seen::Known { value: Some(live), .. } if !is_ours(live, subject) => {
            (ObjectState::Foreign, Some(foreign(part, live)))
        }
        Seen::Known { value: Some(live), .. } if live.deleting() => (ObjectState::Deleting, None),
        Seen::Known { .. } => (ObjectState::Current, None),
        Seen::Unknown(why) => (ObjectState::Missing, Some(format!("cannot be read: {why}"))),
    }
}

/// A namespace that was there before is used as it is, so it must allow what the node plugin needs.
fn foreign(part: &Part<'_>, live: &Object) -> String {
    let left_alone = "it was not made by Aquifer and is left alone";
    let enforce = "pod-security.kubernetes.io/enforce";
    let wanted = part.item.object.pointer("/metadata/labels").and_then(|labels| labels.get(enforce));
    match wanted.and_then(Value::as_str) {
        Some(level) if live.label(enforce) != Some(level) => format!(
            "{left_alone}; it is used, but without the label {enforce}={level} the node plugin's pods may be refused"
        ),
        _ => left_alone.to_owned(),
    }
}

/// Whether the node plugin runs where it should.
fn nodes(parts: &[Part<'_>]) -> Condition {
    let make = |state, reason: &str, message: String| Condition::new("NodesReady", state, reason, message);
    let daemon_set =
        parts.iter().find(|part| part.target.kind == DAEMON_SET).and_then(|part| part.live.present());
    let Some(daemon_set) = daemon_set else {
        return make(State::Unknown, "NotInstalled", "the node plugin is not there yet".into());
    };
    let wanted = number(daemon_set, "/status/desiredNumberScheduled");
    let ready = number(daemon_set, "/status/numberReady");
    match (wanted, ready) {
        (0, _) => make(State::Unknown, "NoNodes", "no node matches the node plugin's selector".into()),
        (wanted, ready) if ready >= wanted => {
            make(State::True, "Running", format!("the node plugin runs on all {wanted} nodes"))
        }
        _ => make(
            State::False,
            "NotRunning",
            format!(
                "the node plugin is ready on {ready} of {wanted} nodes; see DaemonSet {}",
                daemon_set.key()
            ),
        ),
    }
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES);
    let shown = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
