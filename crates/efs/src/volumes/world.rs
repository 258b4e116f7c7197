//! What is looked at for one SharedVolume. Looks, does not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aquifer_api::efs::SharedVolumeReason;
use aquifer_engine::cluster::Listing;
use aquifer_engine::{Group, Key, OWNER_UID, Object, ObjectRef, Seen, View, Why, reason_in};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::absence::{History, OtherHalf, claim_must_be_proved, volume_must_be_proved};
use super::access::FileSystemFacts;
use super::data::Data;
use super::facts::{ClaimFacts, DriverFacts, VolumeFacts, lingers};
use super::names::volume_name;
use super::pair::serves;
use super::wish::claim_of;
use super::{LABELS, LINGERING, Subject, UNSEEN, claims_topic, data_group, file_system_topic};
use crate::kinds::{CLAIM, COMPONENT, NAMESPACE, POD, SHARED_FILE_SYSTEM, SHARED_VOLUME, VOLUME};
use crate::names::driver;

/// Pods that held a claim this long ago are named; all SharedVolumes of a namespace that wait share the list.
const POD_AGE: Duration = Duration::from_secs(3);

/// What is looked at of a pod. Users write pods, and whole ones can be very large.
const POD_PARTS: [&str; 2] = ["/spec/nodeName", "/spec/volumes/*/persistentVolumeClaim/claimName"];

/// How old a list of SharedFileSystems may be by which a pair is made; all SharedVolumes share it.
const LIST_AGE: Duration = Duration::from_secs(3);

/// How many claims that ask for a volume of ours are looked at: users can make thousands.
const ASKING: usize = 8;

/// The world of one SharedVolume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// Everything that may be its volume: what names it as owner, what stands at our name, what its status recorded.
    pub volumes: Seen<Vec<VolumeFacts>>,
    /// Everything that may be its claim: what stands at the name that the spec asks for, first, and what may be left of an earlier spec.
    pub claims: Seen<Vec<ClaimFacts>>,
    /// Pods of the namespace that mount such a claim; looked up only while one is slow to go.
    pub pods: Option<Seen<Vec<String>>>,
    /// Whether the namespace is going away.
    pub namespace_ends: bool,
    /// The labels of the namespace; none when it is not there.
    pub namespace_labels: Seen<Option<BTreeMap<String, String>>>,
    /// The SharedFileSystems that name the file system; not looked at for one that is being deleted.
    pub file_systems: Seen<Vec<FileSystemFacts>>,
    /// The other SharedVolumes of the namespace that mean the same data.
    pub duplicates: Group,
    /// What is known of the driver; none when it has no Component.
    pub driver: Seen<Option<DriverFacts>>,
}

pub(super) fn observe(subject: &Subject, view: &View<'_>) -> World {
    let history = history(subject);
    let claim_at = CLAIM.at(&subject.key.namespace, &claim_of(subject));
    let mine = view.mine(&VOLUME);
    // One of another name that serves another claim carries copied marks.
    let is_half =
        |volume: &&Object| volume.name() == volume_name(&subject.key) || reserved_for(volume) == claim_at.key;
    let halves: Vec<&Object> = mine.known().into_iter().flatten().filter(is_half).collect();
    let going_halves: Vec<_> = halves.iter().map(|volume| going(subject, volume)).collect();
    let claim = if claim_must_be_proved(history, other_half(&going_halves, view.now())) {
        view.get(&claim_at)
    } else {
        view.cached(&claim_at)
    };
    let earlier = earlier_claims(subject, view, &claim_at, &[]);
    let claims: Vec<&Object> = claim.present().into_iter().chain(&earlier).collect();
    let is_ours = |claim: &Object| claim.text("/spec/storageClassName") == driver::STORAGE_CLASS;
    let claim_half: Vec<_> =
        claims.iter().map(|claim| going(subject, claim).filter(|_| is_ours(claim))).collect();
    // Only the one at our name: what else users have made says nothing of a volume.
    let is_begun = |claim: &Object| !claim.deleting() && !ClaimFacts::of(claim).was_bound();
    let claim_half = match (claim.present(), earlier.as_slice()) {
        (Some(claim), []) if is_begun(claim) => OtherHalf::Begun,
        _ => other_half(&claim_half, view.now()),
    };
    let prove_volumes = volume_must_be_proved(history, claim_half);
    let volumes = volumes(subject, view, prove_volumes, claim.present());
    // Also those that are found by a volume whose marks are damaged, which is none of `mine`.
    let earlier =
        earlier_claims(subject, view, &claim_at, volumes.known().map(Vec::as_slice).unwrap_or_default());
    let claims = claim.map(|claim| claim.iter().chain(&earlier).map(ClaimFacts::of).collect::<Vec<_>>());
    let slow = |claim: &&ClaimFacts| lingers(claim.deleting, view.now(), LINGERING);
    let slow: Vec<&str> =
        claims.known().into_iter().flatten().filter(slow).map(|claim| &*claim.key.name).collect();
    let pods = (!slow.is_empty()).then(|| {
        let pods = Listing::all(&POD, &subject.key.namespace).parts(&POD_PARTS);
        view.list_live(pods, POD_AGE).map(|pods| holders(&pods, &slow))
    });
    // The cache of namespaces may be behind that of SharedVolumes: one that is not in it may be new.
    let namespace = view.get(&NAMESPACE.at("", &subject.key.namespace));
    World {
        file_systems: file_systems(subject, view, serves(subject, &claims, &volumes)),
        volumes,
        pods,
        namespace_ends: namespace
            .known()
            .is_some_and(|namespace| namespace.as_ref().is_none_or(Object::deleting)),
        namespace_labels: namespace.map(|namespace| namespace.map(|namespace| labels(&namespace))),
        duplicates: duplicates(subject, view),
        driver: view
            .cached(&COMPONENT.at("", driver::COMPONENT))
            .map(|component| component.as_ref().map(DriverFacts::of)),
        claims,
    }
}

