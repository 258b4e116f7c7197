//! What follows for one well from what is seen. Pure.

use std::time::Duration;

use aquifer_engine::{
    Condition, Effect, Expect, Identity, Mint, ObjectRef, Plan, Record, Report, Seen, State, Step, Why,
};
use jiff::Timestamp;

use super::world::{ChildFacts, World};
use super::{Known, Ordering, Resizing, Scrapping, Subject, children, named};
use crate::family::{CLAIM, CONFIG_MAP, Kinds, Order, SECRET, WellReason, WellSpec, WellStatus};
use crate::house::Pump;

/// How soon it is noticed that nothing is in the way any more.
const IN_THE_WAY: Duration = Duration::from_mins(1);
/// How often the house is asked at most whether an order has arrived.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

pub struct Case<'a> {
    pub subject: &'a Subject,
    pub world: &'a World,
    pub kinds: &'a Kinds,
    pub run: &'a str,
    /// How long after a call it may still arrive at the house.
    pub arrives_within: Duration,
    /// The process that decides.
    pub me: &'a str,
}

impl Case<'_> {
    pub fn decide(&self, now: Timestamp) -> Plan {
        match &self.subject.object {
            None => self.orphans(),
            Some(well) if well.deleting.is_some() => self.teardown(well, now),
            Some(well) => match &well.spec {
                Ok(spec) => self.build(well, spec, now),
                Err(_) => Plan::none(), // the engine reports it
            },
        }
    }

    /// The well is gone and its finalizer was taken off by force: what holds no data is tidied up.
    fn orphans(&self) -> Plan {
        let key = self.world.key.present().filter(|key| key.owner.as_ref() == Some(&self.subject.key));
        let left = self.taps().chain(self.world.meter.present()).chain(key);
        Plan::none().stage(deletions(left, Step::delete))
    }

    fn taps(&self) -> impl Iterator<Item = &ChildFacts> {
        self.world.taps.known().into_iter().flatten()
    }

    /// The pump first, then what hangs on it, then what holds data and the key; the finalizer last.
    fn teardown(&self, well: &Known, now: Timestamp) -> Plan {
        let report = |text: &str| {
            Report::new(&well.status).condition(Condition::new(
                "Ready",
                State::False,
                WellReason::Deleting,
                text,
            ))
        };
        match &self.world.pump {
            Seen::Unknown(why) => return Plan::none().status(report(&format!("the pump house is {why}"))),
            Seen::Known { value: Some(pump), .. } => {
                let scrap = effect(well, "scrap", "scrap", &pump.id, &Scrapping { id: pump.id.clone() });
                let scrap = Step::Effect(scrap.destroying());
                return Plan::none().stage(vec![scrap]).status(report("the pump is being scrapped"));
            }
            Seen::Known { value: None, .. } if !self.order_settled(&well.status) => {
                let message = "the pump house has not confirmed the order; it is asked again";
                let (plan, status) = self.await_order(Plan::none(), well, now);
                let ready = Condition::new("Ready", State::False, WellReason::Deleting, message);
                return plan.status(Report::new(&status).condition(ready));
            }
            Seen::Known { value: None, .. } => {}
        }
        let fittings: Vec<&ChildFacts> = self.taps().chain(self.world.meter.present()).collect();
        let blind = [self.world.taps.why(), self.world.meter.why()]
            .into_iter()
            .flatten()
            .any(|why| *why != Why::NotServed);
        if blind || !fittings.is_empty() {
            return Plan::none()
                .stage(deletions(fittings, Step::delete_with_owner))
                .status(report("taps and meter are being removed"));
        }
        let blind = [self.world.basin.why(), self.world.key.why()].into_iter().flatten().next().is_some();
        let rest: Vec<&ChildFacts> = [self.world.basin.present(), self.world.key.present()]
            .into_iter()
            .flatten()
            .filter(|child| is_own(child, well))
            .collect();
        if blind || !rest.is_empty() {
            let deletions = deletions(rest, Step::delete);
            return Plan::none().stage(deletions).status(report("basin and key are being removed"));
        }
        Plan::none().release()
    }

    fn build(&self, well: &Known, spec: &WellSpec, now: Timestamp) -> Plan {
        let mut status = well.status.clone();
        // A pump that is ordered with somebody else's key would obey them.
        if let Some(key) = self.world.key.present().filter(|key| !is_own(key, well)) {
            let message = format!("{} is somebody else's; remove it", key.target);
            let plan = Plan::none().hold().wake_after(IN_THE_WAY);
            return self.waiting(plan, &status, WellReason::NameTaken, &message);
        }
        let mut first = Vec::new();
        if self.world.key.absent() {
            let secret = named(self.subject, &SECRET, "key").key;
            first.push(Step::Mint(Mint::new(secret, "key")));
        }
        let mut unknown = None;
        if spec.basin {
            match &self.world.basin {
                Seen::Known { value: basin, .. } => {
                    let target = named(self.subject, &CLAIM, "basin");
                    let intent = children::basin(&target, self.run);
                    first.push(Step::apply(target, intent, expect(basin.as_ref())));
                }
                Seen::Unknown(why) => unknown = Some(why),
            }
        }
        let plan = Plan::none().hold().stage(first);
        if let Some(why) = unknown {
            let message = format!("whether there is a basin is not known: {why}");
            return self.waiting(plan, &status, WellReason::Basin, &message);
        }
        let Some(allotted) = status.allotted else {
            let message = "the spring has not allotted anything yet";
            return self.waiting(plan, &status, WellReason::Unallotted, message);
        };
        let pump = match &self.world.pump {
            Seen::Unknown(why) => {
                let message = format!("the pump house is {why}");
                return self.waiting(plan, &status, WellReason::PumpHouse, &message);
            }
            Seen::Known { value, .. } => value.as_ref(),
        };
        match pump {
            Some(pump) => {
                status.pump = Some(pump.id.clone());
                status.order = None; // the world proves the outcome
                // A resize that was given up may still arrive, and only a newer version of the pump proves that it no longer can.
                let may_arrive = status.resizing == Some(pump.version);
                if pump.size == allotted && !may_arrive {
                    (status.using, status.resizing) = (allotted, None);
                    return self.fit(plan, spec, &status, pump);
                }
                let arguments = Resizing { id: pump.id.clone(), version: pump.version, size: allotted };
                let resize = effect(well, "resize", &format!("resize-{allotted}"), &pump.id, &arguments);
                let raise = status.using.max(pump.size).max(allotted);
                let plan = if status.using < raise || !may_arrive {
                    let record = self.record(well).set("using", &raise).set("resizing", &pump.version);
                    plan.stage(vec![Step::Record(record)])
                } else {
                    plan
                };
                (status.using, status.resizing) = (raise, Some(pump.version));
                let message = "the pump is being resized";
                self.waiting(plan.stage(vec![Step::Effect(resize)]), &status, WellReason::Resizing, message)
            }
            None if !self.order_settled(&status) => {
                let message = "the pump house has not confirmed the order; it is asked again";
                let (plan, status) = self.await_order(plan, well, now);
                self.waiting(plan, &status, WellReason::PumpHouse, message)
            }
            None if allotted == 0 => {
                status = WellStatus { allotted: status.allotted, ..WellStatus::default() };
                self.waiting(plan, &status, WellReason::Dry, "the spring has nothing left")
            }
            None if self.world.key.present().is_none() => {
                self.waiting(plan, &status, WellReason::Key, "the key is being made")
            }
            None => {
                (status.pump, status.resizing) = (None, None);
                // The number says when it was first ordered, so it is another one each time: only the record finds it again.
                let number = || format!("{}-{}", well.uid, now.as_second());
                let order = match status.order.clone() {
                    Some(order) => Order { at: now, by: self.me.to_owned(), ..order },
                    None => Order { number: number(), size: allotted, at: now, by: self.me.to_owned() },
                };
                let secret = named(self.subject, &SECRET, "key").key;
                let arguments = Ordering {
                    buyer: well.uid.clone(),
                    number: order.number.clone(),
                    size: order.size,
                    secret,
                };
                let make = effect(well, "order", "order", &order.number, &arguments);
                let record = self.record(well).set("order", &order).set("using", &order.size);
                let plan = plan.stage(vec![Step::Record(record.clear("pump").clear("resizing"))]);
                (status.using, status.order) = (order.size, Some(order));
                let message = "a pump is being ordered";
                self.waiting(plan.stage(vec![Step::Effect(make)]), &status, WellReason::Ordering, message)
            }
        }
    }

    /// Whether an order that the house does not know will never arrive there.
    fn order_settled(&self, status: &WellStatus) -> bool {
        let asked_at = match &self.world.pump {
            Seen::Known { read_at, .. } => *read_at,
            Seen::Unknown(_) => Timestamp::UNIX_EPOCH,
        };
        status
            .order
            .as_ref()
            .is_none_or(|order| order.by == self.me && asked_at >= order.at + self.arrives_within)
    }

    /// The order may still arrive. One that another process has attempted is waited for by our own clock, from now on.
    fn await_order(&self, plan: Plan, well: &Known, now: Timestamp) -> (Plan, WellStatus) {
        let plan = plan.wake_after(LOOK_AGAIN.min(self.arrives_within));
        let mut status = well.status.clone();
        match status.order.take() {
            Some(order) if order.by != self.me => {
                let order = Order { at: now, by: self.me.to_owned(), ..order };
                status.order = Some(order.clone());
                (plan.stage(vec![Step::Record(self.record(well).set("order", &order))]), status)
            }
            order => {
                status.order = order;
                (plan, status)
            }
        }
    }

    /// The pump runs: the meter on it, then the taps.
    fn fit(&self, plan: Plan, spec: &WellSpec, status: &WellStatus, pump: &Pump) -> Plan {
        let target = named(self.subject, &self.kinds.meter, "meter");
        let (plan, metered) = match &self.world.meter {
            _ if !spec.metered => (plan, None),
            Seen::Known { value, .. } => {
                let intent = children::meter(&target, self.run, pump);
                let plan = plan.stage(vec![Step::apply(target, intent, expect(value.as_ref()))]);
                (plan, Some(metered(State::True, WellReason::Fitted, "the meter counts")))
            }
            Seen::Unknown(why) => {
                let message = format!("no meter: {why}");
                (plan.keep(target), Some(metered(State::False, WellReason::NotInstalled, &message)))
            }
        };
        let mut steps = Vec::new();
        let mut taken = Vec::new();
        for tap in &spec.taps {
            let target = named(self.subject, &CONFIG_MAP, tap);
            let Some(place) = self.world.places.get(tap).and_then(Seen::known) else {
                return self.waiting(plan, status, WellReason::Taps, "the taps are not known yet");
            };
            if place.as_ref().is_some_and(|found| found.owner.as_ref() != Some(&self.subject.key)) {
                taken.push(target.to_string());
            } else {
                let intent = children::tap(&target, self.run, pump);
                steps.push(Step::apply(target, intent, expect(place.as_ref())));
            }
        }
        // What is in the way is not watched.
        let plan = if taken.is_empty() { plan } else { plan.wake_after(IN_THE_WAY) };
        let ready = if taken.is_empty() {
            Condition::new("Ready", State::True, WellReason::Flowing, format!("{} flow", pump.size))
        } else {
            let message = format!("{} is somebody else's; rename the tap or remove it", taken.join(", "));
            Condition::new("Ready", State::False, WellReason::NameTaken, message).warning()
        };
        let mut report = Report::new(status).condition(ready);
        report.conditions.extend(metered);
        plan.stage(steps).status(report)
    }

    /// Nothing can be said about taps and meter yet: they stay as they are.
    fn waiting(&self, mut plan: Plan, status: &WellStatus, reason: WellReason, message: &str) -> Plan {
        for tap in self.taps() {
            plan = plan.keep(tap.target.clone());
        }
        let plan = plan.keep(named(self.subject, &self.kinds.meter, "meter"));
        let ready = Condition::new("Ready", State::False, reason, message);
        plan.status(Report::new(status).condition(ready).soon())
    }

    fn record(&self, well: &Known) -> Record {
        Record::new(self.kinds.well.key(&self.subject.key), well.identity())
    }
}

fn metered(state: State, reason: WellReason, message: &str) -> Condition {
    Condition::new("Metered", state, reason, message)
}

fn is_own(child: &ChildFacts, well: &Known) -> bool {
    child.owner_uid.as_ref() == Some(&well.uid)
}

fn expect(seen: Option<&ChildFacts>) -> Expect {
    // With the version: a write of a former leader that lands late must not take back what was written since.
    Expect::unchanged(seen.map(|seen| &seen.identity))
}

fn deletions<'a>(
    children: impl IntoIterator<Item = &'a ChildFacts>,
    delete: impl Fn(ObjectRef, Identity) -> Step,
) -> Vec<Step> {
    let alive = children.into_iter().filter(|child| !child.deleting);
    alive.map(|child| delete(child.target.clone(), child.identity.clone())).collect()
}

fn effect(
    well: &Known,
    operation: &str,
    what: &str,
    about: &str,
    arguments: &impl serde::Serialize,
) -> Effect {
    Effect::new(operation, format!("{}/{what}/{about}", well.uid), arguments)
}
