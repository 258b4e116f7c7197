//! What follows for one SharedVolume from what is seen. Pure: no clock, no IO.

use std::time::Duration;

use aquifer_engine::{Expect, Object, Plan, Seen, Step, Subject, Why};
use jiff::Timestamp;

use super::pair::{
    Belongs, Data, LINGERING, OVERDUE, belongs, claim_intent, claim_name, is_pair, lingers, volume_intent,
    volume_name, was_bound,
};
use super::say::{self, Blocked};
use super::world::{World, reason};
use crate::kinds::{CLAIM, VOLUME};

/// How often pods that hold a claim are looked at: their names in the message should be true.
const BLOCKED: Duration = Duration::from_secs(10);
/// An object in the way is not watched; this is how soon its absence is noticed.
const IN_THE_WAY: Duration = Duration::from_secs(10);
/// Time for a deleted pair to vanish before anybody is told that it does not.
const VANISHING: Duration = Duration::from_secs(3);

/// What Kubernetes itself puts on every volume and claim, and takes off when nothing uses it.
const PROTECTION: [&str; 2] = ["kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"];

/// Volume and claim as far as they concern this SharedVolume.
struct Found<'a> {
    claim: Option<&'a Object>,
    volumes: Vec<&'a Object>,
    foreign: Vec<&'a Object>,
    /// Whether the claim is ours in the narrow sense, not a predecessor's.
    claim_ours: bool,
}

pub(super) fn decide(subject: &Subject, world: &World, now: Timestamp) -> Plan {
    let Some(found) = sort(subject, world) else {
        return undecided(subject, world);
    };
    let Some(shared) = &subject.object else {
        return orphans(&found);
    };
    if shared.deleting() {
        return goodbye(subject, world, &found, now);
    }
    let Some(data) = Data::wanted(shared) else {
        return Plan::none().status(say::invalid(world));
    };
    if let Some(thing) = found.foreign.first() {
        return Plan::none().wake_after(IN_THE_WAY).status(say::conflict(world, &found_of(&found), thing));
    }
    if let Some((volume, claim)) = pair(subject, &found, &data) {
        return keep(subject, world, &found, volume, claim, &data);
    }
    if let Some((volume, claim)) = beginnings(subject, &found, &data) {
        if world.namespace_ends {
            // A new namespace of the same name would not wake us.
            return Plan::none().wake_after(IN_THE_WAY).status(say::namespace_ends(world));
        }
        let [volume_step, claim_step] = make(subject, &data, volume, claim);
        // The claim comes after the volume is surely ours: a claim that names somebody else's volume could get its data.
        let plan = Plan::none().hold().stage(vec![volume_step]).stage(vec![claim_step]);
        return plan.status(say::provisioning(world, volume, claim));
    }
    tear_down(world, &found, now)
}

/// Splits what is seen into ours and foreign. None when something is not known.
fn sort<'a>(subject: &Subject, world: &'a World) -> Option<Found<'a>> {
    let (claim, volumes) = (world.claim.known()?.as_ref(), world.volumes.known()?);
    let uid = subject.object.as_ref().map(Object::uid);
    let shared = subject.object.as_ref();
    let recorded = |pointer: &str| shared.map(|shared| shared.text(pointer)).filter(|uid| !uid.is_empty());
    let volume_proof: Vec<&str> = recorded("/status/volumeRef/uid").into_iter().collect();
    let mut found = Found { claim: None, volumes: Vec::new(), foreign: Vec::new(), claim_ours: false };
    let mut claim_proof: Vec<&str> = recorded("/status/claimUID").into_iter().collect();
    for volume in volumes {
        match belongs(volume, &subject.key, uid, &volume_proof) {
            Belongs::Foreign if volume.name() == volume_name(&subject.key) => found.foreign.push(volume),
            Belongs::Foreign => {}
            belongs => {
                // Only an administrator can write volumes: a claim that ours is bound to is ours, whatever its labels say.
                if belongs == Belongs::Ours {
                    claim_proof.push(volume.text("/spec/claimRef/uid"));
                }
                found.volumes.push(volume);
            }
        }
    }
    claim_proof.retain(|proof| !proof.is_empty());
    if let Some(claim) = claim {
        match belongs(claim, &subject.key, uid, &claim_proof) {
            Belongs::Foreign => found.foreign.push(claim),
            belongs => {
                found.claim_ours = belongs == Belongs::Ours;
                found.claim = Some(claim);
            }
        }
    }
    Some(found)
}

