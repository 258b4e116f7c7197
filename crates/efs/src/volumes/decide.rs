//! What follows for one SharedVolume from what is seen. Pure: no clock, no IO.

use std::time::Duration;

use aquifer_api::efs::SharedVolumeReason;
use aquifer_base::Uid;
use aquifer_engine::{Child, Expect, Identity, ObjectRef, Plan, Seen, State, Step, Why, reason_in, state_in};
use jiff::Timestamp;

use super::access::{self, Verdict};
use super::claim::{claim_intent, note_volume};
use super::conditions::{self, Blocked, Remains};
use super::facts::{ClaimFacts, ClaimPhase, VolumeFacts, lingers};
use super::names::volume_name;
use super::pair::{Found, Pair, begun_pair, classify, live_pair, predecessors, restored_pair, serving_pair};
use super::volume::{only_for, volume_intent};
use super::wish::Wish;
use super::world::World;
use super::{LINGERING, OVERDUE, Subject, Volumes};
use crate::kinds::{CLAIM, VOLUME};

/// How often pods that hold a claim are looked at: their names in the message should be true.
const BLOCKED: Duration = Duration::from_secs(10);
/// An object in the way is not watched; this is how soon its absence is noticed.
const IN_THE_WAY: Duration = Duration::from_secs(10);
/// Time for a deleted pair to vanish before it is reported that it does not.
const VANISHING: Duration = Duration::from_secs(3);

/// What Kubernetes itself puts on every volume and claim, and takes off when nothing uses it.
const PROTECTION: [&str; 2] = ["kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"];

/// The time, and how long what an earlier SharedVolume has left stays.
#[derive(Clone, Copy)]
struct Clock {
    now: Timestamp,
    grace: Duration,
}

impl Clock {
    /// How much longer something stays that is as it is since then; none when its time is over.
    fn left(self, since: Option<Timestamp>) -> Option<Duration> {
        // One that another clock has made later than now is as young as can be.
        let age = Duration::try_from(self.now.duration_since(since?)).unwrap_or_default();
        self.grace.checked_sub(age).filter(|left| !left.is_zero())
    }
}

pub(super) fn decide(subject: &Subject, world: &World, settings: &Volumes, now: Timestamp) -> Plan {
    let clock = Clock { now, grace: settings.grace };
    let Some(wish) = Wish::of(subject) else {
        return without_wish(subject, world, clock);
    };
    let case = access::Case {
        tenancy: settings.tenancy,
        file_systems: &world.file_systems,
        namespace: &subject.key.namespace,
        labels: &world.namespace_labels,
    };
    let verdict = case.judge(&wish.data);
    let found = classify(subject, &world.claims, &world.volumes);
    let serving = found.as_ref().and_then(|found| {
        let restored = || restored_pair(subject, found, &wish).filter(|_| verdict.allows());
        serving_pair(subject, found, &wish).or_else(restored)
    });
    let mut plan = match (&found, serving) {
        (None, _) => undecided(subject, world),
        // What serves goes on serving, whatever has been revoked. What is in the way of a name of ours comes first.
        (Some(found), Some((volume, claim))) if found.foreign.is_empty() => {
            keep(subject, world, found, (volume, claim), &wish)
        }
        (Some(found), _) => serve(subject, world, found, &wish, &verdict, clock),
    };
    if let Some(report) = &mut plan.status {
        report.set(conditions::allowed(&verdict, serving.is_some()));
    }
    plan
}

/// It is gone, it is being deleted, or nobody knows what it wants.
fn without_wish(subject: &Subject, world: &World, clock: Clock) -> Plan {
    let Some(found) = classify(subject, &world.claims, &world.volumes) else {
        return undecided(subject, world);
    };
    let Some(shared) = &subject.object else {
        return orphans(world, &found, clock);
    };
    if shared.deleting.is_some() {
        return deleting(subject, world, &found, clock.now);
    }
    Plan::none().status(conditions::invalid(world, found.pair()))
}

