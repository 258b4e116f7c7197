//! Dividing a supply among claimants so that the sum never exceeds it, whoever leads and whatever lands late. Pure.
//!
//! A grant is a write to a claimant, guarded by its version; that alone does not guard the sum. So what is about to be granted is
//! first recorded in the supply's own status, again guarded by its version. Whoever decides next first makes each grant whose
//! outcome is not known: then the claimant has another version, and a late write is refused.

use std::collections::BTreeMap;

use aquifer_base::Uid;
use serde::{Deserialize, Serialize};

/// Something that wants a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its uid.
    pub uid: Uid,
    /// What it wants.
    pub want: u64,
    /// What it was granted; none if nothing was decided yet.
    pub granted: Option<u64>,
    /// What it uses: a grant that was lowered is free only when the claimant has let go of it.
    pub used: u64,
}

/// A grant that is under way, as the supply's status records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The claimant.
    pub uid: Uid,
    /// What it will have.
    pub amount: u64,
}

/// What to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// What the supply's status shall say. If it is not empty and not what the status says, it must be recorded before anything is
    /// granted; if it is empty, the status of the pass clears it.
    pub reserved: Vec<Reservation>,
    /// The claimants to write to, by their place in the list, and what each is granted.
    pub grants: Vec<(usize, u64)>,
    /// What all have together when this is written.
    pub granted: u64,
}

impl Claimant {
    /// What nobody else may have now.
    fn held(&self) -> u64 {
        self.granted.unwrap_or(0).max(self.used)
    }
}

/// Divides `capacity`: first come by their order in the list. `claimants` must be all of them, as they are; `reserved` is what the
/// supply's status says.
pub fn divide(capacity: u64, claimants: &[Claimant], reserved: &[Reservation]) -> Division {
    let granted = |grants: &[(usize, u64)]| {
        let new: BTreeMap<usize, u64> = grants.iter().copied().collect();
        let of = |(at, claimant): (usize, &Claimant)| new.get(&at).copied().or(claimant.granted).unwrap_or(0);
        claimants.iter().enumerate().map(of).sum()
    };
    // Those of claimants that are gone are void: nothing can be written to them any more.
    let by_uid: BTreeMap<&Uid, u64> = reserved.iter().map(|one| (&one.uid, one.amount)).collect();
    let under_way: Vec<(usize, u64)> = claimants
        .iter()
        .enumerate()
        .filter_map(|(at, claimant)| Some((at, *by_uid.get(&claimant.uid)?)))
        .filter(|(at, amount)| claimants[*at].granted != Some(*amount))
        .collect();
    if !under_way.is_empty() {
        return Division { granted: granted(&under_way), reserved: reserved.to_vec(), grants: under_way };
    }
    let mut free = capacity.saturating_sub(claimants.iter().map(Claimant::held).sum());
    let mut left = capacity;
    let (mut grants, mut raised) = (Vec::new(), Vec::new());
    for (at, claimant) in claimants.iter().enumerate() {
        let fair = claimant.want.min(left);
        left -= fair;
        let share = fair.min(claimant.held() + free);
        free -= share.saturating_sub(claimant.held());
        if claimant.granted != Some(share) {
            grants.push((at, share));
            if share > claimant.held() {
                raised.push(Reservation { uid: claimant.uid.clone(), amount: share });
            }
        }
    }
    Division { granted: granted(&grants), reserved: raised, grants }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(uid: &str, want: u64, granted: Option<u64>, used: u64) -> Claimant {
        Claimant { uid: Uid::new(uid), want, granted, used }
    }

    fn reservation(uid: &str, amount: u64) -> Reservation {
        Reservation { uid: Uid::new(uid), amount }
    }

    #[test]
    fn what_raises_the_sum_is_reserved_and_what_lowers_it_is_not() {
        let claimants = [claimant("a", 4, None, 0), claimant("b", 8, None, 0)];
        let division = divide(10, &claimants, &[]);
        assert_eq!(division.grants, [(0, 4), (1, 6)]);
        assert_eq!(division.reserved, [reservation("a", 4), reservation("b", 6)]);
        // `a` wants more, which `b` has to let go first.
        let claimants = [claimant("a", 6, Some(4), 4), claimant("b", 8, Some(6), 6)];
        let division = divide(10, &claimants, &[]);
        assert_eq!((division.grants, division.reserved), (vec![(1, 4)], vec![]));
        let claimants = [claimant("a", 6, Some(4), 4), claimant("b", 8, Some(4), 6)];
        assert_eq!(divide(10, &claimants, &[]).grants, []);
        let claimants = [claimant("a", 6, Some(4), 4), claimant("b", 8, Some(4), 4)];
        let division = divide(10, &claimants, &[]);
        assert_eq!((division.grants, division.reserved), (vec![(0, 6)], vec![reservation("a", 6)]));
    }

    #[test]
    fn a_grant_whose_outcome_is_not_known_is_made_before_anything_else_is_decided() {
        let claimants = [claimant("a", 1, None, 0), claimant("b", 9, None, 0)];
        let reserved = [reservation("b", 9), reservation("gone", 10)];
        let division = divide(10, &claimants, &reserved);
        assert_eq!(division.grants, [(1, 9)]);
        assert_eq!(division.reserved, reserved, "it stays until it is seen");
        let claimants = [claimant("a", 1, None, 0), claimant("b", 9, Some(9), 0)];
        let division = divide(10, &claimants, &reserved);
        assert_eq!((division.grants, division.reserved), (vec![(0, 1)], vec![reservation("a", 1)]));
    }

    #[test]
    fn ten_thousand_claimants_are_divided_in_one_go_and_then_nothing_changes() {
        let mut claimants: Vec<_> = (0..10_000).map(|n| claimant(&format!("{n:05}"), 3, None, 0)).collect();
        let division = divide(20_000, &claimants, &[]);
        assert_eq!((division.grants.len(), division.granted), (10_000, 20_000));
        for (at, amount) in division.grants {
            claimants[at].granted = Some(amount);
        }
        let rest = divide(20_000, &claimants, &division.reserved);
        assert_eq!((rest.grants, rest.reserved), (vec![], vec![]));
    }
}
