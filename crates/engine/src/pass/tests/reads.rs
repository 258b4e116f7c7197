//! What a pass reads because the caches lack it, and what the next one waits for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cluster::{Listing, Write};
use crate::secret::StoredSecret;

/// Counts how often one object, and how often a list, is read.
struct Counting<'a> {
    model: &'a Model,
    gets: AtomicUsize,
    lists: AtomicUsize,
}

#[async_trait]
impl Cluster for Counting<'_> {
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.model.get(target).await
    }
    async fn list(&self, listing: &Listing) -> Result<Vec<Object>, ApiError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.model.list(listing).await
    }
    async fn secret(&self, secret: &Key) -> Result<Option<StoredSecret>, ApiError> {
        self.model.secret(secret).await
    }
    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError> {
        self.model.write(write).await
    }
}

/// How many objects and lists are read for these, where children are watched so. What was read is checked.
async fn reads(model: &Model, watch: Watch, lagging: &[ObjectRef]) -> (usize, usize) {
    let mut stores = Stores::default();
    for watch in [Watch::subjects(SUBJECT), watch] {
        let store = Store::new(watch);
        store.relist_begins();
        store.relist_ends(Timestamp::UNIX_EPOCH);
        stores.add(Arc::new(store));
    }
    let cluster = Counting { model, gets: AtomicUsize::new(0), lists: AtomicUsize::new(0) };
    let (mut fresh, around, controller) =
        (Fresh::default(), Around::default(), Odd(|_: &Known| Plan::none()));
    let pass = Pass { lagging, ..around.pass(&controller, &cluster, &stores) };
    pass.read_lagging(&mut fresh).await.unwrap();
    for target in lagging {
        let read = fresh.objects.get(target).map(|(object, _)| object.as_ref().map(Object::uid));
        assert_eq!(read, Some(model.object(target).as_ref().map(Object::uid)), "{target}");
    }
    (cluster.gets.into_inner(), cluster.lists.into_inner())
}

fn many(kind: &Kind, count: usize) -> Vec<ObjectRef> {
    (0..count).map(|n| kind.at("ns", &format!("{n:02}"))).collect()
}

fn make(model: &Model, targets: &[ObjectRef]) {
    for target in targets {
        model.put(&target.kind, json!({"metadata": {"namespace": "ns", "name": target.key.name}}));
    }
}

#[tokio::test]
async fn many_of_a_kind_are_read_as_a_list_unless_it_is_replaced_wholesale() {
    let table = [(1, false, (1, 0)), (16, false, (16, 0)), (17, false, (0, 1)), (17, true, (17, 0))];
    for (count, replaced, wanted) in table {
        let (model, targets) = (model(), many(&CHILD, count));
        make(&model, &targets);
        let watch = if replaced { Watch::children(CHILD).replaced() } else { Watch::children(CHILD) };
        assert_eq!(reads(&model, watch, &targets).await, wanted, "{count}, replaced: {replaced}");
    }
}

#[tokio::test]
async fn what_a_list_does_not_show_is_read_by_its_name_and_never_taken_from_another_kind() {
    let model = model();
    let (children, subjects) = (many(&CHILD, 17), many(&SUBJECT, 17));
    make(&model, &children);
    make(&model, &subjects);
    model.delete(&subjects[3]);
    let lagging = [children, subjects].concat();
    assert_eq!(reads(&model, Watch::children(CHILD), &lagging).await, (1, 2));
}

/// Looks for one object.
struct Looking(ObjectRef);

#[async_trait]
impl Controller for Looking {
    type Spec = Spec;
    type Status = Value;
    type World = ();

    fn name(&self) -> &'static str {
        "looking"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(CHILD)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, _: &SubjectOf<Self>, view: &View<'_>) {
        view.get(&self.0);
    }
    fn decide(&self, _: &SubjectOf<Self>, (): &(), _: Timestamp) -> Plan {
        Plan::none()
    }
}

