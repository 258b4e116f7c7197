//! A source that is asked again and again: a gauge at each spring. What it shows is written down beside the spring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::simulation::{Delays, Process, run};
use aquifer_engine::{Class, Failure};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::mpsc;

use crate::family::{CONFIG_MAP, Kinds, SECRET, spring_named};
use crate::gauges::{EVERY, Entry, Gauges, MASTER, Register, Source};

const RUN: &str = "polled";

/// What the gauge shows; none while it is broken.
#[derive(Default)]
struct Gauge {
    level: Mutex<Option<u64>>,
    asked: AtomicU64,
    register: Mutex<Register>,
    /// How often somebody asked for the region.
    region_asked: AtomicU64,
    /// Levels that it tells of by itself.
    told: tokio::sync::Mutex<Option<mpsc::UnboundedReceiver<u64>>>,
}

#[async_trait]
impl Source for Arc<Gauge> {
    async fn level(&self) -> Result<u64, Failure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.level.lock().unwrap().ok_or_else(|| Failure::new(Class::Transient, "the gauge is broken"))
    }
    async fn region(&self) -> Result<String, Failure> {
        self.region_asked.fetch_add(1, Ordering::SeqCst);
        Ok("hills".into())
    }
    async fn register(&self) -> Result<Register, Failure> {
        Ok(self.register.lock().unwrap().clone())
    }
    async fn enter(&self, entry: Entry) -> Result<(), Failure> {
        let before = self.register.lock().unwrap().insert(entry.spring, entry.level);
        assert_ne!(before, Some(entry.level), "it is entered twice");
        Ok(())
    }
    async fn tells(&self) -> u64 {
        match self.told.lock().await.as_mut() {
            Some(told) => told.recv().await.expect("somebody tells it"),
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
    let ((), _) = run(1, Delays::NONE, &[kinds.spring.clone(), CONFIG_MAP, SECRET], async |world| {
        let gauge = Arc::new(Gauge::default());
        // What is entered already makes no answer out of date.
        gauge.register.lock().unwrap().extend(["north", "south"].map(|name| (name.to_owned(), 7)));
        *gauge.level.lock().unwrap() = Some(7);
        world
            .model
            .put(&SECRET, json!({"metadata": {"namespace": "ns", "name": MASTER}, "data": {"key": ""}}));
        let process = world.start("one", |_, runtime| {
            let (source, runtime) = (Arc::new(Arc::clone(&gauge)), runtime.clone());
            let gauges = Gauges { kinds: kinds.clone(), run: RUN.into(), source, runtime };
            let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(gauges)];
            vec![Family { name: "gauges".into(), controllers, servers: Vec::new() }]
        });
        for name in ["north", "south"] {
            world.model.put(&kinds.spring, spring_named(&kinds, "ns", name, RUN, 1));
        }
        let levels = || -> Vec<String> {
            world.model.objects(&CONFIG_MAP).iter().map(|note| note.text("/data/level").to_owned()).collect()
        };
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(levels(), ["7", "7"]);
        assert_eq!(gauge.region_asked.load(Ordering::SeqCst), 1, "one question for both");
        let (before, asked) = (passes(&process), gauge.asked.load(Ordering::SeqCst));
        tokio::time::sleep(EVERY * 20).await;
        assert_eq!(passes(&process), before, "the same level wakes nobody");
        let asked_since = gauge.asked.load(Ordering::SeqCst) - asked;
        assert!((17..=23).contains(&asked_since), "asked {asked_since} times in 20 periods");
        *gauge.level.lock().unwrap() = Some(8);
        tokio::time::sleep(EVERY * 2).await;
        assert_eq!(levels(), ["8", "8"], "within a period or so");
        // A broken gauge is asked less often, and what it showed last stays.
        *gauge.level.lock().unwrap() = None;
        let asked = gauge.asked.load(Ordering::SeqCst);
        tokio::time::sleep(EVERY * 20).await;
        let asked_since = gauge.asked.load(Ordering::SeqCst) - asked;
        assert!(asked_since <= 6, "asked {asked_since} times in 20 periods");
        assert_eq!(levels(), ["8", "8"]);
        *gauge.level.lock().unwrap() = Some(9);
        tokio::time::sleep(EVERY * 10).await;
        assert_eq!(levels(), ["9", "9"]);
        // When nobody wants to know any more, nobody asks.
        for name in ["north", "south"] {
            world.model.delete(&kinds.spring.at("ns", name));
        }
        tokio::time::sleep(EVERY * 2).await;
        assert_eq!(
            (levels().len(), world.model.objects(&SECRET).len()),
            (0, 1),
            "only the master's Secret is left"
        );
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
    let ((), _) = run(1, Delays::NONE, &[kinds.spring.clone(), CONFIG_MAP, SECRET], async |world| {
        let (tell, told) = mpsc::unbounded_channel();
        let gauge = Arc::new(Gauge { told: Some(told).into(), ..Gauge::default() });
        *gauge.level.lock().unwrap() = Some(7);
        let process = world.start("one", |_, runtime| {
            let (source, runtime) = (Arc::new(Arc::clone(&gauge)), runtime.clone());
            let gauges = Gauges { kinds: kinds.clone(), run: RUN.into(), source, runtime };
            let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(gauges)];
            vec![Family { name: "gauges".into(), controllers, servers: Vec::new() }]
        });
        world
            .model
            .put(&SECRET, json!({"metadata": {"namespace": "ns", "name": MASTER}, "data": {"key": ""}}));
        world.model.put(&kinds.spring, spring_named(&kinds, "ns", "north", RUN, 1));
        let level = || world.model.objects(&CONFIG_MAP)[0].text("/data/level").to_owned();
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
        // Without it the gauge is still asked, and a panic of what listens ends nothing.
        drop(tell);
        *gauge.level.lock().unwrap() = Some(11);
        tokio::time::sleep(EVERY * 3).await;
        assert_eq!(level(), "11");
        process.stop().await.expect("it stops in order");
    })
    .unwrap();
}
