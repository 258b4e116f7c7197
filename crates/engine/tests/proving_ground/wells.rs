//! The controller of wells: what it looks at, and what it decides.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use aquifer_base::Sealed;
use aquifer_engine::cluster::Cluster;
use aquifer_engine::intent::owner_key;
use aquifer_engine::remote::Remote;
use aquifer_engine::{
    ChildKind, Condition, Controller, Effect, Expect, Fault, Kind, Mint, Object, ObjectRef, Plan, Question,
    Record, Seen, Shape, State, Status, Step, Subject, View, Watch, Why,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::family::{
    CLAIM, CONFIG_MAP, FINALIZER, Kinds, Order, RUN, SECRET, WellSpec, WellStatus, of_run, well_spec,
    well_status,
};
use crate::house::{Call, Phone, Pump};

/// An answer of the house is good for this long.
const FRESH: Duration = Duration::from_mins(1);

pub struct Wells {
    pub kinds: Kinds,
    pub run: String,
    pub house: Arc<dyn Phone>,
    /// Where effects read the key by its name: its bytes are in no world and in no plan.
    pub keys: Arc<dyn Cluster>,
    /// Another process that decides.
    pub decider: Option<Remote>,
}

/// What a well's decision is made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct World {
    /// The key's Secret without its content.
    pub key: Seen<Option<Object>>,
    pub basin: Seen<Option<Object>>,
    pub meter: Seen<Option<Object>>,
    /// Our taps, wanted or not.
    pub taps: Seen<Vec<Object>>,
    /// What is known at the names of the wanted taps; it may be somebody else's.
    pub places: BTreeMap<String, Seen<Option<Object>>>,
    /// Our pump by its id, or by our order.
    pub pump: Seen<Option<Pump>>,
}

fn named(subject: &Subject, kind: &Kind, suffix: &str) -> ObjectRef {
    kind.at(&subject.key.namespace, &format!("{}-{suffix}", subject.key.name))
}

#[async_trait]
impl Controller for Wells {
    type World = World;

