//! Whether the place that the installation makes for the node plugin is there, and is still the one that was first seen. Pure.
//!
//! The node plugin is privileged, and so is every pod that a user can start under its account. So nothing is put into a namespace that
//! a user may have made: neither one without the marks of an installation, nor another one of the same name.

use aquifer_api::component::{ComponentObject, ObjectState};
use aquifer_engine::{Object, Seen, Why};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Driver;
use crate::kinds::{NAMESPACE, SERVICE_ACCOUNT};
use crate::names::{driver, labels};

/// The label by which a namespace says which pods it lets in, and what it must say.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
const PRIVILEGED: &str = "privileged";
/// What is kept of a namespace or account, beside its identity.
const FACTS: &str = "place";

/// The namespace of the node plugin, or its account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceFacts {
    /// Its uid.
    pub uid: String,
    /// Whether it says that it is a part of Aquifer.
    pub marked: bool,
    /// Whether it lets the node plugin's pods in; of no meaning for the account.
    pub privileged: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl PlaceFacts {
    /// What a cache keeps of it.
    pub(super) fn kept(object: &Object) -> Value {
        let marked = object.label(labels::PART_OF) == Some(labels::MANAGER);
        json!({FACTS: {"marked": marked, "privileged": object.label(POD_SECURITY) == Some(PRIVILEGED)}})
    }

    /// Reads what a cache has kept.
    pub(super) fn of(object: &Object) -> Self {
        let is = |fact: &str| object.at(&format!("/{FACTS}/{fact}")) == Some(&Value::Bool(true));
        Self {
            uid: object.identity().uid.to_string(),
            marked: is("marked"),
            privileged: is("privileged"),
            deleting: object.deleting(),
        }
    }
}

/// Both of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The namespace.
    pub namespace: Seen<Option<PlaceFacts>>,
    /// The account in it.
    pub account: Seen<Option<PlaceFacts>>,
}

impl Place {
    /// Whether it is only a matter of moments until it is known.
    pub(super) fn is_being_read(&self) -> bool {
        let lasting = |why: &Why| matches!(why, Why::NotServed | Why::Unreachable(_));
        [&self.namespace, &self.account].iter().any(|seen| seen.why().is_some_and(|why| !lasting(why)))
    }
}

/// What became of one of them.
struct Judged {
    object: ComponentObject,
    /// Why nothing may be put there; none when all is well.
    trouble: Option<Trouble>,
}

/// Why nothing may be put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is not there, or going; what is missing.
    Missing(String),
    /// It cannot be read; what, and why.
    Unread(String),
    /// It may be somebody else's; why.
    Foreign(String),
}

/// What the status lists of the place, and why nothing may be put there.
pub(super) fn judge(
    driver: &Driver,
    place: &Place,
    recorded: &[ComponentObject],
) -> (Vec<ComponentObject>, Option<Trouble>) {
    let namespace = driver.config.namespace.to_string();
    let before = |kind: &str, name: &str| {
        recorded.iter().find(|one| one.kind == kind && one.name == name).and_then(|one| one.uid.clone())
    };
    let trusted = before(&NAMESPACE.kind, &namespace);
    let names = ComponentObject {
        kind: NAMESPACE.kind.to_string(),
        namespace: None,
        name: namespace.clone(),
        uid: trusted,
        state: ObjectState::Missing,
        message: None,
    };
    let namespace_judged = judged(names, &place.namespace);
    let names = ComponentObject {
        kind: SERVICE_ACCOUNT.kind.to_string(),
        namespace: Some(namespace),
        name: driver::SERVICE_ACCOUNT.to_owned(),
        // An account that is made again in a namespace that is ours is ours: only administrators write there.
        uid: None,
        state: ObjectState::Missing,
        message: None,
    };
    let account_judged = judged(names, &place.account);
    let trouble = namespace_judged.trouble.or(account_judged.trouble);
    (vec![namespace_judged.object, account_judged.object], trouble)
}

/// The uid of the object stays what it was when it was first trusted; another one at its name never replaces it.
fn judged(mut object: ComponentObject, seen: &Seen<Option<PlaceFacts>>) -> Judged {
    let title = match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{}", object.kind, object.name),
        None => format!("{} {}", object.kind, object.name),
    };
    let live = match seen {
        Seen::Known { value: Some(live), .. } => live,
        Seen::Known { value: None, .. } => {
            return Judged { object, trouble: Some(Trouble::Missing(title)) };
        }
        Seen::Unknown(why) => {
            let said = format!("cannot be read: {why}");
            let trouble = Trouble::Unread(format!("{title} {said}"));
            object.message = Some(said);
            return Judged { object, trouble: Some(trouble) };
        }
    };
    let replaced = object.uid.as_ref().is_some_and(|before| *before != live.uid);
    let foreign = if replaced {
        Some(format!(
            "{title} is not the one that the driver was installed in: it was deleted and made again"
        ))
    } else if !live.marked {
        Some(format!("{title} was not made by an installation of Aquifer"))
    } else {
        None
    };
    if let Some(why) = foreign {
        object.state = ObjectState::Foreign;
        object.message = Some(why.clone());
        return Judged { object, trouble: Some(Trouble::Foreign(why)) };
    }
    object.uid = Some(live.uid.clone());
    if live.deleting {
        object.state = ObjectState::Deleting;
        return Judged { object, trouble: Some(Trouble::Missing(title)) };
    }
    object.state = ObjectState::Provided;
    if object.kind == NAMESPACE.kind && !live.privileged {
        object.message = Some(format!(
            "without the label {POD_SECURITY}={PRIVILEGED} the node plugin's pods may be refused"
        ));
    }
    Judged { object, trouble: None }
}
