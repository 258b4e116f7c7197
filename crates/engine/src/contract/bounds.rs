//! What a plan may do at all, whoever has made it. Checked before it is carried out: a decision may come from another process, and
//! a mistake in one must not reach into the objects of others.

use serde_json::Value;

use crate::cluster::Listing;
use crate::object::{Kind, ObjectRef};
use crate::plan::{Plan, Step};
use crate::secret::SECRET;

/// The longest name in Kubernetes.
const NAME: usize = 253;

/// Says what a plan for this subject may not do, if something. `watched` tells the kinds that the controller looks at.
pub(crate) fn beyond(plan: &Plan, subject: &ObjectRef, watched: impl Fn(&Kind) -> bool) -> Option<String> {
    if plan.wake_after.is_some_and(|after| after.is_zero()) {
        return Some("it wants to be looked at again without a pause".to_owned());
    }
    if plan.looks_again && plan.steps().next().is_none() {
        return Some("it wants to look again and does nothing before".to_owned());
    }
    let own_namespace = |target: &ObjectRef| {
        let (own, its) = (&subject.key.namespace, &target.key.namespace);
        own.is_empty() || its.is_empty() || own == its
    };
    plan.steps().find_map(|step| {
        let (children, others) = touched(step);
        let all = || children.iter().chain(&others);
        if let Some(target) = all().find(|target| !is_address(target)) {
            return Some(format!("{target} is no name of an object"));
        }
        // Secrets that controllers make are often not watched.
        let strange = |target: &&ObjectRef| {
            !watched(&target.kind) && (target.kind != SECRET || others.contains(target))
        };
        if let Some(target) = all().find(strange) {
            return Some(format!("{target} is of a kind that the controller does not watch"));
        }
        if let Some(said) = misnamed(step).or_else(|| amends_ownership(step)) {
            return Some(said);
        }
        children
            .iter()
            .find(|target| !own_namespace(target))
            .map(|target| format!("{target} is in another namespace than {subject}"))
    })
}

/// The objects that a step makes, deletes or reads the content of, and those whose fields it sets.
fn touched(step: &Step) -> (Vec<ObjectRef>, Vec<ObjectRef>) {
    match step {
        Step::Apply(child) | Step::Replace { child, .. } => (vec![child.target.clone()], Vec::new()),
        Step::Delete(deletion) => (vec![deletion.target.clone()], Vec::new()),
        Step::Mint(mint) => (vec![SECRET.key(&mint.secret)], Vec::new()),
        Step::Seal(seal) => (
            std::iter::once(&seal.secret).chain(&seal.sources).map(|key| SECRET.key(key)).collect(),
            Vec::new(),
        ),
        Step::Amend(amend) => (Vec::new(), vec![amend.target.clone()]),
        Step::Record(record) => (Vec::new(), vec![record.target.clone()]),
        Step::Effect(_) => (Vec::new(), Vec::new()),
    }
}

/// An intent that would be created under another name than that of its target, or with other metadata than it says.
fn misnamed(step: &Step) -> Option<String> {
    let (Step::Apply(child) | Step::Replace { child, .. }) = step else { return None };
    if child.only_at_creation.contains_key("metadata") {
        let target = &child.target;
        return Some(format!(
            "the metadata of {target} must be in its intent, not among the fields of its creation"
        ));
    }
    if matches!(step, Step::Replace { .. }) && !child.only_at_creation.is_empty() {
        return Some(format!(
            "the fields that only the creation of {} has are for what is applied",
            child.target
        ));
    }
    let metadata = child.intent.as_value().get("metadata")?;
    let key = &child.target.key;
    let is_another = |field: &str, own: &str| metadata.get(field).is_some_and(|said| said != own);
    let drawn = metadata.get("generateName").is_some();
    (drawn || is_another("name", &key.name) || is_another("namespace", &key.namespace))
        .then(|| format!("what is to be made at {} has another name", child.target))
}

/// Finalizers and owner references decide whether an object goes: no step changes those of somebody else's object.
pub(crate) fn amends_ownership(step: &Step) -> Option<String> {
    let Step::Amend(amend) = step else { return None };
    let metadata = amend.patch.get("metadata")?;
    (!only_marks(metadata))
        .then(|| format!("only labels and annotations of the metadata of {} can be amended", amend.target))
}

/// Whether a patch of metadata is of labels and annotations only.
fn only_marks(metadata: &Value) -> bool {
    metadata
        .as_object()
        .is_some_and(|fields| fields.keys().all(|name| name == "labels" || name == "annotations"))
}

/// Whether all that a step touches can be the name of an object.
pub(crate) fn is_named(step: &Step) -> bool {
    let (children, others) = touched(step);
    children.iter().chain(&others).all(is_address)
}

/// Whether this can be the name of an object. Others would lead to another place of the API.
pub(crate) fn is_address(target: &ObjectRef) -> bool {
    is_segment(&target.key.name)
        && if target.kind.namespaced {
            is_segment(&target.key.namespace)
        } else {
            target.key.namespace.is_empty()
        }
}

/// Whether a server may list this: what is in one namespace, or of a kind that is in none.
pub(crate) fn is_listing(listing: &Listing) -> bool {
    if listing.kind.namespaced { is_segment(&listing.namespace) } else { listing.namespace.is_empty() }
}

