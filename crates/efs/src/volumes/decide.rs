//! What follows for one SharedVolume from what is seen. Pure: no clock, no IO.

mod ownership;

use std::time::Duration;

use aquifer_api::efs::SharedVolumeReason;
use aquifer_base::Uid;
use aquifer_engine::{Expect, Identity, ObjectRef, Plan, Seen, State, Step, Why, reason_in, state_in};
use jiff::Timestamp;

use self::ownership::{Belongs, Proofs, claim_belongs, is_pair, volume_belongs};
use super::access::{self, Tenancy, Verdict};
use super::claim::claim_intent;
use super::conditions::{self, Blocked, Pair, Remains};
use super::data::Data;
use super::facts::{ClaimFacts, ClaimPhase, VolumeFacts, lingers};
use super::names::{claim_name, volume_name};
use super::volume::volume_intent;
use super::world::World;
use super::{LINGERING, OVERDUE, Subject};
use crate::kinds::{CLAIM, VOLUME};

/// How often pods that hold a claim are looked at: their names in the message should be true.
const BLOCKED: Duration = Duration::from_secs(10);
/// An object in the way is not watched; this is how soon its absence is noticed.
const IN_THE_WAY: Duration = Duration::from_secs(10);
/// Time for a deleted pair to vanish before it is reported that it does not.
const VANISHING: Duration = Duration::from_secs(3);

/// What Kubernetes itself puts on every volume and claim, and takes off when nothing uses it.
const PROTECTION: [&str; 2] = ["kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"];

/// Volume and claim as far as they concern this SharedVolume.
#[derive(Clone)]
struct Found<'a> {
    claim: Option<&'a ClaimFacts>,
    volumes: Vec<&'a VolumeFacts>,
    /// What stands at our names and is not ours.
    foreign: Vec<ObjectRef>,
    /// Which of the volumes are ours in the narrow sense, not a predecessor's.
    volumes_ours: Vec<&'a VolumeFacts>,
    /// Whether the claim is ours in the narrow sense, not a predecessor's.
    claim_ours: bool,
}

impl<'a> Found<'a> {
    /// Whether anything of ours is there.
    fn remains(&self) -> bool {
        self.claim.is_some() || !self.volumes.is_empty()
    }

    /// Whether a volume is ours in the narrow sense.
    fn is_ours(&self, volume: &VolumeFacts) -> bool {
        self.volumes_ours.iter().any(|own| own.identity.uid == volume.identity.uid)
    }

    /// Whether any of it is being deleted: then all of it goes.
    fn is_leaving(&self) -> bool {
        self.claim.is_some_and(|claim| claim.deleting.is_some())
            || self.volumes.iter().any(|volume| volume.deleting.is_some())
    }

    /// What the status names: only what is ours, because what it names counts as ours from then on.
    fn pair(&self) -> Pair<'a> {
        let claim = self.claim.filter(|_| self.claim_ours);
        let named = |volume: &&&VolumeFacts| claim.is_some_and(|claim| claim.volume == volume.name);
        let volume = self.volumes_ours.iter().find(named).or(self.volumes_ours.first());
        Pair { volume: volume.copied(), claim }
    }

    /// All of it but this pair.
    fn without(&self, kept: (&VolumeFacts, &ClaimFacts)) -> Self {
        let uid = &kept.0.identity.uid;
        let others = |all: &[&'a VolumeFacts]| {
            all.iter().copied().filter(|volume| volume.identity.uid != *uid).collect::<Vec<_>>()
        };
        Self {
            claim: None,
            volumes: others(&self.volumes),
            foreign: self.foreign.clone(),
            volumes_ours: others(&self.volumes_ours),
            claim_ours: false,
        }
    }
}

