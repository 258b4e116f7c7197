//! Replace: the object shall be exactly the intent. What cannot be changed in place is deleted and made again, where that is
//! allowed, on firm ground, and when the server would take the new one.

use serde_json::{Value, json};

use super::{ABSENT, Done, Executor, written_child};
use crate::cluster::{ApiError, Verb};
use crate::failure::Failure;
use crate::intent::foreign_additions;
use crate::object::{Object, ObjectRef};
use crate::plan::{Child, Deletion, Recreate};
use crate::view::Fresh;

/// These never go, because all that is in them would.
const NEVER_RECREATED: [&str; 2] = ["Namespace", "CustomResourceDefinition"];

impl Executor<'_> {
    pub(super) async fn replace(
        &self,
        child: &Child,
        tolerate: &[String],
        recreate: Recreate,
        fresh: &Fresh,
    ) -> Done {
        let Some(intent) = self.marked(child) else { return self.ownerless(&child.target) };
        let Some(uid) = child.expect.uid() else {
            return self
                .write_child(&child.target, &intent, Verb::Create(self.with_owner_kind(&intent)), ABSENT)
                .await;
        };
        let Some(live) = self.live(&child.target, fresh) else { return Done::Stale(child.target.clone()) };
        if live.uid() != uid.as_str() {
            return Done::Stale(child.target.clone());
        }
        // A finalizer is somebody's promise to tidy up: it stays whoever put it there.
        let tolerate: Vec<String> =
            tolerate.iter().cloned().chain(["/metadata/finalizers".to_owned()]).collect();
        let drifted = self.drift_with_owner_kind(&intent, &live);
        let Some(why) = drifted.or_else(|| {
            foreign_additions(&self.with_owner_kind(&intent), &live, self.code.name(), &tolerate)
        }) else {
            return Done::Unchanged;
        };
        let mut body = self.with_owner_kind(&intent);
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(live.resource_version());
        for pointer in &tolerate {
            carry_over(&mut body, &live.0, pointer);
        }
        let verb = Verb::Replace(body);
        let word = verb.as_str();
        match self.writer.write(&child.target, verb, &why).await {
            Err(ApiError::Immutable(_))
                if recreate == Recreate::Allowed && !NEVER_RECREATED.contains(&&*child.target.kind.kind) =>
            {
                self.recreate(&child.target, &live, intent, fresh).await
            }
            result => written_child(&child.target, &intent, word, result),
        }
    }

    /// Deletes an object that cannot be changed in place: the next look finds it gone and makes it again.
    async fn recreate(&self, target: &ObjectRef, live: &Object, intent: Value, fresh: &Fresh) -> Done {
        if fresh.firm.is_none() {
            return Done::NeedsFirmGround;
        }
        // That something of the name is there is what the server says last, after everything else.
        match self.writer.write(target, Verb::TryCreate(intent), "would the server take it?").await {
            Ok(_) | Err(ApiError::AlreadyExists) => {}
            Err(error) => {
                return Done::Failed(Failure::new(
                    error.class(),
                    format!(
                        "{target} cannot be changed in place, and is not deleted because the server would not take the new one: {error}"
                    ),
                ));
            }
        }
        let deletion = Deletion { target: target.clone(), seen: live.identity(), with_owner: false };
        match self.delete(&deletion).await {
            Done::Wrote(..) | Done::Unchanged => Done::Stale(target.clone()),
            other => other,
        }
    }
}

/// Copies what others wrote by right from the live object. A trailing `*` takes every key with that prefix.
fn carry_over(body: &mut Value, live: &Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let Some(from) = live.pointer(parent).and_then(Value::as_object) else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    let wanted = |key: &str| last.strip_suffix('*').map_or(key == last, |prefix| key.starts_with(prefix));
    let found: Vec<_> =
        from.iter().filter(|(key, _)| wanted(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if found.is_empty() {
        return;
    }
    let mut at = body;
    for step in parent.split('/').skip(1) {
        at = &mut at[step.replace("~1", "/").replace("~0", "~").as_str()];
    }
    for (key, value) in found {
        if at.get(&key).is_none() {
            at[key.as_str()] = value;
        }
    }
}
