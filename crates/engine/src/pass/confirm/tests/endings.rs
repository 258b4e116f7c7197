//! What goes with a subject that is being deleted, and when it is released.

use super::*;

/// Releases a subject when no tenant is there.
struct Releasing;

#[async_trait]
impl Controller for Releasing {
    type Spec = Value;
    type Status = Value;
    type World = Seen<usize>;

    fn name(&self) -> &'static str {
        "releasing"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::new(TENANT, |_| Wakes::AllKeys)]
    }
    fn finalizers(&self) -> &'static [&'static str] {
        &["example.com/ours"]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, _: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        view.list(&TENANT).map(|tenants| tenants.len())
    }
    fn decide(&self, _: &SubjectOf<Self>, tenants: &Self::World, _: Timestamp) -> Plan {
        if tenants.known() == Some(&0) { Plan::none().release() } else { Plan::none() }
    }
}

fn deleted_subject(model: &Model) -> ObjectRef {
    let metadata = json!({"namespace": "ns", "name": "a", "finalizers": ["example.com/ours"]});
    model.put(&SUBJECT, json!({"metadata": metadata}));
    let subject = SUBJECT.at("ns", "a");
    model.delete(&subject);
    subject
}

#[tokio::test]
async fn a_subject_is_not_released_while_a_list_does_not_show_yet_what_needs_it() {
    let model = Arc::new(Model::default());
    let subject = deleted_subject(&model);
    let sim = Sim::new(Releasing, Arc::clone(&model));
    sim.freeze(&TENANT);
    model.put(&TENANT, json!({"metadata": {"namespace": "other", "name": "t"}}));
    sim.settle().await;
    assert!(model.object(&subject).is_some(), "{:?}", model.log());
    model.delete(&TENANT.at("other", "t"));
    sim.settle().await;
    assert!(model.object(&subject).is_none(), "and is when that has gone");
}

#[tokio::test]
async fn what_goes_for_no_other_reason_than_its_owner_needs_no_second_look_at_others() {
    let model = Arc::new(Model::default());
    let subject = deleted_subject(&model);
    let uid = model.object(&subject).unwrap().uid().to_owned();
    let marks =
        json!({"labels": {crate::intent::OWNER_UID: uid}, "annotations": {crate::intent::OWNER: "ns/a"}});
    let mut child = json!({"metadata": {"namespace": "ns", "name": "a"}});
    crate::merge::merge(&mut child["metadata"], &marks);
    model.put(&LEFT, child);
    let sim = Sim::new(Landlord { with_owner: true }, Arc::clone(&model));
    sim.freeze(&TENANT);
    model.put(&TENANT, json!({"metadata": {"namespace": "other", "name": "t"}}));
    sim.settle().await;
    assert!(model.object(&LEFT.at("ns", "a")).is_none(), "{:?}", model.log());
}