pub(super) fn decide(subject: &Subject, world: &World, tenancy: Tenancy, now: Timestamp) -> Plan {
    let wanted = subject.object.as_ref().filter(|shared| shared.deleting.is_none());
    let Some(data) = wanted.and_then(|shared| Data::wanted(shared.spec.as_ref().ok()?)) else {
        return without_wish(subject, world, now);
    };
    let case = access::Case {
        tenancy,
        file_systems: &world.file_systems,
        namespace: &subject.key.namespace,
        labels: &world.namespace_labels,
    };
    let verdict = case.judge(&data);
    let found = classify(subject, world);
    let serving = found.as_ref().and_then(|found| serving_pair(subject, found, &data));
    let mut plan = match (&found, serving) {
        (None, _) => undecided(subject, world),
        // What serves goes on serving, whatever has been revoked. What is in the way of a name of ours comes first.
        (Some(found), Some((volume, claim))) if found.foreign.is_empty() => {
            keep(subject, world, found, volume, claim, &data)
        }
        (Some(found), _) => serve(subject, world, found, &data, &verdict, now),
    };
    if let Some(report) = &mut plan.status {
        report.set(conditions::allowed(&verdict, serving.is_some()));
    }
    plan
}

/// Whether it has the pair that it wants: then nothing is to be made.
pub(super) fn serves(subject: &Subject, world: &World) -> bool {
    let shared = subject.object.as_ref();
    let data = shared.and_then(|shared| Data::wanted(shared.spec.as_ref().ok()?));
    data.zip(classify(subject, world))
        .is_some_and(|(data, found)| serving_pair(subject, &found, &data).is_some())
}

/// It is gone, it is being deleted, or nobody knows what it wants.
fn without_wish(subject: &Subject, world: &World, now: Timestamp) -> Plan {
    let Some(found) = classify(subject, world) else {
        return undecided(subject, world);
    };
    let Some(shared) = &subject.object else {
        return orphans(&found, now);
    };
    if shared.deleting.is_some() {
        return deleting(subject, world, &found, now);
    }
    Plan::none().status(conditions::invalid(world, found.pair()))
}

/// Makes a pair for the data that it wants, where it has none that serves.
fn serve(
    subject: &Subject,
    world: &World,
    found: &Found<'_>,
    data: &Data,
    verdict: &Verdict,
    now: Timestamp,
) -> Plan {
    // First, so that nothing in the way protects half a pair that is not allowed.
    if let Verdict::Denied(said) = verdict {
        return refuse(subject, world, found, said, now);
    }
    if let Some(thing) = found.foreign.first() {
        return Plan::none().wake_after(IN_THE_WAY).status(conditions::conflict(world, found.pair(), thing));
    }
    match verdict {
        Verdict::Allowed { .. } | Verdict::Unrestricted | Verdict::Denied(_) => {}
        // Nothing is torn down for a change that may not be allowed; what has begun to go is finished.
        Verdict::Unknown(..) if found.is_leaving() && live_pair(subject, found).is_none() => {
            return tear_down(world, found, now);
        }
        Verdict::Unknown(what, why @ (Why::NotServed | Why::Unreachable(_))) => {
            return Plan::none().status(conditions::unknown(world, found.pair(), what, why));
        }
        Verdict::Unknown(..) => return Plan::none(), // a matter of moments
    }
    if let Some(begun) = begun_pair(subject, found, data) {
        if world.namespace_ends {
            // A new namespace of the same name would not wake us.
            let report = conditions::namespace_ends(world, found.pair());
            return Plan::none().wake_after(IN_THE_WAY).status(report);
        }
        let [volume_step, claim_step] = make(subject, data, begun);
        // The claim comes after the volume is surely ours: a claim that names another owner's volume could get its data.
        let plan = Plan::none().hold().stage(vec![volume_step]).stage(vec![claim_step]);
        return plan.status(conditions::provisioning(world, found.pair()));
    }
    tear_down(world, found, now)
}

