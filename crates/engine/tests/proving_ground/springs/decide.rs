//! How the water of one spring is divided. Pure.

use aquifer_engine::supply::divide;
use aquifer_engine::{Condition, Plan, Record, Report, Seen, State, Step};

use super::{Claim, Subject};
use crate::family::{Kinds, SpringStatus, WellReason};

pub fn decide(kinds: &Kinds, subject: &Subject, world: &Seen<Vec<Claim>>) -> Plan {
    let Some(spring) = &subject.object else { return Plan::none() };
    let (Ok(spec), Some(claims)) = (&spring.spec, world.known()) else { return Plan::none() };
    let claimants: Vec<_> = claims.iter().map(|claim| claim.claimant.clone()).collect();
    let division = divide(spec.capacity, &claimants, &spring.status.reserved);
    let mut reserve = Vec::new();
    if division.reserved != spring.status.reserved && !division.reserved.is_empty() {
        let record = Record::new(kinds.spring.key(&subject.key), spring.identity());
        reserve.push(Step::Record(record.set("reserved", &division.reserved)));
    }
    let grants = division.grants.iter().map(|(at, amount)| {
        let Claim { key, identity, .. } = &claims[*at];
        Step::Record(Record::new(kinds.well.key(key), identity.clone()).set("allotted", amount))
    });
    let message = format!("{} of {} are allotted", division.granted, spec.capacity);
    let ready = Condition::new("Ready", State::True, WellReason::Divided, message);
    let status = SpringStatus {
        claimants: Some(claims.len()),
        allotted: Some(division.granted),
        reserved: division.reserved.clone(),
    };
    let plan = Plan::none().stage(reserve).stage(grants.collect());
    plan.status(Report::new(&status).condition(ready))
}
