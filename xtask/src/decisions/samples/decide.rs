//! A bad sample: what the lint of decisions must find. Not compiled. A line that is bad says so.

use aquifer_engine::{Object, Plan}; // BAD: raw
use serde_json::{Value, json}; // BAD: raw

fn decide(subject: &Object) -> Plan { // BAD: raw
    let body: Value = json!({"a": 1}); // BAD: raw
    if reason == "Removed" { // BAD: reason
        return Plan::none();
    }
    if current && subject.ready_reason() != "External" && !left { // BAD: reason
        return Plan::none();
    }
    if condition["reason"] == "Bound" { // BAD: reason
        return Plan::none();
    }
    match ready.reason.as_str() { // BAD: reason
        "Removed" => done(),
        _ => Plan::none(),
    }
    match (text("status"), text("reason")) { // BAD: reason
        ("True", _) => done(),
        (_, "External") => done(),
        _ => Plan::none(),
    }
    if matches!(ready.reason.as_str(), "Deleting" | "InUse") { // BAD: reason
        return Plan::none();
    }
}

async fn wait(stop: Token) {
    tokio::select! { // BAD: select
        () = stop.cancelled() => {}
        () = sleep() => {}
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = sleep() => {}
    }
}
