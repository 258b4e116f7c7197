//! The controller of gauges. A spring has a gauge, which is asked again and again; what it shows is written down beside the spring,
//! with the name of the region, and entered in a register outside Kubernetes. All springs ask for the region and for the register by
//! one question each. Whoever reads the gauge needs a permit: a Secret that is composed of the master's and of the name of the spring.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_base::Sealed;
use aquifer_engine::runtime::Runtime;
use aquifer_engine::{
    Answers, Composition, Controller, Effect, Expect, Failure, Key, Kind, Plan, Question, Seal,
    SecretContent, Seen, Shape, Step, View, Wakes, Watch, Why,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::family::{CONFIG_MAP, Kinds, RUN, SECRET, SpringSpec, SpringStatus, of_run};
use crate::leaks;
use crate::wells::{ChildFacts, child};

pub const GAUGES: &str = "proving-gauges";
/// How often a gauge is asked.
pub const EVERY: Duration = Duration::from_secs(20);
/// How long the name of the region and the register are good, while nothing is entered.
const OF_ALL: Duration = Duration::from_mins(10);
/// The Secret that all permits are made of.
pub const MASTER: &str = "master";

/// Who answers for the gauges.
#[async_trait]
pub trait Source: Send + Sync {
    async fn level(&self) -> Result<u64, Failure>;
    async fn region(&self) -> Result<String, Failure>;
    /// The last level of each spring that was entered.
    async fn register(&self) -> Result<Register, Failure>;
    /// Enters a level. Who was told that it is entered must not enter it again.
    async fn enter(&self, entry: Entry) -> Result<(), Failure>;
    /// Tells of another level by itself.
    async fn tells(&self) -> u64 {
        std::future::pending().await
    }
}

/// The last level of each spring.
pub type Register = BTreeMap<String, u64>;

/// The arguments of the effect `enter`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    pub spring: String,
    pub level: u64,
    /// The process that enters it.
    pub by: u64,
}

pub struct Gauges {
    pub kinds: Kinds,
    pub run: String,
    pub source: Arc<dyn Source>,
    /// Where permits get their random bytes from.
    pub runtime: Runtime,
}

type Subject = aquifer_engine::Subject<SpringSpec, SpringStatus>;

/// What is looked at for one spring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sight {
    pub level: Seen<u64>,
    pub region: Seen<String>,
    pub register: Seen<Register>,
    pub note: Seen<Option<ChildFacts>>,
    pub permit: Seen<Option<ChildFacts>>,
}

/// Where the level of a spring is written down.
pub fn note(spring: &Key) -> Key {
    Key::namespaced(&spring.namespace, format!("{}-level", spring.name))
}

/// The permit of a spring.
pub fn permit(spring: &Key) -> Key {
    Key::namespaced(&spring.namespace, format!("{}-permit", spring.name))
}

/// What a permit is made of, as far as it is not drawn.
pub fn composed(master: &SecretContent, spring: &str) -> Sealed {
    let key = master.get("key").map(Sealed::expose).unwrap_or_default();
    Sealed::new([key, b":", spring.as_bytes()].concat())
}

#[async_trait]
impl Controller for Gauges {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = Sight;

    fn name(&self) -> &'static str {
        GAUGES
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        vec![
            of_run(Watch::subjects(self.kinds.spring.clone()), &self.run),
            // Wells have children with the same label: marks distinguish them.
            of_run(Watch::children(CONFIG_MAP), &self.run),
            of_run(Watch::children(SECRET), &self.run),
            Watch::new(SECRET, |_| Wakes::AllKeys).named(MASTER),
        ]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> Sight {
        let at = |kind: &Kind, key: &Key| {
            view.get(&kind.key(key)).map(|found| found.map(|object| ChildFacts::of(kind, &object)))
        };
        let there = subject.object.as_ref().is_some_and(|spring| spring.deleting.is_none());
        let unasked = Why::Reading;
        let (level, region, register) = if there {
            let level = view.poll(Question::new("gauge", "level"), EVERY);
            let ask = |about: &str| Question::new("gauge", about);
            (level, view.ask(ask("region"), OF_ALL), view.ask(ask("register"), OF_ALL))
        } else {
            (Seen::Unknown(unasked.clone()), Seen::Unknown(unasked.clone()), Seen::Unknown(unasked))
        };
        Sight {
            level,
            region,
            register,
            note: at(&CONFIG_MAP, &note(&subject.key)),
            permit: at(&SECRET, &permit(&subject.key)),
        }
    }

    fn decide(&self, subject: &Subject, sight: &Sight, _: Timestamp) -> Plan {
        let children = || [sight.note.present(), sight.permit.present()].into_iter().flatten();
        let ours = |child: &&ChildFacts| child.owner.as_ref() == Some(&subject.key) && !child.deleting;
        let Some(spring) = subject.object.as_ref().filter(|spring| spring.deleting.is_none()) else {
            let left = children().filter(ours);
            let deletions = left.map(|child| Step::delete(child.target.clone(), child.identity.clone()));
            return Plan::none().stage(deletions.collect());
        };
        // Those of a spring that had this name before.
        let left = children().filter(ours).filter(|child| child.owner_uid.as_ref() != Some(&spring.uid));
        let deletions: Vec<Step> =
            left.map(|child| Step::delete(child.target.clone(), child.identity.clone())).collect();
        if !deletions.is_empty() {
            return Plan::none().stage(deletions);
        }
        let master = Key::namespaced(&subject.key.namespace, MASTER);
        let seal = Seal::new(permit(&subject.key), "permit", &subject.key.name).source(master);
        let plan = Plan::none().stage(vec![Step::Seal(seal.label(RUN, &self.run))]);
        let (Some(level), Some(region), Some(register), Some(place)) =
            (sight.level.known(), sight.region.known(), sight.register.known(), sight.note.known())
        else {
            return plan.keep(CONFIG_MAP.key(&note(&subject.key)));
        };
        let target = CONFIG_MAP.key(&note(&subject.key));
        let data = json!({"data": {"level": level.to_string(), "region": region}});
        let intent = child(&target, &self.run, data);
        let expect = Expect::unchanged(place.as_ref().map(|place| &place.identity));
        let mut steps = vec![Step::apply(target, intent, expect)];
        if register.get(&*subject.key.name).is_none_or(|entered| entered < level) {
            let (name, by) = (subject.key.name.to_string(), self.runtime.identity());
            let entry = Entry { spring: name, level: *level, by };
            let key = format!("{}/enter/{level}", spring.uid);
            // In one stage with the note: one of the two may fail without the other.
            steps.push(Step::Effect(Effect::new("enter", key, &entry)));
        }
        plan.stage(steps)
    }

    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        match question.about.as_str() {
            "level" => Ok(json!(self.source.level().await?)),
            "register" => Ok(json!(self.source.register().await?)),
            _ => Ok(json!(self.source.region().await?)),
        }
    }

    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        self.source.enter(effect.arguments()?).await
    }

    async fn listen(&self, answers: Answers) {
        let level = self.source.tells().await;
        answers.put(&Question::new("gauge", "level"), &level);
    }

    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        let spring = composition.arguments.as_str().unwrap_or_default();
        let master = composition.sources.first().ok_or_else(|| Failure::bug("a permit needs the master"))?;
        let drawn = composition.current.and_then(|current| current.get("drawn")).cloned();
        Ok(SecretContent::from([
            ("permit".to_owned(), composed(master, spring)),
            ("drawn".to_owned(), drawn.unwrap_or_else(|| leaks::bytes(&self.runtime))),
        ]))
    }
}
