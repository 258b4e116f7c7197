//! Objects that shall be exactly what we say: a controller that puts up a sign at each spring.

use std::time::Duration;

use aquifer_engine::Child;
use aquifer_engine::cluster::{Cluster as _, Verb};
use aquifer_engine::{
    Condition, Controller, Expect, Identity, Intent, Kind, ObjectRef, Plan, Recreate, Report, Seen, Shape,
    State, Step, View, Watch,
};
use jiff::Timestamp;
use serde_json::json;

use crate::cluster_run::ClusterRun;
use crate::control_plane::write;
use crate::family::{CONFIG_MAP, Kinds, SpringSpec, SpringStatus, WellReason, of_run};
use crate::story::Action;

struct Signs {
    kinds: Kinds,
    run: String,
}

type Subject = aquifer_engine::Subject<SpringSpec, SpringStatus>;

fn sign(subject: &Subject) -> ObjectRef {
    CONFIG_MAP.at(&subject.key.namespace, &format!("{}-sign", subject.key.name))
}

impl Controller for Signs {
    type Spec = SpringSpec;
    type Status = SpringStatus;
    type World = Seen<Option<Identity>>;

    fn name(&self) -> &'static str {
        "proving-signs"
    }
    fn kind(&self) -> Kind {
        self.kinds.spring.clone()
    }
    fn watches(&self) -> Vec<Watch> {
        let subjects = of_run(Watch::subjects(self.kinds.spring.clone()), &self.run);
        vec![subjects, Watch::children(CONFIG_MAP).replaced()]
    }
    fn pruned(&self) -> Vec<Kind> {
        vec![CONFIG_MAP]
    }
    fn shape(&self) -> Shape {
        Shape { conditions: vec!["Signed"], ..Shape::default() }
    }
    fn observe(&self, subject: &Subject, view: &View<'_>) -> Self::World {
        view.get(&sign(subject)).map(|sign| sign.map(|sign| sign.identity()))
    }
    fn decide(&self, subject: &Subject, world: &Self::World, _: Timestamp) -> Plan {
        let (Some(_), Some(seen)) = (&subject.object, world.known()) else { return Plan::none() };
        let target = sign(subject);
        let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "good water"},
            "metadata": {"namespace": target.key.namespace, "name": target.key.name}});
        let child = Child::new(target, Intent::of(&intent), Expect::seen(seen.as_ref()));
        let tolerate = vec!["/metadata/annotations/weather.io~1*".to_owned()];
        let signed = Condition::new("Signed", State::True, WellReason::Up, "the sign is up");
        let report = Report::default().condition(signed);
        Plan::none()
            .stage(vec![Step::Replace { child, tolerate, recreate: Recreate::Allowed }])
            .status(report)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_additions_go_tolerated_ones_stay_and_what_cannot_be_changed_is_made_anew() {
    let run = ClusterRun::new("signs").await;
    let (kinds, name) = (run.kinds.clone(), run.run.clone());
    let operator = run.proxied.operator(move |controllers| controllers.run(Signs { kinds, run: name }));
    run.act(&Action::Spring(10)).await;
    let target = CONFIG_MAP.at(&run.namespace, "spring-sign");
    let look = async || Ok(run.api.get(&target).await?);
    let up = run.until("the sign is up", look).await.unwrap();

    let graffiti = json!({"data": {"graffiti": "!", "text": "bad water"}, "metadata": {"labels": {"odd": "label"},
        "annotations": {"weather.io/rain": "soon", "other.io/note": "!"}}});
    write(&run.api, &target, Verb::Merge { body: graffiti, status: false }).await.unwrap();
    let clean = run
        .until("the sign is cleaned", async || {
            let sign = look().await?.unwrap_or_else(|| up.clone());
            let dirty = !sign.text("/data/graffiti").is_empty()
                || sign.label("odd").is_some()
                || sign.annotation("other.io/note").is_some();
            anyhow::ensure!(!dirty && sign.text("/data/text") == "good water", "{sign:?}");
            Ok(Some(sign))
        })
        .await
        .unwrap();
    assert_eq!(clean.uid(), up.uid(), "it was cleaned in place");
    assert_eq!(clean.annotation("weather.io/rain"), Some("soon"), "what is tolerated stays");

    assert!(run.proxy().wait_idle(Duration::from_secs(1), Duration::from_secs(20)).await);
    run.proxy().reset();
    let carved = json!({"immutable": true, "data": {"text": "carved in stone"}});
    write(&run.api, &target, Verb::Merge { body: carved, status: false }).await.unwrap();
    let new = run
        .until("the sign is made anew", async || {
            let sign = look().await?.filter(|sign| sign.uid() != up.uid());
            anyhow::ensure!(
                sign.as_ref().is_none_or(|sign| sign.text("/data/text") == "good water"),
                "{sign:?}"
            );
            Ok(sign)
        })
        .await
        .unwrap();
    assert_eq!(new.at("/immutable"), None);
    assert!(run.proxy().wait_idle(Duration::from_secs(1), Duration::from_secs(20)).await);
    let writes: Vec<_> = run.proxy().writes().iter().map(|w| (w.method.to_string(), w.status)).collect();
    let expected =
        [("PUT", 422), ("PUT", 422), ("DELETE", 200), ("POST", 201)].map(|(m, s)| (m.to_owned(), Some(s)));
    assert_eq!(
        writes, expected,
        "in place, again on firm ground, then delete and create, then quiet; the trial create is no write"
    );
    operator.crash();
}