#[tokio::test]
async fn a_kind_that_only_a_read_misses_is_looked_for_again() {
    let model = model();
    let stores = stores(&model);
    let unanswered = async |target: ObjectRef| {
        Around::default().pass(&Looking(target), &*model, &stores).run().await.unanswered
    };
    assert!(!unanswered(child()).await, "the child is not there, and that is an answer");
    model.serve(&CHILD, false);
    assert!(unanswered(child()).await, "its watch still says that the kind is served, so no event will tell");
    stores.of(&CHILD)[0].not_served();
    assert!(!unanswered(child()).await, "the watch tells when it is served again");
    let unwatched = Kind::namespaced("", "v1", "Secret", "secrets");
    model.serve(&unwatched, false);
    assert!(unanswered(unwatched.at("ns", "x")).await, "there is no watch to tell");
}

/// Reads nothing but one object, if any, and writes.
struct Unreadable<'a>(&'a Model, Option<ObjectRef>);

#[async_trait]
impl Cluster for Unreadable<'_> {
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError> {
        match &self.1 {
            Some(readable) if readable == target => self.0.get(target).await,
            _ => Err(ApiError::Unavailable("no answer".into())),
        }
    }
    async fn list(&self, _: &Listing) -> Result<Vec<Object>, ApiError> {
        Err(ApiError::Unavailable("no answer".into()))
    }
    async fn secret(&self, _: &Key) -> Result<Option<StoredSecret>, ApiError> {
        Err(ApiError::Unavailable("no answer".into()))
    }
    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError> {
        self.0.write(write).await
    }
}

#[tokio::test]
async fn what_a_stage_has_written_is_known_although_a_read_after_it_fails() {
    let model = model();
    let outdated = |subject: &Known| {
        let mut seen = subject.identity();
        seen.version = aquifer_base::ResourceVersion::new("1");
        Step::Record(Record::new(SUBJECT.at("ns", "x"), seen).set("intent", &"late"))
    };
    let controller = Odd(move |subject: &Known| Plan::none().stage(vec![outdated(subject), apply()]));
    let (around, cluster, stores) = (Around::default(), Unreadable(&model, None), stores(&model));
    let outcome = around.pass(&controller, &cluster, &stores).run().await;
    assert!(model.object(&child()).is_some() && !outcome.failures.is_empty(), "{outcome:?}");
    assert!(
        outcome.written.contains_key(&child()),
        "the next pass waits until the caches show it: {outcome:?}"
    );
}

#[tokio::test]
async fn what_a_pass_has_read_and_the_caches_do_not_show_yet_is_waited_for_by_the_next() {
    let (model, target) = (model(), child());
    make(&model, std::slice::from_ref(&target));
    let stores = stores(&model);
    let old = model.object(&target).unwrap().identity();
    model.edit(&target, |doc| doc["data"] = json!({"a": "1"}));
    let controller = Odd(move |_: &Known| {
        let amend = crate::plan::Amend {
            target: child(),
            seen: old.clone(),
            patch: json!({"data": {"b": "1"}}).as_object().cloned().unwrap_or_default(),
            status: false,
            optional: false,
        };
        Plan::none().stage(vec![Step::Amend(amend)])
    });
    let around = Around::default();
    let outcome = around.pass(&controller, &*model, &stores).run().await;
    let now = Progress::Revision(revision(model.object(&target).unwrap().resource_version()));
    assert_eq!(outcome.seen.get(&target), Some(&now), "{outcome:?}");
    assert_eq!(outcome.written.get(&target), None, "nothing was written");
}

#[tokio::test]
async fn what_a_pass_has_read_before_something_is_to_be_destroyed_is_waited_for_although_it_gets_no_further()
{
    let model = model();
    make(&model, &[child()]);
    let (stores, old) = (stores(&model), model.object(&child()).unwrap().identity());
    model.edit(&child(), |doc| doc["data"] = json!({"a": "1"}));
    let first = AtomicUsize::new(0);
    let controller = Odd(move |subject: &Known| {
        if first.fetch_add(1, Ordering::Relaxed) > 0 {
            // Before this everything is read anew, and nothing can be read.
            return Plan::none().stage(vec![Step::delete(CHILD.at("ns", "other"), subject.identity())]);
        }
        let patch = json!({"data": {"b": "1"}}).as_object().cloned().unwrap_or_default();
        let amend =
            crate::plan::Amend { target: child(), seen: old.clone(), patch, status: false, optional: false };
        Plan::none().stage(vec![Step::Amend(amend)])
    });
    let (around, cluster) = (Around::default(), Unreadable(&model, Some(child())));
    let outcome = around.pass(&controller, &cluster, &stores).run().await;
    assert!(!outcome.failures.is_empty(), "{outcome:?}");
    let now = Progress::Revision(revision(model.object(&child()).unwrap().resource_version()));
    assert_eq!(outcome.seen.get(&child()), Some(&now), "{outcome:?}");
}

