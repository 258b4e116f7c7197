//! What a walk does not reach: failures, panics and patience, one pass at a time.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cluster::ApiError;
use crate::controller::{Controller, SubjectOf};
use crate::intent::{Intent, OWNER_UID};
use crate::model::Model;
use crate::object::Kind;
use crate::plan::{Effect, Expect, Record, Step};
use crate::status::{Report, Shape, State};
use crate::store::Store;
use crate::subject::Present;
use crate::view::View;
use crate::watch::Watch;

mod carried_out;
mod delegates;
mod reads;
mod without_types;

const SUBJECT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Subject", "subjects");
const CHILD: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

aquifer_base::reasons! {
    enum Why {
        R,
    }
}
use Why::R;

#[derive(serde::Serialize, serde::Deserialize)]
struct Spec {
    #[serde(default)]
    size: u64,
}

type Known = Present<Spec, Value>;

/// A controller made of one function.
struct Odd<F>(F);

#[async_trait]
impl<F: Fn(&Known) -> Plan + Send + Sync + 'static> Controller for Odd<F> {
    type Spec = Spec;
    type Status = Value;
    type World = ();

    fn name(&self) -> &'static str {
        "odd"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(CHILD)]
    }
    fn pruned(&self) -> Vec<Kind> {
        vec![CHILD]
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &["example.com/ours"]
    }
    fn shape(&self) -> Shape {
        Shape {
            fields: vec!["phase", "intent"],
            conditions: vec!["Ready", "Progressing"],
            ..Shape::default()
        }
    }
    fn observe(&self, _: &SubjectOf<Self>, _: &View<'_>) {}
    fn decide(&self, subject: &SubjectOf<Self>, (): &(), _: Timestamp) -> Plan {
        subject.object.as_ref().map(&self.0).unwrap_or_default()
    }
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        assert_ne!(effect.operation, "panic", "a mistake in an effect");
        if effect.operation == "fine" {
            return Ok(());
        }
        Err(Failure::new(Class::Transient, format!("{} got no answer", effect.operation)))
    }
}

struct Still;

#[async_trait]
impl Environment for Still {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
    async fn ask(&self, _: Question, _: &Key) -> bool {
        false
    }
    fn poll(&self, _: &Key, _: &std::collections::BTreeMap<Question, Duration>) {}
}

fn ready(message: &str) -> Report {
    Report::new(&json!({"phase": "P"})).condition(Condition::new("Ready", State::True, R, message))
}

fn child() -> ObjectRef {
    CHILD.at("ns", "child")
}

fn apply() -> Step {
    let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "b"}});
    Step::apply(child(), Intent::of(&intent), Expect::Absent)
}

fn model() -> Arc<Model> {
    let model = Arc::new(Model::default());
    model.put(&SUBJECT, json!({"metadata": {"namespace": "ns", "name": "x"}}));
    model
}

/// What the caches show when they are up to date.
fn stores(model: &Model) -> Stores {
    let mut stores = Stores::default();
    for watch in Erased::watches(&Odd(|_: &Known| Plan::none())) {
        let (kind, store) = (watch.kind.clone(), Store::new(watch));
        store.relist_begins();
        for object in model.objects(&kind) {
            store.upsert(object, Timestamp::UNIX_EPOCH);
        }
        store.relist_ends(Timestamp::UNIX_EPOCH);
        stores.add(Arc::new(store));
    }
    stores
}

/// What a pass over the subject needs besides its controller, its cluster and its caches.
struct Around {
    outside: Outside,
    leadership: Leadership,
    key: Key,
}

impl Default for Around {
    fn default() -> Self {
        let key = Key::namespaced("ns", "x");
        Self { outside: Outside::default(), leadership: Leadership::always(), key }
    }
}