    fn name(&self) -> &'static str {
        "proving-wells"
    }
    fn kind(&self) -> Kind {
        self.kinds.well.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        let mine = |watch| of_run(watch, &self.run);
        vec![
            mine(Watch::subjects(self.kinds.well.clone())),
            mine(Watch::children(CONFIG_MAP)),
            mine(Watch::children(CLAIM)),
            mine(Watch::children(self.kinds.meter.clone())),
        ]
    }
    fn children(&self) -> Vec<ChildKind> {
        vec![
            ChildKind { kind: CONFIG_MAP, prune: true },
            ChildKind { kind: self.kinds.meter.clone(), prune: true },
            ChildKind { kind: CLAIM, prune: false }, // holds data
        ]
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &[FINALIZER]
    }
    fn shape(&self) -> Shape {
        Shape { fields: &["using", "order", "pump"], conditions: &["Ready", "Metered", "Progressing"] }
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> World {
        let status = subject.object.as_ref().map(well_status).unwrap_or_default();
        let question = match (&status.pump, &status.order) {
            (Some(id), _) => Some(Question::new("pump", id)),
            (None, Some(order)) => Some(Question::new("order", &order.number)),
            (None, None) => None,
        };
        let wanted = subject.object.as_ref().map(|well| well_spec(well).taps).unwrap_or_default();
        let none = Seen::Known { value: Value::Null, read_at: Timestamp::UNIX_EPOCH };
        let pump = question.map_or(none, |question| view.ask(question, FRESH));
        World {
            key: view.get(&named(subject, &SECRET, "key")).map(|secret| secret.map(without_content)),
            basin: view.get(&named(subject, &CLAIM, "basin")),
            meter: view.get(&named(subject, &self.kinds.meter, "meter")),
            taps: view.mine(&CONFIG_MAP),
            places: wanted
                .into_iter()
                .map(|tap| (tap.clone(), view.cached(&named(subject, &CONFIG_MAP, &tap))))
                .collect(),
            pump: pump.map(|pump| serde_json::from_value(pump).expect("the house speaks of pumps")),
        }
    }

    fn decide(&self, subject: &Subject, world: &World, now: Timestamp) -> Plan {
        let case = Case { subject, world, kinds: &self.kinds, run: &self.run };
        match &subject.object {
            None => case.orphans(),
            Some(well) if well.deleting() => case.teardown(well),
            Some(well) => case.build(well, now),
        }
    }

    async fn decision(&self, subject: &Subject, world: &World, now: Timestamp) -> Result<Plan, Fault> {
        match &self.decider {
            Some(remote) => remote.decide(subject, world, now).await,
            None => Ok(self.decide(subject, world, now)),
        }
    }

    async fn effect(&self, effect: &Effect) -> Result<(), Fault> {
        let argument = |name: &str| effect.arguments[name].as_str().unwrap_or_default().to_owned();
        let size = effect.arguments["size"].as_u64().unwrap_or_default();
        let call = match effect.operation.as_str() {
            "order" => {
                let secret = SECRET.at(&argument("namespace"), &argument("secret"));
                let key = self.keys.get(&secret).await.map_err(|error| Fault::api("read the key", &error))?;
                let key = key.as_ref().map(fingerprint).unwrap_or_default();
                Call::Order { buyer: argument("buyer"), number: argument("number"), size, key }
            }
            "resize" => Call::Resize { id: argument("id"), size },
            _ => Call::Scrap { id: argument("id") },
        };
        self.house.call(call).await.map(drop)
    }

    async fn look(&self, question: &Question) -> Result<Value, Fault> {
        let about = question.about.clone();
        let call = if question.source == "order" { Call::FindOrder(about) } else { Call::FindPump(about) };
        Ok(json!(self.house.call(call).await?))
    }

    fn mint(&self, _: &str) -> Result<BTreeMap<String, Sealed>, Fault> {
        let bytes: Vec<u8> = (0..4).flat_map(|n| RandomState::new().hash_one(n).to_be_bytes()).collect();
        Ok(BTreeMap::from([("key".to_owned(), Sealed::new(bytes))]))
    }
}

fn without_content(mut secret: Object) -> Object {
    if let Some(secret) = secret.0.as_object_mut() {
        secret.remove("data");
    }
    secret
}

/// What the house learns of a key; enough to tell whether it is the one that the Secret holds.
pub fn fingerprint(secret: &Object) -> String {
    Sealed::new(secret.text("/data/key")).fingerprint()
}

struct Case<'a> {
    subject: &'a Subject,
    world: &'a World,
    kinds: &'a Kinds,
    run: &'a str,
}