#[tokio::test]
async fn a_write_of_a_pass_is_waited_for_although_it_has_read_the_object_before() {
    let model = model();
    let stores = stores(&model);
    let subject = SUBJECT.at("ns", "x");
    model.edit(&subject, |doc| doc["metadata"]["labels"]["of"] = json!("a stranger"));
    // The finalizer is refused, the subject is read, and in the end a status is written.
    let plan = |_: &Known| Plan::none().hold().status(ready("it serves"));
    let outcome = pass_on(&model, &stores, &[], plan, 0, true).await;
    let now_stored = Progress::Revision(revision(model.object(&subject).unwrap().resource_version()));
    assert_eq!(outcome.written.get(&subject), Some(&now_stored), "{outcome:?}");
    assert_eq!(outcome.seen.get(&subject), None, "the write is newer than what was read: {outcome:?}");
}

/// What the next pass waits for of the child, which this one reads after these changes; the caches show it as it was before.
async fn awaited(before: impl FnOnce(&Model), then: impl FnOnce(&Model)) -> (Option<Progress>, String) {
    let model = model();
    make(&model, &[child()]);
    before(&model);
    let uid = model.object(&child()).unwrap().uid().to_owned();
    let stores = stores(&model);
    then(&model);
    let nothing = |_: &Known| Plan::none();
    let outcome = pass_on(&model, &stores, &[child()], nothing, 0, false).await;
    (outcome.seen.get(&child()).cloned(), uid)
}

#[tokio::test]
async fn what_a_pass_has_seen_to_be_gone_is_waited_for_where_the_caches_still_show_it() {
    let (awaited_of_deleted, uid) = awaited(|_| {}, |model| model.delete(&child())).await;
    assert_eq!(awaited_of_deleted, Some(Progress::Gone(uid)));
    // That the caches show it as being deleted is less than was seen.
    let deleting = |model: &Model| {
        model.edit(&child(), |doc| doc["metadata"]["finalizers"] = json!(["example.com/x"]));
        model.delete(&child());
    };
    let released = |model: &Model| model.edit(&child(), |doc| doc["metadata"]["finalizers"] = json!([]));
    let (awaited_of_deleting, uid) = awaited(deleting, released).await;
    assert_eq!(awaited_of_deleting, Some(Progress::Gone(uid)));
}

#[tokio::test]
async fn what_a_pass_has_seen_to_leave_the_watches_is_waited_for() {
    let model = model();
    let labels = json!({"of": "us"});
    model.put(&CHILD, json!({"metadata": {"namespace": "ns", "name": "child", "labels": labels}}));
    let mut stores = Stores::default();
    let children = Watch::children(CHILD).labelled("of=us");
    for (watch, shown) in [(Watch::subjects(SUBJECT), SUBJECT.at("ns", "x")), (children, child())] {
        let store = Store::new(watch);
        store.relist_begins();
        store.upsert(model.object(&shown).unwrap(), Timestamp::UNIX_EPOCH);
        store.relist_ends(Timestamp::UNIX_EPOCH);
        stores.add(Arc::new(store));
    }
    model.edit(&child(), |doc| doc["metadata"]["labels"] = json!({"of": "another"}));
    let outcome = pass_on(&model, &stores, &[child()], |_: &Known| Plan::none(), 0, false).await;
    let uid = model.object(&child()).unwrap().uid().to_owned();
    assert_eq!(outcome.seen.get(&child()), Some(&Progress::Gone(uid)), "{outcome:?}");
}

#[tokio::test]
async fn another_object_at_a_name_that_a_pass_has_deleted_is_waited_for() {
    let model = model();
    make(&model, &[child()]);
    let old = model.object(&child()).unwrap().identity();
    let stores = stores(&model);
    let now = Arc::clone(&model);
    let plan = move |_: &Known| {
        if now.object(&child()).is_none_or(|child| child.identity() != old) {
            return Plan::none();
        }
        let patch = json!({"data": {"b": "1"}}).as_object().cloned().unwrap_or_default();
        // This is refused, so that the child is read again.
        let amend =
            crate::plan::Amend { target: child(), seen: old.clone(), patch, status: false, optional: false };
        Plan::none().stage(vec![Step::delete(child(), old.clone())]).stage(vec![Step::Amend(amend)])
    };
    let (around, controller) = (Around::default(), Odd(plan));
    let cluster = Replaces(&model);
    let outcome = around.pass(&controller, &cluster, &stores).run().await;
    let new = model.object(&child()).expect("it is there again");
    let wanted = Progress::Revision(revision(new.resource_version()));
    assert_eq!(outcome.seen.get(&child()), Some(&wanted), "{outcome:?}");
}