impl Around {
    fn pass<'a>(
        &'a self,
        controller: &'a dyn Erased,
        cluster: &'a dyn Cluster,
        stores: &'a Stores,
    ) -> Pass<'a> {
        Pass {
            controller,
            cluster,
            stores,
            outside: &self.outside,
            leadership: &self.leadership,
            environment: &Still,
            key: &self.key,
            lagging: &[],
            failures: 0,
            status_due: true,
        }
    }
}

/// One pass after so many failures; with a status that is due or not.
async fn pass(
    model: &Model,
    decide: impl Fn(&Known) -> Plan + Send + Sync + 'static,
    failures: u32,
    status_due: bool,
) -> Outcome {
    pass_on(model, &stores(model), &[], decide, failures, status_due).await
}

/// The same on caches that may be behind.
async fn pass_on(
    model: &Model,
    stores: &Stores,
    lagging: &[ObjectRef],
    decide: impl Fn(&Known) -> Plan + Send + Sync + 'static,
    failures: u32,
    status_due: bool,
) -> Outcome {
    let (around, controller) = (Around::default(), Odd(decide));
    Pass { lagging, failures, status_due, ..around.pass(&controller, model, stores) }.run().await
}

fn condition(model: &Model, kind: &str) -> (String, String, String) {
    let subject = model.object(&SUBJECT.at("ns", "x")).unwrap();
    let found = subject
        .at("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|c| c["type"] == kind);
    let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[tokio::test]
async fn a_transient_failure_is_not_reported_before_the_third_time() {
    let model = model();
    model.refuse(&child(), ApiError::Unavailable("overloaded".into()));
    let decide = |_: &Known| Plan::none().stage(vec![apply()]).status(ready("all is well"));
    for failures in 0..2 {
        let outcome = pass(&model, decide, failures, true).await;
        assert_eq!(outcome.failures.len(), 1);
        assert_eq!(model.log(), Vec::<String>::new(), "after {failures} failures nothing is said");
    }
    pass(&model, decide, 2, true).await;
    let (state, reason, message) = condition(&model, "Progressing");
    assert_eq!((state.as_str(), reason.as_str()), ("True", "Retrying"));
    assert!(message.contains("ConfigMap ns/child") && message.contains("overloaded"), "{message}");
    model.admit(&child());
    pass(&model, decide, 3, true).await;
    assert_eq!(condition(&model, "Progressing").0, "", "it goes when the trouble is over");
}

#[tokio::test]
async fn a_refusal_for_want_of_rights_shows_in_the_status_at_once() {
    let model = model();
    model.refuse(&child(), ApiError::Forbidden("configmaps is forbidden".into()));
    let decide = |_: &Known| Plan::none().stage(vec![apply()]).status(ready("all is well"));
    let outcome = pass(&model, decide, 0, true).await;
    assert_eq!(outcome.failures[0].class, Class::Denied);
    let (state, reason, message) = condition(&model, "Ready");
    assert_eq!((state.as_str(), reason.as_str()), ("False", "AccessDenied"));
    assert!(message.contains("cannot apply ConfigMap ns/child"), "{message}");
    assert_eq!(outcome.news.len(), 1, "and is worth an event");
}

#[tokio::test]
async fn a_panic_in_a_decision_is_caught_and_reported_and_leaves_the_rest_of_the_status_alone() {
    let model = model();
    pass(&model, |_| Plan::none().status(ready("all is well")), 0, true).await;
    let outcome = pass(&model, |_| panic!("no such thing as a well"), 0, true).await;
    assert_eq!(outcome.failures[0].class, Class::Bug);
    let (state, reason, message) = condition(&model, "Ready");
    assert_eq!((state.as_str(), reason.as_str()), ("False", "InternalError"));
    assert!(message.contains("no such thing as a well"), "{message}");
    assert_eq!(model.object(&SUBJECT.at("ns", "x")).unwrap().text("/status/phase"), "P");
}

#[tokio::test]
async fn progress_waits_for_a_newer_pass_and_results_do_not() {
    let model = model();
    let outcome = pass(&model, |_| Plan::none().status(ready("half way").soon()), 0, false).await;
    assert_eq!((outcome.status, model.log().len()), (StatusOutcome::Waits, 0));
    pass(&model, |_| Plan::none().status(ready("half way").soon()), 0, true).await;
    assert_eq!(condition(&model, "Ready").2, "half way");
    let outcome = pass(&model, |_| Plan::none().status(ready("done")), 0, false).await;
    assert_eq!(outcome.status, StatusOutcome::Reported);
    assert_eq!(condition(&model, "Ready").2, "done");
}

#[tokio::test]
async fn that_something_stops_being_ready_does_not_wait_unless_it_is_being_deleted() {
    let broken = |_: &Known| {
        let condition = Condition::new("Ready", State::False, R, "broken");
        Plan::none().status(Report::new(&json!({"phase": "P"})).condition(condition).soon())
    };
    for (deleted, expected) in [(false, StatusOutcome::Reported), (true, StatusOutcome::Waits)] {
        let model = model();
        let subject = SUBJECT.at("ns", "x");
        pass(&model, |_| Plan::none().status(ready("it serves")), 0, false).await;
        if deleted {
            model.edit(&subject, |doc| doc["metadata"]["finalizers"] = json!(["f"]));
            model.delete(&subject);
        }
        assert_eq!(pass(&model, broken, 0, false).await.status, expected, "deleted: {deleted}");
    }
}

#[tokio::test]
async fn a_status_does_not_take_back_what_its_own_plan_has_recorded() {
    let model = model();
    let decide = |subject: &Known| {
        let record = Record::new(SUBJECT.at("ns", "x"), subject.identity()).set("intent", &"token");
        let effect = Effect::new("order", "k".into(), &json!({}));
        // The status says nothing of the intent, as a careless family might.
        Plan::none()
            .stage(vec![Step::Record(record)])
            .stage(vec![Step::Effect(effect)])
            .status(ready("ordering"))
    };
    let outcome = pass(&model, decide, 5, true).await;
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    let subject = model.object(&SUBJECT.at("ns", "x")).unwrap();
    assert_eq!(subject.text("/status/intent"), "token");
    assert_eq!(condition(&model, "Progressing").1, "Retrying", "the failure was reported");
}

#[tokio::test]
async fn a_panic_in_one_step_leaves_the_others_their_results_and_is_counted() {
    let model = model();
    let panic = || Step::Effect(Effect::new("panic", "key".into(), &()));
    let plan = move |_: &Known| Plan::none().stage(vec![panic(), apply()]).status(ready("it serves"));
    let outcome = pass(&model, plan, 0, false).await;
    let written: Vec<&ObjectRef> = outcome.written.keys().collect();
    assert!(written.contains(&&child()), "the caches must come as far as {written:?}");
    let said = &outcome.failures[0].message;
    assert!(outcome.panicked && said.contains("panicked"), "{outcome:?}");
    assert!(!said.contains("a mistake in an effect"), "what has Secrets in hand is not quoted: {said}");
}

#[tokio::test]
async fn ready_is_not_said_of_a_generation_whose_step_has_failed() {
    let model = model();
    let subject = SUBJECT.at("ns", "x");
    let plan = |_: &Known| Plan::none().stage(vec![apply()]).status(ready("it serves"));
    model.refuse(&child(), ApiError::Unavailable("no answer".into()));
    pass(&model, plan, 2, false).await;
    assert_eq!(condition(&model, "Ready").0, "False", "it was never ready");
    model.admit(&child());
    pass(&model, plan, 0, false).await;
    assert_eq!(condition(&model, "Ready").0, "True");
    let nothing = |_: &Known| {
        let effect = Step::Effect(Effect::new("try", "key".into(), &()));
        Plan::none().stage(vec![effect]).status(ready("it serves"))
    };
    pass(&model, nothing, 2, false).await;
    assert_eq!(condition(&model, "Ready").0, "True", "it was ready for this generation, and this will pass");
    model.edit(&subject, |doc| doc["spec"] = json!({"size": 2}));
    pass(&model, nothing, 2, false).await;
    assert_eq!(condition(&model, "Ready").0, "False", "but not for the new one");
}

#[tokio::test]
async fn all_steps_of_a_stage_are_tried_and_the_next_stage_needs_them_all() {
    let model = model();
    model.refuse(&child(), ApiError::Invalid("no".into()));
    let decide = |_: &Known| {
        let other = |name: &str| {
            let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": name}});
            Step::apply(CHILD.at("ns", name), Intent::of(&intent), Expect::Absent)
        };
        Plan::none().stage(vec![apply(), other("beside")]).stage(vec![other("after")]).status(ready("done"))
    };
    pass(&model, decide, 0, true).await;
    let names: Vec<String> = model.objects(&CHILD).iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["beside"]);
}

/// A child that carries our marks, as one that was made before.
fn old_child(model: &Model, name: &str) {
    let owner = model.object(&SUBJECT.at("ns", "x")).unwrap();
    let marks = json!({"labels": {OWNER_UID: owner.uid()}, "annotations": {crate::intent::OWNER: "ns/x"}});
    let mut child = json!({"metadata": {"namespace": "ns", "name": name}});
    crate::merge::merge(&mut child["metadata"], &marks);
    model.put(&CHILD, child);
}

#[tokio::test]
async fn a_spec_that_cannot_be_read_is_reported_with_its_path_and_nothing_is_done_for_it() {
    let model = model();
    pass(&model, |_| Plan::none().status(ready("all is well")), 0, true).await;
    old_child(&model, "old");
    model.edit(&SUBJECT.at("ns", "x"), |doc| doc["spec"] = json!({"size": "large"}));
    let outcome = pass(&model, |_| Plan::none().stage(vec![apply()]).status(ready("made")), 0, true).await;
    let (state, reason, message) = condition(&model, "Ready");
    assert_eq!((state.as_str(), reason.as_str()), ("False", "Invalid"));
    assert!(message.starts_with("cannot read spec.size: "), "{message}");
    assert_eq!(outcome.news.len(), 1, "and is worth an event");
    let names: Vec<String> = model.objects(&CHILD).iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["old"], "nothing is made and nothing is pruned");
    assert_eq!(model.object(&SUBJECT.at("ns", "x")).unwrap().text("/status/phase"), "P");
    let writes = model.log().len();
    pass(&model, |_| Plan::none().status(ready("made")), 0, true).await;
    assert_eq!(model.log().len(), writes, "it is said once");
    // What is readable again is decided again.
    model.edit(&SUBJECT.at("ns", "x"), |doc| doc["spec"] = json!({"size": 1}));
    pass(&model, |known| Plan::none().status(ready(&known.spec.as_ref().unwrap().size.to_string())), 0, true)
        .await;
    assert_eq!(condition(&model, "Ready").2, "1");
    assert_eq!(model.objects(&CHILD).len(), 0, "and pruned");
}