/// Claims at other names than the spec asks for: those that our volumes are for, that the status records, or that ask for our volumes.
/// What is read here and not seen yet makes this look void.
fn earlier_claims(
    subject: &Subject,
    view: &View<'_>,
    wanted: &ObjectRef,
    volumes: &[VolumeFacts],
) -> Vec<Object> {
    let namespace = &subject.key.namespace;
    let here =
        |key: &Key| key.namespace == *namespace && *key.name != *wanted.key.name && !key.name.is_empty();
    // Their marks may be damaged, so that no cache shows them.
    let recorded = subject.object.as_ref().and_then(|shared| shared.status.claim_ref.as_ref());
    let recorded = recorded.map(|claim| Key::namespaced(namespace, &claim.name));
    let reserved = volumes.iter().filter_map(|volume| Some(volume.claim.as_ref()?.key.clone()));
    let named: BTreeSet<Key> = reserved.chain(recorded).filter(here).collect();
    let own = volume_name(&subject.key);
    let asked_for = volumes.iter().map(|volume| volume.name.as_str()).chain([own.as_str()]);
    let asked_for = asked_for.collect::<BTreeSet<_>>();
    let asking = asked_for.into_iter().flat_map(|volume| {
        let found = view.cached_topic(&CLAIM, &claims_topic(namespace, volume));
        found.known().into_iter().flatten().take(ASKING).cloned().collect::<Vec<_>>()
    });
    let asking: BTreeSet<Key> = asking.filter(here).filter(|key| !named.contains(key)).collect();
    let named = named.iter().map(|key| view.get(&CLAIM.key(key)));
    let seen = named.chain(asking.iter().map(|key| view.cached(&CLAIM.key(key))));
    seen.filter_map(|claim| claim.present().cloned()).collect()
}

/// The claim that a volume is for.
fn reserved_for(volume: &Object) -> Key {
    Key::namespaced(volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"))
}

fn history(subject: &Subject) -> History {
    let Some(shared) = &subject.object else { return History { ending: true, ..History::default() } };
    History {
        ending: shared.deleting.is_some(),
        recorded: shared.status.claim_uid.as_ref().is_some_and(|uid| !uid.is_empty()),
        conflict: reason_in(&shared.status.conditions, "Ready") == Some(SharedVolumeReason::Conflict),
    }
}

/// Since when an object goes that surely belongs to this SharedVolume. None for what stays, and for what may be somebody else's.
fn going(subject: &Subject, object: &Object) -> Option<Timestamp> {
    let owner = subject.object.as_ref()?.uid.as_str();
    object.deleting_since().filter(|_| object.label(OWNER_UID) == Some(owner))
}

/// The other half of the pair, from the times since when its objects go.
fn other_half(deleting: &[Option<Timestamp>], now: Timestamp) -> OtherHalf {
    let leaves = |since: &Option<Timestamp>| since.is_some() && !lingers(*since, now, UNSEEN);
    match deleting {
        [] => OtherHalf::Absent,
        all if all.iter().all(leaves) => OtherHalf::Leaving,
        _ => OtherHalf::Present,
    }
}

fn volumes(
    subject: &Subject,
    view: &View<'_>,
    prove: bool,
    claim: Option<&Object>,
) -> Seen<Vec<VolumeFacts>> {
    view.mine(&VOLUME).map(|found| {
        let mut found: Vec<VolumeFacts> = found.iter().map(VolumeFacts::of).collect();
        let recorded = subject.object.as_ref().and_then(|shared| shared.status.volume_ref.as_ref());
        let recorded = recorded.map(|volume| volume.name.as_str()).unwrap_or_default();
        let claimed = claim.map(|claim| claim.text("/spec/volumeName")).unwrap_or_default();
        let ours = volume_name(&subject.key);
        let mut names = vec![ours.as_str(), recorded, claimed];
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            if found.iter().any(|volume| volume.name == name) {
                continue;
            }
            let at = VOLUME.at("", name);
            // A read that is still to come makes this look void, so nothing is lost by leaving it out here.
            let seen = if prove { view.get(&at) } else { view.cached(&at) };
            found.extend(seen.present().map(VolumeFacts::of));
        }
        found
    })
}