/// Makes the pair that it wants, where it has none that serves.
fn serve(
    subject: &Subject,
    world: &World,
    found: &Found<'_>,
    wish: &Wish,
    verdict: &Verdict,
    clock: Clock,
) -> Plan {
    // First, so that nothing in the way protects half a pair that is not allowed.
    if let Verdict::Denied(said) = verdict {
        return refuse(subject, world, found, said, clock);
    }
    if let Some(thing) = found.foreign.first() {
        // A claim of ours that waits would get a volume that is in the way, and keep it from going.
        let claims = claims_on_foreign(subject, world, found);
        let report = conditions::conflict(world, found.pair(), thing);
        return Plan::none().stage(claims).wake_after(IN_THE_WAY).status(report);
    }
    match verdict {
        Verdict::Allowed { .. } | Verdict::Unrestricted | Verdict::Denied(_) => {}
        // Nothing is torn down for a change that may not be allowed, nor a pair that may have been restored; what has begun to go is
        // finished.
        Verdict::Unknown(..)
            if found.is_leaving()
                && live_pair(subject, found).is_none()
                && predecessors(subject, found).next().is_none() =>
        {
            return tear_down(world, found, clock.now);
        }
        Verdict::Unknown(what, why @ (Why::NotServed | Why::Unreachable(_))) => {
            return Plan::none().status(conditions::unknown(world, found.pair(), what, why));
        }
        Verdict::Unknown(..) => return Plan::none(), // a matter of moments
    }
    if let Some(begun) = begun_pair(subject, found, wish) {
        if world.namespace_ends {
            // A new namespace of the same name would not wake us.
            let report = conditions::namespace_ends(world, found.pair());
            return Plan::none().wake_after(IN_THE_WAY).status(report);
        }
        if !found.remains() && is_driver_unwanted(world) {
            return Plan::none().status(conditions::driver_removed(world, found.pair()));
        }
        let [volume_step, claim_step] = make(subject, wish, begun);
        let plan = Plan::none().hold();
        let plan = match (begun.volume, begun.claim) {
            // The claim comes first, and the volume is for its very uid: no claim that a user makes meanwhile can get it.
            (None, None) => plan.stage(vec![claim_step]).look_again(),
            // Of a restored volume the marks come last: with ours and without a claim it would be half a pair that is made anew.
            (Some(_), None) => plan.stage(vec![claim_step]).stage(vec![volume_step]),
            (_, Some(_)) => plan.stage(vec![volume_step]).stage(vec![claim_step]),
        };
        return plan.status(conditions::provisioning(world, found.pair()));
    }
    tear_down(world, found, clock.now)
}

/// The steps that delete claims of ours, or of an earlier SharedVolume of the name, on a volume at our name that is not ours: those that were
/// never bound, and when that volume is being deleted, also one that was bound, because the volume waits for it.
fn claims_on_foreign(subject: &Subject, world: &World, found: &Found<'_>) -> Vec<Step> {
    let name = volume_name(&subject.key);
    if !found.foreign.contains(&VOLUME.at("", &name)) {
        return Vec::new();
    }
    let volume = world.volumes.known().into_iter().flatten().find(|volume| volume.name == name);
    let volume_goes = volume.is_some_and(|volume| volume.deleting.is_some());
    let claims = found.claims.iter().filter(|claim| claim.deleting.is_none() && claim.volume == name);
    let claims = claims.filter(|claim| !claim.was_bound() || volume_goes);
    claims.map(|claim| Step::delete(CLAIM.key(&claim.key), claim.identity.clone())).collect()
}

/// Whether the driver shall go: then nothing new is made.
fn is_driver_unwanted(world: &World) -> bool {
    world.driver.present().is_some_and(|driver| driver.unwanted)
}

