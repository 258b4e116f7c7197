//! Nothing is destroyed on the word of a cache: caches of two kinds can disagree.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::lease::Leadership;
use crate::model::{Model, Sim};
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::outside::Outside;
use crate::pass::{Environment, Pass};
use crate::store::Store;
use crate::stores::Stores;
use crate::{
    Controller, Effect, Failure, Group, Plan, Question, Seen, Shape, Step, SubjectOf, View, Wakes, Watch,
};

mod endings;

const SUBJECT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Subject", "subjects");
const LEFT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Left", "lefts");
const RIGHT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Right", "rights");

/// Deletes the left half of a pair whose halves say different things.
struct Pairs;

#[async_trait]
impl Controller for Pairs {
    type Spec = Value;
    type Status = Value;
    type World = (Seen<Option<Object>>, Seen<Option<Object>>);

    fn name(&self) -> &'static str {
        "pairs"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT), Watch::children(RIGHT)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        (view.cached(&LEFT.key(&subject.key)), view.cached(&RIGHT.key(&subject.key)))
    }
    fn decide(&self, subject: &SubjectOf<Self>, (left, right): &Self::World, _: Timestamp) -> Plan {
        match (left.present(), right.present()) {
            (Some(left), Some(right)) if left.text("/says") != right.text("/says") => {
                Plan::none().stage(vec![Step::delete(LEFT.key(&subject.key), left.identity())])
            }
            _ => Plan::none(),
        }
    }
}

fn pair() -> (Sim<Pairs>, ObjectRef, ObjectRef) {
    let key = Key::namespaced("ns", "a");
    let model = Arc::new(Model::default());
    for kind in [SUBJECT, LEFT, RIGHT] {
        model.put(&kind, json!({"metadata": {"namespace": "ns", "name": "a"}, "says": "old"}));
    }
    (Sim::new(Pairs, model), LEFT.key(&key), RIGHT.key(&key))
}

#[tokio::test]
async fn what_only_a_lagging_cache_shows_as_broken_is_left_alone() {
    let (sim, left, right) = pair();
    sim.freeze(&RIGHT);
    for half in [&left, &right] {
        sim.model.edit(half, |doc| doc["says"] = json!("new"));
    }
    sim.settle().await;
    assert!(sim.model.object(&left).is_some(), "{:?}", sim.model.log());
}

#[tokio::test]
async fn what_is_broken_is_taken_away() {
    let (sim, left, right) = pair();
    sim.model.edit(&right, |doc| doc["says"] = json!("new"));
    sim.settle().await;
    assert!(sim.model.object(&left).is_none(), "{:?}", sim.model.log());
}

/// Deletes what stands at the child's name as soon as the subject is being deleted, without a look at whose it is.
struct Careless;

#[async_trait]
impl Controller for Careless {
    type Spec = Value;
    type Status = Value;
    type World = Seen<Option<Object>>;

    fn name(&self) -> &'static str {
        "careless"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        view.cached(&LEFT.key(&subject.key))
    }
    fn decide(&self, subject: &SubjectOf<Self>, child: &Self::World, _: Timestamp) -> Plan {
        let ends = subject.object.as_ref().is_some_and(|subject| subject.deleting.is_some());
        match child.present().filter(|_| ends) {
            Some(child) => {
                let target = LEFT.key(&subject.key);
                Plan::none().stage(vec![Step::delete_with_owner(target, child.identity())])
            }
            None => Plan::none(),
        }
    }
}

/// A subject that is being deleted, and a child that carries the uid that `owner` makes of the subject's.
fn ending(owner: impl Fn(&str) -> String) -> (Sim<Careless>, ObjectRef, ObjectRef) {
    let key = Key::namespaced("ns", "a");
    let model = Arc::new(Model::default());
    let body = json!({"metadata": {"namespace": "ns", "name": "a", "finalizers": ["f"]}});
    let uid = model.put(&SUBJECT, body).uid().to_owned();
    let marks = json!({crate::intent::OWNER_UID: owner(&uid)});
    let owner = json!({crate::intent::OWNER: "ns/a"});
    model.put(
        &LEFT,
        json!({"metadata": {"namespace": "ns", "name": "a", "labels": marks, "annotations": owner}}),
    );
    model.delete(&SUBJECT.key(&key));
    (Sim::new(Careless, model), SUBJECT.key(&key), LEFT.key(&key))
}

