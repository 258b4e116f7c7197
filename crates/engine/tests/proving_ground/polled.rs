//! A source that is asked again and again: a gauge at each spring. What it shows is written down beside the spring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::simulation::{Delays, Process, run};
use aquifer_engine::{
    Answers, Class, Controller, Expect, Failure, Identity, Intent, Kind, Plan, Question, Seen, Shape, Step,
    View, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::family::{CONFIG_MAP, Kinds, SpringSpec, SpringStatus, spring_named};

const EVERY: Duration = Duration::from_mins(1);

/// What the gauge shows; none while it is broken.
#[derive(Default)]
struct Gauge {
    level: Mutex<Option<u64>>,
    asked: AtomicU64,
    /// Levels that the gauge tells of by itself; after each it hangs up.
    told: tokio::sync::Mutex<Option<mpsc::UnboundedReceiver<u64>>>,
}

struct Gauges {
    kinds: Kinds,
    gauge: Arc<Gauge>,
}

type Subject = aquifer_engine::Subject<SpringSpec, SpringStatus>;

#[async_trait]
impl Controller for Gauges {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = (Seen<u64>, Seen<Option<Identity>>);

    fn name(&self) -> &'static str {
        "proving-gauges"
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(self.kinds.spring.clone()), Watch::children(CONFIG_MAP)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &Subject, view: &View<'_>) -> Self::World {
        let note = CONFIG_MAP.key(&subject.key);
        (
            view.poll(Question::new("gauge", "level"), EVERY),
            view.get(&note).map(|note| note.map(|note| note.identity())),
        )
    }
    fn decide(&self, subject: &Subject, (level, note): &Self::World, _: Timestamp) -> Plan {
        let (Some(level), Some(note), Some(_)) = (level.known(), note.known(), &subject.object) else {
            return Plan::none();
        };
        let target = CONFIG_MAP.key(&subject.key);
        let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"level": level.to_string()},
            "metadata": {"namespace": target.key.namespace, "name": target.key.name}});
        Plan::none().stage(vec![Step::apply(target, Intent::of(&intent), Expect::seen(note.as_ref()))])
    }
    async fn look(&self, _: &Question) -> Result<Value, Failure> {
        self.gauge.asked.fetch_add(1, Ordering::SeqCst);
        let level = *self.gauge.level.lock().unwrap();
        level.map(Value::from).ok_or_else(|| Failure::new(Class::Transient, "the gauge is broken"))
    }
    async fn listen(&self, answers: Answers) {
        match self.gauge.told.lock().await.as_mut() {
            Some(told) => match told.recv().await {
                Some(level) => answers.put(&Question::new("gauge", "level"), &level),
                None => panic!("the gauge is gone"),
            },
            None => std::future::pending().await,
        }
    }
}

fn passes(process: &Process) -> u64 {
    let text = process.metrics().text();
    let lines = text.lines().filter(|line| line.contains("controller_passes_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_gauge_is_asked_once_for_all_springs_and_only_another_level_is_news() {
    let kinds = Kinds::new();
    let ((), _) = run(1, Delays::NONE, &[kinds.spring.clone(), CONFIG_MAP], async |world| {
        let gauge = Arc::new(Gauge::default());
        *gauge.level.lock().unwrap() = Some(7);
        let controller = Gauges { kinds: kinds.clone(), gauge: Arc::clone(&gauge) };
        let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(controller)];
        let family = Family { name: "gauges".into(), controllers, servers: Vec::new() };
        let process = world.start("one", |_, _| vec![family]);
        for name in ["north", "south"] {
            world.model.put(&kinds.spring, spring_named(&kinds, "ns", name, "run", 1));
        }
        let levels = || -> Vec<String> {
            world.model.objects(&CONFIG_MAP).iter().map(|note| note.text("/data/level").to_owned()).collect()
        };
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(levels(), ["7", "7"]);
        let (before, asked) = (passes(&process), gauge.asked.load(Ordering::SeqCst));
        tokio::time::sleep(EVERY * 20).await;
        assert_eq!(passes(&process), before, "the same level wakes nobody");
        let asked_since = gauge.asked.load(Ordering::SeqCst) - asked;
        assert!((17..=23).contains(&asked_since), "asked {asked_since} times in 20 minutes");
        *gauge.level.lock().unwrap() = Some(8);
        tokio::time::sleep(EVERY * 2).await;
        assert_eq!(levels(), ["8", "8"], "within a period or so");
        // A broken gauge is asked less often, and what it showed last stays.
        *gauge.level.lock().unwrap() = None;
        let asked = gauge.asked.load(Ordering::SeqCst);
        tokio::time::sleep(EVERY * 20).await;
        let asked_since = gauge.asked.load(Ordering::SeqCst) - asked;
        assert!(asked_since <= 6, "asked {asked_since} times in 20 minutes");
        assert_eq!(levels(), ["8", "8"]);
        *gauge.level.lock().unwrap() = Some(9);
        tokio::time::sleep(EVERY * 10).await;
        assert_eq!(levels(), ["9", "9"]);
        // When nobody wants to know any more, nobody asks.
        for name in ["north", "south"] {
            world.model.delete(&kinds.spring.at("ns", name));
            world.model.delete(&CONFIG_MAP.at("ns", name));
        }
        tokio::time::sleep(EVERY * 2).await;
        let asked = gauge.asked.load(Ordering::SeqCst);
        tokio::time::sleep(EVERY * 20).await;
        assert_eq!(gauge.asked.load(Ordering::SeqCst), asked);
        process.stop().await.expect("it stops in order");
    })
    .unwrap();
}

#[test]
fn what_a_source_tells_by_itself_is_known_at_once_and_it_is_listened_to_again_when_it_hangs_up() {
    let kinds = Kinds::new();
    let ((), _) = run(1, Delays::NONE, &[kinds.spring.clone(), CONFIG_MAP], async |world| {
        let (tell, told) = mpsc::unbounded_channel();
        let gauge = Arc::new(Gauge { told: Some(told).into(), ..Gauge::default() });
        *gauge.level.lock().unwrap() = Some(7);
        let controller = Gauges { kinds: kinds.clone(), gauge: Arc::clone(&gauge) };
        let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(controller)];
        let family = Family { name: "gauges".into(), controllers, servers: Vec::new() };
        let process = world.start("one", |_, _| vec![family]);
        world.model.put(&kinds.spring, spring_named(&kinds, "ns", "north", "run", 1));
        let level =
            || world.model.object(&CONFIG_MAP.at("ns", "north")).unwrap().text("/data/level").to_owned();
        tokio::time::sleep(EVERY * 2).await;
        assert_eq!(level(), "7");
        for told in [8, 9, 10] {
            let asked = gauge.asked.load(Ordering::SeqCst);
            *gauge.level.lock().unwrap() = Some(told);
            tell.send(told).unwrap();
            tokio::time::sleep(EVERY / 3).await;
            assert_eq!(level(), told.to_string());
            assert!(gauge.asked.load(Ordering::SeqCst) <= asked + 1, "it need not be asked");
        }
        // Without it, the gauge is still asked, and a mistake of ours ends nothing.
        drop(tell);
        *gauge.level.lock().unwrap() = Some(11);
        tokio::time::sleep(EVERY * 3).await;
        assert_eq!(level(), "11");
        process.stop().await.expect("it stops in order");
    })
    .unwrap();
}