/// It is not allowed. An older pair of this very SharedVolume, which pods may use, stays; so does a volume of its own or of
/// aws-efs-operator's that is bound to a claim at a name of ours. All else serves nobody and goes, whatever is in the way: half a pair, what
/// is being deleted already, and what an earlier SharedVolume of this name has left.
fn refuse(subject: &Subject, world: &World, found: &Found<'_>, said: &str, clock: Clock) -> Plan {
    let now = clock.now;
    let own = live_pair(subject, found);
    // What allows a restored pair may be restored after it.
    let restored = predecessors(subject, found).find_map(|pair| Some((pair, clock.left(pair.0.since)?)));
    let waits = restored.filter(|_| own.is_none() && !is_driver_unwanted(world));
    let kept = own.or(waits.map(|(pair, _)| pair));
    let mut rest = kept.map_or_else(|| found.clone(), |kept| found.without(kept));
    let standing: Vec<&Uid> =
        world.claims.known().into_iter().flatten().map(|claim| &claim.identity.uid).collect();
    // Pods may use it, whoever owns the claim now. Not so what an earlier SharedVolume has left.
    rest.volumes.retain(|volume| {
        let stays = found.is_ours(volume) || volume.marks.owner_uid.is_none();
        !(stays && volume.claim_uid().is_some_and(|uid| standing.contains(&uid)))
    });
    let rest = &rest;
    // What is in the way of a pair that may not be made is of no interest yet.
    let remains = match (own, waits) {
        (Some(_), _) => Remains::Stays,
        (None, Some(_)) => Remains::Waits,
        (None, None) if rest.remains() => Remains::Goes,
        (None, None) => Remains::Nothing,
    };
    let report = conditions::not_allowed(world, found.pair(), said, remains);
    let plan = waits.map_or_else(Plan::none, |(_, left)| Plan::none().wake_after(left));
    if !rest.remains() {
        return plan.status(report);
    }
    let wake = if blocked(world, rest, now).is_some() { BLOCKED } else { recheck(rest, now) };
    delete_all(plan.hold(), rest, Step::delete).wake_after(wake).status(report)
}

/// Something is not known: nothing is done, and the status says what is missing unless it is only a matter of moments.
fn undecided(subject: &Subject, world: &World) -> Plan {
    match (world.claims.why().or(world.volumes.why()), &subject.object) {
        (Some(why @ (Why::NotServed | Why::Unreachable(_))), Some(shared)) => {
            Plan::none().status(conditions::pair_unknown(world, &shared.status, why))
        }
        _ => Plan::none(),
    }
}

/// The SharedVolume is gone although its finalizer should have kept it: what it left behind goes too. Not at once when it is young: it may
/// have been restored before its SharedVolume.
fn orphans(world: &World, found: &Found<'_>, clock: Clock) -> Plan {
    if !found.remains() {
        return Plan::none();
    }
    let volumes = found.volumes.iter().filter_map(|volume| volume.since);
    // Without a volume the claim tells: it may have been restored first.
    let claims = found.claims.iter().filter(|_| found.volumes.is_empty()).filter_map(|claim| claim.made);
    let youngest = volumes.chain(claims).max();
    // What has begun to go cannot be adopted any more.
    let may_be_adopted = !found.is_leaving() && !is_driver_unwanted(world) && !is_unused(world, found);
    if let Some(left) = clock.left(youngest).filter(|_| may_be_adopted) {
        return Plan::none().wake_after(left);
    }
    delete_all(Plan::none(), found, Step::delete).wake_after(recheck(found, clock.now))
}

/// Whether all that is there was made by us and serves nobody: each volume was made for one claim, which was never bound, or is gone, and there
/// is no other claim. It is left when Kubernetes deletes a SharedVolume although our finalizer was put on it in the same moment.
fn is_unused(world: &World, found: &Found<'_>) -> bool {
    // All that are seen, also one whose marks are damaged.
    let claims = world.claims.known().map(Vec::as_slice).unwrap_or_default();
    let bound =
        |uid: Option<&Uid>| claims.iter().any(|claim| Some(&claim.identity.uid) == uid && claim.was_bound());
    let unused = |volume: &&VolumeFacts| {
        volume.claim.as_ref().is_some_and(|claim| claim.since_creation && !bound(claim.uid.as_ref()))
    };
    let of_a_volume = |claim: &&ClaimFacts| {
        found.volumes.iter().any(|volume| volume.claim_uid() == Some(&claim.identity.uid))
    };
    !found.volumes.is_empty()
        && found.volumes.iter().all(unused)
        && found.claims.iter().all(|claim| of_a_volume(claim) && !claim.was_bound())
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
    let claims = found.claims.iter().map(|claim| claim.deleting);
    let mut deleting = found.volumes.iter().map(|volume| volume.deleting).chain(claims);
    let slow = deleting.any(|since| lingers(since, now, LINGERING));
    if slow { BLOCKED } else { VANISHING }
}

