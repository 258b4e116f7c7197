//! The scene of a history with faults: the controllers and the outside that they speak to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_engine::live::Live;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::model::WriteFault;
use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::runtime::Runtime;
use aquifer_engine::simulation::{Fault, World};
use aquifer_engine::{Failure, Kind};
use async_trait::async_trait;

use crate::asked::Asked;
use crate::desk::{Desks, Front, Leavers};
use crate::disturbed::Disturbed;
use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET};
use crate::gauges::{Entry, Gauges, Register, Source};
use crate::house::{Call, House, Phone, Pump, lost};
use crate::leaks::Leaks;
use crate::springs::Springs;
use crate::wells::Wells;

pub const RUN: &str = "faults";
/// What the two springs have.
pub const CAPACITY: [(&str, u64); 2] = [("spring", 10), ("brook", 5)];
/// What the region is called.
pub const REGION: &str = "hills";

pub fn kinds() -> Vec<Kind> {
    let own = Kinds::new();
    vec![own.well, own.spring, own.meter, CONFIG_MAP, CLAIM, SECRET]
}

/// Everything that a history is about.
#[derive(Clone)]
pub struct Scene {
    pub world: World,
    pub house: Arc<House>,
    /// What the gauge shows.
    pub level: Arc<AtomicU64>,
    pub desks: Desks,
    pub asked: Asked,
    /// What was entered of each spring.
    pub register: Arc<Mutex<Entered>>,
    pub leaks: Leaks,
    /// Whether the gauge tells of another level by itself, beside being asked.
    pub tells: bool,
}

/// The register, and what it has told whom.
#[derive(Default)]
pub struct Entered {
    pub levels: Register,
    /// Entries that a process knows to be made.
    told: BTreeSet<Entry>,
    /// Entries that were made although the process knew.
    pub again: Vec<Entry>,
    /// How many entries of each spring it has not taken, while it takes none.
    pub refused: Option<BTreeMap<String, usize>>,
}

impl Scene {
    pub fn new(world: &World, leaks: &Leaks) -> Self {
        let house = House::new(Arc::new(WriteFault::default()), false);
        Self {
            world: world.clone(),
            house,
            level: Arc::default(),
            desks: Desks::default(),
            asked: Asked::default(),
            register: Arc::default(),
            leaks: leaks.clone(),
            tells: world.choose(2) == 1,
        }
    }

    /// What a process runs.
    pub fn family(&self, client: &kube::Client, runtime: &Runtime) -> Vec<Family> {
        let wells = Wells {
            kinds: Kinds::new(),
            run: RUN.into(),
            house: Arc::new(self.clone()),
            keys: Arc::new(Live::new(client.clone(), Metrics::default())),
            decider: None,
            runtime: runtime.clone(),
        };
        let gauges = Gauges {
            kinds: Kinds::new(),
            run: RUN.into(),
            source: Arc::new(self.clone()),
            runtime: runtime.clone(),
        };
        let controllers: Vec<Box<dyn Runnable>> = vec![
            Box::new(self.disturbed(wells)),
            Box::new(self.springs()),
            Box::new(self.disturbed(gauges)),
            Box::new(Leavers { kinds: Kinds::new() }),
        ];
        let servers: Vec<Box<dyn Runnable>> = vec![Box::new(Front(self.desks.clone()))];
        vec![Family { name: "proving".into(), controllers, servers }]
    }

    /// What a process runs in which nothing but springs is worked on.
    pub fn springs_only(&self) -> Vec<Family> {
        let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(self.springs())];
        vec![Family { name: "proving".into(), controllers, servers: Vec::new() }]
    }

    fn springs(&self) -> Disturbed<Springs> {
        self.disturbed(Springs { kinds: Kinds::new(), run: RUN.into(), decider: None })
    }

    fn disturbed<C>(&self, controller: C) -> Disturbed<C> {
        Disturbed { controller, leaks: self.leaks.clone(), world: self.world.clone() }
    }
}

#[async_trait]
impl Phone for Scene {
    /// The outside allows a minute; a slow process may need some time between the record of an order and the call, and its clock may
    /// be too fast by a tenth.
    fn arrives_within(&self) -> Duration {
        Duration::from_secs(100)
    }

    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure> {
        let house = Arc::clone(&self.house);
        let faults: &[Fault] = match call {
            Call::FindOrder(_) | Call::FindPump(_) => &[Fault::OutsideSlow, Fault::OutsideReplyLost],
            Call::Scrap { .. } => &[Fault::OutsideRefuses, Fault::OutsideReplyLost],
            Call::Order { .. } | Call::Resize { .. } => &[
                Fault::OutsideSlow,
                Fault::OutsideRefuses,
                Fault::OutsideReplyLost,
                Fault::OutsideLandsLater,
            ],
        };
        let answer = self.world.outside(faults, move || house.handle(&call)).await;
        answer.and_then(Result::ok).ok_or_else(lost)
    }
}

#[async_trait]
impl Source for Scene {
    async fn level(&self) -> Result<u64, Failure> {
        let level = Arc::clone(&self.level);
        let before = u64::from(self.world.strikes(Fault::OutsideStale));
        let shown = move || level.load(Ordering::SeqCst).saturating_sub(before);
        self.world.outside(&[Fault::OutsideSlow, Fault::OutsideRefuses], shown).await.ok_or_else(lost)
    }

    async fn region(&self) -> Result<String, Failure> {
        let faults = [Fault::OutsideSlow, Fault::OutsideRefuses];
        self.world.outside(&faults, || REGION.to_owned()).await.ok_or_else(lost)
    }

    async fn register(&self) -> Result<Register, Failure> {
        let register = Arc::clone(&self.register);
        let faults = [Fault::OutsideSlow, Fault::OutsideRefuses];
        let levels = move || register.lock().unwrap().levels.clone();
        self.world.outside(&faults, levels).await.ok_or_else(lost)
    }

    async fn tells(&self) -> u64 {
        if !self.tells {
            return std::future::pending().await;
        }
        let last = self.level.load(Ordering::SeqCst);
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let level = self.level.load(Ordering::SeqCst);
            if level != last {
                return level;
            }
        }
    }

    async fn enter(&self, entry: Entry) -> Result<(), Failure> {
        {
            let mut register = self.register.lock().unwrap();
            if register.told.contains(&entry) {
                register.again.push(entry.clone());
            }
        }
        let (register, made) = (Arc::clone(&self.register), entry.clone());
        let faults =
            [Fault::OutsideSlow, Fault::OutsideRefuses, Fault::OutsideReplyLost, Fault::OutsideLandsLater];
        let enter = move || {
            let mut register = register.lock().unwrap();
            if let Some(refused) = &mut register.refused {
                *refused.entry(made.spring).or_default() += 1;
                return false;
            }
            let last = register.levels.entry(made.spring).or_default();
            *last = made.level.max(*last); // what arrives late does not count
            true
        };
        self.world.outside(&faults, enter).await.filter(|taken| *taken).ok_or_else(lost)?;
        self.register.lock().unwrap().told.insert(entry);
        Ok(())
    }
}
