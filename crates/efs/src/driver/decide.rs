//! What follows for the driver from what is seen. Pure.

use std::time::Duration;

use aquifer_api::component::{ComponentObject, ObjectState};
use aquifer_base::NamespaceName;
use aquifer_engine::{Child, Expect, ObjectRef, Plan, Recreate, Seen, Step};

use super::conditions::{self, Part, Parts};
use super::facts::PartFacts;
use super::place::{self, Trouble};
use super::wanted::{marked, unwanted};
use super::world::World;
use super::{Driver, Subject};
use crate::kinds::{CSI_DRIVER, DAEMON_SET, STORAGE_CLASS};
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

/// Ours because the status recorded its uid, or because it carries the uid of this very Component. One that only names the Component is
/// ours while the status records nothing of it yet: then the Component was made again.
fn is_ours(target: &ObjectRef, live: &PartFacts, subject: &Subject) -> bool {
    let at_its_place = |object: &&ComponentObject| {
        object.kind == target.kind.kind
            && object.name == *target.key.name
            && object.namespace.as_deref().unwrap_or_default() == &*target.key.namespace
    };
    let own_uid = subject.object.as_ref().map(|component| component.uid.as_str());
    let carries_own_uid = live.owner_uid.as_deref().is_some_and(|uid| Some(uid) == own_uid);
    match recorded(subject).find(at_its_place) {
        _ if carries_own_uid => true,
        Some(before) => {
            before.state != ObjectState::Foreign && before.uid.as_deref() == Some(live.identity.uid.as_str())
        }
        None => live.owner.as_deref() == Some(&subject.key.to_string()),
    }
}

pub(super) fn decide(driver: &Driver, subject: &Subject, world: &World) -> Plan {
    if subject.object.is_none() {
        return Plan::none(); // it is made again at once; until then nothing is touched
    }
    let recorded: Vec<ComponentObject> = recorded(subject).cloned().collect();
    let Some(place) = &world.place else {
        // Another owner manages it, and we have no rights to look. What we made before stays recorded.
        return outside(subject, world, recorded);
    };
    if let Some(other) = other_namespace(subject, &driver.config.namespace) {
        // Two node plugins cannot serve one node, and the rights are those for the new place: nothing is touched, and what
        // was made stays recorded.
        let report = conditions::moved(&subject.key, other, &driver.config.namespace, recorded);
        return Plan::none().status(report);
    }
    if place.is_being_read() {
        return Plan::none();
    }
    let (listed, trouble) = place::judge(driver, place, &recorded);
    let parts: Vec<Part<'_>> = manifests::manifests(&driver.config)
        .into_iter()
        .zip(&world.objects)
        .map(|(manifest, live)| {
            let ours = live.present().is_some_and(|live| is_ours(&manifest.target, live, subject));
            Part { manifest, live, ours }
        })
        .collect();
    let all = Parts { place: listed, parts };
    if unwanted(subject, &world.definition) {
        return remove(subject, world, &all);
    }
    if all.parts.iter().any(|part| part.manifest.target.kind == CSI_DRIVER && part.foreign()) {
        return Plan::none().status(conditions::external_by_driver(&all));
    }
    install(&all, trouble.as_ref())
}

/// Another owner manages the driver: nothing is made or taken away, and a removal is only noted. What we made before stays, and then
/// nothing is called removed.
fn outside(subject: &Subject, world: &World, recorded: Vec<ComponentObject>) -> Plan {
    use ObjectState::{Current, Deleting};
    if !unwanted(subject, &world.definition) {
        return Plan::none().status(conditions::external_by_flag(recorded));
    }
    let needed = needed(world);
    if !needed.is_empty() {
        return Plan::none().wake_after(HELD).status(conditions::needed(recorded, &needed));
    }
    let left = recorded.iter().filter(|object| matches!(object.state, Current | Deleting));
    let left: Vec<String> = left.map(|object| format!("{} {}", object.kind, object.name)).collect();
    if !left.is_empty() {
        return Plan::none().status(conditions::left_behind(recorded, &left));
    }
    Plan::none().status(conditions::removed(recorded, marked(subject)))
}

/// Every object as it should be; those of others are left alone and reported. Without its place there is no node plugin.
fn install(all: &Parts<'_>, trouble: Option<&Trouble>) -> Plan {
    let step = |part: &Part<'_>| {
        let known = part.live.known()?.as_ref();
        let no_place = part.manifest.target.kind == DAEMON_SET && trouble.is_some();
        if part.foreign() || no_place || known.is_some_and(|live| live.deleting) {
            return None;
        }
        let child = Child::new(
            part.manifest.target.clone(),
            part.manifest.intent.clone(),
            Expect::seen(known.map(|live| &live.identity)),
        );
        let tolerate = part.manifest.tolerate.iter().map(ToString::to_string).collect();
        // The driver's objects hold no data; what of them cannot be changed is made anew.
        Some(Step::Replace { child, tolerate, recreate: Recreate::Allowed })
    };
    // All are independent, so that one that fails does not keep the rest away.
    let plan = Plan::none().stage(all.parts.iter().filter_map(step).collect());
    let missing: Vec<_> =
        all.parts.iter().filter(|part| part.ours().is_none_or(|live| live.deleting)).collect();
    let in_the_way: Vec<String> =
        missing.iter().filter(|part| part.foreign()).map(|part| part.manifest.target.to_string()).collect();
    let absent = missing.iter().any(|part| !part.foreign());
    plan.status(conditions::installed(all, trouble, &in_the_way, absent))
}

/// What still needs the driver.
fn needed(world: &World) -> Vec<String> {
    match &world.needed_by {
        Some(Seen::Known { value, .. }) => value.clone(),
        _ => vec!["something that cannot be read yet".to_owned()],
    }
}

/// The driver goes, but not while anything needs it. Repair has stopped. Its namespace and its rights stay until the operator is
/// uninstalled.
fn remove(subject: &Subject, world: &World, all: &Parts<'_>) -> Plan {
    let needed = needed(world);
    if !needed.is_empty() {
        return Plan::none().wake_after(HELD).status(conditions::needed(all.listed(), &needed));
    }
    // What users can see goes first, the node plugin at the end.
    let rank = |part: &&Part<'_>| match &part.manifest.target.kind {
        kind if *kind == STORAGE_CLASS => 0,
        kind if *kind == CSI_DRIVER => 1,
        _ => 2,
    };
    let left: Vec<&Part<'_>> = all.parts.iter().filter(|part| part.ours().is_some()).collect();
    let Some(next) = left.iter().map(rank).min() else {
        return Plan::none().status(conditions::removed(all.listed(), marked(subject)));
    };
    let steps = left.iter().filter(|part| rank(part) == next).filter_map(|part| {
        let live = part.ours().filter(|live| !live.deleting)?;
        Some(Step::delete(part.manifest.target.clone(), live.identity.clone()))
    });
    let names: Vec<String> = left.iter().map(|part| part.manifest.target.to_string()).collect();
    Plan::none().stage(steps.collect()).wake_after(HELD).status(conditions::removing(all, &names))
}
