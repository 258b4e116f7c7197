//! The steps of a plan, one by one. No judgement: what to do was decided; here it is only done safely, once,
//! and not at all when nothing would change.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use aquifer_base::{ResourceVersion, Sealed, Uid};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value, json};

use crate::cluster::{ApiError, Verb};
use crate::failure::{Class, Failure};
use crate::intent::{drift, foreign_additions, marked};
use crate::object::{Key, Kind, Object, ObjectRef, revision};
use crate::panic_text::panic_text;
use crate::plan::{Child, Deletion, Effect, Expect, Mint, Record, Stage, Step};
use crate::store::Progress;
use crate::stores::Stores;
use crate::view::Fresh;
use crate::writer::Writer;

/// Steps of one stage that run at the same time.
const CONCURRENT_STEPS: usize = 8;

/// An effect that takes longer is given up; whether it happened is then not known.
const EFFECT_DEADLINE: Duration = Duration::from_secs(30);

const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");

/// What one step came to.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nothing had to be written.
    Unchanged,
    /// The object as the server answered (none when it is gone).
    Wrote(ObjectRef, Option<Object>, Progress),
    /// An outside effect was carried out: look again before anything else.
    Acted,
    /// What we decided on is out of date there: read it and decide again.
    Stale(ObjectRef),
    /// It failed.
    Failed(Failure),
    /// It failed by a panic.
    Panicked(Failure),
}

impl Done {
    /// A write that the caches have reached when they show the version that it made.
    pub fn wrote(target: ObjectRef, object: Option<Object>) -> Self {
        let version = object.as_ref().map(|object| revision(object.resource_version()));
        Self::Wrote(target, object, Progress::Revision(version.unwrap_or_default()))
    }

    /// A write that was refused, or to which no answer came.
    pub fn failed(target: &ObjectRef, doing: &str, error: &ApiError) -> Self {
        if error.is_stale() {
            return Self::Stale(target.clone());
        }
        Self::Failed(Failure::api(&format!("{doing} {target}"), error))
    }
}

/// What a family supplies for its steps: the name that its fields are written under, its recipes and its effects.
#[async_trait]
pub(crate) trait StepCode: Send + Sync {
    fn name(&self) -> &'static str;
    fn mint(&self, recipe: &str) -> Result<BTreeMap<String, Sealed>, Failure>;
    async fn effect(&self, effect: &Effect) -> Result<(), Failure>;
}

/// Carries out the steps of one pass.
pub(crate) struct Executor<'a> {
    pub writer: Writer<'a>,
    pub code: &'a dyn StepCode,
    pub stores: &'a Stores,
    pub owner: &'a Key,
    /// None when the owner is gone: then nothing can be made in its name.
    pub owner_uid: Option<&'a Uid>,
    /// Our own writes of this pass to the owner: a compare-and-swap decided before them may build on them.
    pub owner_version: Option<(ResourceVersion, ResourceVersion)>,
}

