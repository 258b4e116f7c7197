//! How the water of one spring is divided. Pure.

use aquifer_engine::supply::divide;
use aquifer_engine::{Condition, Plan, Record, Report, Seen, State, Step};

use super::{Claim, Subject};
use crate::family::{Kinds, SpringStatus, WellReason};

pub fn decide(kinds: &Kinds, subject: &Subject, world: &Seen<Vec<Claim>>) -> Plan {
    let Some(spring) = &subject.object else { return Plan::none() };
    let (Ok(spec), Some(claims)) = (&spring.spec, world.known()) else { return Plan::none() };
    let mut claimants: Vec<_> = claims.iter().map(|claim| claim.claimant.clone()).collect();
    if spring.deleting.is_some() {
        // Nobody gets more. What is on its way to somebody still arrives, and is waited for.
        for claimant in &mut claimants {
            claimant.want = claimant.want.min(claimant.held());
        }
    }
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
    let users = claimants.iter().filter(|claimant| claimant.held() > 0).count();
    let open = !division.reserved.is_empty() || !spring.status.reserved.is_empty();
    if spring.deleting.is_some() && users == 0 && !open && division.grants.is_empty() {
        return Plan::none().release();
    }
    let ready = if spring.deleting.is_some() {
        let message = format!("{users} wells use it; it goes when they have let go");
        Condition::new("Ready", State::False, WellReason::Deleting, message)
    } else {
        let message = format!("{} of {} are allotted", division.granted, spec.capacity);
        Condition::new("Ready", State::True, WellReason::Divided, message)
    };
    let status = SpringStatus {
        capacity: Some(spec.capacity),
        claimants: Some(claims.len()),
        allotted: Some(division.granted),
        reserved: division.reserved.clone(),
    };
    let plan = if spring.deleting.is_some() { Plan::none() } else { Plan::none().hold() };
    let plan = plan.stage(reserve).stage(grants.collect());
    plan.status(Report::new(&status).condition(ready))
}
