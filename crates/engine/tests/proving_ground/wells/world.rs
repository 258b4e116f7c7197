//! What is looked at for one well. Looks, does not judge.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_base::Uid;
use aquifer_engine::{Identity, Key, Kind, Object, ObjectRef, Question, Seen, View};
use aquifer_engine::{OWNER_UID, owner_key};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Subject, named};
use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET};
use crate::house::Pump;

/// An answer of the house is good for this long.
const FRESH: Duration = Duration::from_mins(1);

/// While an order is under way, for this long.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// What a decision needs to know of a child. Nothing of its content: that of a Secret is nobody's business.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildFacts {
    pub target: ObjectRef,
    pub identity: Identity,
    pub deleting: bool,
    /// The well that it names as its owner.
    pub owner: Option<Key>,
    /// The uid of that well.
    pub owner_uid: Option<Uid>,
}

impl ChildFacts {
    pub fn of(kind: &Kind, object: &Object) -> Self {
        Self {
            target: kind.key(&object.key()),
            identity: object.identity(),
            deleting: object.deleting(),
            owner: owner_key(object),
            owner_uid: object.label(OWNER_UID).map(Uid::new),
        }
    }
}

/// What a well's decision is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct World {
    pub key: Seen<Option<ChildFacts>>,
    pub basin: Seen<Option<ChildFacts>>,
    pub meter: Seen<Option<ChildFacts>>,
    /// Our taps, wanted or not.
    pub taps: Seen<Vec<ChildFacts>>,
    /// What is known at the names of the wanted taps; it may be somebody else's.
    pub places: BTreeMap<String, Seen<Option<ChildFacts>>>,
    /// Our pump by its id, or by our order.
    pub pump: Seen<Option<Pump>>,
}

pub fn observe(kinds: &Kinds, subject: &Subject, view: &View<'_>) -> World {
    let well = subject.object.as_ref();
    let question = well.and_then(|well| match (&well.status.pump, &well.status.order) {
        (Some(id), _) => Some((Question::new("pump", id), FRESH)),
        (None, Some(order)) => Some((Question::new("order", &order.number), UNDER_WAY)),
        (None, None) => None,
    });
    let none = Seen::Known { value: None, read_at: Timestamp::UNIX_EPOCH };
    let wanted = well.and_then(|well| well.spec.as_ref().ok()).map(|spec| spec.taps.as_slice());
    let proved = |kind: &Kind, suffix: &str| {
        view.get(&named(subject, kind, suffix)).map(|found| found.map(|object| ChildFacts::of(kind, &object)))
    };
    // A tap is written create-only where none was seen, so that its absence needs no proof.
    let place = |tap: &String| {
        let seen = view.cached(&named(subject, &CONFIG_MAP, tap));
        (tap.clone(), seen.map(|found| found.map(|object| ChildFacts::of(&CONFIG_MAP, &object))))
    };
    World {
        key: proved(&SECRET, "key"),
        basin: proved(&CLAIM, "basin"),
        meter: proved(&kinds.meter, "meter"),
        taps: view
            .mine(&CONFIG_MAP)
            .map(|taps| taps.iter().map(|tap| ChildFacts::of(&CONFIG_MAP, tap)).collect()),
        places: wanted.unwrap_or_default().iter().map(place).collect(),
        pump: question.map_or(none, |(question, max_age)| view.ask(question, max_age)),
    }
}