impl Case<'_> {
    /// The well is gone and its finalizer was taken off by force: what holds no data is tidied up.
    fn orphans(&self) -> Plan {
        let key =
            self.world.key.present().filter(|key| owner_key(key).is_some_and(|o| o == self.subject.key));
        let deletions = self
            .deletions(self.taps())
            .chain(self.deletions(self.world.meter.present()))
            .chain(self.deletions(key));
        Plan::none().stage(deletions.collect())
    }

    fn taps(&self) -> impl Iterator<Item = &Object> {
        self.world.taps.known().into_iter().flatten()
    }

    fn deletions<'a>(&self, objects: impl IntoIterator<Item = &'a Object>) -> impl Iterator<Item = Step> {
        let kinds = [&CONFIG_MAP, &self.kinds.meter, &CLAIM, &SECRET];
        let steps: Vec<Step> = objects
            .into_iter()
            .filter(|object| !object.deleting())
            .filter_map(|object| {
                let kind = kinds.into_iter().find(|kind| kind.kind == object.text("/kind"))?;
                Some(Step::delete(kind.key(&object.key()), object))
            })
            .collect();
        steps.into_iter()
    }

    /// The pump first, then what hangs on it, then what holds data and the key; the finalizer last.
    fn teardown(&self, well: &Object) -> Plan {
        let status = well_status(well);
        let say =
            |text: &str| said(&status).condition(Condition::new("Ready", State::False, "Deleting", text));
        match &self.world.pump {
            Seen::Unknown(why) => return Plan::none().status(say(&format!("the pump house is {why}"))),
            Seen::Known { value: Some(pump), .. } => {
                let scrap = effect(well, "scrap", &pump.id, json!({"id": pump.id}));
                return Plan::none().stage(vec![scrap]).status(say("the pump is being scrapped"));
            }
            Seen::Known { value: None, .. } => {}
        }
        let fittings: Vec<&Object> = self.taps().chain(self.world.meter.present()).collect();
        let blind = [self.world.taps.why(), self.world.meter.why()]
            .into_iter()
            .flatten()
            .any(|why| *why != Why::NotServed);
        if blind || !fittings.is_empty() {
            let plan = Plan::none().stage(self.deletions(fittings).collect());
            return plan.status(say("taps and meter are being removed"));
        }
        let rest: Vec<&Object> =
            self.world.basin.present().into_iter().chain(self.world.key.present()).collect();
        if !(self.world.basin.absent() && self.world.key.absent()) {
            return Plan::none()
                .stage(self.deletions(rest).collect())
                .status(say("basin and key are being removed"));
        }
        Plan::none().release()
    }

    fn build(&self, well: &Object, now: Timestamp) -> Plan {
        let (spec, mut status) = (well_spec(well), well_status(well));
        let mut first = Vec::new();
        if self.world.key.absent() {
            let secret = named(self.subject, &SECRET, "key").key;
            first.push(Step::Mint(Mint { secret, recipe: "key".into() }));
        }
        if spec.basin
            && let Some(basin) = self.world.basin.known()
        {
            let target = named(self.subject, &CLAIM, "basin");
            let content = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            first.push(Step::apply(
                target.clone(),
                self.child(&target, content),
                Expect::seen(basin.as_ref()),
            ));
        }
        let plan = Plan::none().hold().stage(first);
        let Some(allotted) = status.allotted else {
            return self.waiting(plan, &status, "Unallotted", "the spring has not allotted anything yet");
        };
        let pump = match &self.world.pump {
            Seen::Unknown(why) => {
                return self.waiting(plan, &status, "PumpHouse", &format!("the pump house is {why}"));
            }
            Seen::Known { value, .. } => value.as_ref(),
        };
        match pump {
            Some(pump) => {
                status.pump = Some(pump.id.clone());
                status.order = None; // the world proves the outcome
                if pump.size == allotted {
                    status.using = allotted;
                    return self.fit(plan, &spec, &status, pump);
                }
                let resize = effect(
                    well,
                    &format!("resize-{allotted}"),
                    &pump.id,
                    json!({"id": pump.id, "size": allotted}),
                );
                let raise = pump.size.max(allotted);
                let plan = if status.using < raise {
                    plan.stage(vec![self.record(well, &json!({"using": raise}))])
                } else {
                    plan
                };
                status.using = status.using.max(raise);
                self.waiting(plan.stage(vec![resize]), &status, "Resizing", "the pump is being resized")
            }
            None if allotted == 0 => {
                (status.pump, status.order, status.using) = (None, None, 0);
                self.waiting(plan, &status, "Dry", "the spring has nothing left")
            }
            None if self.world.key.present().is_none() => {
                self.waiting(plan, &status, "Key", "the key is being made")
            }
            None => {
                status.pump = None;
                let recorded = status.order.clone();
                // The number says when it was ordered, so it is another one each time: only the record finds it again.
                let order = recorded.clone().unwrap_or_else(|| Order {
                    number: format!("{}-{}", well.uid(), now.as_second()),
                    size: allotted,
                });
                let arguments = json!({"buyer": well.uid(), "number": order.number, "size": order.size,
                    "namespace": self.subject.key.namespace, "secret": named(self.subject, &SECRET, "key").key.name});
                let make = effect(well, "order", &order.number, arguments);
                let plan = if recorded.is_some() {
                    plan
                } else {
                    plan.stage(vec![
                        self.record(well, &json!({"order": order, "using": order.size, "pump": null})),
                    ])
                };
                (status.using, status.order) = (order.size, Some(order));
                self.waiting(plan.stage(vec![make]), &status, "Ordering", "a pump is being ordered")
            }
        }
    }

    /// The pump runs: the meter on it, then the taps.
    fn fit(&self, plan: Plan, spec: &WellSpec, status: &WellStatus, pump: &Pump) -> Plan {
        let target = named(self.subject, &self.kinds.meter, "meter");
        let (plan, metered) = match &self.world.meter {
            _ if !spec.metered => (plan, None),
            Seen::Known { value, .. } => {
                let intent = self.child(&target, json!({"spec": {"pump": pump.id, "size": pump.size}}));
                let plan = plan.stage(vec![Step::apply(target, intent, Expect::seen(value.as_ref()))]);
                (plan, Some(Condition::new("Metered", State::True, "Fitted", "the meter counts")))
            }
            Seen::Unknown(why) => (
                plan.keep(target),
                Some(Condition::new("Metered", State::False, "NotInstalled", format!("no meter: {why}"))),
            ),
        };
        let mut steps = Vec::new();
        let mut taken = Vec::new();
        for tap in &spec.taps {
            let target = named(self.subject, &CONFIG_MAP, tap);
            let Some(place) = self.world.places.get(tap).and_then(Seen::known) else {
                return self.waiting(plan, status, "Taps", "the taps are not known yet");
            };
            if place.as_ref().is_some_and(|object| owner_key(object).as_ref() != Some(&self.subject.key)) {
                taken.push(target.to_string());
            } else {
                let intent = self.child(&target, json!({"data": {"size": pump.size.to_string()}}));
                steps.push(Step::apply(target, intent, Expect::seen(place.as_ref())));
            }
        }
        let ready = if taken.is_empty() {
            Condition::new("Ready", State::True, "Flowing", format!("{} flow", pump.size))
        } else {
            let message = format!("{} is somebody else's; rename the tap or remove it", taken.join(", "));
            Condition::new("Ready", State::False, "NameTaken", message).warning()
        };
        let mut flowing = said(status).condition(ready);
        flowing.conditions.extend(metered);
        plan.stage(steps).status(flowing)
    }

    /// Nothing can be said about taps and meter yet: they stay as they are.
    fn waiting(&self, mut plan: Plan, status: &WellStatus, reason: &str, message: &str) -> Plan {
        for tap in self.taps() {
            plan = plan.keep(CONFIG_MAP.key(&tap.key()));
        }
        let plan = plan.keep(named(self.subject, &self.kinds.meter, "meter"));
        plan.status(said(status).condition(Condition::new("Ready", State::False, reason, message)).soon())
    }

    fn record(&self, well: &Object, fields: &Value) -> Step {
        Step::Record(Record {
            target: self.kinds.well.key(&well.key()),
            uid: well.uid().into(),
            resource_version: well.resource_version().into(),
            fields: fields.as_object().cloned().unwrap_or_default(),
        })
    }

    fn child(&self, target: &ObjectRef, content: Value) -> Value {
        let mut intent = content;
        intent["apiVersion"] = json!(target.kind.api_version());
        intent["kind"] = json!(target.kind.kind);
        intent["metadata"] =
            json!({"namespace": target.key.namespace, "name": target.key.name, "labels": {RUN: self.run}});
        intent
    }
}

fn effect(well: &Object, operation: &str, about: &str, arguments: Value) -> Step {
    let word = operation.split('-').next().unwrap_or(operation).to_owned();
    Step::Effect(Effect { operation: word, key: format!("{}/{operation}/{about}", well.uid()), arguments })
}

/// Our part of the status, without conditions.
fn said(status: &WellStatus) -> Status {
    let mut said = Status::default().field("using", status.using);
    if let Some(order) = &status.order {
        said = said.field("order", json!(order));
    }
    if let Some(pump) = &status.pump {
        said = said.field("pump", pump.clone());
    }
    said
}