impl Executor<'_> {
    /// Runs a stage: all steps are tried.
    pub async fn stage(&self, stage: &Stage, fresh: &Fresh) -> Vec<Done> {
        // Boxed: the compiler cannot see through a stream of borrowing futures that they may be sent.
        let steps: Vec<_> = stage.steps.iter().map(|step| self.caught(step, fresh).boxed()).collect();
        futures::stream::iter(steps).buffer_unordered(CONCURRENT_STEPS).collect().await
    }

    /// A panic in one step must not make us forget what the others have done.
    async fn caught(&self, step: &Step, fresh: &Fresh) -> Done {
        let done = AssertUnwindSafe(self.step(step, fresh)).catch_unwind().await;
        done.unwrap_or_else(|panic| {
            Done::Panicked(Failure::bug(format!(
                "a step for {} panicked: {}",
                self.owner,
                panic_text(&*panic)
            )))
        })
    }

    async fn step(&self, step: &Step, fresh: &Fresh) -> Done {
        match step {
            Step::Apply(child) => self.apply(child, fresh).await,
            Step::Replace { child, tolerate } => self.replace(child, tolerate, fresh).await,
            Step::Delete(deletion) => self.delete(deletion).await,
            Step::Mint(mint) => self.mint(mint).await,
            Step::Record(record) => self.record(record).await,
            Step::Effect(effect) => self.effect(effect).await,
        }
    }

    async fn apply(&self, child: &Child, fresh: &Fresh) -> Done {
        let Some(intent) = self.marked(child) else { return self.ownerless(&child.target) };
        let mut body = intent.clone();
        let why = match &child.expect {
            // No object has ever had revision 1, so this creates or conflicts.
            Expect::Absent => {
                body["metadata"]["resourceVersion"] = json!("1");
                ABSENT.to_owned()
            }
            Expect::Uid(uid) => {
                let Some(live) = self.live(&child.target, fresh) else {
                    return Done::Stale(child.target.clone());
                };
                let drift = drift(&intent, &live);
                if live.uid() == uid.as_str() && drift.is_none() {
                    return Done::Unchanged;
                }
                body["metadata"]["uid"] = json!(uid);
                drift.map_or_else(|| "it is another object".to_owned(), |drift| drift.path)
            }
        };
        self.write_child(&child.target, &intent, Verb::Apply(body), &why).await
    }

    async fn replace(&self, child: &Child, tolerate: &[String], fresh: &Fresh) -> Done {
        let Some(intent) = self.marked(child) else { return self.ownerless(&child.target) };
        let Expect::Uid(uid) = &child.expect else {
            return self.write_child(&child.target, &intent, Verb::Create(intent.clone()), ABSENT).await;
        };
        let Some(live) = self.live(&child.target, fresh) else { return Done::Stale(child.target.clone()) };
        if live.uid() != uid.as_str() {
            return Done::Stale(child.target.clone());
        }
        // A finalizer is somebody's promise to tidy up: it stays whoever put it there.
        let tolerate: Vec<String> =
            tolerate.iter().cloned().chain(["/metadata/finalizers".to_owned()]).collect();
        let drifted = drift(&intent, &live).map(|d| d.path);
        let Some(why) = drifted.or_else(|| foreign_additions(&intent, &live, self.code.name(), &tolerate))
        else {
            return Done::Unchanged;
        };
        let mut body = intent.clone();
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(live.resource_version());
        for pointer in &tolerate {
            carry_over(&mut body, &live.0, pointer);
        }
        let verb = Verb::Replace(body);
        let word = verb.as_str();
        match self.writer.write(&child.target, verb, &why).await {
            // Cannot be changed in place: the next look finds it gone and makes it again.
            Err(ApiError::Immutable(_)) => {
                let deletion = Deletion { target: child.target.clone(), seen: live.identity() };
                match self.delete(&deletion).await {
                    Done::Wrote(..) | Done::Unchanged => Done::Stale(child.target.clone()),
                    other => other,
                }
            }
            result => written_child(&child.target, &intent, word, result),
        }
    }

    async fn delete(&self, Deletion { target, seen }: &Deletion) -> Done {
        let uid = seen.uid.to_string();
        let version = Some(seen.version.to_string()).filter(|version| !version.is_empty());
        let verb = Verb::Delete { uid: uid.clone(), resource_version: version };
        match self.writer.write(target, verb, "no longer wanted").await {
            Ok(object) => Done::Wrote(target.clone(), object, Progress::Deleted(uid)),
            Err(ApiError::NotFound) => Done::Unchanged,
            Err(error) => Done::failed(target, "delete", &error),
        }
    }

    async fn mint(&self, mint: &Mint) -> Done {
        let target = SECRET.key(&mint.secret);
        let Some(uid) = self.owner_uid else { return self.ownerless(&target) };
        let content = match self.code.mint(&mint.recipe) {
            Ok(content) => content,
            Err(failure) => return Done::Failed(failure),
        };
        let data: Map<String, Value> = content
            .iter()
            .map(|(name, bytes)| (name.clone(), json!(k8s_openapi::ByteString(bytes.expose().to_vec()))))
            .collect();
        let mut body = json!({"apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"name": mint.secret.name, "namespace": mint.secret.namespace}});
        // The marks without a hash: a minted Secret is never compared, and its hash would speak of its content.
        body["metadata"]["labels"][crate::intent::OWNER_UID] = json!(uid);
        body["metadata"]["annotations"][crate::intent::OWNER] = json!(self.owner.to_string());
        match self.writer.write(&target, Verb::Create(body), ABSENT).await {
            Ok(Some(object)) => Done::wrote(target, Some(object)),
            Ok(None) | Err(ApiError::AlreadyExists) => Done::Stale(target),
            Err(error) => Done::failed(&target, "create", &error),
        }
    }

    async fn record(&self, record: &Record) -> Done {
        let version = match &self.owner_version {
            Some((seen, now)) if *seen == record.seen.version && record.target.key == *self.owner => now,
            _ => &record.seen.version,
        };
        let body = json!({"metadata": {"resourceVersion": version, "uid": record.seen.uid}, "status": record.fields});
        match self
            .writer
            .write(&record.target, Verb::Merge { body, status: true }, "an intent is recorded")
            .await
        {
            Ok(object) => {
                match not_kept(&record.fields, object.as_ref().and_then(|object| object.at("/status"))) {
                    Some(path) => Done::Failed(Failure::bug(format!(
                        "the server does not keep status.{path} of {}: its CRD is older than this operator; apply that of this version",
                        record.target
                    ))),
                    None => Done::wrote(record.target.clone(), object),
                }
            }
            Err(error) => Done::failed(&record.target, "record an intent in", &error),
        }
    }

    async fn effect(&self, effect: &Effect) -> Done {
        if let Err(error) = self.writer.may_write() {
            return Done::Failed(Failure::api(&effect.operation, &error));
        }
        match tokio::time::timeout(EFFECT_DEADLINE, self.code.effect(effect)).await {
            Ok(Ok(())) => Done::Acted,
            Ok(Err(failure)) => Done::Failed(failure),
            Err(_) => Done::Failed(Failure::new(
                Class::Transient,
                format!(
                    "cannot {}: no answer within {} s; whether it happened is not known",
                    effect.operation,
                    EFFECT_DEADLINE.as_secs()
                ),
            )),
        }
    }

    async fn write_child(&self, target: &ObjectRef, intent: &Value, verb: Verb, why: &str) -> Done {
        let word = verb.as_str();
        written_child(target, intent, word, self.writer.write(target, verb, why).await)
    }

    fn marked(&self, child: &Child) -> Option<Value> {
        Some(marked(child.intent.as_value().clone(), self.owner, self.owner_uid?))
    }

    fn ownerless(&self, target: &ObjectRef) -> Done {
        Done::Failed(Failure::bug(format!(
            "{target} was to be made for {}, which does not exist",
            self.owner
        )))
    }

    fn live(&self, target: &ObjectRef, fresh: &Fresh) -> Option<Object> {
        match fresh.objects.get(target) {
            Some((object, _)) => object.clone(),
            None => self.stores.get(target).known().cloned().flatten(),
        }
    }
}

/// The first recorded field that the stored status does not have.
fn not_kept(fields: &Map<String, Value>, stored: Option<&Value>) -> Option<String> {
    fields.iter().find_map(|(name, wanted)| {
        let stored = stored.and_then(|stored| stored.get(name));
        match wanted {
            Value::Null => stored.is_some_and(|stored| !stored.is_null()).then(|| name.clone()),
            Value::Object(below) => not_kept(below, stored).map(|path| format!("{name}.{path}")),
            leaf => (stored != Some(leaf)).then(|| name.clone()),
        }
    })
}

/// Why something is made.
const ABSENT: &str = "it was absent";

/// What the write of a child came to. The server must keep what we sent: if not, we would write for ever.
fn written_child(
    target: &ObjectRef,
    intent: &Value,
    word: &str,
    result: Result<Option<Object>, ApiError>,
) -> Done {
    match result {
        Ok(Some(object)) => match drift(intent, &object) {
            Some(difference) => Done::Failed(Failure::bug(format!(
                "the server does not keep our intent of {target} at {difference}"
            ))),
            None => Done::wrote(target.clone(), Some(object)),
        },
        Ok(None) => Done::Failed(Failure::bug(format!("no answer to a write of {target}"))),
        Err(ApiError::Immutable(said)) => Done::Failed(Failure::new(
            Class::Invalid,
            format!("cannot {word} {target}: it cannot be changed in place: {said}"),
        )),
        Err(error) => Done::failed(target, word, &error),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_crd_drops_of_a_record_is_named() {
        let fields = |value: Value| value.as_object().cloned().unwrap_or_default();
        let record = fields(json!({"order": {"number": "n", "at": 1}, "pump": null, "using": 3}));
        let kept = |stored: Value| not_kept(&record, Some(&stored));
        assert_eq!(kept(json!({"order": {"number": "n", "at": 1}, "using": 3, "others": true})), None);
        assert_eq!(kept(json!({"order": {"number": "n"}, "using": 3})).as_deref(), Some("order.at"));
        assert_eq!(kept(json!({"order": {"number": "n", "at": 1}})).as_deref(), Some("using"));
        let all = kept(json!({"order": {"number": "n", "at": 1}, "using": 3, "pump": "p"}));
        assert_eq!(all.as_deref(), Some("pump"));
        assert_eq!(not_kept(&record, None).as_deref(), Some("order.at"));
    }
}
