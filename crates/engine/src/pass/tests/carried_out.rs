//! What a plan comes to: in which order, under whose name, on what it rests, and what of it is told.

use super::*;

fn subject() -> ObjectRef {
    SUBJECT.at("ns", "x")
}

fn uid(model: &Model) -> String {
    model.object(&subject()).unwrap().uid().to_owned()
}

fn marked(model: &Model, name: &str, owner_uid: &str) -> ObjectRef {
    let (labels, annotations) = (json!({OWNER_UID: owner_uid}), json!({crate::intent::OWNER: "ns/x"}));
    let metadata = json!({"namespace": "ns", "name": name, "labels": labels, "annotations": annotations});
    model.put(&CHILD, json!({"metadata": metadata}));
    CHILD.at("ns", name)
}

#[tokio::test]
async fn the_finalizer_goes_on_first_and_the_same_pass_carries_the_plan_out() {
    let plan = |_: &Known| Plan::none().hold().stage(vec![apply()]).status(ready("it serves"));
    let model = model();
    let outcome = pass(&model, plan, 0, true).await;
    assert!(outcome.failures.is_empty() && outcome.status == StatusOutcome::Reported);
    assert_eq!(model.object(&subject()).unwrap().finalizers(), ["example.com/ours"]);
    let log = model.log();
    assert!(log[0].contains("Subject ns/x") && log[1].contains("ConfigMap ns/child"), "{log:?}");
    assert_eq!((log.len(), condition(&model, "Ready").0.as_str()), (3, "True"), "{log:?}");

    let model = super::model();
    model.refuse_verb(&subject(), "apply", ApiError::Forbidden("no".into()));
    let outcome = pass(&model, plan, 0, true).await;
    assert_eq!((outcome.failures.len(), model.object(&child())), (1, None), "without it nothing is done");
}

#[tokio::test]
async fn a_spec_that_has_changed_before_the_finalizer_goes_on_is_looked_at_first() {
    let model = model();
    model.edit(&subject(), |doc| doc["spec"] = json!({"size": 1}));
    let behind = stores(&model);
    model.edit(&subject(), |doc| doc["spec"] = json!({"size": 2}));
    let plan = |known: &Known| {
        let size = known.spec.as_ref().map_or(0, |spec| spec.size);
        let intent = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": size.to_string()},
            "metadata": {"namespace": "ns", "name": "child"}});
        let made = Step::apply(child(), Intent::of(&intent), Expect::Absent);
        Plan::none().hold().stage(vec![made])
    };
    pass_on(&model, &behind, &[], plan, 0, true).await;
    assert_eq!(model.object(&child()).unwrap().text("/data/size"), "2");
}

#[tokio::test]
async fn a_child_that_names_an_owner_of_another_kind_is_put_right_and_one_that_names_none_is_left_alone() {
    use crate::intent::OWNER_KIND;
    let model = model();
    pass(&model, |_| Plan::none().stage(vec![apply()]), 0, true).await;
    let made = model.object(&child()).unwrap();
    let right = made.annotation(OWNER_KIND).map(str::to_owned);
    assert_eq!(right.as_deref(), Some("Subject.test.aquifer.storage"));
    let seen = made.identity();
    let again = move |_: &Known| {
        let Step::Apply(mut same) = apply() else { unreachable!() };
        same.expect = Expect::seen(Some(&seen));
        Plan::none().stage(vec![Step::Apply(same)])
    };
    for (mark, writes) in [(json!("Other.a.b"), 1), (Value::Null, 0)] {
        model.edit(&child(), |doc| doc["metadata"]["annotations"][OWNER_KIND] = mark.clone());
        let before = model.log().len();
        pass(&model, again.clone(), 0, true).await;
        assert_eq!(model.log().len() - before, writes, "{mark}: {:?}", model.log());
    }
}

#[tokio::test]
async fn what_is_written_carries_the_name_of_its_controller() {
    let model = model();
    pass(&model, |_| Plan::none().stage(vec![apply()]), 0, true).await;
    let written = model.shown(&child()).unwrap();
    assert_eq!(written.text("/metadata/managedFields/0/manager"), "odd");
}

#[tokio::test]
async fn children_of_ours_that_the_plan_has_no_word_for_go_and_no_others() {
    let model = model();
    let ours = uid(&model);
    let unnamed = marked(&model, "unnamed", &ours);
    let kept = marked(&model, "kept", &ours);
    let going = marked(&model, "going", &ours);
    let predecessors = marked(&model, "predecessors", "another");
    model.edit(&going, |doc| doc["metadata"]["finalizers"] = json!(["example.com/theirs"]));
    model.delete(&going);
    let keep = kept.clone();
    pass(&model, move |_| Plan::none().keep(keep.clone()), 0, true).await;
    let there = [&unnamed, &kept, &going, &predecessors].map(|target| model.object(target).is_some());
    assert_eq!(there, [false, true, true, true]);
    let deletions: Vec<String> = model.log().into_iter().filter(|line| line.starts_with("delete")).collect();
    assert_eq!(deletions, [format!("delete {unnamed}")], "what is going is left to go");
}

