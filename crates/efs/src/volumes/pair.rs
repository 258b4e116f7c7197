//! The volume and claim of a SharedVolume: what of what is there is its own, and whether it is a pair that serves. Pure.

use aquifer_base::Uid;
use aquifer_engine::{ObjectRef, Seen};

use super::Subject;
use super::data::Data;
use super::facts::{ClaimFacts, VolumeFacts};
use super::names::volume_name;
use super::ownership::{Belongs, Proofs, claim_belongs, is_pair, volume_belongs};
use crate::kinds::{CLAIM, VOLUME};

/// Volume and claim, as far as they are there.
#[derive(Clone, Copy, Default)]
pub(super) struct Pair<'a> {
    pub volume: Option<&'a VolumeFacts>,
    pub claim: Option<&'a ClaimFacts>,
}

/// Volume and claim as far as they concern this SharedVolume.
#[derive(Clone)]
pub(super) struct Found<'a> {
    pub claim: Option<&'a ClaimFacts>,
    pub volumes: Vec<&'a VolumeFacts>,
    /// What stands at our names and is not ours.
    pub foreign: Vec<ObjectRef>,
    /// Which of the volumes are ours in the narrow sense, not a predecessor's.
    pub volumes_ours: Vec<&'a VolumeFacts>,
    /// Whether the claim is ours in the narrow sense, not a predecessor's.
    pub claim_ours: bool,
}

impl<'a> Found<'a> {
    /// Whether anything of ours is there.
    pub fn remains(&self) -> bool {
        self.claim.is_some() || !self.volumes.is_empty()
    }

    /// Whether a volume is ours in the narrow sense.
    pub fn is_ours(&self, volume: &VolumeFacts) -> bool {
        self.volumes_ours.iter().any(|own| own.identity.uid == volume.identity.uid)
    }

    /// Whether any of it is being deleted: then all of it goes.
    pub fn is_leaving(&self) -> bool {
        self.claim.is_some_and(|claim| claim.deleting.is_some())
            || self.volumes.iter().any(|volume| volume.deleting.is_some())
    }

    /// What the status names: only what is ours, because what it names counts as ours from then on.
    pub fn pair(&self) -> Pair<'a> {
        let claim = self.claim.filter(|_| self.claim_ours);
        let named = |volume: &&&VolumeFacts| claim.is_some_and(|claim| claim.volume == volume.name);
        let volume = self.volumes_ours.iter().find(named).or(self.volumes_ours.first());
        Pair { volume: volume.copied(), claim }
    }

    /// All of it but this pair.
    pub fn without(&self, kept: (&VolumeFacts, &ClaimFacts)) -> Self {
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

/// Splits what is seen into ours and foreign. None when something is not known.
pub(super) fn classify<'a>(
    subject: &Subject,
    claim: &'a Seen<Option<ClaimFacts>>,
    volumes: &'a Seen<Vec<VolumeFacts>>,
) -> Option<Found<'a>> {
    let (claim, volumes) = (claim.known()?.as_ref(), volumes.known()?);
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

/// The volume and claim that serve, if there are: a live pair that holds the wanted data.
pub(super) fn serving_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
    data: &Data,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
    live_pair(subject, found).filter(|(volume, _)| volume.data == *data)
}

/// The volume and claim that are for each other, whatever they hold: ours, or a pair of aws-efs-operator's.
pub(super) fn live_pair<'a>(
    subject: &Subject,
    found: &Found<'a>,
) -> Option<(&'a VolumeFacts, &'a ClaimFacts)> {
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

/// What a pass of ours may have left when it died half way, or nothing at all: it can be completed.
pub(super) fn begun_pair<'a>(subject: &Subject, found: &Found<'a>, data: &Data) -> Option<Pair<'a>> {
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

/// Whether it has the pair that it wants: then nothing is to be made.
pub(super) fn serves(
    subject: &Subject,
    claim: &Seen<Option<ClaimFacts>>,
    volumes: &Seen<Vec<VolumeFacts>>,
) -> bool {
    let shared = subject.object.as_ref();
    let data = shared.and_then(|shared| Data::wanted(shared.spec.as_ref().ok()?));
    data.zip(classify(subject, claim, volumes))
        .is_some_and(|(data, found)| serving_pair(subject, &found, &data).is_some())
}