/// It is not allowed. An older pair of this very SharedVolume, which pods may use, stays; so does a volume of aws-efs-operator's that is
/// bound to the claim at our name. All else serves nobody and goes, whatever is in the way: half a pair, what is being deleted already,
/// and what an earlier SharedVolume of this name has left.
fn refuse(subject: &Subject, world: &World, found: &Found<'_>, said: &str, now: Timestamp) -> Plan {
    let kept = live_pair(subject, found);
    let mut rest = kept.map_or_else(|| found.clone(), |kept| found.without(kept));
    let standing = world.claim.known().and_then(Option::as_ref);
    rest.volumes.retain(|volume| !is_bound_to_standing_claim(volume, standing));
    let rest = &rest;
    let report = match (found.foreign.first(), kept) {
        (Some(thing), _) => conditions::conflict(world, found.pair(), thing),
        (None, Some(_)) => conditions::not_allowed(world, found.pair(), said, Remains::Stays),
        (None, None) if rest.remains() => conditions::not_allowed(world, found.pair(), said, Remains::Goes),
        (None, None) => conditions::not_allowed(world, found.pair(), said, Remains::Nothing),
    };
    let plan = if rest.remains() {
        let wake = if blocked(world, rest, now).is_some() { BLOCKED } else { recheck(rest, now) };
        delete_all(Plan::none().hold(), rest, Step::delete).wake_after(wake)
    } else if found.foreign.is_empty() {
        Plan::none()
    } else {
        Plan::none().wake_after(IN_THE_WAY)
    };
    plan.status(report)
}

/// Whether aws-efs-operator made this volume and it is bound to the claim that stands at our name: pods may use it, whoever owns the claim
/// now.
fn is_bound_to_standing_claim(volume: &VolumeFacts, standing: Option<&ClaimFacts>) -> bool {
    let uid = standing.map(|claim| &claim.identity.uid);
    volume.marks.owner_uid.is_none() && uid.is_some() && volume.bound_to() == uid
}

/// Splits what is seen into ours and foreign. None when something is not known.
fn classify<'a>(subject: &Subject, world: &'a World) -> Option<Found<'a>> {
    let (claim, volumes) = (world.claim.known()?.as_ref(), world.volumes.known()?);
    let key = &subject.key;
    let shared = subject.object.as_ref();
    let uid = shared.map(|shared| &shared.uid);
    let recorded = |uid: &String| Some(Uid::new(uid.as_str())).filter(|uid| !uid.as_str().is_empty());
    let recorded_volume =
        shared.and_then(|shared| shared.status.volume_ref.as_ref()?.uid.as_ref()).and_then(recorded);
    let recorded_claim = shared.and_then(|shared| shared.status.claim_uid.as_ref()).and_then(recorded);
    let mut found = Found {
        claim: None,
        volumes: Vec::new(),
        foreign: Vec::new(),
        volumes_ours: Vec::new(),
        claim_ours: false,
    };
    // Only an administrator can write volumes: a claim that a predecessor's is bound to is a predecessor's, whatever its labels say.
    let mut claim_proofs =
        Proofs { recorded: recorded_claim.as_ref(), bound: Vec::new(), predecessors: Vec::new() };
    for volume in volumes {
        match volume_belongs(volume, key, uid, recorded_volume.as_ref()) {
            Belongs::Foreign if volume.name == volume_name(key) => {
                found.foreign.push(VOLUME.at("", &volume.name));
            }
            Belongs::Foreign => {}
            Belongs::Ours => {
                claim_proofs.bound.extend(volume.bound_to());
                found.volumes_ours.push(volume);
                found.volumes.push(volume);
            }
            Belongs::Predecessors => {
                // What aws-efs-operator made says nothing about claims that somebody else made.
                let made_by_us = volume.marks.owner_uid.is_some();
                claim_proofs.predecessors.extend(volume.bound_to().filter(|_| made_by_us));
                found.volumes.push(volume);
            }
        }
    }
    if let Some(claim) = claim {
        match claim_belongs(claim, key, uid, &claim_proofs) {
            Belongs::Foreign => found.foreign.push(CLAIM.key(&claim.key)),
            belongs => {
                found.claim_ours = belongs == Belongs::Ours;
                found.claim = Some(claim);
            }
        }
    }
    Some(found)
}

/// Something is not known: nothing is done, and the status says what is missing unless it is only a matter of moments.
fn undecided(subject: &Subject, world: &World) -> Plan {
    match (world.claim.why().or(world.volumes.why()), &subject.object) {
        (Some(why @ (Why::NotServed | Why::Unreachable(_))), Some(shared)) => {
            Plan::none().status(conditions::pair_unknown(world, &shared.status, why))
        }
        _ => Plan::none(),
    }
}

/// The SharedVolume is gone although its finalizer should have kept it: what it left behind goes too.
fn orphans(found: &Found<'_>, now: Timestamp) -> Plan {
    let plan = delete_all(Plan::none(), found, Step::delete);
    if found.remains() { plan.wake_after(recheck(found, now)) } else { plan }
}