/// Whether this can be a part of a path.
fn is_segment(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME && !text.contains(['/', '%']) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aquifer_base::{ResourceVersion, Uid};
    use serde_json::json;

    use super::*;
    use crate::intent::Intent;
    use crate::object::{Identity, Key};
    use crate::plan::{Amend, Child, Expect, Mint, Record, Recreate, Seal};

    const OWN: Kind = Kind::namespaced("a.b", "v1", "Well", "wells");
    const PART: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
    const WIDE: Kind = Kind::cluster("", "v1", "PersistentVolume", "persistentvolumes");
    const STRANGE: Kind = Kind::namespaced("", "v1", "Pod", "pods");

    fn says(steps: Vec<Step>, subject: &ObjectRef) -> String {
        let plan = Plan::none().stage(steps);
        beyond(&plan, subject, |kind| [&OWN, &PART, &WIDE].contains(&kind)).unwrap_or_default()
    }

    fn apply(target: ObjectRef) -> Step {
        let intent = Intent::of(&json!({}));
        Step::apply(target, intent, Expect::Absent)
    }

    fn seen() -> Identity {
        Identity { uid: Uid::new("u"), version: ResourceVersion::new("1") }
    }

    #[test]
    fn a_plan_reaches_what_its_controller_watches_and_not_beyond_the_namespace_of_its_subject() {
        let own = OWN.at("ns", "a");
        let of_cluster = Kind::cluster("a.b", "v1", "Component", "components").at("", "c");
        let key = |namespace: &str| Key::namespaced(namespace, "s");
        let seal =
            |secret: &str, source: &str| Step::Seal(Seal::new(key(secret), "r", &()).source(key(source)));
        let amend = |target: ObjectRef, patch: Value| {
            let patch = patch.as_object().cloned().unwrap_or_default();
            Step::Amend(Amend { target, seen: seen(), patch, status: false, optional: false })
        };
        let named = |intent: Value| Step::apply(PART.at("ns", "b"), Intent::of(&intent), Expect::Absent);
        let with = |fields: Value| {
            let child = Child::new(PART.at("ns", "b"), Intent::of(&json!({})), Expect::Absent);
            child.only_at_creation(fields.as_object().cloned().unwrap_or_default())
        };
        let replace = |child: Child| Step::Replace { child, tolerate: Vec::new(), recreate: Recreate::Never };
        let cases = [
            (&own, apply(PART.at("ns", "b")), ""),
            (&own, apply(WIDE.at("", "b")), ""),
            (&own, apply(PART.at("other", "b")), "another namespace"),
            (&of_cluster, apply(PART.at("other", "b")), ""),
            (&own, apply(STRANGE.at("ns", "b")), "does not watch"),
            (&own, apply(PART.at("ns", "../pods/b")), "no name"),
            (&own, apply(PART.at("ns", "")), "no name"),
            (&own, apply(PART.at("", "b")), "no name"),
            (&own, Step::delete(PART.at("other", "b"), seen()), "another namespace"),
            (&own, Step::delete(STRANGE.at("ns", "b"), seen()), "does not watch"),
            (&own, Step::delete(SECRET.at("ns", "b"), seen()), ""),
            (&own, Step::Mint(Mint::new(key("ns"), "r")), ""),
            (&own, Step::Mint(Mint::new(key("other"), "r")), "another namespace"),
            (&own, seal("ns", "ns"), ""),
            (&own, seal("ns", "other"), "another namespace"),
            (&own, Step::Record(Record::new(OWN.at("other", "b"), seen())), ""),
            (&own, Step::Record(Record::new(STRANGE.at("ns", "b"), seen())), "does not watch"),
            (&own, amend(PART.at("other", "b"), json!({"spec": 1})), ""),
            (&own, amend(PART.at("other", "b"), json!({"metadata": {"labels": {"a": "b"}}})), ""),
            (&own, amend(PART.at("other", "b"), json!({"metadata": {"finalizers": null}})), "only labels"),
            (&own, amend(SECRET.at("ns", "b"), json!({"data": {}})), "does not watch"),
            (&own, named(json!({"metadata": {"name": "b", "namespace": "ns"}})), ""),
            (&own, named(json!({"metadata": {"name": "c"}})), "another name"),
            (&own, named(json!({"metadata": {"generateName": "b-"}})), "another name"),
            (&own, named(json!({"metadata": {"namespace": "other"}})), "another name"),
            (&own, Step::Apply(with(json!({"spec": {"a": 1}}))), ""),
            (&own, Step::Apply(with(json!({"metadata": {"name": "c"}}))), "must be in its intent"),
            (&own, replace(with(json!({}))), ""),
            (&own, replace(with(json!({"spec": {"a": 1}}))), "for what is applied"),
        ];
        for (subject, step, expected) in cases {
            let said = says(vec![step.clone()], subject);
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{step:?}: {said:?}");
        }
        let plan = Plan::none().wake_after(Duration::ZERO);
        assert!(beyond(&plan, &own, |_| true).unwrap().contains("without a pause"));
        let plan = Plan::none().look_again();
        assert!(beyond(&plan, &own, |_| true).unwrap().contains("does nothing before"));
    }

    #[test]
    fn a_step_is_named_when_all_that_it_touches_is() {
        let seal = |source: &str| {
            let key = |name: &str| Key::namespaced("ns", name);
            Step::Seal(Seal::new(key("s"), "r", &()).source(key(source)))
        };
        let record = |name: &str| Step::Record(Record::new(OWN.at("ns", name), seen()));
        for (step, named) in
            [(seal("a"), true), (seal(".."), false), (record("a"), true), (record("a/status"), false)]
        {
            assert_eq!(is_named(&step), named, "{step:?}");
        }
    }

    #[test]
    fn a_server_lists_one_namespace_or_what_is_in_none() {
        for (kind, namespace, allowed) in [
            (&PART, "ns", true),
            (&PART, "", false),
            (&PART, "../x", false),
            (&WIDE, "", true),
            (&WIDE, "ns", false),
        ] {
            assert_eq!(is_listing(&Listing::all(kind, namespace)), allowed, "{kind} in {namespace:?}");
        }
    }
}