#[tokio::test]
async fn what_carries_the_uid_of_a_subject_that_is_being_deleted_goes() {
    let (sim, _, child) = ending(str::to_owned);
    sim.settle().await;
    assert!(sim.model.object(&child).is_none(), "{:?}", sim.model.log());
}

#[tokio::test]
async fn the_child_of_a_successor_stays_while_a_cache_still_shows_the_one_that_was_deleted() {
    let (sim, subject, child) = ending(|_| "the-successor".to_owned());
    sim.freeze(&SUBJECT);
    sim.model.edit(&subject, |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.put(&SUBJECT, json!({"metadata": {"namespace": "ns", "name": "a"}}));
    sim.settle().await;
    assert!(sim.model.object(&child).is_some(), "{:?}", sim.model.log());
}

const TENANT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Tenant", "tenants");

/// Deletes the child of a subject that wants none any more, unless a tenant is there.
struct Landlord {
    with_owner: bool,
}

#[async_trait]
impl Controller for Landlord {
    type Spec = Value;
    type Status = Value;
    type World = (Seen<Option<Object>>, Seen<usize>);

    fn name(&self) -> &'static str {
        "landlord"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        let tenants = Watch::new(TENANT, |_| Wakes::AllKeys);
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT), tenants]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        (view.cached(&LEFT.key(&subject.key)), view.list(&TENANT).map(|tenants| tenants.len()))
    }
    fn decide(&self, subject: &SubjectOf<Self>, (child, tenants): &Self::World, _: Timestamp) -> Plan {
        match (child.present(), tenants.known()) {
            (Some(child), Some(0)) => {
                let delete = if self.with_owner { Step::delete_with_owner } else { Step::delete };
                Plan::none().stage(vec![delete(LEFT.key(&subject.key), child.identity())])
            }
            _ => Plan::none(),
        }
    }
}

/// A landlord whose cache does not show the tenant that has just come.
async fn with_an_unseen_tenant(with_owner: bool) -> Option<Object> {
    let model = Arc::new(Model::default());
    let body = json!({"metadata": {"namespace": "ns", "name": "a"}});
    let uid = model.put(&SUBJECT, body).uid().to_owned();
    let marks =
        json!({"labels": {crate::intent::OWNER_UID: uid}, "annotations": {crate::intent::OWNER: "ns/a"}});
    let mut child = json!({"metadata": {"namespace": "ns", "name": "a"}});
    crate::merge::merge(&mut child["metadata"], &marks);
    model.put(&LEFT, child);
    let sim = Sim::new(Landlord { with_owner }, Arc::clone(&model));
    sim.freeze(&TENANT);
    model.put(&TENANT, json!({"metadata": {"namespace": "other", "name": "t"}}));
    sim.settle().await;
    model.object(&LEFT.at("ns", "a"))
}

#[tokio::test]
async fn what_a_list_does_not_show_yet_keeps_what_it_needs() {
    assert!(with_an_unseen_tenant(false).await.is_some());
    assert!(
        with_an_unseen_tenant(true).await.is_some(),
        "the owner stays, so this is no reason to believe a cache"
    );
}

const CELLAR: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Cellar", "cellars");

/// Empties the outside when it is told that nobody uses it.
#[derive(Default)]
struct Emptying {
    emptied: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl Controller for Emptying {
    type Spec = Value;
    type Status = Value;
    type World = Seen<bool>;

    fn name(&self) -> &'static str {
        "emptying"
    }
    fn kind(&self) -> Kind {
        CELLAR
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(CELLAR)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, _: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        view.ask(in_use(), Duration::from_hours(1))
    }
    fn decide(&self, _: &SubjectOf<Self>, in_use: &Self::World, _: Timestamp) -> Plan {
        match in_use.known() {
            Some(false) => {
                let empty = Effect::new("empty", "key".to_owned(), &()).destroying();
                Plan::none().stage(vec![Step::Effect(empty)])
            }
            _ => Plan::none(),
        }
    }
    async fn effect(&self, _: &Effect) -> Result<(), Failure> {
        self.emptied.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

fn in_use() -> Question {
    Question::new("cellar", "in use?")
}

struct Asks<'a>(&'a Outside);

#[async_trait]
impl Environment for Asks<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
    async fn ask(&self, question: Question, key: &Key) -> bool {
        self.0.wait(&question, key, self.now());
        false
    }
    fn poll(&self, _: &Key, _: &std::collections::BTreeMap<Question, Duration>) {}
}