/// The SharedVolume is being deleted: claim and volume go, and only when both are really gone is it released.
fn deleting(subject: &Subject, world: &World, found: &Found<'_>, now: Timestamp) -> Plan {
    if !found.remains() {
        // Proved for the claim and for the names that we know. A volume of another name would be an orphan, and is found as such.
        return Plan::none().release_proved();
    }
    let shared = subject.object.as_ref();
    let plan = delete_all(Plan::none(), found, Step::delete_with_owner);
    if shared.is_none_or(|shared| shared.finalizers.is_empty()) {
        return plan.wake_after(recheck(found, now));
    }
    let reason = shared.and_then(|shared| reason_in(&shared.status.conditions, "Ready"));
    match blocked(world, found, now) {
        Some(blocked) => {
            plan.wake_after(BLOCKED).status(conditions::deleting(world, found.pair(), Some(&blocked)))
        }
        // The status says so already; that half of the pair has gone meanwhile is not worth another write.
        None if reason == Some(SharedVolumeReason::Deleting) => plan.wake_after(recheck(found, now)),
        None => {
            let report = conditions::deleting(world, found.pair(), None).soon();
            plan.wake_after(recheck(found, now)).status(report)
        }
    }
}

/// When to look again at a pair that goes. Its end wakes us anyway; one that is slow to go is not looked at all the time.
fn recheck(found: &Found<'_>, now: Timestamp) -> Duration {
    let claim = found.claim.map(|claim| claim.deleting);
    let mut deleting = found.volumes.iter().map(|volume| volume.deleting).chain(claim);
    let slow = deleting.any(|since| lingers(since, now, LINGERING));
    if slow { BLOCKED } else { VANISHING }
}

/// The volume and claim that serve, if there are: a live pair that holds the wanted data.
fn serving_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
    data: &Data,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    live_pair(subject, found).filter(|(volume, _)| volume.data == *data)
}

/// The volume and claim that are for each other, whatever they hold: ours, or a pair of aws-efs-operator's.
fn live_pair<'a>(subject: &Subject, found: &Found<'a>) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    let claim = found.claim?;
    let volume = found.volumes.iter().find(|volume| is_pair(&subject.key, volume, claim))?;
    // A predecessor's claim is taken over only together with its volume, and only if nobody of our engine owned it:
    // an earlier SharedVolume's pair was promised to go.
    let unowned = claim.marks.owner_uid.is_none() && volume.marks.owner_uid.is_none();
    // Users can write the marks of claims but not those of volumes, so the marks of the claim are not enough: a predecessor's volume
    // stays the predecessor's.
    let ours = found.claim_ours && (found.is_ours(volume) || volume.marks.owner_uid.is_none());
    (ours || unowned).then_some((*volume, claim))
}

/// The pair serves: marks and labels are repaired, leftovers go.
fn keep(
    subject: &Subject,
    world: &World,
    found: &Found<'_>,
    volume: &VolumeFacts,
    claim: &ClaimFacts,
    data: &Data,
) -> Plan {
    let pair = Pair { volume: Some(volume), claim: Some(claim) };
    let leftovers = found
        .volumes
        .iter()
        .filter(|other| other.identity.uid != volume.identity.uid && other.deleting.is_none());
    let mut steps = Vec::from(make(subject, data, pair));
    steps.extend(leftovers.map(|other| Step::delete(VOLUME.at("", &other.name), other.identity.clone())));
    let bound = claim.phase == ClaimPhase::Bound && volume.bound_to() == Some(&claim.identity.uid);
    let report = if bound {
        conditions::ready(world, volume, claim, had_trouble(subject))
    } else {
        conditions::provisioning(world, pair)
    };
    Plan::none().hold().stage(steps).status(report)
}

/// Whether the status says that it did not serve for another reason than that it was being made.
fn had_trouble(subject: &Subject) -> bool {
    let Some(shared) = &subject.object else { return false };
    let conditions = &shared.status.conditions;
    state_in(conditions, "Ready") == Some(State::False)
        && reason_in(conditions, "Ready") != Some(SharedVolumeReason::Provisioning)
}