/// For what serves as the cache has them, because that is only reported. Before anything is made they are read: what is made by mistake
/// is never taken away again, and the cache may be behind. A list that another pass has read counts while the cache says the same: where
/// the two differ, one of them is behind, and nobody would wake us when it no longer is.
fn file_systems(subject: &Subject, view: &View<'_>, serves: bool) -> Seen<Vec<FileSystemFacts>> {
    let shared = subject.object.as_ref().filter(|shared| shared.deleting.is_none());
    let Some(data) = shared.and_then(|shared| Data::wanted(shared.spec.as_ref().ok()?)) else {
        return Seen::Unknown(Why::Reading);
    };
    let facts = |object: &Object| FileSystemFacts::of(object, &data.file_system, &subject.key.namespace);
    let read = |max_age: Duration| {
        let all = view.list_live(Listing::all(&SHARED_FILE_SYSTEM, ""), max_age);
        all.map(|all| all.iter().filter_map(facts).collect::<Vec<_>>())
    };
    if serves {
        return cached_file_systems(view, &data, facts);
    }
    let shared = read(LIST_AGE);
    match cached_file_systems(view, &data, facts).known() {
        Some(cached) if shared.known() == Some(cached) => shared,
        _ => read(Duration::ZERO),
    }
}

fn cached_file_systems(
    view: &View<'_>,
    data: &Data,
    facts: impl Fn(&Object) -> Option<FileSystemFacts>,
) -> Seen<Vec<FileSystemFacts>> {
    let (names, read_at) = match view.cached_topic(&SHARED_FILE_SYSTEM, &file_system_topic(&data.file_system))
    {
        Seen::Known { value, read_at } => (value, read_at),
        Seen::Unknown(why) => return Seen::Unknown(why),
    };
    // All of them before any is judged: on firm ground each is a read.
    let seen: Vec<_> = names.iter().map(|name| view.cached(&SHARED_FILE_SYSTEM.key(name))).collect();
    if let Some(why) = seen.iter().find_map(Seen::why) {
        return Seen::Unknown(why.clone());
    }
    Seen::Known { value: seen.iter().filter_map(Seen::present).filter_map(facts).collect(), read_at }
}

fn labels(namespace: &Object) -> BTreeMap<String, String> {
    let labels = namespace.at(&format!("/{LABELS}"));
    labels.and_then(|labels| BTreeMap::deserialize(labels).ok()).unwrap_or_default()
}

fn duplicates(subject: &Subject, view: &View<'_>) -> Group {
    let shared = subject.object.as_ref();
    let data = shared.and_then(|shared| Data::wanted(shared.spec.as_ref().ok()?));
    let Some(data) = data else { return Group::Few(Vec::new()) };
    let group = view.cached_group(&SHARED_VOLUME, &data_group(&subject.key.namespace, &data));
    match group.known() {
        Some(Group::Many) => Group::Many,
        Some(Group::Few(members)) => {
            Group::Few(members.iter().filter(|other| **other != subject.key).cloned().collect())
        }
        None => Group::Few(Vec::new()),
    }
}

/// Pods that keep claims from vanishing: those that were given to a node, also when they have ended.
fn holders(pods: &[Object], claims: &[&str]) -> Vec<String> {
    let mounts = |pod: &&Object| {
        let volumes = pod.at("/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().any(|volume| {
            let name = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str);
            name.is_some_and(|name| claims.contains(&name))
        })
    };
    let placed = |pod: &&Object| !pod.text("/spec/nodeName").is_empty();
    let mut names: Vec<String> =
        pods.iter().filter(mounts).filter(placed).map(|pod| pod.name().to_owned()).collect();
    names.sort_unstable();
    names
}