fn found_of<'a>(found: &Found<'a>) -> (Option<&'a Object>, Option<&'a Object>) {
    (found.volumes.first().copied(), found.claim)
}

/// Something is not known: nothing is done, and the status says what is missing unless it is only a matter of moments.
fn undecided(subject: &Subject, world: &World) -> Plan {
    let why = world.claim.why().or(world.volumes.why());
    match (why, &subject.object) {
        (Some(Why::NotServed | Why::Unreachable(_)), Some(_)) => {
            Plan::none().status(say::unknown(world, why))
        }
        _ => Plan::none(),
    }
}

/// The SharedVolume is gone without us having seen it off: what it left behind goes too.
fn orphans(found: &Found<'_>) -> Plan {
    delete_all(Plan::none(), found)
}

/// The SharedVolume is being deleted: claim and volume go, and only when both are really gone do we let go of it.
fn goodbye(subject: &Subject, world: &World, found: &Found<'_>, now: Timestamp) -> Plan {
    let remaining = found.claim.is_some() || !found.volumes.is_empty();
    if !remaining {
        return Plan::none().release();
    }
    let held = subject.object.as_ref().is_some_and(|shared| !shared.finalizers().is_empty());
    let plan = delete_all(Plan::none(), found);
    if !held {
        return plan;
    }
    match blocked(world, found, now) {
        Some(blocked) => plan.wake_after(BLOCKED).status(say::deleting(world, &found_of(found), &blocked)),
        // It has been said; that half of the pair has gone meanwhile is not worth another write.
        None if subject.object.as_ref().and_then(reason) == Some("Deleting") => {
            plan.wake_after(patience(found, now))
        }
        None => {
            let status = say::deleting(world, &found_of(found), &Blocked::default()).soon();
            plan.wake_after(patience(found, now)).status(status)
        }
    }
}

/// When to look at a pair that goes again. Its end wakes us anyway; one that is slow to go is not asked why all the time.
fn patience(found: &Found<'_>, now: Timestamp) -> Duration {
    let slow = found.claim.is_some_and(|claim| lingers(claim, now, LINGERING));
    if slow { BLOCKED } else { VANISHING }
}

/// The volume and claim that serve, if there are: ours, or a pair of aws-efs-operator's that holds the same data.
fn pair<'a>(subject: &Subject, found: &Found<'a>, data: &Data) -> Option<(&'a Object, &'a Object)> {
    let claim = found.claim?;
    let volume = found.volumes.iter().find(|volume| is_pair(&subject.key, volume, claim, data))?;
    // A predecessor's claim is taken over only together with its volume, and only if nobody of our engine owned it:
    // an earlier SharedVolume's pair was promised to go.
    let unowned = |object: &Object| object.label(aquifer_engine::intent::OWNER_UID).is_none();
    (found.claim_ours || (unowned(claim) && unowned(volume))).then_some((*volume, claim))
}

/// The pair serves: marks and labels are repaired, leftovers go.
fn keep(
    subject: &Subject,
    world: &World,
    found: &Found<'_>,
    volume: &Object,
    claim: &Object,
    data: &Data,
) -> Plan {
    let leftovers = found.volumes.iter().filter(|other| other.uid() != volume.uid() && !other.deleting());
    let mut steps = Vec::from(make(subject, data, Some(volume), Some(claim)));
    steps.extend(leftovers.map(|other| Step::delete(VOLUME.at("", other.name()), other)));
    let bound = claim.text("/status/phase") == "Bound" && volume.text("/spec/claimRef/uid") == claim.uid();
    let status = if bound {
        say::ready(world, volume, claim)
    } else {
        say::provisioning(world, Some(volume), Some(claim))
    };
    Plan::none().hold().stage(steps).status(status)
}

