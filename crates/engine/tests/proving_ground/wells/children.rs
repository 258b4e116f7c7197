//! The children of a well, as they shall be. Content only.

use aquifer_engine::{Intent, ObjectRef};
use serde_json::{Value, json};

use crate::family::RUN;
use crate::house::Pump;

pub fn basin(target: &ObjectRef, run: &str) -> Intent {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    child(target, run, json!({"spec": spec}))
}

pub fn meter(target: &ObjectRef, run: &str, pump: &Pump) -> Intent {
    child(target, run, json!({"spec": {"pump": pump.id, "size": pump.size}}))
}

pub fn tap(target: &ObjectRef, run: &str, pump: &Pump) -> Intent {
    child(target, run, json!({"data": {"size": pump.size.to_string()}}))
}

pub fn child(target: &ObjectRef, run: &str, content: Value) -> Intent {
    let mut intent = content;
    intent["apiVersion"] = json!(target.kind.api_version());
    intent["kind"] = json!(target.kind.kind);
    intent["metadata"] =
        json!({"namespace": target.key.namespace, "name": target.key.name, "labels": {RUN: run}});
    Intent::of(&intent)
}
