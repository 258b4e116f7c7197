//! How the water of one spring is divided. Pure.

use std::collections::BTreeMap;

use aquifer_engine::{Condition, Key, Plan, Record, Report, Seen, State, Step};

use super::{Claim, Subject};
use crate::family::{Kinds, SpringStatus, WellReason};

pub fn decide(kinds: &Kinds, subject: &Subject, world: &Seen<Vec<Claim>>) -> Plan {
    let spec = subject.object.as_ref().and_then(|spring| spring.spec.as_ref().ok());
    let (Some(spec), Some(claims)) = (spec, world.known()) else { return Plan::none() };
    let shares = divide(spec.capacity, claims);
    let changed = claims.iter().filter(|claim| claim.allotted != shares.get(&claim.key).copied());
    let records = changed.map(|claim| {
        let record = Record::new(kinds.well.key(&claim.key), claim.identity.clone());
        Step::Record(record.set("allotted", &shares.get(&claim.key)))
    });
    let served = shares.values().sum::<u64>();
    let message = format!("{served} of {} are allotted", spec.capacity);
    let ready = Condition::new("Ready", State::True, WellReason::Divided, message);
    let status = SpringStatus { claimants: Some(claims.len()), allotted: Some(served) };
    Plan::none().stage(records.collect()).status(Report::new(&status).condition(ready))
}

/// First come by name. Never more than there is: what is lowered now can be raised elsewhere only when it has been let go.
fn divide(capacity: u64, claims: &[Claim]) -> BTreeMap<Key, u64> {
    let mut free = capacity.saturating_sub(claims.iter().map(Claim::held).sum());
    let mut left = capacity;
    let mut sorted: Vec<&Claim> = claims.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    sorted
        .into_iter()
        .map(|claim| {
            let fair = claim.want.min(left);
            left -= fair;
            let share = fair.min(claim.held() + free);
            free -= share.saturating_sub(claim.held());
            (claim.key.clone(), share)
        })
        .collect()
}