#[tokio::test]
async fn what_destroys_outside_is_decided_on_an_answer_that_was_asked_for_then() {
    let (model, controller, outside) = (Model::default(), Emptying::default(), Outside::default());
    let key = Key::namespaced("ns", "a");
    let store = Store::new(Watch::subjects(CELLAR));
    store.relist_begins();
    let body = json!({"metadata": {"namespace": "ns", "name": "a"}});
    store.upsert(model.put(&CELLAR, body), Timestamp::UNIX_EPOCH);
    store.relist_ends(Timestamp::UNIX_EPOCH);
    let mut stores = Stores::default();
    stores.add(Arc::new(store));
    let pass = async || {
        Pass {
            controller: &controller,
            cluster: &model,
            stores: &stores,
            outside: &outside,
            leadership: &Leadership::always(),
            environment: &Asks(&outside),
            key: &key,
            lagging: &[],
            failures: 0,
            status_due: false,
        }
        .run()
        .await
    };
    let emptied = || controller.emptied.load(std::sync::atomic::Ordering::SeqCst);
    let answer = |used: bool| outside.put(&in_use(), Ok(json!(used)), Timestamp::UNIX_EPOCH);
    // Somebody else has asked a while ago.
    outside.wait(&in_use(), &Key::namespaced("ns", "other"), Timestamp::UNIX_EPOCH);
    answer(false);
    assert!(pass().await.parked, "that is not enough: it asks again");
    assert_eq!(emptied(), 0);
    answer(true);
    assert!(!pass().await.parked);
    assert_eq!(emptied(), 0, "now it is in use");
    outside.read_by(&key);
    outside.forget([&in_use()]);
    assert!(pass().await.parked);
    answer(false);
    assert!(
        pass().await.parked,
        "this was asked for before anything was to be destroyed, so it is asked for again"
    );
    answer(false);
    pass().await;
    assert_eq!(emptied(), 1);
}