#[tokio::test]
async fn what_an_object_of_the_same_kind_and_name_has_left_is_pruned_and_nothing_else() {
    let model = model();
    let kind = crate::intent::owner_kind(&SUBJECT);
    for (name, uid, kind) in [
        ("left", Some("of another one"), Some(kind.as_str())),
        ("of-an-unknown-kind", Some("of another one"), None),
        ("of-another-kind", Some("of another one"), Some("Spring.example.com")),
        ("unmarked", None, Some(kind.as_str())),
    ] {
        old_child(&model, name);
        model.edit(&CHILD.at("ns", name), |doc| {
            doc["metadata"]["labels"][OWNER_UID] = json!(uid);
            doc["metadata"]["annotations"][crate::intent::OWNER_KIND] = json!(kind);
        });
    }
    pass(&model, |_| Plan::none().status(ready("all is well")), 0, true).await;
    let names: Vec<String> = model.objects(&CHILD).iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["of-an-unknown-kind", "of-another-kind", "unmarked"]);
}

#[tokio::test]
async fn deletion_is_decided_although_the_spec_cannot_be_read() {
    let model = model();
    model.edit(&SUBJECT.at("ns", "x"), |doc| {
        doc["spec"] = json!({"size": "large"});
        doc["metadata"]["finalizers"] = json!(["somebody/else"]);
    });
    model.delete(&SUBJECT.at("ns", "x"));
    let decide = |known: &Known| {
        assert!(known.spec.is_err() && known.deleting.is_some());
        Plan::none().status(ready("going"))
    };
    pass(&model, decide, 0, true).await;
    assert_eq!(condition(&model, "Ready").2, "going");
}

