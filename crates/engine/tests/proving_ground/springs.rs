//! The controller of springs: divides what a spring gives among all wells that name it, in one pass. Wells act only on that.

mod decide;

use std::time::Duration;

use aquifer_engine::remote::Remote;
use aquifer_engine::supply::Claimant;
use aquifer_engine::{
    Controller, Failure, Identity, Key, Kind, Object, Plan, Seen, Shape, View, Wakes, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::family::{
    FIELDS, Kinds, PANIC, SPRING_FINALIZER, SPRINGS, SpringSpec, SpringStatus, WellSpec, of_run, well_status,
};

pub struct Springs {
    pub kinds: Kinds,
    pub run: String,
    /// Another process that makes the decisions.
    pub decider: Option<Remote>,
}

type Subject = aquifer_engine::Subject<SpringSpec, SpringStatus>;

/// One well that wants water.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub key: Key,
    pub identity: Identity,
    pub claimant: Claimant,
}

impl Claim {
    fn of(well: &Object) -> Self {
        let status = well_status(well);
        let spec = well.at("/spec").and_then(|spec| WellSpec::deserialize(spec).ok());
        // Of a well whose spec cannot be read it is not known what it wants: it keeps what it has.
        let want = spec.map_or(status.allotted.unwrap_or_default(), |spec| spec.want);
        let identity = well.identity();
        let claimant = Claimant {
            uid: identity.uid.clone(),
            want: if well.deleting() { 0 } else { want },
            granted: status.allotted,
            used: status.using,
        };
        Self { key: well.key(), identity, claimant }
    }
}

/// All that is looked at of a well. Whatever else changes in it, such as the time of a heartbeat, wakes no spring.
fn claim(well: &Object) -> Value {
    let field = |name: &str| Some((name.to_owned(), well.at("/status")?.get(name)?.clone()));
    let status: Map<String, Value> = ["allotted", "using"].into_iter().filter_map(field).collect();
    json!({"spec": well.at("/spec"), "status": status})
}

#[async_trait]
impl Controller for Springs {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = Seen<Vec<Claim>>;

    fn name(&self) -> &'static str {
        SPRINGS
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        let claims = Watch::new(self.kinds.well.clone(), |well| {
            if well.annotation(PANIC) == Some("watch") {
                // Without the panic hook, which would print each of them.
                std::panic::resume_unwind(Box::new("a mistake in the closure of a watch"));
            }
            Wakes::Keys(vec![Key::namespaced(well.namespace(), well.text("/spec/spring"))])
        });
        vec![
            of_run(Watch::subjects(self.kinds.spring.clone()), &self.run),
            of_run(claims.facts(claim), &self.run),
        ]
    }
    fn longest_backoff(&self) -> Option<Duration> {
        Some(Duration::from_secs(10)) // one well that is refused must not keep the others waiting
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &[SPRING_FINALIZER]
    }
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &self.kinds.spring.kind, SPRINGS)
    }

    fn observe(&self, _: &Subject, view: &View<'_>) -> Self::World {
        view.mine_as(&self.kinds.well, |well| Claim::of(&well))
    }

    fn decide(&self, subject: &Subject, world: &Self::World, _: Timestamp) -> Plan {
        decide::decide(&self.kinds, subject, world)
    }
    async fn decision(
        &self,
        subject: &Subject,
        world: &Self::World,
        now: Timestamp,
    ) -> Result<Plan, Failure> {
        match &self.decider {
            Some(remote) => remote.decide(SPRINGS, subject, world, now).await,
            None => Ok(self.decide(subject, world, now)),
        }
    }
}