/// The pair serves: marks and labels are repaired, leftovers go.
fn keep(
    subject: &Subject,
    world: &World,
    found: &Found<'_>,
    (volume, claim): (&VolumeFacts, &ClaimFacts),
    wish: &Wish,
) -> Plan {
    let pair = Pair { volume: Some(volume), claim: Some(claim) };
    let mut steps = Vec::from(make(subject, wish, pair));
    let (volumes, claims) = deletions(&found.without((volume, claim)), Step::delete);
    steps.extend(volumes.into_iter().chain(claims));
    // Kubernetes knows both by now, and would look at the claim again only after a quarter of a minute.
    let is_noted = claim.noted_volume.as_ref() == Some(&volume.identity.uid);
    let waits = volume.called_bound && !claim.was_bound() && !is_noted;
    steps.extend(waits.then(|| note_volume(claim, &volume.identity.uid)));
    let bound = claim.phase == ClaimPhase::Bound && volume.claim_uid() == Some(&claim.identity.uid);
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

/// The steps that make volume and claim, or repair them. An adopted volume keeps the handle that it was made with.
fn make(subject: &Subject, wish: &Wish, pair: Pair<'_>) -> [Step; 2] {
    let key = &subject.key;
    let name = pair.volume.map_or_else(|| volume_name(key), |volume| volume.name.clone());
    let handle = pair.volume.map_or_else(|| wish.data.handle(), |volume| volume.handle.clone());
    let volume_at = VOLUME.at("", &name);
    let intent = volume_intent(key, &name, &handle, wish);
    let volume_step = match (pair.volume, pair.claim) {
        (None, Some(claim)) => {
            let child = Child::new(volume_at, intent, Expect::Absent);
            Step::Apply(child.only_at_creation(only_for(&claim.identity.uid)))
        }
        (volume, _) => Step::apply(volume_at, intent, Expect::seen(volume.map(|volume| &volume.identity))),
    };
    let claim_step = Step::apply(
        CLAIM.at(&key.namespace, &wish.claim),
        claim_intent(key, &wish.claim, &name),
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
    let (volumes, claims) = deletions(found, delete);
    plan.stage(volumes).stage(claims)
}

/// The steps that delete what is not being deleted yet: volumes, and claims.
fn deletions(found: &Found<'_>, delete: impl Fn(ObjectRef, Identity) -> Step) -> (Vec<Step>, Vec<Step>) {
    let volumes = found.volumes.iter().filter(|volume| volume.deleting.is_none());
    let volumes = volumes.map(|volume| delete(VOLUME.at("", &volume.name), volume.identity.clone()));
    let claims = found.claims.iter().filter(|claim| claim.deleting.is_none());
    let claims = claims.map(|claim| delete(CLAIM.key(&claim.key), claim.identity.clone()));
    (volumes.collect(), claims.collect())
}

/// What keeps the pair from vanishing, once it has had time to. Pods and strangers' finalizers are named soon; that only
/// Kubernetes' own protection holds it is worth reporting when it cannot be mere slowness. A volume waits for its claim, so
/// only one without is asked.
fn blocked(world: &World, found: &Found<'_>, now: Timestamp) -> Option<Blocked> {
    let held = |deleting: Option<Timestamp>, finalizers: &[String]| {
        let strange = finalizers.iter().any(|name| !PROTECTION.contains(&name.as_str()));
        lingers(deleting, now, if strange { LINGERING } else { OVERDUE })
    };
    if !found.claims.is_empty() {
        let pods = match world.pods.as_ref()? {
            Seen::Known { value, .. } => value.clone(),
            Seen::Unknown(_) => Vec::new(),
        };
        let claim = found.claims.iter().find(|claim| held(claim.deleting, &claim.finalizers));
        let claim = claim.or(found.claims.first().filter(|_| !pods.is_empty()))?;
        return Some(Blocked::Claim { pods, finalizers: claim.finalizers.clone() });
    }
    let volume = found.volumes.iter().find(|volume| held(volume.deleting, &volume.finalizers))?;
    Some(Blocked::Volume { name: volume.name.clone(), finalizers: volume.finalizers.clone() })
}
