//! What must hold at every moment of a history, judged by all versions that the API server has stored.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_engine::model::{Change, USER};
use aquifer_engine::simulation::World;
use aquifer_engine::{OWNER_UID, Object, ObjectRef};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{OF_A_USER, OF_AN_ADMINISTRATOR};
use crate::kinds::{CLAIM, SHARED_FILE_SYSTEM, SHARED_VOLUME, VOLUME};
use crate::volumes::{NAME, claim_name, volume_name};

/// How late a write of ours may land after it was decided.
const LATE: Duration = Duration::from_secs(90);
/// How old what a status says may be: a watch that stalls is listed again after less.
const SEEN: Duration = Duration::from_mins(5);

/// The claim that a SharedVolume asks for.
pub(super) fn wanted_claim(shared: &Object) -> ObjectRef {
    let key = shared.key();
    let named = Some(shared.text("/spec/claimName")).filter(|name| !name.is_empty());
    CLAIM.at(&key.namespace, &named.map_or_else(|| claim_name(&key), str::to_owned))
}

/// The mount options that it asks for.
fn wanted_options(shared: &Object) -> Vec<String> {
    let listed = shared.at("/spec/mountOptions").and_then(Value::as_array).into_iter().flatten();
    let mut options: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    if shared.at("/spec/readOnly") == Some(&Value::Bool(true)) {
        options.push("ro".to_owned());
    }
    options.sort_unstable();
    options
}

/// Whether a SharedVolume has the pair that its spec asks for, bound to each other and not being deleted.
pub(super) fn is_served(shared: &Object, at: impl Fn(&ObjectRef) -> Option<Object>) -> bool {
    let key = shared.key();
    let there = |target: ObjectRef| at(&target).filter(|object| !object.deleting());
    let volume = there(VOLUME.at("", &volume_name(&key)));
    let claim = there(wanted_claim(shared));
    let claim = claim.filter(|claim| claim.annotation(OF_A_USER).is_none());
    let Some((volume, claim)) = volume.zip(claim) else { return false };
    let wanted = format!("{}::{}", shared.text("/spec/fileSystemID"), shared.text("/spec/accessPointID"));
    let options = volume.at("/spec/mountOptions").cloned().unwrap_or_else(|| json!([]));
    volume.text("/spec/csi/volumeHandle") == wanted
        && volume.text("/spec/claimRef/uid") == claim.uid()
        && options == json!(wanted_options(shared))
}

/// What has happened up to one moment.
#[derive(Default)]
struct Past {
    /// Since when the SharedFileSystem does not allow the namespace.
    denied_since: Option<Instant>,
    state: BTreeMap<ObjectRef, Object>,
    /// By uid and spec of a SharedVolume: when it last had its pair.
    served: BTreeMap<(String, String), Instant>,
    /// By uid: when its spec was last another one.
    other_spec: BTreeMap<String, Instant>,
}

impl Past {
    fn add(&mut self, change: &Change) {
        if let (Some(before), Some(after)) = (change.before(), change.after())
            && change.target.kind == SHARED_VOLUME
            && before.0["spec"] != after.0["spec"]
        {
            self.other_spec.insert(after.uid().to_owned(), change.at);
        }
        // What holds until now.
        self.note_served(change.at);
        match change.after() {
            Some(object) => self.state.insert(change.target.clone(), object),
            None => self.state.remove(&change.target),
        };
        self.note_served(change.at);
    }

    fn note_served(&mut self, at: Instant) {
        let shared: Vec<&Object> = self.shared().collect();
        let served: Vec<_> = shared
            .into_iter()
            .filter(|shared| is_served(shared, |target| self.state.get(target).cloned()))
            .map(|shared| (shared.uid().to_owned(), shared.0["spec"].to_string()))
            .collect();
        self.served.extend(served.into_iter().map(|one| (one, at)));
    }

    fn shared(&self) -> impl Iterator<Item = &Object> {
        self.state.iter().filter(|(target, _)| target.kind == SHARED_VOLUME).map(|(_, object)| object)
    }
}

