//! A complete controller: a `Greeting` gets a ConfigMap with its text. docs/write-a-controller.md explains it.

use aquifer_base::fields::{Field, Writer};
use aquifer_engine::{
    Condition, Controller, Expect, Identity, Intent, Key, Kind, Object, Plan, Report, Seen, Shape, State,
    Step, Subject, View, Watch, owner_key,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

const NAME: &str = "guide-greetings";
pub const GREETING: Kind = Kind::namespaced("guide.aquifer.storage", "v1", "Greeting", "greetings");
pub const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
const FIELDS: &[Field] = &[
    Field::of("Greeting", "spec.text", Writer::User),
    Field::of("Greeting", "status.conditions[Progressing]", Writer::Controller(NAME)),
    Field::of("Greeting", "status.conditions[Ready]", Writer::Controller(NAME)),
];
#[derive(Serialize, Deserialize)]
pub struct GreetingSpec {
    text: String,
}
#[derive(Default, Serialize, Deserialize)]
pub struct GreetingStatus {} // conditions are the engine's; fields of our own would be here
aquifer_base::reasons! {
    pub enum GreetingReason {
        /// Ready: the ConfigMap has the text.
        Written,
        /// Not Ready: the ConfigMap of that name belongs to another owner.
        NameTaken,
    }
}

type Greeting = Subject<GreetingSpec, GreetingStatus>;
/// What is at the name of the ConfigMap, and whether it is ours.
type World = Seen<Option<(Identity, bool)>>;
pub struct Greetings;

impl Controller for Greetings {
    type Spec = GreetingSpec;
    type Status = GreetingStatus;
    type World = World;

    fn name(&self) -> &'static str {
        NAME
    }
    fn kind(&self) -> Kind {
        GREETING
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(GREETING), Watch::children(CONFIG_MAP)]
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &["guide.aquifer.storage/greeting"]
    }
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &GREETING.kind, NAME)
    }

    fn observe(&self, subject: &Greeting, view: &View<'_>) -> World {
        let ours = |found: &Object| owner_key(found).as_ref() == Some(&subject.key);
        view.get(&CONFIG_MAP.key(&subject.key))
            .map(|found| found.map(|found| (found.identity(), ours(&found))))
    }

    fn decide(&self, subject: &Greeting, world: &World, _now: jiff::Timestamp) -> Plan {
        let (Some(greeting), Some(found)) = (&subject.object, world.known()) else { return Plan::none() };
        let target = CONFIG_MAP.key(&subject.key);
        match (&greeting.spec, greeting.deleting, found) {
            (_, Some(_), Some((seen, true))) => Plan::none().stage(vec![Step::delete(target, seen.clone())]),
            (_, Some(_), _) => Plan::none().release(),
            (Err(_), None, _) => Plan::none(), // the engine reports it
            (Ok(_), None, Some((_, false))) => {
                let message = format!("{target} is not ours; delete it or rename the Greeting");
                let taken = Condition::new("Ready", State::False, GreetingReason::NameTaken, message);
                Plan::none().status(Report::new(&GreetingStatus {}).condition(taken.warning()))
            }
            (Ok(spec), None, found) => {
                let intent = Intent::of(&config_map(&subject.key, &spec.text));
                let expect = Expect::seen(found.as_ref().map(|(seen, _)| seen));
                let ready =
                    Condition::new("Ready", State::True, GreetingReason::Written, "the text is written");
                let plan = Plan::none().hold().stage(vec![Step::apply(target, intent, expect)]);
                plan.status(Report::new(&GreetingStatus {}).condition(ready))
            }
        }
    }
}

fn config_map(key: &Key, text: &str) -> ConfigMap {
    let (namespace, name) = (Some(key.namespace.to_string()), Some(key.name.to_string()));
    let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("text".to_owned(), text.to_owned())].into()), ..ConfigMap::default() }
}