#[tokio::test]
async fn what_a_pass_has_deleted_and_is_still_there_is_waited_for_as_deleted() {
    let model = model();
    make(&model, &[child()]);
    model.edit(&child(), |doc| doc["metadata"]["finalizers"] = json!(["example.com/x"]));
    let (stores, old) = (stores(&model), model.object(&child()).unwrap().identity());
    let uid = old.uid.to_string();
    let plan = move |_: &Known| Plan::none().stage(vec![Step::delete(child(), old.clone())]);
    let outcome = pass_on(&model, &stores, &[], plan, 0, false).await;
    assert!(model.object(&child()).unwrap().deleting());
    assert_eq!(outcome.written.get(&child()), Some(&Progress::Deleted(uid)), "{outcome:?}");
    assert_eq!(outcome.seen.get(&child()), None, "{outcome:?}");
}

/// Puts another child where one was deleted, at once.
struct Replaces<'a>(&'a Model);

#[async_trait]
impl Cluster for Replaces<'_> {
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError> {
        self.0.get(target).await
    }
    async fn list(&self, listing: &Listing) -> Result<Vec<Object>, ApiError> {
        self.0.list(listing).await
    }
    async fn secret(&self, secret: &Key) -> Result<Option<StoredSecret>, ApiError> {
        self.0.secret(secret).await
    }
    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError> {
        let written = self.0.write(write).await;
        if write.target == child() && self.0.object(&child()).is_none() {
            make(self.0, &[child()]);
        }
        written
    }
}

#[tokio::test]
async fn what_nobody_shows_and_is_not_there_is_not_waited_for() {
    let model = model();
    let stores = stores(&model);
    let nothing = |_: &Known| Plan::none();
    let unseen = CHILD.at("ns", "never-seen");
    let outcome = pass_on(&model, &stores, std::slice::from_ref(&unseen), nothing, 0, false).await;
    assert_eq!(outcome.seen.get(&unseen), Some(&Progress::Revision(0)), "nothing of it is waited for");
}

/// A pass over a subject that is being deleted: how often one object was read, and whether its child is gone. The child carries this uid,
/// and is pruned when it is not deleted otherwise.
async fn reads_of_an_ending(
    uid: impl Fn(&str) -> String,
    delete: Option<fn(ObjectRef, crate::object::Identity) -> Step>,
) -> (usize, bool) {
    let model = model();
    let subject = SUBJECT.at("ns", "x");
    model.edit(&subject, |doc| doc["metadata"]["finalizers"] = json!(["example.com/ours"]));
    let owner_uid = uid(model.object(&subject).unwrap().uid());
    let metadata = json!({"namespace": "ns", "name": "child", "labels": {OWNER_UID: owner_uid},
        "annotations": {crate::intent::OWNER: "ns/x"}});
    let seen = model.put(&CHILD, json!({"metadata": metadata})).identity();
    model.delete(&subject);
    let stores = stores(&model);
    let cluster = Counting { model: &model, gets: AtomicUsize::new(0), lists: AtomicUsize::new(0) };
    let controller = Odd(move |_: &Known| {
        Plan::none().stage(delete.iter().map(|delete| delete(child(), seen.clone())).collect())
    });
    let around = Around::default();
    around.pass(&controller, &cluster, &stores).run().await;
    (cluster.gets.into_inner(), model.object(&child()).is_none())
}

#[tokio::test]
async fn what_carries_the_uid_of_a_subject_that_goes_is_deleted_without_a_read() {
    assert_eq!(reads_of_an_ending(str::to_owned, Some(Step::delete_with_owner)).await, (0, true));
    assert_eq!(reads_of_an_ending(str::to_owned, None).await, (0, true), "also when it is pruned");
}

