//! A server in front of wells: their owners ask what they get, or say that they leave. Beside it the controller that deletes the wells
//! of those who leave, because a server may not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aquifer_base::{Field, Uid, Writer};
use aquifer_engine::process::{Context, Runnable};
use aquifer_engine::runtime::Runtime;
use aquifer_engine::serve::{Answer, Server, Service};
use aquifer_engine::{
    Condition, Controller, Key, Kind, Plan, Record, Report, Shape, State, Step, SubjectOf, View, Watch,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::family::{Kinds, WellReason, WellSpec, well_status};

pub const LEAVERS: &str = "proving-leavers";

/// What the owner of a well can ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wish {
    /// How much it gets; waits until that is stored.
    Grant,
    /// That the well goes.
    Leave,
}

/// A request.
#[derive(Clone)]
pub struct Call {
    pub well: Key,
    pub wish: Wish,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    NoSuchWell,
    NotYet,
    Granted(u64),
    /// The wish is stored; a controller sees to it.
    Noted,
}

/// Answers owners of wells.
pub struct Desk {
    kinds: Kinds,
}

impl Service for Desk {
    type Request = Call;
    type Reply = Told;

    fn name(&self) -> &'static str {
        "proving-desk"
    }
    fn owner(&self, call: &Call) -> (Key, Option<Uid>) {
        (call.well.clone(), None)
    }
    fn answer(&self, call: &Call, view: &View<'_>, _: Timestamp) -> Answer<Told> {
        let target = self.kinds.well.key(&call.well);
        let seen = view.get(&target);
        let Some(well) = seen.present() else {
            return if seen.absent() { Answer::now(Told::NoSuchWell) } else { Answer::later(Told::NotYet) };
        };
        match call.wish {
            Wish::Grant => match well_status(well).allotted {
                Some(amount) => Answer::now(Told::Granted(amount)),
                None => Answer::later(Told::NotYet),
            },
            Wish::Leave if well.at("/status/leaving").is_some() || well.deleting() => {
                Answer::now(Told::Noted)
            }
            Wish::Leave => {
                let record = Record::new(target, well.identity()).set("leaving", &true);
                Answer::now(Told::Noted).after(vec![Step::Record(record)])
            }
        }
    }
}

/// Deletes wells whose owners have said that they leave.
pub struct Leavers {
    pub kinds: Kinds,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leaving {
    pub leaving: Option<bool>,
}

const FIELDS: &[Field] = &[Field::of("Well", "status.conditions[Staying]", Writer::Controller(LEAVERS))];

#[async_trait]
impl Controller for Leavers {
    type Spec = WellSpec;
    type Status = Leaving;
    type World = ();

    fn name(&self) -> &'static str {
        LEAVERS
    }
    fn kind(&self) -> Kind {
        self.kinds.well.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(self.kinds.well.clone())]
    }
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, "Well", LEAVERS)
    }
    fn observe(&self, _: &SubjectOf<Self>, _: &View<'_>) {}
    fn decide(&self, subject: &SubjectOf<Self>, (): &(), _: Timestamp) -> Plan {
        let Some(well) = subject.object.as_ref().filter(|well| well.deleting.is_none()) else {
            return Plan::none();
        };
        if well.status.leaving == Some(true) {
            let target = self.kinds.well.key(&subject.key);
            return Plan::none().stage(vec![Step::delete(target, well.identity())]);
        }
        let staying = Condition::new("Staying", State::True, WellReason::Up, "nobody leaves");
        Plan::none().status(Report::new(&Leaving::default()).condition(staying))
    }
}

/// The servers of the processes that run.
#[derive(Clone, Default)]
pub struct Desks(Arc<Mutex<BTreeMap<u64, Open>>>);

/// The server of one process, and what the process runs in.
#[derive(Clone)]
pub struct Open {
    pub runtime: Runtime,
    pub server: Arc<Server<Desk>>,
}

impl Desks {
    pub fn all(&self) -> Vec<Open> {
        self.0.lock().unwrap().values().cloned().collect()
    }
}

/// Runs the server of a process, which is among the desks meanwhile.
pub struct Front(pub Desks);

impl Runnable for Front {
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ()> {
        struct Closing(Desks, u64);
        impl Drop for Closing {
            fn drop(&mut self) {
                self.0.0.lock().unwrap().remove(&self.1);
            }
        }
        Box::pin(async move {
            let kinds = Kinds::new();
            let watches = vec![Watch::subjects(kinds.well.clone())];
            let server = Arc::new(Server::start(Desk { kinds }, watches, &context));
            let process = context.runtime.identity();
            let open = Open { runtime: context.runtime.clone(), server };
            self.0.0.lock().unwrap().insert(process, open);
            let _closing = Closing(self.0, process);
            context.shutdown.cancelled().await;
        })
    }
}
