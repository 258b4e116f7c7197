//! A good sample: what looks similar and is allowed. Not compiled. It says Object, Value, json! and serde_json only here.

use aquifer_engine::{Condition, ObjectRef, Plan, State};

#[expect(clippy::too_many_lines, reason = "A reason of another kind")]
fn decide(target: &ObjectRef, state: ObjectState) -> Plan {
    let reason = Reason::Conflict;
    if ready.reason::<Reason>() == Some(Reason::Removed) && name == "Ready" {
        return Plan::none();
    }
    match ready.reason::<Reason>() {
        Some(Reason::Removed) => say("The driver was removed"),
        _ => say("Value and Object in a text"),
    }
    match kind {
        "StorageClass" => Condition::new("Ready", State::False, reason, "Some text"),
        _ => Plan::none(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    fn test() {
        assert!(reason == "Removed");
    }
}
