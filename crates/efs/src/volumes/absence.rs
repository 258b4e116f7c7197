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

/// Whether a volume that no cache shows must be read before it counts as absent.
///
/// Before the first write its absence needs no proof: creating it is refused if anything is there. Afterwards it does, and
/// also when only the claim is seen: the two caches come from two watches. It does not while the claim, ours, is going, and the
/// SharedVolume with it: nothing is decided about the volume before that is gone, and each look would cost a read.
pub(super) fn volume_must_be_proved(history: History, other: OtherHalf) -> bool {
    let History { ending, recorded, conflict } = history;
    match other {
        OtherHalf::Leaving => is_record_needed(history),
        OtherHalf::Present => true,
        OtherHalf::Absent => ending || recorded || conflict,
    }
}

/// Whether a claim that no cache shows must be read before it counts as absent: always, except while the volume, ours, is going, and the
/// SharedVolume with it. A claim of our name that a user has made is in no cache of ours, and Kubernetes would give it the volume that we
/// make.
pub(super) fn claim_must_be_proved(history: History, other: OtherHalf) -> bool {
    other != OtherHalf::Leaving || is_record_needed(history)
}

/// The status forgets what counts as absent. What it recorded may be the only proof of whose a claim is that has lost its marks.
fn is_record_needed(history: History) -> bool {
    history.recorded && !history.ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_proved_after_the_first_write_that_of_a_claim_before_it_and_none_while_the_other_half_goes()
    {
        use OtherHalf::{Absent, Leaving, Present};
        let new = History::default();
        let ending = History { ending: true, ..new };
        let recorded = History { recorded: true, ..new };
        let conflict = History { conflict: true, ..new };
        let table = [
            (new, Absent, false),
            (new, Present, true),
            (new, Leaving, false),
            (ending, Absent, true),
            (ending, Present, true),
            (ending, Leaving, false),
            (recorded, Absent, true),
            (recorded, Present, true),
            (recorded, Leaving, true),
            (History { ending: true, ..recorded }, Leaving, false),
            (conflict, Absent, true),
            (conflict, Present, true),
            (conflict, Leaving, false),
        ];
        let of_claim =
            |history: History| [Absent, Present, Leaving].map(|other| claim_must_be_proved(history, other));
        assert_eq!([new, ending, conflict].map(of_claim), [[true, true, false]; 3]);
        assert_eq!(of_claim(recorded), [true, true, true]);
        for (history, other, proved) in table {
            assert_eq!(volume_must_be_proved(history, other), proved, "{history:?} {other:?}");
        }
    }
}