#[tokio::test]
async fn what_goes_with_a_subject_and_does_not_carry_its_uid_goes_when_the_subject_is_still_there() {
    let another = |_: &str| "another".to_owned();
    assert_eq!(reads_of_an_ending(another, Some(Step::delete_with_owner)).await, (1, true));
}

#[tokio::test]
async fn what_is_deleted_for_its_own_reasons_is_decided_on_firm_ground_although_its_owner_goes() {
    let (reads, gone) = reads_of_an_ending(str::to_owned, Some(Step::delete)).await;
    assert!(reads > 0 && gone, "{reads} reads");
}

#[tokio::test]
async fn a_pass_that_releases_its_subject_knows_of_none_any_more() {
    let model = model();
    let subject = SUBJECT.at("ns", "x");
    model.edit(&subject, |doc| doc["metadata"]["finalizers"] = json!(["example.com/ours"]));
    model.delete(&subject);
    let outcome = pass(&model, |_: &Known| Plan::none().release(), 0, false).await;
    assert_eq!((outcome.subject, model.object(&subject)), (None, None));
}

#[tokio::test]
async fn effects_are_counted_one_by_one() {
    let model = model();
    let left = AtomicUsize::new(2);
    let plan = move |_: &Known| {
        let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match next() {
            Ok(number) => {
                Plan::none().stage(vec![Step::Effect(Effect::new("fine", number.to_string(), &()))])
            }
            Err(_) => Plan::none(),
        }
    };
    let outcome = pass(&model, plan, 0, false).await;
    assert_eq!((outcome.effects, outcome.failures), (2, vec![]));
}

/// One pass that puts the finalizer on and records something, and how often one object was read meanwhile.
async fn reads_of_a_record(
    record: impl Fn(&Known) -> Record + Send + Sync + 'static,
    model: &Model,
) -> usize {
    let stores = stores(model);
    let cluster = Counting { model, gets: AtomicUsize::new(0), lists: AtomicUsize::new(0) };
    let controller = Odd(move |known: &Known| Plan::none().hold().stage(vec![Step::Record(record(known))]));
    let around = Around::default();
    around.pass(&controller, &cluster, &stores).run().await;
    cluster.gets.into_inner()
}

#[tokio::test]
async fn a_record_builds_on_the_finalizer_that_the_same_pass_has_put_on() {
    let (model, subject) = (model(), SUBJECT.at("ns", "x"));
    let record = |known: &Known| Record::new(SUBJECT.at("ns", "x"), known.identity()).set("intent", &"token");
    assert_eq!(reads_of_a_record(record, &model).await, 0, "nothing was refused");
    assert_eq!(model.object(&subject).unwrap().text("/status/intent"), "token");
}

#[tokio::test]
async fn a_record_in_another_object_carries_the_version_of_that() {
    let model = model();
    make(&model, &[child()]);
    let seen = model.object(&child()).unwrap().identity();
    let record = move |_: &Known| Record::new(child(), seen.clone()).set("intent", &"token");
    assert_eq!(reads_of_a_record(record, &model).await, 0, "nothing was refused");
    assert_eq!(model.object(&child()).unwrap().text("/status/intent"), "token");
}

#[tokio::test]
async fn a_record_that_was_decided_on_an_older_version_is_refused_although_the_finalizer_goes_on() {
    let (model, subject) = (model(), SUBJECT.at("ns", "x"));
    let old = model.object(&subject).unwrap().identity();
    model.edit(&subject, |doc| doc["metadata"]["labels"]["of"] = json!("a stranger"));
    let record = move |_: &Known| Record::new(SUBJECT.at("ns", "x"), old.clone()).set("intent", &"token");
    assert!(reads_of_a_record(record, &model).await > 0, "it was refused, and the subject read");
    assert_eq!(model.object(&subject).unwrap().text("/status/intent"), "");
}

#[tokio::test]
async fn what_has_changed_since_it_was_seen_is_not_deleted() {
    let (model, target) = (model(), child());
    make(&model, std::slice::from_ref(&target));
    let old = model.object(&target).unwrap().identity();
    model.edit(&target, |doc| doc["data"] = json!({"a": "1"}));
    let plan = move |_: &Known| Plan::none().stage(vec![Step::delete(child(), old.clone())]);
    pass(&model, plan, 0, false).await;
    assert!(model.object(&target).is_some(), "{:?}", model.log());
}
