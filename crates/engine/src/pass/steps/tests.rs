//! Single steps: what each writes, what it refuses, and what it leaves alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aquifer_base::Sealed;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::cluster::{ApiError, Cluster as _};
use crate::intent::Intent;
use crate::lease::Leadership;
use crate::model::Model;
use crate::object::{Identity, Kind};
use crate::plan::{Mint, Recreate, Seal};
use crate::secret::{Composition, SECRET, StoredSecret};
use crate::store::Store;
use crate::watch::{Wakes, Watch};

const CHILD: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

/// A recipe that joins what it is given, and keeps what it has made at random.
#[derive(Default)]
struct Code {
    composed: AtomicUsize,
}

#[async_trait]
impl StepCode for Code {
    fn name(&self) -> &'static str {
        "test"
    }
    fn mint(&self, _: &str) -> Result<SecretContent, Failure> {
        Ok(BTreeMap::from([("key".to_owned(), Sealed::new("minted"))]))
    }
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        let Composition { arguments, sources, current, .. } = composition;
        let made = self.composed.fetch_add(1, Ordering::SeqCst);
        let text = |secret: &SecretContent| secret["key"].expose_str().unwrap_or_default().to_owned();
        let joined = sources.iter().map(|source| text(source)).collect::<Vec<_>>().join("+");
        let joined = format!("{}:{joined}", arguments.as_str().unwrap_or_default());
        let kept = current.and_then(|current| current.get("random").cloned());
        Ok(BTreeMap::from([
            ("joined".to_owned(), Sealed::new(joined)),
            ("random".to_owned(), kept.unwrap_or_else(|| Sealed::new(made.to_string()))),
        ]))
    }
    async fn effect(&self, _: &Effect) -> Result<(), Failure> {
        Ok(())
    }
}

/// One owner, and what is remembered between its steps.
struct Bench {
    model: Model,
    code: Code,
    outside: Outside,
    uid: Uid,
}

impl Bench {
    fn new() -> Self {
        Self {
            model: Model::default(),
            code: Code::default(),
            outside: Outside::default(),
            uid: Uid::new("owner-uid"),
        }
    }

    async fn step(&self, step: Step) -> Done {
        self.step_on(step, &Fresh::default()).await
    }

    /// One step, with caches that show what there is.
    async fn step_on(&self, step: Step, fresh: &Fresh) -> Done {
        let mut stores = Stores::default();
        for kind in [SECRET, CHILD] {
            let store = Store::new(Watch::new(kind.clone(), |_| Wakes::NoKey).replaced());
            store.relist_begins();
            for object in self.model.objects(&kind) {
                store.upsert(object, Timestamp::UNIX_EPOCH);
            }
            store.relist_ends(Timestamp::UNIX_EPOCH);
            stores.add(Arc::new(store));
        }
        let owner = key("owner");
        let executor = Executor {
            writer: Writer { cluster: &self.model, leadership: &Leadership::always(), manager: "test" },
            code: &self.code,
            stores: &stores,
            outside: &self.outside,
            owner: &owner,
            owner_kind: Some(CHILD),
            owner_uid: Some(&self.uid),
            owner_version: None,
        };
        let mut done = executor.stage(&Stage { steps: vec![step] }, fresh).await;
        done.remove(0)
    }

    fn put_secret(&self, name: &str, key: &str) {
        let data = crate::secret::encoded(&BTreeMap::from([("key".to_owned(), Sealed::new(key))]));
        let body = json!({"metadata": {"namespace": "ns", "name": name}, "type": "Opaque", "data": data});
        self.model.put(&SECRET, body);
    }

    async fn content(&self, name: &str) -> BTreeMap<String, String> {
        let secret: StoredSecret = self.model.secret(&key(name)).await.unwrap().unwrap();
        let text = |(name, value): (String, Sealed)| (name, value.expose_str().unwrap().to_owned());
        secret.content.into_iter().map(text).collect()
    }
}

fn key(name: &str) -> Key {
    Key::namespaced("ns", name)
}

fn child() -> ObjectRef {
    CHILD.at("ns", "child")
}

fn seal(prefix: &str) -> Step {
    let seal = Seal::new(key("made"), "join", &prefix).source(key("one")).source(key("two"));
    Step::Seal(seal.label("use", "mount").secret_type("kubernetes.io/rook"))
}