/// What a pass of ours may have left when it died half way, or nothing at all: it can be completed.
fn begun_pair<'a>(subject: &Subject, found: &Found<'a>, data: &Data) -> Option<Pair<'a>> {
    let name = volume_name(&subject.key);
    let begun = match (found.volumes.as_slice(), found.claim) {
        ([], None) => true,
        ([volume], None) => {
            volume.deleting.is_none()
                && volume.name == name
                && volume.bound_to().is_none()
                && volume.data == *data
        }
        ([], Some(claim)) => {
            found.claim_ours && claim.deleting.is_none() && !claim.was_bound() && claim.volume == name
        }
        _ => false,
    };
    begun.then(|| Pair { volume: found.volumes.first().copied(), claim: found.claim })
}

/// The steps that make volume and claim, or repair them. An adopted volume keeps the handle that it was made with.
fn make(subject: &Subject, data: &Data, pair: Pair<'_>) -> [Step; 2] {
    let key = &subject.key;
    let name = pair.volume.map_or_else(|| volume_name(key), |volume| volume.name.clone());
    let handle = pair.volume.map_or_else(|| data.handle(), |volume| volume.handle.clone());
    let volume_step = Step::apply(
        VOLUME.at("", &name),
        volume_intent(key, &name, &handle),
        Expect::seen(pair.volume.map(|volume| &volume.identity)),
    );
    let claim_step = Step::apply(
        CLAIM.at(&key.namespace, &claim_name(key)),
        claim_intent(key, &name),
        Expect::seen(pair.claim.map(|claim| &claim.identity)),
    );
    [volume_step, claim_step]
}

/// What is there does not serve and cannot be changed: both are deleted at once, and both are made again when they are gone.
/// Reverting the change does not help any more, because a deletion cannot be taken back.
fn tear_down(world: &World, found: &Found<'_>, now: Timestamp) -> Plan {
    let plan = delete_all(Plan::none().hold(), found, Step::delete);
    match blocked(world, found, now) {
        Some(blocked) => plan.wake_after(BLOCKED).status(conditions::in_use(world, found.pair(), &blocked)),
        None => {
            plan.wake_after(recheck(found, now)).status(conditions::replacing(world, found.pair()).soon())
        }
    }
}

/// Volumes first: they wait for their claim anyway, but a claim that goes changes its volume, which would then have to be
/// looked at again.
fn delete_all(plan: Plan, found: &Found<'_>, delete: impl Fn(ObjectRef, Identity) -> Step) -> Plan {
    let claim = found.claim.filter(|claim| claim.deleting.is_none());
    let claim = claim.map(|claim| delete(CLAIM.key(&claim.key), claim.identity.clone()));
    let volumes = found.volumes.iter().filter(|volume| volume.deleting.is_none());
    let volumes = volumes.map(|volume| delete(VOLUME.at("", &volume.name), volume.identity.clone()));
    plan.stage(volumes.collect()).stage(claim.into_iter().collect())
}

/// What keeps the pair from vanishing, once it has had time to. Pods and strangers' finalizers are named soon; that only
/// Kubernetes' own protection holds it is worth reporting when it cannot be mere slowness. A volume waits for its claim, so
/// only one without is asked.
fn blocked(world: &World, found: &Found<'_>, now: Timestamp) -> Option<Blocked> {
    let held = |deleting: Option<Timestamp>, finalizers: &[String]| {
        let strange = finalizers.iter().any(|name| !PROTECTION.contains(&name.as_str()));
        lingers(deleting, now, if strange { LINGERING } else { OVERDUE })
    };
    if let Some(claim) = found.claim {
        let pods = match world.pods.as_ref()? {
            Seen::Known { value, .. } => value.clone(),
            Seen::Unknown(_) => Vec::new(),
        };
        let reported = !pods.is_empty() || held(claim.deleting, &claim.finalizers);
        return reported.then(|| Blocked::Claim { pods, finalizers: claim.finalizers.clone() });
    }
    let volume = found.volumes.iter().find(|volume| held(volume.deleting, &volume.finalizers))?;
    Some(Blocked::Volume { name: volume.name.clone(), finalizers: volume.finalizers.clone() })
}
