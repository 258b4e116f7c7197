//! Whose a volume or claim is, and whether the two are for each other. Pure.

use aquifer_base::Uid;
use aquifer_engine::Key;

use crate::names::driver;

use super::facts::{ClaimFacts, ClaimPhase, OwnerMarks, VolumeFacts};
use super::names::volume_name;

/// Whose a volume or claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To this SharedVolume: by its uid; because its status records it; or, for a claim, because it names this SharedVolume and a
    /// volume of ours is bound to it.
    Ours,
    /// To an earlier SharedVolume of this name, or to aws-efs-operator in its name.
    Predecessors,
    /// To another owner.
    Foreign,
}

/// Uids of claims whose owner is known although their own marks may be damaged.
pub(super) struct Proofs<'a> {
    /// What the status recorded.
    pub recorded: Option<&'a Uid>,
    /// Those that a volume of ours names by uid. That alone proves nothing: one that comes from a backup or an earlier version goes to
    /// whatever claim of its name is there first.
    pub bound: Vec<&'a Uid>,
    /// Those that are a predecessor's.
    pub predecessors: Vec<&'a Uid>,
}

/// What is known of a SharedVolume by which its volume is recognized.
pub(super) struct Known<'a> {
    pub key: &'a Key,
    /// Its uid; none when it is gone.
    pub uid: Option<&'a Uid>,
    /// The volume that its status recorded.
    pub recorded: Option<&'a Uid>,
    /// The names of claims that it has, may have had, or asks for.
    pub claims: &'a [String],
}

/// Whose a volume is. That the status recorded its uid proves it together with the claim that the volume is for, also where an
/// administrator has damaged its marks: no user can write a status (proved by the tests `user_roles`), and only what is ours is recorded there.
pub(super) fn volume_belongs(volume: &VolumeFacts, known: &Known<'_>) -> Belongs {
    let Known { key, uid, recorded, claims } = known;
    let own_name = volume.name == volume_name(key);
    // A claim that an earlier spec asked for may have any name. Only an administrator can write the marks of volumes.
    let ours_by_name = own_name && volume.marks.owner.as_deref() == Some(&key.to_string());
    let for_ours = volume.claim.as_ref().map(|claim| {
        claim.key.namespace == key.namespace
            && (ours_by_name || claims.iter().any(|name| **name == *claim.key.name))
    });
    if *recorded == Some(&volume.identity.uid) && for_ours == Some(true) {
        return Belongs::Ours;
    }
    match by_marks(&volume.marks, key, *uid) {
        // aws-efs-operator mixed up `a-b/c` and `a/b-c`; the claim that a volume is for shows which one it belongs to.
        Belongs::Predecessors if for_ours == Some(false) => Belongs::Foreign,
        // An administrator has copied our marks to a volume that serves another claim. One at our own name stays ours: it is made again.
        Belongs::Ours if for_ours == Some(false) && !own_name => Belongs::Foreign,
        belongs => belongs,
    }
}

/// Whose a claim is. What proves it comes before its own marks, which users can write.
pub(super) fn claim_belongs(
    claim: &ClaimFacts,
    key: &Key,
    uid: Option<&Uid>,
    proofs: &Proofs<'_>,
) -> Belongs {
    let (is, found) = (&claim.identity.uid, by_marks(&claim.marks, key, uid));
    // Its uid label may be missing or wrong, and the status does not record it yet.
    let named_and_bound = found == Belongs::Predecessors && proofs.bound.contains(&is);
    // Somebody may have taken its marks off. Not so one that had asked for no volume, or for another class: we never made such a claim.
    let stripped = found == Belongs::Foreign && proofs.predecessors.contains(&is) && !claim.volume_chosen;
    if proofs.recorded == Some(is) {
        Belongs::Ours
    } else if claim.class != driver::STORAGE_CLASS {
        Belongs::Foreign // whatever its marks say, which users can write
    } else if named_and_bound {
        Belongs::Ours
    } else if stripped {
        Belongs::Predecessors
    } else {
        found
    }
}

fn by_marks(marks: &OwnerMarks, key: &Key, uid: Option<&Uid>) -> Belongs {
    let marked = marks.owner_uid.as_ref().filter(|mark| !mark.as_str().is_empty());
    let named = marks.owner.as_deref() == Some(&key.to_string());
    if marked.is_some() && marked == uid {
        Belongs::Ours
    } else if named || marks.upstream.as_ref() == Some(key) {
        Belongs::Predecessors
    } else {
        Belongs::Foreign
    }
}

/// Whether the two are for each other, and alive.
pub(super) fn is_pair(key: &Key, volume: &VolumeFacts, claim: &ClaimFacts) -> bool {
    let bound = match volume.claim_uid() {
        Some(uid) => *uid == claim.identity.uid,
        None => !claim.was_bound(),
    };
    volume.deleting.is_none()
        && claim.deleting.is_none()
        && claim.volume == volume.name
        && volume.may_be_for(key, &claim.key.name)
        && bound
        && claim.phase != ClaimPhase::Lost
}