#[tokio::test]
async fn a_composed_secret_follows_its_sources_and_its_arguments_and_is_left_alone_meanwhile() {
    let bench = Bench::new();
    bench.put_secret("one", "1");
    assert!(matches!(bench.step(seal("a")).await, Done::Failed(Failure { class: Class::Waiting, .. })));
    bench.put_secret("two", "2");
    assert!(matches!(bench.step(seal("a")).await, Done::Wrote(..)));
    assert_eq!(bench.content("made").await["joined"], "a:1+2");
    let random = bench.content("made").await["random"].clone();
    let made = bench.model.object(&SECRET.at("ns", "made")).unwrap();
    assert_eq!((made.label("use"), made.text("/type")), (Some("mount"), "kubernetes.io/rook"));
    let composed = bench.code.composed.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert!(matches!(bench.step(seal("a")).await, Done::Unchanged));
    }
    assert_eq!(bench.code.composed.load(Ordering::SeqCst), composed, "nothing was read or made again");
    // A source, the arguments, an edit of a stranger, a lost label: each is put right by one write.
    let twin = encoded_text("twin");
    bench.model.edit(&SECRET.at("ns", "two"), |doc| doc["data"]["key"] = twin.clone());
    assert!(matches!(bench.step(seal("a")).await, Done::Wrote(..)));
    assert!(matches!(bench.step(seal("b")).await, Done::Wrote(..)));
    bench.model.edit(&SECRET.at("ns", "made"), |doc| doc["data"]["joined"] = encoded_text("edited"));
    assert!(matches!(bench.step(seal("b")).await, Done::Wrote(..)));
    bench.model.edit(&SECRET.at("ns", "made"), |doc| doc["data"]["more"] = encoded_text("more"));
    assert!(matches!(bench.step(seal("b")).await, Done::Wrote(..)));
    bench.model.edit(&SECRET.at("ns", "made"), |doc| doc["metadata"]["labels"]["use"] = json!("other"));
    assert!(matches!(bench.step(seal("b")).await, Done::Wrote(..)));
    let expected = [("joined", "b:1+twin"), ("random", &*random)];
    let expected: BTreeMap<String, String> =
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(bench.content("made").await, expected);
    // A process that has just started has to read once, and writes nothing.
    let fresh = Bench { outside: Outside::default(), ..bench };
    let before = fresh.model.revision();
    assert!(matches!(fresh.step(seal("b")).await, Done::Unchanged));
    assert_eq!(fresh.model.revision(), before);
}

#[tokio::test]
async fn a_composed_secret_that_lost_a_mark_of_its_owner_gets_it_back() {
    let made = SECRET.at("ns", "made");
    for mark in [crate::intent::OWNER, crate::intent::OWNER_KIND] {
        let bench = Bench::new();
        bench.put_secret("one", "1");
        bench.put_secret("two", "2");
        assert!(matches!(bench.step(seal("a")).await, Done::Wrote(..)));
        let before = bench.model.object(&made).unwrap().annotation(mark).map(str::to_owned);
        assert!(before.is_some(), "{mark}");
        let other = "another.kind";
        bench.model.edit(&made, |doc| doc["metadata"]["annotations"][mark] = json!(other));
        let done = bench.step(seal("a")).await;
        assert!(matches!(done, Done::Wrote(..)), "{mark}: {done:?}");
        let after = bench.model.object(&made).unwrap().annotation(mark).map(str::to_owned);
        assert_eq!(after, before, "{mark}");
    }
}

#[tokio::test]
async fn a_composed_secret_that_is_stored_otherwise_is_told_as_altered() {
    let bench = Bench::new();
    bench.put_secret("one", "1");
    bench.put_secret("two", "2");
    bench.model.alter(&SECRET.at("ns", "made"), |doc| doc["data"]["joined"] = encoded_text("altered"));
    let done = bench.step(seal("a")).await;
    assert!(matches!(&done, Done::Altered(_, _, failure) if failure.class == Class::Altered), "{done:?}");
}