/// Empties the cellar outside, and then deletes its child unless a tenant is there.
struct Evicting {
    model: Arc<Model>,
    emptied: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl Controller for Evicting {
    type Spec = Value;
    type Status = Value;
    type World = (Seen<Option<Object>>, Seen<usize>, bool);

    fn name(&self) -> &'static str {
        "evicting"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT), Watch::new(TENANT, |_| Wakes::AllKeys)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        let emptied = self.emptied.load(std::sync::atomic::Ordering::SeqCst);
        (view.cached(&LEFT.key(&subject.key)), view.list(&TENANT).map(|tenants| tenants.len()), emptied)
    }
    fn decide(
        &self,
        subject: &SubjectOf<Self>,
        (child, tenants, emptied): &Self::World,
        _: Timestamp,
    ) -> Plan {
        match (child.present(), tenants.known(), emptied) {
            (Some(_), Some(0), false) => {
                let empty = Effect::new("empty", "key".to_owned(), &()).destroying();
                Plan::none().stage(vec![Step::Effect(empty)])
            }
            (Some(child), Some(0), true) => {
                Plan::none().stage(vec![Step::delete(LEFT.key(&subject.key), child.identity())])
            }
            _ => Plan::none(),
        }
    }
    async fn effect(&self, _: &Effect) -> Result<(), Failure> {
        // It takes long, and meanwhile somebody moves in.
        self.model.put(&TENANT, json!({"metadata": {"namespace": "other", "name": "t"}}));
        self.emptied.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn what_was_read_before_an_effect_is_not_firm_ground_after_it() {
    let model = Arc::new(Model::default());
    for kind in [SUBJECT, LEFT] {
        model.put(&kind, json!({"metadata": {"namespace": "ns", "name": "a"}}));
    }
    let controller = Evicting { model: Arc::clone(&model), emptied: false.into() };
    let sim = Sim::new(controller, Arc::clone(&model));
    sim.settle().await;
    assert!(model.object(&LEFT.at("ns", "a")).is_some(), "{:?}", model.log());
}

#[tokio::test]
async fn a_child_whose_label_was_taken_away_is_seen_on_firm_ground_too() {
    let key = Key::namespaced("ns", "a");
    let model = Model::default();
    let subject = model.put(&SUBJECT, json!({"metadata": {"namespace": "ns", "name": "a"}}));
    let marks = json!({crate::intent::OWNER: "ns/a"});
    let child = json!({"metadata": {"namespace": "ns", "name": "child", "annotations": marks}});
    let store = Store::new(Watch::children(LEFT));
    store.relist_begins();
    store.upsert(model.put(&LEFT, child), Timestamp::UNIX_EPOCH);
    store.relist_ends(Timestamp::UNIX_EPOCH);
    let mut stores = Stores::default();
    stores.add(Arc::new(store));
    let (outside, target) = (Outside::default(), SUBJECT.key(&key));
    let mut fresh = crate::view::Fresh::default();
    fresh.stand_firm(outside.firm_since(&key));
    fresh.objects.insert(target.clone(), (Some(subject), Timestamp::UNIX_EPOCH));
    for _ in 0..3 {
        let view = View::new(&stores, &fresh, &outside, &key, Some(&target), Timestamp::UNIX_EPOCH);
        let mine = view.mine(&LEFT);
        let wants = view.noted().wants;
        if wants.is_empty() {
            assert_eq!(mine.known().map(Vec::len), Some(1), "{mine:?}");
            return;
        }
        for want in wants {
            match want {
                crate::view::Want::Object(target) => {
                    crate::pass::refresh(&model, &mut fresh, target, Timestamp::UNIX_EPOCH).await.unwrap();
                }
                crate::view::Want::List(listing) => {
                    let now = Timestamp::UNIX_EPOCH;
                    crate::pass::read_list(&model, &outside, &mut fresh, listing, now).await.unwrap();
                }
                crate::view::Want::Answer(question) => panic!("{question}"),
            }
        }
    }
    panic!("it never stops asking");
}

#[test]
fn asked_anew_means_after_it_was_first_wanted_and_a_group_is_listed_on_firm_ground() {
    let (outside, stores, key) = (Outside::default(), tenants_of_two(), Key::namespaced("ns", "a"));
    let now = Timestamp::UNIX_EPOCH;
    outside.wait(&in_use(), &key, now);
    outside.put(&in_use(), Ok(json!(true)), now);
    let mut fresh = crate::view::Fresh::default();
    let look = |fresh: &crate::view::Fresh| {
        let view = View::new(&stores, fresh, &outside, &key, None, now);
        let answer: Seen<bool> = view.ask_anew(in_use());
        let group = view.group(&TENANT, "all");
        let members = group.known().map(|group| match group {
            Group::Few(members) => members.len(),
            Group::Many => usize::MAX,
        });
        (answer.known().copied(), members, view.noted().wants.len())
    };
    assert_eq!(look(&fresh), (None, Some(2), 1), "an answer that was there already does not count");
    outside.wait(&in_use(), &key, now);
    outside.put(&in_use(), Ok(json!(false)), now);
    assert_eq!(look(&fresh), (Some(false), Some(2), 0));
    fresh.stand_firm(outside.firm_since(&key));
    assert_eq!(look(&fresh), (Some(false), None, 1), "the cache is not believed");
}

/// A cache with two tenants of one group.
fn tenants_of_two() -> Stores {
    let store = Store::new(Watch::new(TENANT, |_| Wakes::AllKeys).grouped(|_| Some("all".to_owned())));
    store.relist_begins();
    for name in ["one", "two"] {
        let tenant =
            json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}});
        store.upsert(Object(tenant), Timestamp::UNIX_EPOCH);
    }
    store.relist_ends(Timestamp::UNIX_EPOCH);
    let mut stores = Stores::default();
    stores.add(Arc::new(store));
    stores
}