#[tokio::test]
async fn nothing_is_written_for_a_paused_subject_but_that_it_is_paused() {
    let model = model();
    let subject = SUBJECT.at("ns", "x");
    let plan = |_: &Known| Plan::none().stage(vec![apply()]).status(ready("it serves"));
    old_child(&model, "old");
    model.edit(&subject, |doc| doc["metadata"]["annotations"] = json!({crate::PAUSED: "true"}));
    let outcome = pass(&model, plan, 0, true).await;
    assert_eq!((outcome.failures.len(), outcome.news.len()), (0, 1));
    let (state, reason, message) = condition(&model, "Paused");
    assert_eq!((state.as_str(), reason.as_str()), ("True", "Annotation"));
    assert!(message.contains(crate::PAUSED), "{message}");
    let names: Vec<String> = model.objects(&CHILD).iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["old"], "nothing is made and nothing is pruned");
    assert_eq!(model.object(&subject).unwrap().at("/status/observedGeneration"), None);
    let writes = model.log().len();
    pass(&model, plan, 0, true).await;
    assert_eq!(model.log().len(), writes, "it is said once");
    model.edit(&subject, |doc| doc["metadata"]["annotations"] = json!({}));
    pass(&model, plan, 0, true).await;
    assert_eq!((condition(&model, "Ready").0.as_str(), condition(&model, "Paused").0.as_str()), ("True", ""));
}

