//! A busy loop ends a history badly; it does not hang.

use aquifer_engine::process::{Context, Family, Runnable};
use aquifer_engine::simulation::{Tape, World, play};
use aquifer_engine::{Controller, Failure, Kind, Plan, Question, Shape, View, Watch};
use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::family::{Kinds, SpringSpec, SpringStatus, spring};

async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// A server that never waits.
struct Server;

impl Runnable for Server {
    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ()> {
        Box::pin(spin())
    }
}

/// Where a controller never waits.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Decision,
    Look,
}

struct Springs(Place);

type Subject = aquifer_engine::Subject<SpringSpec, SpringStatus>;

#[async_trait]
impl Controller for Springs {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = ();

    fn name(&self) -> &'static str {
        "proving-busy"
    }
    fn kind(&self) -> Kind {
        Kinds::new().spring
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(self.kind())]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, _: &Subject, view: &View<'_>) {
        if self.0 == Place::Look {
            view.ask::<u64>(Question::new("gauge", "level"), std::time::Duration::from_mins(1));
        }
    }
    fn decide(&self, _: &Subject, (): &(), _: Timestamp) -> Plan {
        Plan::none()
    }
    async fn decision(&self, subject: &Subject, world: &(), now: Timestamp) -> Result<Plan, Failure> {
        spin().await;
        Ok(self.decide(subject, world, now))
    }
    async fn look(&self, _: &Question) -> Result<Value, Failure> {
        spin().await;
        Ok(Value::Null)
    }
}

/// How a history ends in which one process runs this.
fn end(
    controllers: impl Fn() -> Vec<Box<dyn Runnable>>,
    servers: impl Fn() -> Vec<Box<dyn Runnable>>,
) -> String {
    let kinds = Kinds::new();
    let script = async |world: &World| {
        world.model.put(&kinds.spring, spring(&kinds, "ns", "busy", 1));
        let family = || Family { name: "busy".into(), controllers: controllers(), servers: servers() };
        let process = world.start("the process", |_, _| vec![family()]);
        tokio::time::sleep(std::time::Duration::from_hours(1)).await;
        process.crash();
        Ok(())
    };
    let played = play(Tape::replay(Vec::new()), &[Kinds::new().spring], script).unwrap();
    played.end.expect_err("it ends badly")
}

#[test]
fn a_process_that_never_waits_ends_its_history_badly() {
    let controllers = |place| move || -> Vec<Box<dyn Runnable>> { vec![Box::new(Springs(place))] };
    let none = Vec::new;
    let ends = [
        end(none, || vec![Box::new(Server)]),
        end(controllers(Place::Decision), none),
        end(controllers(Place::Look), none),
    ];
    for end in ends {
        assert!(end.starts_with("a busy loop") && end.contains("the process"), "{end}");
    }
}

#[test]
fn a_script_that_never_waits_ends_its_history_badly() {
    let played = play(Tape::replay(Vec::new()), &[], async |_: &World| {
        spin().await;
        Ok(())
    });
    let end = played.unwrap().end.expect_err("it ends badly");
    assert!(end.starts_with("a busy loop") && end.contains("the script"), "{end}");
}
