//! What follows for the driver from what is seen. Pure.

use std::time::Duration;

use aquifer_api::component::{ComponentObject, ObjectState};
use aquifer_base::NamespaceName;
use aquifer_engine::{Child, Expect, Plan, Recreate, Seen, Step};

use super::conditions::{self, Part};
use super::facts::PartFacts;
use super::wanted::{marked, unwanted};
use super::world::World;
use super::{Driver, Management, Subject};
use crate::kinds::{CSI_DRIVER, DAEMON_SET, NAMESPACE, STORAGE_CLASS};
use crate::manifests;

/// While something holds the driver, how often it is looked at again.
const HELD: Duration = Duration::from_secs(3);

/// What the status recorded, entry by entry.
fn recorded(subject: &Subject) -> impl Iterator<Item = &ComponentObject> {
    subject.object.iter().flat_map(|component| &component.status.objects)
}

/// The namespace of a node plugin of ours that is not where it should be now.
fn other_namespace<'a>(subject: &'a Subject, namespace: &NamespaceName) -> Option<&'a str> {
    use ObjectState::{Current, Deleting};
    recorded(subject)
        .filter(|object| object.kind == DAEMON_SET.kind)
        .filter(|object| matches!(object.state, Current | Deleting))
        .map(|object| object.namespace.as_deref().unwrap_or_default())
        .find(|place| *place != namespace.as_str())
}

/// Ours by its mark, or because the status recorded its uid when the mark was still there.
fn is_ours(live: &PartFacts, subject: &Subject) -> bool {
    live.owner.as_deref() == Some(&subject.key.to_string())
        || recorded(subject).any(|object| {
            object.uid.as_deref() == Some(live.identity.uid.as_str()) && object.state != ObjectState::Foreign
        })
}

pub(super) fn decide(driver: &Driver, subject: &Subject, world: &World) -> Plan {
    if subject.object.is_none() {
        return Plan::none(); // it is made again at once; until then nothing is touched
    }
    if let Some(place) = other_namespace(subject, &world.config.namespace) {
        // Two node plugins cannot serve one node, and the rights are those for the new place: nothing is touched, and what
        // was made stays recorded.
        let objects = recorded(subject).cloned().collect();
        return Plan::none().status(conditions::moved(&subject.key, place, &world.config.namespace, objects));
    }
    let parts: Vec<Part<'_>> = manifests::manifests(&world.config)
        .into_iter()
        .zip(&world.objects)
        .map(|(manifest, live)| {
            let ours = live.present().is_some_and(|live| is_ours(live, subject));
            Part { manifest, live, ours }
        })
        .collect();
    if unwanted(subject, &world.definition) {
        return remove(subject, world, &parts);
    }
    if driver.management == Management::External {
        return Plan::none().status(conditions::external_by_flag(&parts));
    }
    if parts.iter().any(|part| part.manifest.target.kind == CSI_DRIVER && part.foreign()) {
        return Plan::none().status(conditions::external_by_driver(&parts));
    }
    install(&parts)
}

/// Every object as it should be; those of others are left alone and reported.
fn install(parts: &[Part<'_>]) -> Plan {
    let step = |part: &Part<'_>| {
        let known = part.live.known()?.as_ref();
        if part.foreign() || known.is_some_and(|live| live.deleting) {
            return None;
        }
        let child = Child {
            target: part.manifest.target.clone(),
            intent: part.manifest.intent.clone(),
            expect: Expect::seen(known.map(|live| &live.identity)),
        };
        let tolerate = part.manifest.tolerate.iter().map(ToString::to_string).collect();
        // The driver's objects hold no data; what of them cannot be changed is made anew.
        Some(Step::Replace { child, tolerate, recreate: Recreate::Allowed })
    };
    // The namespace comes first; all others are independent, so that one that fails does not keep the rest away.
    let (first, rest): (Vec<_>, Vec<_>) =
        parts.iter().partition(|part| part.manifest.target.kind == NAMESPACE);
    let plan = Plan::none()
        .stage(first.into_iter().filter_map(step).collect())
        .stage(rest.into_iter().filter_map(step).collect());
    let missing: Vec<_> = parts.iter().filter(|part| part.ours().is_none_or(|live| live.deleting)).collect();
    // A namespace that was there before is used as it is.
    let in_the_way: Vec<String> = missing
        .iter()
        .filter(|part| part.foreign() && part.manifest.target.kind != NAMESPACE)
        .map(|part| part.manifest.target.to_string())
        .collect();
    let absent = missing.iter().any(|part| !part.foreign());
    plan.status(conditions::installed(parts, &in_the_way, absent))
}

/// The driver goes, but not while anything needs it. Repair has stopped.
fn remove(subject: &Subject, world: &World, parts: &[Part<'_>]) -> Plan {
    let needed: Vec<String> = match &world.needed_by {
        Some(Seen::Known { value, .. }) => value.clone(),
        _ => vec!["something that cannot be read yet".to_owned()],
    };
    if !needed.is_empty() {
        return Plan::none().wake_after(HELD).status(conditions::needed(parts, &needed));
    }
    // What users can see goes first, the node plugin before its rights, the namespace at the very end.
    let rank = |part: &&Part<'_>| match &part.manifest.target.kind {
        kind if *kind == STORAGE_CLASS => 0,
        kind if *kind == CSI_DRIVER => 1,
        kind if *kind == DAEMON_SET => 2,
        kind if *kind == NAMESPACE => 4,
        _ => 3,
    };
    let left: Vec<&Part<'_>> = parts.iter().filter(|part| part.ours().is_some()).collect();
    let Some(next) = left.iter().map(rank).min() else {
        return Plan::none().status(conditions::removed(parts, marked(subject)));
    };
    let steps = left.iter().filter(|part| rank(part) == next).filter_map(|part| {
        let live = part.ours().filter(|live| !live.deleting)?;
        Some(Step::delete(part.manifest.target.clone(), live.identity.clone()))
    });
    let names: Vec<String> = left.iter().map(|part| part.manifest.target.to_string()).collect();
    Plan::none().stage(steps.collect()).wake_after(HELD).status(conditions::removing(parts, &names))
}