fn encoded_text(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

#[tokio::test]
async fn a_secret_that_somebody_else_has_put_there_is_neither_used_nor_changed() {
    let bench = Bench::new();
    for name in ["made", "one", "two"] {
        bench.put_secret(name, "planted");
    }
    for step in [seal("a"), Step::Mint(Mint::new(key("made"), "key"))] {
        let done = bench.step(step).await;
        let Done::Failed(failure) = done else { panic!("{done:?}") };
        assert_eq!(failure.class, Class::Invalid);
        assert!(failure.message.contains("somebody else's"), "{failure}");
    }
    assert_eq!(bench.content("made").await["key"], "planted");
    bench.model.edit(&SECRET.at("ns", "made"), |doc| {
        doc["metadata"]["labels"][crate::intent::OWNER_UID] = json!("owner-uid");
    });
    assert!(matches!(bench.step(Step::Mint(Mint::new(key("made"), "key"))).await, Done::Stale(_)));
    let done = bench.step(seal("a")).await;
    assert!(matches!(&done, Done::Failed(failure) if failure.message.contains("type")), "{done:?}");
}

#[tokio::test]
async fn the_content_of_a_secret_is_in_nothing_that_a_pass_keeps() {
    let bench = Bench::new();
    bench.put_secret("one", "canary-1");
    bench.put_secret("two", "canary-2");
    let canaries = ["canary-1", "canary-2", "minted"].map(|text| encoded_text(text).to_string());
    let minted = bench.step(Step::Mint(Mint::new(key("key"), "key"))).await;
    let sealed = bench.step(seal("a")).await;
    let read = bench.model.get(&SECRET.at("ns", "one")).await.unwrap();
    let store = Store::new(Watch::new(SECRET, |_| Wakes::NoKey).replaced());
    store.relist_begins();
    store.upsert(bench.model.object(&SECRET.at("ns", "one")).unwrap(), Timestamp::UNIX_EPOCH);
    store.relist_ends(Timestamp::UNIX_EPOCH);
    let verified = bench.outside.verified(&SECRET.at("ns", "made"));
    let all = format!("{minted:?} {sealed:?} {read:?} {:?} {verified:?}", store.get(&key("one")));
    assert!(all.contains("Wrote") && all.contains("Known"), "{all}");
    for canary in canaries.iter().map(|text| text.trim_matches('"')).chain(["canary-1", "canary-2", "minted"])
    {
        assert!(!all.contains(canary), "{canary} is in {all}");
    }
}

#[tokio::test]
async fn fields_of_somebody_elses_object_are_changed_only_as_it_was_seen_and_without_our_marks() {
    let bench = Bench::new();
    let body = json!({"metadata": {"namespace": "ns", "name": "child", "labels": {"theirs": "x"}}, "data": {"a": "1"}});
    let seen = bench.model.put(&CHILD, body).identity();
    let amend = |seen: Identity| {
        let patch = json!({"metadata": {"labels": {"ours": "y", "theirs": null}}, "data": {"a": "2"}});
        let patch = patch.as_object().cloned().unwrap();
        Step::Amend(Amend { target: child(), seen, patch, status: false, optional: false })
    };
    assert!(matches!(bench.step(amend(seen.clone())).await, Done::Wrote(..)));
    let object = bench.model.object(&child()).unwrap();
    assert_eq!(object.at("/metadata/labels"), Some(&json!({"ours": "y"})));
    assert_eq!(object.text("/data/a"), "2");
    assert!(matches!(bench.step(amend(seen)).await, Done::Stale(_)), "it has changed since");
}

fn apply(expect: Expect) -> Step {
    let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "new"}});
    Step::apply(child(), Intent::of(&intent), expect)
}

#[tokio::test]
async fn an_apply_that_was_decided_on_a_version_does_not_overwrite_a_newer_one() {
    let bench = Bench::new();
    let seen = bench
        .model
        .put(&CHILD, json!({"metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "old"}}));
    bench.model.edit(&child(), |doc| doc["data"]["a"] = json!("newer"));
    let identity = seen.identity();
    assert!(matches!(bench.step(apply(Expect::unchanged(Some(&identity)))).await, Done::Stale(_)));
    assert_eq!(bench.model.object(&child()).unwrap().text("/data/a"), "newer");
    assert!(matches!(bench.step(apply(Expect::seen(Some(&identity)))).await, Done::Wrote(..)));
}

#[tokio::test]
async fn what_only_the_creation_of_a_child_has_is_sent_once_and_belongs_to_others_afterwards() {
    let bench = Bench::new();
    let intent = |text: &str| {
        Intent::of(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "child"}, "data": {"a": text}}),
        )
    };
    let more = || json!({"data": {"b": "first"}}).as_object().cloned().unwrap();
    let step = |text: &str, expect: Expect| {
        Step::Apply(Child::new(child(), intent(text), expect).only_at_creation(more()))
    };
    let made = bench.step(step("1", Expect::Absent)).await;
    assert!(matches!(made, Done::Wrote(..)), "{made:?}");
    let data = || bench.model.object(&child()).unwrap().0["data"].clone();
    assert_eq!(data(), json!({"a": "1", "b": "first"}));
    let there = bench.step(step("1", Expect::Absent)).await;
    assert!(matches!(there, Done::Stale(_)), "it is refused where something is: {there:?}");
    let seen = bench.model.object(&child()).unwrap().identity();
    let same = bench.step(step("1", Expect::seen(Some(&seen)))).await;
    assert!(matches!(same, Done::Unchanged), "it is as it was made: {same:?}");
    bench.model.edit(&child(), |doc| doc["data"]["b"] = json!("theirs"));
    let same = bench.step(step("1", Expect::seen(Some(&seen)))).await;
    assert!(matches!(same, Done::Unchanged), "what others make of it is theirs: {same:?}");
    bench.step(step("2", Expect::seen(Some(&seen)))).await;
    assert_eq!(data(), json!({"a": "2", "b": "theirs"}), "and an apply does not take it away");
}