pub(super) fn hold(world: &World) -> Result<(), String> {
    let mut past = Past::default();
    for change in world.model.changes_since(0) {
        if change.target.kind == SHARED_FILE_SYSTEM {
            let denies = change.after().is_some_and(|policy| !names_team(&policy));
            past.denied_since = denies.then(|| past.denied_since.unwrap_or(change.at));
        }
        if ![SHARED_VOLUME, VOLUME, CLAIM].contains(&change.target.kind) {
            continue;
        }
        if change.target.kind == VOLUME && change.by == NAME && change.before().is_none() {
            may_be_made(&past, &change)?;
        }
        if change.by != USER && change.begins_to_go() {
            may_be_deleted(&past, &change)?;
        }
        if change.target.kind == VOLUME
            && let Some(volume) = change.after()
        {
            is_for_ours(&past, &volume)?;
        }
        let adopted = |one: &Object| is_of_others(one) && one.label(OWNER_UID).is_some();
        if change.after().is_some_and(|one| adopted(&one)) {
            return Err(format!("{} was adopted, which somebody else has made", change.target));
        }
        past.add(&change);
        if change.target.kind == SHARED_VOLUME && change.by == NAME {
            ready_is_true(&past, &change)?;
        }
    }
    Ok(())
}

pub(super) fn names_team(policy: &Object) -> bool {
    let names = policy.at("/spec/allowedNamespaces/names").and_then(Value::as_array);
    names.into_iter().flatten().any(|name| name == "team")
}

/// No volume is made that has not been allowed for some time: pairs are made by a list that is at most three seconds old, and the write that
/// follows may land late.
fn may_be_made(past: &Past, change: &Change) -> Result<(), String> {
    match past.denied_since {
        Some(since) if since + LATE < change.at => {
            Err(format!("{} was made, which has not been allowed since {since:?}", change.target))
        }
        _ => Ok(()),
    }
}

/// No volume of ours is for a claim that a user has made, whenever that came. The binder takes what it finds as Kubernetes does.
fn is_for_ours(past: &Past, volume: &Object) -> Result<(), String> {
    let claim = CLAIM.at(volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
    let theirs = past.state.get(&claim).filter(|claim| claim.annotation(OF_A_USER).is_some());
    match theirs {
        Some(theirs) if theirs.uid() == volume.text("/spec/claimRef/uid") => {
            Err(format!("{} is for {claim}, which a user has made", volume.name()))
        }
        _ => Ok(()),
    }
}

/// What users and administrators make with the names of ours.
fn is_of_others(object: &Object) -> bool {
    [OF_A_USER, OF_AN_ADMINISTRATOR].iter().any(|mark| object.annotation(mark).is_some())
}

/// No half of a pair goes that belongs to a SharedVolume and is as its spec says, and none that somebody else has made.
fn may_be_deleted(past: &Past, change: &Change) -> Result<(), String> {
    let Some(child) = change.before() else { return Ok(()) };
    if is_of_others(&child) {
        return Err(format!("{} was deleted, which somebody else has made", change.target));
    }
    let is_owner = |shared: &&Object| !shared.deleting() && child.label(OWNER_UID) == Some(shared.uid());
    let Some(owner) = past.shared().find(is_owner) else { return Ok(()) };
    let served = is_served(owner, |target| past.state.get(target).cloned());
    // What is left of an earlier spec goes.
    let wanted = [VOLUME.at("", &volume_name(&owner.key())), wanted_claim(owner)];
    let served = served && wanted.contains(&change.target);
    let changed_lately = past.other_spec.get(owner.uid()).is_some_and(|at| *at + LATE >= change.at);
    if served && !changed_lately {
        return Err(format!("{} was deleted, which {} wants", change.target, owner.name()));
    }
    Ok(())
}

/// A status that says that a generation is served is not written before it is.
fn ready_is_true(past: &Past, change: &Change) -> Result<(), String> {
    let says = |shared: &Object| {
        let ready = shared.condition("Ready").filter(|ready| ready["status"] == "True")?;
        (ready["observedGeneration"].as_i64() == Some(shared.generation())).then_some(shared.generation())
    };
    let Some(shared) = change.after().filter(|shared| says(shared).is_some()) else { return Ok(()) };
    if change.before().and_then(|before| says(&before)) == says(&shared) {
        return Ok(()); // it said so before
    }
    let served = past.served.get(&(shared.uid().to_owned(), shared.0["spec"].to_string()));
    if served.is_some_and(|at| *at + SEEN >= change.at) {
        return Ok(());
    }
    Err(format!("{} says that it is ready, but its pair was not there: {}", shared.name(), shared.0))
}
