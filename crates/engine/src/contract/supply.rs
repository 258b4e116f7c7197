//! Dividing a supply among claimants so that the sum never exceeds it, whoever leads and whatever lands late. Pure.
//!
//! A grant is a write to a claimant, guarded by its version; that alone does not guard the sum. So what is about to be granted is
//! first recorded in the supply's own status, again guarded by its version. Whoever decides next counts it as taken, and makes
//! each grant whose outcome is not known: then the claimant has another version, and a late write is refused. A claimant that
//! cannot be written to keeps what is reserved for it, and nobody else waits.
//!
//! A claimant that is refused makes the pass of the supply fail, so its controller needs a `longest_backoff` of some seconds: else
//! others would wait for the next try.
//!
//! The supply needs a finalizer that stays while something is reserved: one that is made anew would know of no reservation.

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

/// So many claimants get more in one round, so that the status stays small.
const ROUND: usize = 5000;

impl Claimant {
    /// What nobody else may have now.
    pub fn held(&self) -> u64 {
        self.granted.unwrap_or(0).max(self.used)
    }
}

/// Divides `capacity`: first come by their order in the list. `claimants` must be all of them, as they are; `reserved` is what the
/// supply's status says.
pub fn divide(capacity: u64, claimants: &[Claimant], reserved: &[Reservation]) -> Division {
    // Those of claimants that are gone are void: nothing can be written to them any more.
    let reserved: BTreeMap<&Uid, u64> = reserved.iter().map(|one| (&one.uid, one.amount)).collect();
    let under_way = |claimant: &Claimant| {
        reserved.get(&claimant.uid).copied().filter(|amount| claimant.granted != Some(*amount))
    };
    let held = |claimant: &Claimant| claimant.held().max(under_way(claimant).unwrap_or(0));
    let all_held = claimants.iter().map(held).fold(0, u64::saturating_add);
    let mut free = capacity.saturating_sub(all_held);
    let mut left = capacity;
    let mut division = Division::default();
    // Also those that are open: the status must hold them all.
    let mut raised = claimants.iter().filter(|claimant| under_way(claimant).is_some()).count();
    for (at, claimant) in claimants.iter().enumerate() {
        let held = held(claimant);
        if let Some(amount) = under_way(claimant) {
            left = left.saturating_sub(amount);
            division.grants.push((at, amount));
            division.reserved.push(Reservation { uid: claimant.uid.clone(), amount });
            division.granted = division.granted.saturating_add(amount);
            continue;
        }
        let fair = claimant.want.min(left);
        left -= fair;
        let share = fair.min(held.saturating_add(free));
        free -= share.saturating_sub(held);
        let next_round = share > held && raised >= ROUND;
        if next_round || claimant.granted == Some(share) {
            division.granted = division.granted.saturating_add(claimant.granted.unwrap_or(0));
            continue;
        }
        division.granted = division.granted.saturating_add(share);
        division.grants.push((at, share));
        if share > held {
            raised += 1;
            division.reserved.push(Reservation { uid: claimant.uid.clone(), amount: share });
        }
    }
    division
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
    fn a_grant_whose_outcome_is_not_known_counts_as_taken_and_is_made_and_nobody_waits_for_it() {
        let claimants = [claimant("a", 4, None, 0), claimant("b", 9, None, 0)];
        let reserved = [reservation("b", 9), reservation("gone", 10)];
        let division = divide(10, &claimants, &reserved);
        assert_eq!(division.grants, [(0, 1), (1, 9)], "`a` gets what is left");
        assert_eq!(division.reserved, [reservation("a", 1), reservation("b", 9)], "until they are seen");
        let claimants = [claimant("a", 4, Some(1), 0), claimant("b", 9, Some(9), 0)];
        let division = divide(10, &claimants, &division.reserved);
        assert_eq!((division.grants, division.reserved), (vec![(1, 6)], vec![]), "now `b` must let go");
    }

    #[test]
    fn ten_thousand_claimants_are_divided_in_rounds_and_then_nothing_changes() {
        let mut claimants: Vec<_> = (0..10_000).map(|n| claimant(&format!("{n:05}"), 3, None, 0)).collect();
        let mut reserved = Vec::new();
        for round in 0.. {
            let division = divide(20_000, &claimants, &reserved);
            assert!(division.reserved.len() <= ROUND, "{}", division.reserved.len());
            if division.grants.is_empty() && division.reserved.is_empty() {
                assert_eq!((round, division.granted), (2, 20_000), "rounds, and what was granted");
                break;
            }
            for (at, amount) in division.grants {
                claimants[at].granted = Some(amount);
            }
            reserved = division.reserved;
        }
        let sum: u64 = claimants.iter().filter_map(|claimant| claimant.granted).sum();
        assert_eq!(sum, 20_000);
    }

    #[test]
    fn numbers_that_no_sum_can_hold_give_nothing_away() {
        let claimants = [claimant("a", u64::MAX, None, u64::MAX - 1), claimant("b", 5, None, 9)];
        let division = divide(10, &claimants, &[]);
        assert!(division.grants.iter().all(|(_, amount)| *amount <= 10), "{division:?}");
        assert_eq!(division.reserved, [], "nothing is free");
    }

    #[test]
    fn what_cannot_be_granted_does_not_make_the_status_grow_without_end() {
        let claimants: Vec<_> = (0..20_000).map(|n| claimant(&format!("{n:05}"), 1, None, 0)).collect();
        let mut reserved = Vec::new();
        for _ in 0..10 {
            reserved = divide(20_000, &claimants, &reserved).reserved;
            assert!(reserved.len() <= ROUND, "{}", reserved.len());
        }
    }
    #[test]
    fn who_gets_no_more_than_it_holds_is_told_so_without_a_reservation_and_waits_for_no_round() {
        let mut claimants: Vec<_> = (0..ROUND).map(|n| claimant(&format!("{n:05}"), 1, None, 0)).collect();
        claimants.push(claimant("modest", 0, None, 0));
        claimants.push(claimant("next round", 1, None, 0));
        let division = divide(20_000, &claimants, &[]);
        assert_eq!(division.grants.last(), Some(&(ROUND, 0)), "nothing is what it wants");
        assert_eq!(division.reserved.len(), ROUND);
        assert!(division.reserved.iter().all(|one| one.amount == 1));
    }
    #[test]
    fn what_is_free_is_given_away_once_while_somebody_still_holds_the_rest() {
        let claimants = [claimant("a", 4, None, 0), claimant("b", 4, None, 0), claimant("c", 6, Some(6), 6)];
        let division = divide(10, &claimants, &[]);
        assert_eq!(division.grants, [(0, 4), (1, 0), (2, 2)], "`b` gets its share when `c` has let go");
        assert_eq!(division.reserved, [reservation("a", 4)]);
    }
}
