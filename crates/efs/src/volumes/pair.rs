//! The volume and claim of a SharedVolume: what of what is there is its own, and whether it is a pair that serves. Pure.

use aquifer_base::Uid;
use aquifer_engine::{Key, ObjectRef, Seen};

use super::Subject;
use super::facts::{ClaimFacts, VolumeFacts};
use super::names::{claim_name, volume_name};
use super::ownership::{Belongs, Known, Proofs, claim_belongs, is_pair, volume_belongs};
use super::wish::{Wish, claim_of};
use crate::kinds::{CLAIM, VOLUME};

/// Volume and claim, as far as they are there.
#[derive(Clone, Copy, Default)]
pub(super) struct Pair<'a> {
    pub volume: Option<&'a VolumeFacts>,
    pub claim: Option<&'a ClaimFacts>,
}

/// Volumes and claims as far as they concern this SharedVolume.
#[derive(Clone, Default)]
pub(super) struct Found<'a> {
    /// That at the name that the spec asks for comes first. Others are of an earlier spec.
    pub claims: Vec<&'a ClaimFacts>,
    pub volumes: Vec<&'a VolumeFacts>,
    /// What stands at our names and is not ours.
    pub foreign: Vec<ObjectRef>,
    /// Which of the volumes are ours in the narrow sense, not a predecessor's.
    pub volumes_ours: Vec<&'a VolumeFacts>,
    /// Which of the claims are ours in the narrow sense, not a predecessor's.
    pub claims_ours: Vec<&'a ClaimFacts>,
}

impl<'a> Found<'a> {
    /// Whether anything of ours is there.
    pub fn remains(&self) -> bool {
        !self.claims.is_empty() || !self.volumes.is_empty()
    }

    /// Whether a volume is ours in the narrow sense.
    pub fn is_ours(&self, volume: &VolumeFacts) -> bool {
        self.volumes_ours.iter().any(|own| own.identity.uid == volume.identity.uid)
    }

    /// Whether a claim is ours in the narrow sense.
    fn is_our_claim(&self, claim: &ClaimFacts) -> bool {
        self.claims_ours.iter().any(|own| own.identity.uid == claim.identity.uid)
    }

    /// Whether any of it is being deleted: then all of it goes.
    pub fn is_leaving(&self) -> bool {
        self.claims.iter().any(|claim| claim.deleting.is_some())
            || self.volumes.iter().any(|volume| volume.deleting.is_some())
    }

    /// What the status names: only what is ours, because what it names counts as ours from then on.
    pub fn pair(&self) -> Pair<'a> {
        let claim = self.claims_ours.first().copied();
        let named = |volume: &&&VolumeFacts| claim.is_some_and(|claim| claim.volume == volume.name);
        let volume = self.volumes_ours.iter().find(named).or(self.volumes_ours.first());
        Pair { volume: volume.copied(), claim }
    }

    /// All of it but this pair.
    pub fn without(&self, kept: (&VolumeFacts, &ClaimFacts)) -> Self {
        let volumes = |all: &[&'a VolumeFacts]| {
            all.iter().copied().filter(|one| one.identity.uid != kept.0.identity.uid).collect::<Vec<_>>()
        };
        let claims = |all: &[&'a ClaimFacts]| {
            all.iter().copied().filter(|one| one.identity.uid != kept.1.identity.uid).collect::<Vec<_>>()
        };
        Self {
            claims: claims(&self.claims),
            volumes: volumes(&self.volumes),
            foreign: self.foreign.clone(),
            volumes_ours: volumes(&self.volumes_ours),
            claims_ours: claims(&self.claims_ours),
        }
    }

    /// Every volume and claim that are for each other and alive.
    fn pairs(&self, key: &Key) -> impl Iterator<Item = (&'a VolumeFacts, &'a ClaimFacts)> {
        let both = self.claims.iter().flat_map(|claim| self.volumes.iter().map(|volume| (*volume, *claim)));
        both.filter(|(volume, claim)| is_pair(key, volume, claim))
    }
}

/// Splits what is seen into ours and foreign. None when something is not known.
pub(super) fn classify<'a>(
    subject: &Subject,
    claims: &'a Seen<Vec<ClaimFacts>>,
    volumes: &'a Seen<Vec<VolumeFacts>>,
) -> Option<Found<'a>> {
    let (claims, volumes) = (claims.known()?, volumes.known()?);
    let key = &subject.key;
    let shared = subject.object.as_ref();
    let uid = shared.map(|shared| &shared.uid);
    let recorded = |uid: &String| Some(Uid::new(uid.as_str())).filter(|uid| !uid.as_str().is_empty());
    let recorded_volume =
        shared.and_then(|shared| shared.status.volume_ref.as_ref()?.uid.as_ref()).and_then(recorded);
    let recorded_claim = shared.and_then(|shared| shared.status.claim_uid.as_ref()).and_then(recorded);
    let names = claim_names(subject);
    let known = Known { key, uid, recorded: recorded_volume.as_ref(), claims: &names };
    let mut found = Found::default();
    // Only an administrator can write volumes: a claim that a predecessor's is bound to is a predecessor's, whatever its labels say.
    let mut claim_proofs =
        Proofs { recorded: recorded_claim.as_ref(), bound: Vec::new(), predecessors: Vec::new() };
    for volume in volumes {
        match volume_belongs(volume, &known) {
            Belongs::Foreign if volume.name == volume_name(key) => {
                found.foreign.push(VOLUME.at("", &volume.name));
            }
            Belongs::Foreign => {}
            Belongs::Ours => {
                claim_proofs.bound.extend(volume.claim_uid());
                found.volumes_ours.push(volume);
                found.volumes.push(volume);
            }
            Belongs::Predecessors => {
                // What aws-efs-operator made says nothing about claims that somebody else made.
                let made_by_us = volume.marks.owner_uid.is_some();
                claim_proofs.predecessors.extend(volume.claim_uid().filter(|_| made_by_us));
                found.volumes.push(volume);
            }
        }
    }
    let wanted = claim_of(subject);
    for claim in claims {
        let at_our_name = *claim.key.name == *wanted;
        match claim_belongs(claim, key, uid, &claim_proofs) {
            Belongs::Foreign if at_our_name => found.foreign.push(CLAIM.key(&claim.key)),
            Belongs::Foreign => {}
            belongs if at_our_name || is_left(claim, key, &found.volumes, recorded_claim.as_ref()) => {
                if belongs == Belongs::Ours {
                    found.claims_ours.push(claim);
                }
                found.claims.push(claim);
            }
            Belongs::Ours | Belongs::Predecessors => {}
        }
    }
    found.claims.sort_by_key(|claim| *claim.key.name != *wanted);
    found.claims_ours.sort_by_key(|claim| *claim.key.name != *wanted);
    Some(found)
}