#[tokio::test]
async fn what_admission_changes_is_called_so_and_the_caches_are_waited_for_all_the_same() {
    let model = model();
    model.alter(&child(), |doc| doc["data"]["a"] = json!("c"));
    let outcome =
        pass(&model, |_| Plan::none().stage(vec![apply()]).status(ready("it serves")), 0, true).await;
    assert_eq!(outcome.failures[0].class, Class::Altered);
    assert!(outcome.written.contains_key(&child()));
    let (state, reason, message) = condition(&model, "Ready");
    assert_eq!((state.as_str(), reason.as_str()), ("False", "ChangedByAdmission"));
    assert!(message.contains("/data/a"), "{message}");
}

#[tokio::test]
async fn what_must_be_made_anew_is_although_another_step_of_its_stage_fails() {
    let model = model();
    let other = CHILD.at("ns", "other");
    let old = json!({"metadata": {"namespace": "ns", "name": "other"}, "data": {"a": "old"}});
    let uid = model.put(&CHILD, old).uid().to_owned();
    model.refuse(&child(), ApiError::Policy("not here".into()));
    model.refuse_verb(&other, "replace", ApiError::Immutable("data: field is immutable".into()));
    let plan = move |_: &Known| {
        let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "other"}, "data": {"a": "new"}});
        let expect = Expect::Uid(aquifer_base::Uid::new(&*uid));
        let child = crate::plan::Child::new(CHILD.at("ns", "other"), Intent::of(&intent), expect);
        let replace = Step::Replace { child, tolerate: Vec::new(), recreate: crate::plan::Recreate::Allowed };
        Plan::none().stage(vec![apply(), replace]).status(ready("it serves"))
    };
    let outcome = pass(&model, plan, 0, true).await;
    assert!(model.object(&other).is_none(), "it goes, and the next look makes it anew: {:?}", model.log());
    assert_eq!(outcome.failures[0].class, Class::Policy, "and the other failure is told");
}