#[tokio::test]
async fn what_the_caches_lack_of_our_own_writes_is_read_before_anything_is_decided() {
    for count in [2, 40] {
        let model = model();
        let names: Vec<String> = (0..count).map(|n| format!("{n:02}")).collect();
        let intent = |name: &str| {
            let metadata = json!({"namespace": "ns", "name": name});
            Intent::of(
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}),
            )
        };
        let all = names.clone();
        let make = move |_: &Known| {
            let step = |name: &String| Step::apply(CHILD.at("ns", name), intent(name), Expect::Absent);
            Plan::none().stage(all.iter().map(step).collect())
        };
        pass(&model, make, 0, true).await;
        let behind = stores(&model);
        let targets: Vec<ObjectRef> = names.iter().map(|name| CHILD.at("ns", name)).collect();
        for target in &targets {
            model.edit(target, |doc| doc["data"] = json!({"a": "old"}));
        }
        let old = stores(&model);
        for target in &targets {
            model.edit(target, |doc| doc["data"] = json!({"a": "b"}));
        }
        let uids: Vec<_> = targets
            .iter()
            .map(|target| (target.clone(), model.object(target).unwrap().identity().uid))
            .collect();
        let keep = move |_: &Known| {
            let step = |(target, uid): &(ObjectRef, aquifer_base::Uid)| {
                let (intent, expect) = (intent(&target.key.name), Expect::Uid(uid.clone()));
                Step::apply(target.clone(), intent, expect)
            };
            Plan::none().stage(uids.iter().map(step).collect())
        };
        let writes = model.log().len();
        pass_on(&model, &old, &targets, keep.clone(), 0, true).await;
        assert_eq!(model.log().len(), writes, "{count} are as they should be, and the caches do not know");
        pass_on(&model, &behind, &[], keep, 0, true).await;
        assert_eq!(model.log().len(), writes, "nor is there anything to write when they do");
    }
}

#[tokio::test]
async fn a_status_that_is_refused_is_a_failure_unless_somebody_else_was_faster() {
    let plan = |_: &Known| Plan::none().wake_after(Duration::from_mins(1)).status(ready("it serves"));
    let refused = async |error: ApiError| {
        let model = model();
        model.refuse_verb(&subject(), "update the status of", error);
        let outcome = pass(&model, plan, 0, true).await;
        (outcome.failures.len(), outcome.status, outcome.wake_after)
    };
    let (failures, status, _) = refused(ApiError::Forbidden("no".into())).await;
    assert!(failures > 0 && status == StatusOutcome::Unreported);
    let (failures, status, wake_after) = refused(ApiError::Conflict("newer".into())).await;
    assert_eq!((failures, status), (0, StatusOutcome::Unreported));
    assert!(wake_after <= Some(Duration::from_secs(1)), "it is looked at again soon: {wake_after:?}");
}

/// What a subject of the same name has left, which belongs to this owner now.
async fn is_pruned(owner_now: &str) -> bool {
    let model = model();
    let left = marked(&model, "left", "another");
    let mark = |doc: &mut Value, owner: &str| {
        doc["metadata"]["annotations"] = json!({crate::intent::OWNER: owner, crate::intent::OWNER_KIND: crate::intent::owner_kind(&SUBJECT)});
    };
    model.edit(&left, |doc| mark(doc, "ns/x"));
    let stores = stores(&model);
    model.edit(&left, |doc| mark(doc, owner_now));
    pass_on(&model, &stores, std::slice::from_ref(&left), |_| Plan::none(), 0, true).await;
    model.object(&left).is_none()
}

#[tokio::test]
async fn what_a_predecessor_has_left_goes_unless_it_has_got_another_owner_since() {
    assert!(is_pruned("ns/x").await);
    assert!(!is_pruned("ns/y").await);
}

#[tokio::test]
async fn a_subject_whose_kind_is_not_served_is_waited_for() {
    let model = model();
    let mut stores = Stores::default();
    for watch in Erased::watches(&Odd(|_: &Known| Plan::none())) {
        let store = Store::new(watch);
        store.not_served();
        stores.add(Arc::new(store));
    }
    let outcome = pass_on(&model, &stores, &[], |_| Plan::none(), 0, true).await;
    assert_eq!(outcome.failures, [], "it is no failure");
}

#[tokio::test]
async fn what_stands_where_nothing_was_seen_is_not_written_over() {
    let model = model();
    let stores = stores(&model);
    let theirs = json!({"metadata": {"namespace": "ns", "name": "child"}, "data": {"a": "another user's"}});
    model.put(&CHILD, theirs);
    pass_on(&model, &stores, &[], |_| Plan::none().stage(vec![apply()]), 0, false).await;
    assert_eq!(model.object(&child()).unwrap().text("/data/a"), "another user's");
}

#[tokio::test]
async fn a_plan_that_looks_again_is_followed_by_another_decision_in_the_same_pass() {
    let model = model();
    let decisions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&decisions);
    let plan = move |subject: &Known| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let held = subject.finalizers.contains(&"example.com/ours".to_owned());
        let plan = Plan::none().hold().status(ready(if held { "second" } else { "first" }));
        if held { plan } else { plan.stage(vec![apply()]).look_again() }
    };
    let outcome = pass(&model, plan, 0, true).await;
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(decisions.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert_eq!(condition(&model, "Ready").2, "second", "and its status counts");
    assert!(model.object(&child()).is_some());
    let endless = |_: &Known| Plan::none().stage(vec![apply()]).look_again();
    let outcome = pass(&model, endless, 0, true).await;
    assert_eq!(outcome.failures[0].class, Class::Transient, "one that never ends is given up");
}

#[tokio::test]
async fn a_plan_that_looks_again_does_not_when_something_has_failed() {
    let model = model();
    model.refuse(&child(), ApiError::Forbidden("no".into()));
    let plan = |_: &Known| Plan::none().stage(vec![apply()]).status(ready("it serves")).look_again();
    let outcome = pass(&model, plan, 0, true).await;
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    assert_eq!(condition(&model, "Ready").1, "AccessDenied");
}