fn replace(recreate: Recreate, uid: &str) -> Step {
    let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "new"}});
    let child = Child::new(child(), Intent::of(&intent), Expect::Uid(Uid::new(uid)));
    Step::Replace { child, tolerate: Vec::new(), recreate }
}

#[tokio::test]
async fn what_cannot_be_changed_in_place_goes_only_where_allowed_on_firm_ground_and_when_the_new_one_is_taken()
 {
    let bench = Bench::new();
    let old =
        json!({"metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "old"}, "immutable": true});
    let uid = bench.model.put(&CHILD, old).uid().to_owned();
    let firm = || Fresh { firm: Some(bench.outside.firm_since(&key("owner"))), ..Fresh::default() };
    bench.model.refuse_verb(&child(), "replace", ApiError::Immutable("data: field is immutable".into()));
    let never = bench.step_on(replace(Recreate::Never, &uid), &firm()).await;
    assert!(matches!(never, Done::Failed(Failure { class: Class::Invalid, .. })), "{never:?}");
    let cached = bench.step(replace(Recreate::Allowed, &uid)).await;
    assert!(matches!(cached, Done::NeedsFirmGround), "{cached:?}");
    bench.model.refuse_verb(&child(), "try to create", ApiError::Policy("no such thing here".into()));
    let refused = bench.step_on(replace(Recreate::Allowed, &uid), &firm()).await;
    assert!(
        matches!(&refused, Done::Failed(failure) if failure.message.contains("no such thing here")),
        "{refused:?}"
    );
    assert!(bench.model.object(&child()).is_some(), "it is still there");
    bench.model.admit(&child());
    bench.model.refuse_verb(&child(), "replace", ApiError::Immutable("data: field is immutable".into()));
    let gone = bench.step_on(replace(Recreate::Allowed, &uid), &firm()).await;
    assert!(matches!(gone, Done::Stale(_)), "{gone:?}");
    assert!(bench.model.object(&child()).is_none());
}

#[tokio::test]
async fn what_others_write_by_right_stays_when_an_object_is_replaced_and_nothing_else_of_theirs() {
    let bench = Bench::new();
    let annotations = json!({"by.right/a": "1", "by.right/b": "2", "exact": "3", "exactly-not": "4"});
    let old = json!({"metadata": {"namespace": "ns", "name": "child", "annotations": annotations}});
    let uid = bench.model.put(&CHILD, old).uid().to_owned();
    let Step::Replace { child: wanted, recreate, .. } = replace(Recreate::Never, &uid) else {
        unreachable!("it is one")
    };
    let tolerate = ["/metadata/annotations/by.right~1*", "/metadata/annotations/exact", "/nowhere/at"];
    let tolerate = tolerate.map(String::from).into();
    let done = bench.step(Step::Replace { child: wanted, tolerate, recreate }).await;
    assert!(matches!(done, Done::Wrote(..)), "{done:?}");
    let stored = bench.model.object(&child()).unwrap();
    let left: Vec<_> = ["by.right/a", "by.right/b", "exact", "exactly-not"]
        .into_iter()
        .filter(|name| stored.annotation(name).is_some())
        .collect();
    assert_eq!(left, ["by.right/a", "by.right/b", "exact"], "{}", stored.0);
}

#[tokio::test]
async fn who_says_the_same_of_the_owners_kind_as_we_do_has_added_nothing() {
    let bench = Bench::new();
    let uid = bench.model.put(&CHILD, json!({"metadata": {"namespace": "ns", "name": "child"}}));
    let uid = uid.uid().to_owned();
    assert!(matches!(bench.step(replace(Recreate::Never, &uid)).await, Done::Wrote(..)));
    let restored = async |annotation: &str| {
        let mut live = bench.model.object(&child()).unwrap();
        live.0["metadata"]["annotations"]["else"] = json!("theirs");
        let fields = json!({"f:metadata": {"f:annotations": {format!("f:{annotation}"): {}}}});
        live.0["metadata"]["managedFields"] = json!([{"manager": "backup", "fieldsV1": fields}]);
        let mut fresh = Fresh::default();
        fresh.objects.insert(child(), (Some(live), Timestamp::UNIX_EPOCH));
        bench.step_on(replace(Recreate::Never, &uid), &fresh).await
    };
    let same = restored(crate::intent::OWNER_KIND).await;
    assert!(matches!(same, Done::Unchanged), "{same:?}");
    assert!(!matches!(restored("else").await, Done::Unchanged), "what they add goes");
}

#[test]
fn what_an_older_crd_drops_of_a_record_is_named() {
    let fields = |value: Value| value.as_object().cloned().unwrap_or_default();
    let record = fields(json!({"order": {"number": "n", "at": 1}, "pump": null, "using": 3}));
    let kept = |stored: Value| not_kept(&record, Some(&stored));
    assert_eq!(kept(json!({"order": {"number": "n", "at": 1}, "using": 3, "others": true})), None);
    assert_eq!(kept(json!({"order": {"number": "n"}, "using": 3})).as_deref(), Some("order.at"));
    assert_eq!(kept(json!({"order": {"number": "n", "at": 1}})).as_deref(), Some("using"));
    let all = kept(json!({"order": {"number": "n", "at": 1}, "using": 3, "pump": "p"}));
    assert_eq!(all.as_deref(), Some("pump"));
    assert_eq!(not_kept(&record, None).as_deref(), Some("order.at"));
    // What a type of the CRD adds or writes otherwise is kept all the same.
    let list = fields(json!({"many": [{"a": 1}, {"a": 2.0}]}));
    let stored = json!({"many": [{"a": 1.0, "default": true}, {"a": 2}]});
    assert_eq!(not_kept(&list, Some(&stored)), None);
    assert_eq!(not_kept(&list, Some(&json!({"many": [{"a": 1}]}))).as_deref(), Some("many"));
}

/// Effects that never end.
struct Hanging;

#[async_trait]
impl StepCode for Hanging {
    fn name(&self) -> &'static str {
        "hanging"
    }
    fn mint(&self, _: &str) -> Result<SecretContent, Failure> {
        Err(Failure::bug("no recipe"))
    }
    fn compose(&self, _: Composition<'_>) -> Result<SecretContent, Failure> {
        Err(Failure::bug("no recipe"))
    }
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        if effect.target == "away" {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_holds_few_effects_each_for_its_own_time_and_none_of_others() {
    let (model, outside, stores, owner) = (Model::default(), Outside::default(), Stores::default(), key("o"));
    let question = crate::Question::new("away", "size");
    outside.wait(&question, &owner, Timestamp::UNIX_EPOCH);
    outside.put(&question, Ok(json!(1)), Timestamp::UNIX_EPOCH);
    let executor = Executor {
        writer: Writer { cluster: &model, leadership: &Leadership::always(), manager: "test" },
        code: &Hanging,
        stores: &stores,
        outside: &outside,
        owner: &owner,
        owner_kind: None,
        owner_uid: None,
        owner_version: None,
    };
    let effect = |target: &str| Effect::new("grow", "key".to_owned(), &()).on(target);
    let hangs = effect("away").within(Duration::from_secs(5)).outdates(question.clone());
    let fresh = Fresh::default();
    let many = |n: usize| Stage { steps: vec![Step::Effect(hangs.clone()); n] };
    let began = tokio::time::Instant::now();
    let (first, second, third) = (many(8), many(8), Stage { steps: vec![Step::Effect(effect("near"))] });
    let stages = [&first, &second, &third].map(|stage| executor.stage(stage, &fresh));
    let [first, second, third] = <[Vec<Done>; 3]>::try_from(futures::future::join_all(stages).await).unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    let says = |done: &[Done], words: &str| {
        done.iter().filter(|done| matches!(done, Done::Failed(f) if f.message.contains(words))).count()
    };
    assert_eq!((says(&first, "not known"), says(&second, "under way")), (8, 8), "{first:?} {second:?}");
    assert!(matches!(third[..], [Done::Acted]), "{third:?}");
    let seen = outside.get(&question, Duration::from_hours(1), &owner, Timestamp::UNIX_EPOCH, None);
    assert_eq!(seen.known(), None, "it may have happened");
}

#[test]
fn numbers_are_kept_when_they_are_the_same_and_large_ones_are_not_rounded() {
    let large = 9_007_199_254_740_993_u64;
    for (wanted, stored, kept) in [
        (json!(1), json!(1.0), true),
        (json!(1.5), json!(2.5), false),
        (json!(large), json!(large), true),
        (json!(large), json!(large - 1), false),
    ] {
        assert_eq!(is_kept(&wanted, Some(&stored)), kept, "{wanted} and {stored}");
    }
}
