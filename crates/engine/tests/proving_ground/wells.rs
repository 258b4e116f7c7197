//! The controller of wells. `world` says what it looks at, `decide` what follows, `children` what it makes.

mod children;
mod decide;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_base::{Sealed, Uid};
use aquifer_engine::cluster::Cluster;
use aquifer_engine::remote::Remote;
use aquifer_engine::runtime::Runtime;
use aquifer_engine::secret::StoredSecret;
use aquifer_engine::{
    Controller, Effect, Failure, Key, Kind, ObjectRef, Plan, Present, Question, Shape, View, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::family::{CLAIM, CONFIG_MAP, FIELDS, FINALIZER, Kinds, WELLS, WellSpec, WellStatus, of_run};
use crate::house::{Call, Phone};
use crate::leaks;
pub use children::child;
use decide::Case;
pub use world::{ChildFacts, World};

pub struct Wells {
    pub kinds: Kinds,
    pub run: String,
    pub house: Arc<dyn Phone>,
    /// Where effects read the key by its name: its bytes are in no world and in no plan.
    pub keys: Arc<dyn Cluster>,
    /// Another process that decides.
    pub decider: Option<Remote>,
    /// Where keys get their bytes from; it also tells this process from others.
    pub runtime: Runtime,
}

pub type Subject = aquifer_engine::Subject<WellSpec, WellStatus>;
type Known = Present<WellSpec, WellStatus>;

/// The arguments of the effect `order`.
#[derive(Serialize, Deserialize)]
struct Ordering {
    buyer: Uid,
    number: String,
    size: u64,
    /// Where the key is.
    secret: Key,
}

/// The arguments of the effect `resize`.
#[derive(Serialize, Deserialize)]
struct Resizing {
    id: String,
    /// What was seen: a resize that arrives late must not undo a newer one.
    version: u64,
    size: u64,
}

/// The arguments of the effect `scrap`.
#[derive(Serialize, Deserialize)]
struct Scrapping {
    id: String,
}

fn named(subject: &Subject, kind: &Kind, suffix: &str) -> ObjectRef {
    kind.at(&subject.key.namespace, &format!("{}-{suffix}", subject.key.name))
}

#[async_trait]
impl Controller for Wells {
    type Spec = WellSpec;
    type Status = WellStatus;
    type World = World;

    fn name(&self) -> &'static str {
        WELLS
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
            mine(Watch::children(self.kinds.meter.clone()).or_versions(&["v1beta1", "v1alpha1"])),
        ]
    }
    fn pruned(&self) -> Vec<Kind> {
        vec![CONFIG_MAP, self.kinds.meter.clone()] // not the basin: it holds data
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &[FINALIZER]
    }
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &self.kinds.well.kind, WELLS)
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> World {
        world::observe(&self.kinds, subject, view)
    }

    fn decide(&self, subject: &Subject, world: &World, now: Timestamp) -> Plan {
        let case = Case {
            subject,
            world,
            kinds: &self.kinds,
            run: &self.run,
            arrives_within: self.house.arrives_within(),
            me: &format!("{:016x}", self.runtime.identity()),
        };
        case.decide(now)
    }

    async fn decision(&self, subject: &Subject, world: &World, now: Timestamp) -> Result<Plan, Failure> {
        match &self.decider {
            Some(remote) => remote.decide(WELLS, subject, world, now).await,
            None => Ok(self.decide(subject, world, now)),
        }
    }

    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        let call = match effect.operation.as_str() {
            "order" => {
                let Ordering { buyer, number, size, secret } = effect.arguments()?;
                let key = self.keys.secret(&secret).await;
                let key = key.map_err(|error| Failure::api("read the key", &error))?;
                let key = key.as_ref().map(fingerprint).unwrap_or_default();
                Call::Order { buyer: buyer.to_string(), number, size, key }
            }
            "resize" => {
                let Resizing { id, version, size } = effect.arguments()?;
                Call::Resize { id, version, size }
            }
            _ => Call::Scrap { id: effect.arguments::<Scrapping>()?.id },
        };
        self.house.call(call).await.map(drop)
    }

    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        let about = question.about.clone();
        let call = if question.source == "order" { Call::FindOrder(about) } else { Call::FindPump(about) };
        Ok(json!(self.house.call(call).await?))
    }

    fn mint(&self, _: &str) -> Result<BTreeMap<String, Sealed>, Failure> {
        Ok(BTreeMap::from([("key".to_owned(), leaks::bytes(&self.runtime))]))
    }
}

/// What the house learns of a key; enough to tell whether it is the one that the Secret holds.
pub fn fingerprint(secret: &StoredSecret) -> String {
    secret.content.get("key").map(Sealed::fingerprint).unwrap_or_default()
}
