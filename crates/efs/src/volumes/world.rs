//! What is looked at for one SharedVolume. Looks, does not judge.

use std::time::Duration;

use aquifer_engine::{Object, Seen, Subject, View};
use serde::{Deserialize, Serialize};

use super::pair::{LINGERING, claim_name, lingers, volume_name};
use super::same_data;
use crate::kinds::{CLAIM, COMPONENT, NAMESPACE, POD, SHARED_VOLUME, VOLUME};
use aquifer_api::driver;

/// Pods that held a claim this long ago are named; all SharedVolumes of a namespace that wait share the list.
const POD_AGE: Duration = Duration::from_secs(3);

/// The world of one SharedVolume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct World {
    /// Everything that may be its volume: what names it as owner, what stands at our name, what its status recorded.
    pub volumes: Seen<Vec<Object>>,
    /// What stands at the claim's name.
    pub claim: Seen<Option<Object>>,
    /// Pods of the namespace that mount the claim; looked up only while the claim lingers.
    pub pods: Option<Seen<Vec<String>>>,
    /// Whether the namespace is going away.
    pub namespace_ends: bool,
    /// Other SharedVolumes of the namespace that mean the same data.
    pub twins: Vec<String>,
    /// The driver's named status object.
    pub driver: Seen<Option<Object>>,
}

pub(super) fn observe(subject: &Subject, view: &View<'_>) -> World {
    let claim_at = CLAIM.at(&subject.key.namespace, &claim_name(&subject.key));
    // Before the first write, absence needs no proof: creating is refused if anything is there. After that it does.
    let sure = subject.object.as_ref().is_none_or(|shared| {
        shared.deleting() || !shared.text("/status/claimUID").is_empty() || reason(shared) == Some("Conflict")
    });
    // One half without the other is looked at twice, too: their caches come from two watches. Not so while it goes: nothing
    // hangs on the other half before this one has gone, and each look would be a read.
    let mine = view.mine(&VOLUME);
    let mine = mine.known().map(Vec::as_slice).unwrap_or_default();
    let claim = if (sure || !mine.is_empty()) && !going(mine, view) {
        view.get(&claim_at)
    } else {
        view.cached(&claim_at)
    };
    let pods = claim.present().filter(|claim| lingers(claim, view.now(), LINGERING)).map(|claim| {
        view.list_live(&POD, &subject.key.namespace, POD_AGE).map(|pods| holders(&pods, claim.name()))
    });
    World {
        volumes: volumes(
            subject,
            view,
            (sure || claim.present().is_some())
                && !going(claim.present().map(std::slice::from_ref).unwrap_or_default(), view),
            &claim,
        ),
        pods,
        // The cache of namespaces may be behind that of SharedVolumes: one that is not in it may be new.
        namespace_ends: view
            .get(&NAMESPACE.at("", &subject.key.namespace))
            .known()
            .is_some_and(|namespace| namespace.as_ref().is_none_or(Object::deleting)),
        twins: twins(subject, view),
        driver: view.cached(&COMPONENT.at("", driver::COMPONENT)),
        claim,
    }
}

/// Whether there is something, all of it is going away, and it has not had time to.
fn going(objects: &[Object], view: &View<'_>) -> bool {
    let goes = |object: &Object| object.deleting() && !lingers(object, view.now(), LINGERING);
    !objects.is_empty() && objects.iter().all(goes)
}

/// Why it is Ready or not, as its status says.
pub(super) fn reason(shared: &Object) -> Option<&str> {
    shared.condition("Ready")?.get("reason")?.as_str()
}

fn volumes(
    subject: &Subject,
    view: &View<'_>,
    sure: bool,
    claim: &Seen<Option<Object>>,
) -> Seen<Vec<Object>> {
    view.mine(&VOLUME).map(|mut found| {
        let recorded =
            subject.object.as_ref().map(|shared| shared.text("/status/volumeRef/name")).unwrap_or_default();
        let claimed = claim.present().map(|claim| claim.text("/spec/volumeName")).unwrap_or_default();
        let ours = volume_name(&subject.key);
        let mut names = vec![ours.as_str(), recorded, claimed];
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            if found.iter().any(|volume| volume.name() == name) {
                continue;
            }
            let at = VOLUME.at("", name);
            // A read that is still to come makes this look void, so nothing is lost by leaving it out here.
            let seen = if sure { view.get(&at) } else { view.cached(&at) };
            found.extend(seen.present().cloned());
        }
        found
    })
}

fn twins(subject: &Subject, view: &View<'_>) -> Vec<String> {
    let Some(shared) = &subject.object else { return Vec::new() };
    let group = view.group(&SHARED_VOLUME, &same_data(shared));
    let twins =
        group.known().into_iter().flatten().filter(|twin| twin.uid() != shared.uid() && !twin.deleting());
    twins.map(|twin| twin.name().to_owned()).collect()
}

/// Pods that keep the claim from vanishing: those that were given to a node, also when they have ended.
fn holders(pods: &[Object], claim: &str) -> Vec<String> {
    let mounts = |pod: &&Object| {
        let volumes = pod.at("/spec/volumes").and_then(serde_json::Value::as_array);
        volumes.into_iter().flatten().any(|volume| {
            volume.pointer("/persistentVolumeClaim/claimName").is_some_and(|name| name == claim)
        })
    };
    let placed = |pod: &&Object| !pod.text("/spec/nodeName").is_empty();
    let mut names: Vec<String> =
        pods.iter().filter(mounts).filter(placed).map(|pod| pod.name().to_owned()).collect();
    names.sort_unstable();
    names
}
