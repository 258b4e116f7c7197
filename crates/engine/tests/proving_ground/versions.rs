//! A kind that the cluster serves in another version than the family prefers, and then in the preferred one.

use std::time::Duration;

use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::simulation::{Delays, run};
use aquifer_engine::{
    Controller, Expect, Identity, Intent, Kind, Plan, Seen, Shape, Step, SubjectOf, View, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;

use crate::family::{Kinds, SpringSpec, SpringStatus, spring_named};

/// Puts a meter at each spring.
struct Meters {
    kinds: Kinds,
}

#[async_trait]
impl Controller for Meters {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = Seen<Option<Identity>>;

    fn name(&self) -> &'static str {
        "proving-meters"
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        let meters = Watch::children(self.kinds.meter.clone()).or_versions(&["v1beta1", "v1alpha1"]);
        vec![Watch::subjects(self.kinds.spring.clone()), meters]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        view.get(&self.kinds.meter.key(&subject.key)).map(|meter| {
            meter.map(|meter| {
                assert_eq!(meter.text("/apiVersion"), self.kinds.meter.api_version());
                meter.identity()
            })
        })
    }
    fn decide(&self, subject: &SubjectOf<Self>, meter: &Self::World, _: Timestamp) -> Plan {
        let (Some(meter), Some(_)) = (meter.known(), &subject.object) else { return Plan::none() };
        let target = self.kinds.meter.key(&subject.key);
        let intent = json!({"apiVersion": self.kinds.meter.api_version(), "kind": "Meter", "spec": {"unit": "l"},
            "metadata": {"namespace": target.key.namespace, "name": target.key.name}});
        Plan::none().stage(vec![Step::apply(target, Intent::of(&intent), Expect::seen(meter.as_ref()))])
    }
}

#[test]
fn a_kind_that_is_served_in_another_version_is_watched_and_written_in_that_until_that_is_gone() {
    let kinds = Kinds::new();
    let served = Kind { version: "v1alpha1".into(), ..kinds.meter.clone() };
    let ((), history) =
        run(1, Delays::NONE, &[kinds.spring.clone(), kinds.meter.clone(), served.clone()], async |world| {
            world.model.serve(&kinds.meter, false);
            let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(Meters { kinds: kinds.clone() })];
            let family = Family { name: "meters".into(), controllers, servers: Vec::new() };
            let process = world.start("one", |_, _| vec![family]);
            world.model.put(&kinds.spring, spring_named(&kinds, "ns", "north", "run", 1));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let meter = world.model.object(&served.at("ns", "north")).expect("there is a meter");
            assert_eq!(meter.text("/apiVersion"), served.api_version());
            world.model.delete(&served.at("ns", "north"));
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(world.model.object(&served.at("ns", "north")).is_some(), "it is watched, and made again");
            world.note("the cluster is upgraded");
            world.model.serve(&served, false);
            world.model.serve(&kinds.meter, true);
            tokio::time::sleep(Duration::from_mins(3)).await;
            assert!(world.model.object(&kinds.meter.at("ns", "north")).is_some(), "it is looked for again");
            process.stop().await.expect("it stops in order");
        })
        .unwrap();
    let upgrade = history.iter().position(|line| line.contains("is upgraded")).unwrap();
    let history = &history[..upgrade];
    let asked = |text: &str| history.iter().filter(|line| line.contains(text)).count();
    assert!(asked("/v1beta1 ") > 0 && asked("/v1alpha1 ") > 0, "the better version is looked for first");
    assert!(asked("/v1/meters") <= 2, "what is not served is not asked for again");
}