/// Whether a claim of another name than the spec asks for is left of an earlier spec. Its marks are not enough, because users can write
/// them: it also asks for a volume that is ours, or is recorded.
fn is_left(claim: &ClaimFacts, key: &Key, volumes: &[&VolumeFacts], recorded: Option<&Uid>) -> bool {
    claim.volume == volume_name(key)
        || volumes.iter().any(|volume| volume.name == claim.volume)
        || recorded == Some(&claim.identity.uid)
}

/// The names of the claims that a SharedVolume asks for, has according to its status, or has when its spec names none.
pub(super) fn claim_names(subject: &Subject) -> Vec<String> {
    let recorded = subject.object.as_ref().and_then(|shared| shared.status.claim_ref.as_ref());
    let recorded = recorded.map(|claim| claim.name.clone()).filter(|name| !name.is_empty());
    let mut names = vec![claim_of(subject), claim_name(&subject.key)];
    names.extend(recorded);
    names.dedup();
    names
}

/// The volume and claim that serve, if there are: a live pair that is as the wish says.
pub(super) fn serving_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
    wish: &Wish,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    let mut pairs = live_pairs(subject, found);
    pairs.find(|(volume, claim)| volume.fits(wish) && *claim.key.name == *wish.claim)
}

/// The volume and claim that an earlier SharedVolume of this name had, when they are as the wish says: a restored backup, or a SharedVolume
/// whose finalizer was taken off and that was made again. The owner that the volume names proves it, because only administrators write
/// volumes; the marks of the claim prove nothing by themselves.
pub(super) fn restored_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
    wish: &Wish,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    predecessors(subject, found).find(|(volume, claim)| volume.fits(wish) && *claim.key.name == *wish.claim)
}

/// The volumes and claims that are for each other and whose volume names this SharedVolume, or an earlier one, as its owner.
pub(super) fn predecessors<'a>(
    subject: &Subject,
    found: &Found<'a>,
) -> impl Iterator<Item = (&'a VolumeFacts, &'a ClaimFacts)> {
    let owner = subject.key.to_string();
    found.pairs(&subject.key).filter(move |(volume, _)| volume.marks.owner.as_ref() == Some(&owner))
}

/// The volume and claim that are for each other, whatever they hold: ours, or a pair of aws-efs-operator's.
pub(super) fn live_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    live_pairs(subject, found).next()
}

fn live_pairs<'a>(
    subject: &Subject,
    found: &Found<'a>,
) -> impl Iterator<Item = (&'a VolumeFacts, &'a ClaimFacts)> {
    found.pairs(&subject.key).filter(|(volume, claim)| {
        // A predecessor's claim is taken over only together with its volume, and only if nobody of our engine owned it; what an earlier
        // SharedVolume has left is taken over only where it is allowed.
        let unowned = claim.marks.owner_uid.is_none() && volume.marks.owner_uid.is_none();
        // Users can write the marks of claims but not those of volumes, so the marks of the claim are not enough: a predecessor's volume
        // stays the predecessor's.
        let ours = found.is_our_claim(claim) && (found.is_ours(volume) || volume.marks.owner_uid.is_none());
        ours || unowned
    })
}

/// Nothing, or half a pair that can be completed: a claim that was never bound, which a pass of ours or a restore may have left, or a
/// volume that a restore has left. One of our own that is for any claim of the name, as earlier versions made them, is made anew.
pub(super) fn begun_pair<'a>(subject: &Subject, found: &Found<'a>, wish: &Wish) -> Option<Pair<'a>> {
    let name = volume_name(&subject.key);
    let begun = match (found.volumes.as_slice(), found.claims.as_slice()) {
        ([], []) => true,
        ([volume], []) => {
            volume.deleting.is_none()
                && volume.name == name
                && !found.is_ours(volume)
                && volume.claim_uid().is_none()
                && volume.may_be_for(&subject.key, &wish.claim)
                && volume.fits(wish)
        }
        ([], [claim]) => {
            // Also one that was restored before its volume.
            claim.deleting.is_none()
                && !claim.was_bound()
                && *claim.key.name == *wish.claim
                && claim.volume == name
        }
        _ => false,
    };
    begun.then(|| Pair { volume: found.volumes.first().copied(), claim: found.claims.first().copied() })
}

/// Whether it has the pair that it wants: then nothing is to be made.
pub(super) fn serves(
    subject: &Subject,
    claims: &Seen<Vec<ClaimFacts>>,
    volumes: &Seen<Vec<VolumeFacts>>,
) -> bool {
    Wish::of(subject)
        .zip(classify(subject, claims, volumes))
        .is_some_and(|(wish, found)| serving_pair(subject, &found, &wish).is_some())
}