/// What a pass of ours may have left when it died half way, or nothing at all: it can be completed.
fn beginnings<'a>(
    subject: &Subject,
    found: &Found<'a>,
    data: &Data,
) -> Option<(Option<&'a Object>, Option<&'a Object>)> {
    let name = volume_name(&subject.key);
    match (found.volumes.as_slice(), found.claim) {
        ([], None) => Some((None, None)),
        ([volume], None) => {
            let fresh = !volume.deleting()
                && volume.name() == name
                && volume.text("/spec/claimRef/uid").is_empty()
                && Data::held(volume) == *data;
            fresh.then_some((Some(volume), None))
        }
        ([], Some(claim)) => {
            let fresh = found.claim_ours
                && !claim.deleting()
                && !was_bound(claim)
                && claim.text("/spec/volumeName") == name;
            fresh.then_some((None, Some(claim)))
        }
        _ => None,
    }
}

fn make(subject: &Subject, data: &Data, volume: Option<&Object>, claim: Option<&Object>) -> [Step; 2] {
    let key = &subject.key;
    let name = volume.map_or_else(|| volume_name(key), |volume| volume.name().to_owned());
    let volume_step =
        Step::apply(VOLUME.at("", &name), volume_intent(key, &name, data, volume), Expect::seen(volume));
    let claim_step = Step::apply(
        CLAIM.at(&key.namespace, &claim_name(key)),
        claim_intent(key, &name),
        Expect::seen(claim),
    );
    [volume_step, claim_step]
}

/// What is there does not serve and cannot be changed: both go, at once, and both are made anew when they are gone.
/// Reverting the change does not help any more, because a deletion cannot be taken back.
fn tear_down(world: &World, found: &Found<'_>, now: Timestamp) -> Plan {
    let plan = delete_all(Plan::none().hold(), found);
    match blocked(world, found, now) {
        Some(blocked) => plan.wake_after(BLOCKED).status(say::in_use(world, &found_of(found), &blocked)),
        None => plan.wake_after(patience(found, now)).status(say::replacing(world, &found_of(found)).soon()),
    }
}

/// Volumes first: they wait for their claim anyway, but a claim that goes changes its volume, which would then have to be
/// looked at again.
fn delete_all(plan: Plan, found: &Found<'_>) -> Plan {
    let claim = found.claim.filter(|claim| !claim.deleting());
    let claim = claim.map(|claim| Step::delete(CLAIM.at(claim.namespace(), claim.name()), claim));
    let volumes = found.volumes.iter().filter(|volume| !volume.deleting());
    let volumes = volumes.map(|volume| Step::delete(VOLUME.at("", volume.name()), volume));
    plan.stage(volumes.collect()).stage(claim.into_iter().collect())
}

/// What keeps the pair from vanishing, once it has had time to. Pods and strangers' finalizers are named soon; that only
/// Kubernetes' own protection holds it is worth telling when it cannot be mere slowness. A volume waits for its claim, so only one
/// without is asked.
fn blocked(world: &World, found: &Found<'_>, now: Timestamp) -> Option<Blocked> {
    let finalizers =
        |object: &Object| object.finalizers().iter().map(ToString::to_string).collect::<Vec<_>>();
    let held = |object: &Object| {
        let strange = object.finalizers().iter().any(|name| !PROTECTION.contains(name));
        lingers(object, now, if strange { LINGERING } else { OVERDUE })
    };
    if let Some(claim) = found.claim {
        let pods = match world.pods.as_ref()? {
            Seen::Known { value, .. } => value.clone(),
            Seen::Unknown(_) => Vec::new(),
        };
        let told = !pods.is_empty() || held(claim);
        return told.then(|| Blocked { pods, claim_finalizers: finalizers(claim), ..Blocked::default() });
    }
    let volume = found.volumes.iter().find(|volume| held(volume))?;
    let volume = Some((volume.name().to_owned(), finalizers(volume)));
    Some(Blocked { volume, ..Blocked::default() })
}
