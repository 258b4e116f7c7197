//! When the absence of a volume or claim must be proved by a read. Pure: one judgement, and its table.

/// What the cache shows of the other half of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherHalf {
    /// Nothing.
    Absent,
    /// Something that stays, that is very slow to go, or that is not surely ours.
    Present,
    /// Only what is ours and was deleted not long ago.
    Leaving,
    /// A claim at our name that was never bound: its volume is not there yet, or is for another claim.
    Begun,
}

/// What is known of the SharedVolume before its pair is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// The SharedVolume is gone or being deleted: what is left of its pair must be found.
    pub ending: bool,
    /// Its status records a claim: there was one.
    pub recorded: bool,
    /// Its status says that something was in the way: that is in no cache of ours.
    pub conflict: bool,
}

/// Whether a volume that no cache shows must be read before it counts as absent: always before its claim is made, because Kubernetes gives
/// the claim whatever volume of that name is there and is for nobody. Not once the claim is there and was never bound, unless the status
/// records a claim or a conflict, or it is being deleted: then the volume is created, which is refused if anything is there. Nor while the claim, ours, is going, and the SharedVolume with it: nothing is decided
/// about the volume before that is gone, and each look would cost a read.
pub(super) fn volume_must_be_proved(history: History, other: OtherHalf) -> bool {
    match other {
        OtherHalf::Leaving => is_record_needed(history),
        OtherHalf::Begun => has_past(history),
        OtherHalf::Absent | OtherHalf::Present => true,
    }
}

/// Whether a claim that no cache shows must be read before it counts as absent. Before the first write its absence needs no proof: creating
/// it is refused if anything is there. Afterwards it does, and also when only the volume is seen: the two caches come from two watches.
pub(super) fn claim_must_be_proved(history: History, other: OtherHalf) -> bool {
    match other {
        OtherHalf::Leaving => is_record_needed(history),
        OtherHalf::Present => true,
        OtherHalf::Absent | OtherHalf::Begun => has_past(history),
    }
}

fn has_past(History { ending, recorded, conflict }: History) -> bool {
    ending || recorded || conflict
}

/// The status forgets what counts as absent. What it recorded may be the only proof of whose a claim is that has lost its marks.
fn is_record_needed(history: History) -> bool {
    history.recorded && !history.ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_proved_absent_before_its_claim_is_made_and_nothing_is_while_the_other_half_goes() {
        use OtherHalf::{Absent, Begun, Leaving, Present};
        let new = History::default();
        let ending = History { ending: true, ..new };
        let recorded = History { recorded: true, ..new };
        let conflict = History { conflict: true, ..new };
        let both = History { ending: true, ..recorded };
        let others = [Absent, Present, Leaving, Begun];
        // What is known, then whether a volume must be proved absent, and a claim, beside each of these.
        let table = [
            (new, [true, true, false, false], [false, true, false, false]),
            (ending, [true, true, false, true], [true, true, false, true]),
            (recorded, [true, true, true, true], [true, true, true, true]),
            (both, [true, true, false, true], [true, true, false, true]),
            (conflict, [true, true, false, true], [true, true, false, true]),
        ];
        for (history, volume, claim) in table {
            assert_eq!(others.map(|other| volume_must_be_proved(history, other)), volume, "{history:?}");
            assert_eq!(others.map(|other| claim_must_be_proved(history, other)), claim, "{history:?}");
        }
    }
}
