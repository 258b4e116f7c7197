//! The controller of springs: divides what a spring gives among all wells that name it, in one pass. Wells act only on that.

use std::collections::BTreeMap;

use aquifer_engine::{
    ChildKind, Condition, Controller, Key, Kind, Object, Plan, Record, Seen, Shape, State, Status, Step,
    Subject, View, Wakes, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::family::{Kinds, of_run, well_spec, well_status};

pub struct Springs {
    pub kinds: Kinds,
    pub run: String,
}

/// One well that wants water.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub key: Key,
    pub uid: String,
    pub resource_version: String,
    pub want: u64,
    pub allotted: Option<u64>,
    pub using: u64,
}

impl Claim {
    fn of(well: &Object) -> Self {
        let status = well_status(well);
        Self {
            key: well.key(),
            uid: well.uid().into(),
            resource_version: well.resource_version().into(),
            want: if well.deleting() { 0 } else { well_spec(well).want },
            allotted: status.allotted,
            using: status.using,
        }
    }

    /// What nobody else may have now: a lowered allotment is free only when the well has let go of it.
    fn held(&self) -> u64 {
        self.allotted.unwrap_or(0).max(self.using)
    }
}

#[async_trait]
impl Controller for Springs {
    type World = Seen<Vec<Claim>>;

    fn name(&self) -> &'static str {
        "proving-springs"
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        let claims = Watch::new(self.kinds.well.clone(), |well| {
            Wakes::Keys(vec![Key::namespaced(well.namespace(), well.text("/spec/spring"))])
        });
        vec![of_run(Watch::subjects(self.kinds.spring.clone()), &self.run), of_run(claims, &self.run)]
    }
    fn children(&self) -> Vec<ChildKind> {
        Vec::new()
    }
    fn shape(&self) -> Shape {
        Shape { fields: &["claimants", "allotted"], conditions: &["Ready", "Progressing"] }
    }

    fn observe(&self, _: &Subject, view: &View<'_>) -> Self::World {
        view.mine(&self.kinds.well).map(|wells| wells.iter().map(Claim::of).collect())
    }

    fn decide(&self, subject: &Subject, world: &Self::World, _: Timestamp) -> Plan {
        let (Some(spring), Some(claims)) = (&subject.object, world.known()) else { return Plan::none() };
        let capacity = spring.at("/spec/capacity").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let shares = divide(capacity, claims);
        let changed = claims.iter().filter(|claim| claim.allotted != shares.get(&claim.key).copied());
        let records = changed.map(|claim| {
            Step::Record(Record {
                target: self.kinds.well.key(&claim.key),
                uid: claim.uid.clone(),
                resource_version: claim.resource_version.clone(),
                fields: Map::from_iter([("allotted".to_owned(), json!(shares.get(&claim.key)))]),
            })
        });
        let served = shares.values().sum::<u64>();
        let status = Status::default().field("claimants", claims.len()).field("allotted", served);
        let ready =
            Condition::new("Ready", State::True, "Divided", format!("{served} of {capacity} are allotted"));
        Plan::none().stage(records.collect()).status(status.condition(ready))
    }
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
