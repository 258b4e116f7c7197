//! The API server in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::fault::WriteFault;
use super::ownership::Owners;
use crate::cluster::{ApiError, Cluster, Listing, Verb, Write};
use crate::latest::{Receiver, Sender, latest};
use crate::lock::lock;
use crate::merge::merge;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::runtime::Runtime;
use crate::secret::{SECRET, StoredSecret, without_content};

/// The API server.
#[derive(Default)]
pub struct Model {
    /// Trips at a write point.
    pub fault: Arc<WriteFault>,
    state: Mutex<State>,
}

struct State {
    objects: BTreeMap<ObjectRef, Stored>,
    revision: u64,
    /// Writes that changed something, as text.
    log: Vec<String>,
    /// Every version of every object, in order.
    changes: Vec<Change>,
    /// Tells watches that there are more.
    changed: Sender<u64>,
    /// Watches cannot begin before this version.
    compacted: u64,
    /// For the times of deletions; without it they are all long ago.
    clock: Option<Runtime>,
    /// How often each object was created.
    created: BTreeMap<ObjectRef, usize>,
    /// Kinds that are not served.
    unserved: Vec<Kind>,
    /// Objects that may not be written, with the error that says so.
    /// What a mutating webhook makes of an object whenever it is written.
    altered: BTreeMap<ObjectRef, fn(&mut Value)>,
    /// By object; of one verb, or of all.
    refused: BTreeMap<ObjectRef, Vec<(Option<&'static str>, ApiError)>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 0,
            log: Vec::new(),
            changes: Vec::new(),
            changed: latest(0).0,
            compacted: 0,
            clock: None,
            created: BTreeMap::new(),
            unserved: Vec::new(),
            altered: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug)]
struct Stored {
    doc: Value,
    owners: Owners,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made; grows with every change.
    pub version: u64,
    /// When.
    pub at: Instant,
    /// Which object.
    pub target: ObjectRef,
    /// Who made it: a field manager, or [`USER`].
    pub by: String,
    old: Option<Arc<Stored>>,
    new: Option<Arc<Stored>>,
}

impl Change {
    /// What it was before; none when it was made.
    pub fn before(&self) -> Option<Object> {
        self.old.as_ref().map(|stored| stored.shown(&self.target.kind))
    }

    /// What it is now; none when it went.
    pub fn after(&self) -> Option<Object> {
        self.new.as_ref().map(|stored| stored.shown(&self.target.kind))
    }

    /// Whether it is the deletion of something, or the beginning of one.
    pub fn begins_to_go(&self) -> bool {
        let went = |object: Option<Object>| object.is_none_or(|object| object.deleting());
        self.before().is_some() && !went(self.before()) && went(self.after())
    }
}

/// The manager of what [`Model::put`], [`Model::edit`] and [`Model::delete`] write.
pub const USER: &str = "user";
/// Versions of a fresh cluster begin here: nothing ever has version 1, on which create-only writes rely.
const FIRST_VERSION: u64 = 1000;

impl Model {
    /// A user creates or changes an object; `status` in the body counts too.
    pub fn put(&self, kind: &Kind, body: Value) -> Object {
        let mut state = self.lock();
        let object = Object(body);
        let target = kind.key(&object.key());
        let existing = state.objects.get(&target).cloned();
        let stored = match existing {
            None => state.create(&target, object.0, USER),
            Some(old) => {
                let mut doc = old.doc.clone();
                merge(&mut doc, &object.0);
                state.update(&target, old, doc, USER)
            }
        };
        Object(stored)
    }

    /// A user edits an object.
    pub fn edit(&self, target: &ObjectRef, edit: impl FnOnce(&mut Value)) {
        let mut state = self.lock();
        if let Some(stored) = state.objects.get(target).cloned() {
            let mut doc = stored.doc.clone();
            edit(&mut doc);
            state.update(target, stored, doc, USER);
        }
    }

    /// A user deletes an object.
    pub fn delete(&self, target: &ObjectRef) {
        self.lock().delete(target, USER);
    }

    /// Takes a finalizer off, as the controller that put it there would.
    pub fn unfinalize(&self, target: &ObjectRef, name: &str) {
        self.edit(target, |doc| {
            if let Some(list) = doc.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
                list.retain(|finalizer| finalizer != name);
            }
        });
    }

    /// One object.
    pub fn object(&self, target: &ObjectRef) -> Option<Object> {
        self.lock().objects.get(target).map(|stored| Object(stored.doc.clone()))
    }

    /// All objects of a kind.
    pub fn objects(&self, kind: &Kind) -> Vec<Object> {
        let state = self.lock();
        state.of_kind(kind).map(|(_, stored)| Object(stored.doc.clone())).collect()
    }

    /// Whether a kind is served.
    pub fn serves(&self, kind: &Kind) -> bool {
        !self.lock().unserved.contains(kind)
    }

    /// Stops or starts serving a kind.
    pub fn serve(&self, kind: &Kind, served: bool) {
        let mut state = self.lock();
        state.unserved.retain(|k| k != kind);
        if !served {
            state.unserved.push(kind.clone());
        }
        state.next_revision();
    }

    /// Every write of a controller to this object is answered with this error, until [`Model::admit`].
    pub fn refuse(&self, target: &ObjectRef, error: ApiError) {
        self.lock().refused.entry(target.clone()).or_default().push((None, error));
    }

    /// From now on this is done to the object whenever it is written, as by a mutating webhook.
    pub fn alter(&self, target: &ObjectRef, alter: fn(&mut Value)) {
        self.lock().altered.insert(target.clone(), alter);
    }

    /// From now on this verb is refused for this object, whoever asks.
    pub fn refuse_verb(&self, target: &ObjectRef, verb: &'static str, error: ApiError) {
        self.lock().refused.entry(target.clone()).or_default().push((Some(verb), error));
    }

    /// Ends [`Model::refuse`].
    pub fn admit(&self, target: &ObjectRef) {
        self.lock().refused.remove(target);
    }

    /// Grows with every change.
    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Writes that changed something, in order.
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Every version of every object, users' writes included, in order; none where it went. For rules that must hold at
    /// every moment.
    pub fn history(&self) -> Vec<(ObjectRef, Option<Object>)> {
        let state = self.lock();
        let plain = |stored: &Arc<Stored>| Object(stored.doc.clone());
        state.changes.iter().map(|change| (change.target.clone(), change.new.as_ref().map(plain))).collect()
    }

    /// The changes after a version.
    pub fn changes_since(&self, version: u64) -> Vec<Change> {
        let state = self.lock();
        let from = state.changes.partition_point(|change| change.version <= version);
        state.changes[from..].to_vec()
    }

    /// The first change of a kind after a version, and the version of the latest change of any kind.
    pub fn next_change_of(&self, kind: &Kind, version: u64) -> (Option<Change>, u64) {
        let state = self.lock();
        let from = state.changes.partition_point(|change| change.version <= version);
        let next = state.changes[from..].iter().find(|change| change.target.kind == *kind);
        (next.cloned(), FIRST_VERSION + state.revision)
    }

    /// The version of the latest change.
    pub fn version(&self) -> u64 {
        FIRST_VERSION + self.lock().revision
    }

    /// The oldest version that a watch can begin at.
    pub fn oldest_version(&self) -> u64 {
        self.lock().compacted
    }

    /// Forgets changes up to a version: watches that are not that far must list again.
    pub fn compact(&self, version: u64) {
        self.lock().compacted = version;
    }

    /// Tells when there is a new version.
    pub fn versions(&self) -> Receiver<u64> {
        self.lock().changed.subscribe()
    }

    /// Takes the times of deletions from a clock.
    pub fn set_clock(&self, runtime: &Runtime) {
        self.lock().clock = Some(runtime.clone());
    }

    /// One object with `managedFields`, as the API server shows it.
    pub fn shown(&self, target: &ObjectRef) -> Option<Object> {
        self.lock().objects.get(target).map(|stored| stored.shown(&target.kind))
    }

    /// All objects of a kind whose metadata is as wanted, with `managedFields`.
    pub fn all_shown(&self, kind: &Kind, wanted: impl Fn(&Value) -> bool) -> Vec<Object> {
        let state = self.lock();
        let of_kind = state.of_kind(kind).map(|(_, stored)| stored);
        let wanted = of_kind.filter(|stored| wanted(&stored.doc["metadata"]));
        wanted.map(|stored| stored.shown(kind)).collect()
    }

    /// How often each object was created.
    pub fn created(&self) -> BTreeMap<String, usize> {
        self.lock().created.iter().map(|(target, n)| (target.to_string(), *n)).collect()
    }

    /// Everything there is, with uids, versions, times and the content of Secrets masked: equal when the outcome is.
    pub fn picture(&self) -> BTreeMap<String, Value> {
        let state = self.lock();
        let names: Vec<(String, String)> = state
            .objects
            .iter()
            .map(|(target, stored)| {
                (
                    stored.doc["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                    format!("uid of {target}"),
                )
            })
            .collect();
        let mask = |doc: &Value| {
            let mut doc = doc.clone();
            let doc_is_secret = doc["kind"] == "Secret";
            if let Some(metadata) = doc["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
                metadata.remove("generation");
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.remove(crate::intent::INTENT); // covers uids
                }
            }
            if let Some(data) = doc.get_mut("data").filter(|_| doc_is_secret).and_then(Value::as_object_mut) {
                data.values_mut().for_each(|secret| *secret = json!("masked"));
            }
            mask_values(&mut doc, &names);
            doc
        };
        state.objects.iter().map(|(target, stored)| (target.to_string(), mask(&stored.doc))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn mask_values(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(map) => {
            for field in ["lastTransitionTime", "deletionTimestamp", "observedGeneration"] {
                map.remove(field);
            }
            map.values_mut().for_each(|v| mask_values(v, names));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| mask_values(v, names)),
        Value::String(text) => {
            for (uid, name) in names {
                if text.contains(uid.as_str()) {
                    *text = text.replace(uid.as_str(), name);
                }
            }
        }
        _ => {}
    }
}

#[async_trait]
impl Cluster for Model {
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError> {
        if !self.serves(&target.kind) {
            return Err(ApiError::NotServed);
        }
        Ok(self.object(target).map(|object| without_content(&target.kind, object)))
    }

    async fn secret(&self, secret: &Key) -> Result<Option<StoredSecret>, ApiError> {
        Ok(self.object(&SECRET.key(secret)).as_ref().map(StoredSecret::of))
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Object>, ApiError> {
        if !self.serves(&listing.kind) {
            return Err(ApiError::NotServed);
        }
        let shown = self.objects(&listing.kind).into_iter().filter(|object| listing.shows(object));
        Ok(shown.map(|object| listing.kept(object)).collect())
    }

    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError> {
        let reply = self.fault.point(|| {
            let mut state = self.lock();
            let before = state.revision;
            let result = state.write(write);
            if state.revision != before {
                state.log.push(format!("{} {}", write.verb.as_str(), write.target));
            }
            result
        });
        let reply = reply.unwrap_or_else(|| Err(ApiError::Unavailable("the reply was lost".into())));
        reply.map(|object| object.map(|object| without_content(&write.target.kind, object)))
    }
}

impl State {
    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = (&ObjectRef, &Stored)> {
        let first = kind.key(&Key::cluster("")); // no key is before this one
        self.objects.range(first..).take_while(move |(target, _)| target.kind == *kind)
    }

    fn write(&mut self, write: &Write) -> Result<Option<Object>, ApiError> {
        if self.unserved.contains(&write.target.kind) {
            return Err(ApiError::NotServed);
        }
        let verb = write.verb.as_str();
        let mut refused = self.refused.get(&write.target).into_iter().flatten();
        if let Some((_, error)) = refused.find(|(one, _)| one.is_none_or(|one| one == verb)) {
            return Err(error.clone());
        }
        let live = self.objects.get(&write.target).cloned();
        let doc = match (&write.verb, live) {
            (Verb::Create(_) | Verb::TryCreate(_), Some(_)) => return Err(ApiError::AlreadyExists),
            (Verb::TryCreate(body), None) => return Ok(Some(Object(body.clone()))),
            (Verb::Create(body), None) => self.create(&write.target, body.clone(), &write.manager),
            (Verb::Apply(body), live) => self.apply(&write.target, body, &write.manager, live)?,
            (_, None) => return Err(ApiError::NotFound),
            (Verb::Replace(body), Some(live)) => {
                guard(&live, body)?;
                let mut doc = body.clone();
                doc["status"] = live.doc["status"].clone();
                for field in ["creationTimestamp", "deletionTimestamp", "generation"] {
                    if let Some(value) = live.doc["metadata"].get(field) {
                        doc["metadata"][field] = value.clone();
                    }
                }
                self.update(&write.target, live, doc, &write.manager)
            }
            (Verb::Merge { body, status }, Some(live)) => {
                guard(&live, body)?;
                let patch = if *status { json!({"status": body["status"]}) } else { body.clone() };
                let mut doc = live.doc.clone();
                merge(&mut doc, &patch);
                self.update(&write.target, live, doc, &write.manager)
            }
            (Verb::Unfinalize { finalizers, uid }, Some(live)) => {
                let mut doc = live.doc.clone();
                if doc["metadata"]["uid"] != **uid {
                    return Err(ApiError::Conflict("uid".into()));
                }
                for (at, name) in finalizers {
                    let list = doc.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
                    match list {
                        Some(list) if list.get(*at).is_some_and(|f| f == name) => drop(list.remove(*at)),
                        _ => return Err(ApiError::Conflict("finalizers".into())),
                    }
                }
                self.update(&write.target, live, doc, &write.manager)
            }
            (Verb::Delete { uid, resource_version }, Some(live)) => {
                let version = resource_version.as_deref();
                if live.doc["metadata"]["uid"] != **uid
                    || version.is_some_and(|version| live.doc["metadata"]["resourceVersion"] != version)
                {
                    return Err(ApiError::Conflict("precondition".into()));
                }
                self.delete(&write.target, &write.manager);
                return Ok(self.objects.get(&write.target).map(|stored| Object(stored.doc.clone())));
            }
        };
        Ok(Some(Object(doc)))
    }

    fn apply(
        &mut self,
        target: &ObjectRef,
        body: &Value,
        manager: &str,
        live: Option<Stored>,
    ) -> Result<Value, ApiError> {
        let mut intent = body.clone();
        let create_only = body["metadata"]["resourceVersion"] == "1";
        if let Some(metadata) = intent["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("uid");
        }
        let Some(mut live) = live else {
            if body["metadata"].get("uid").is_some() {
                return Err(ApiError::Conflict("no such uid".into()));
            }
            let mut stored = Stored { doc: json!({}), owners: Owners::default() };
            stored.owners.apply(manager, &mut stored.doc, &intent);
            return Ok(self.begin(target, stored, manager));
        };
        if create_only {
            return Err(ApiError::Conflict("exists".into()));
        }
        guard(&live, body)?;
        live.owners.apply(manager, &mut live.doc, &intent);
        Ok(self.store(target, live, manager))
    }

    fn create(&mut self, target: &ObjectRef, body: Value, manager: &str) -> Value {
        let mut owners = Owners::default();
        owners.updated(manager, &Value::Null, &body);
        self.begin(target, Stored { doc: body, owners }, manager)
    }

    /// A new document for an object, by any means but apply.
    fn update(&mut self, target: &ObjectRef, mut stored: Stored, doc: Value, manager: &str) -> Value {
        stored.owners.updated(manager, &stored.doc, &doc);
        stored.doc = doc;
        self.store(target, stored, manager)
    }

    fn begin(&mut self, target: &ObjectRef, mut stored: Stored, manager: &str) -> Value {
        let count = self.created.entry(target.clone()).or_default();
        *count += 1;
        stored.doc["metadata"]["uid"] = json!(format!("uid:{target}:{count}"));
        stored.doc["metadata"]["generation"] = json!(1);
        stored.doc["apiVersion"] = json!(target.kind.api_version());
        stored.doc["kind"] = json!(target.kind.kind);
        self.store(target, stored, manager)
    }

    /// Stores a new version, if it is new; an object that is being deleted goes with its last finalizer.
    fn store(&mut self, target: &ObjectRef, mut stored: Stored, manager: &str) -> Value {
        if let Some(alter) = self.altered.get(target) {
            alter(&mut stored.doc);
        }
        let old = self.objects.get(target).cloned();
        if old.as_ref().is_some_and(|old| old.doc == stored.doc) {
            self.objects.insert(target.clone(), stored.clone()); // the owners may be others
            return stored.doc;
        }
        let object = Object(stored.doc.clone());
        if object.deleting() && object.finalizers().is_empty() {
            self.objects.remove(target);
            let version = self.next_revision();
            self.changed_to(version, target, manager, old, None);
            return stored.doc;
        }
        let content = |doc: &Value| {
            let mut content = doc.as_object().cloned().unwrap_or_else(Map::new);
            content.remove("metadata");
            content.remove("status");
            content
        };
        if let Some(old) = &old
            && content(&old.doc) != content(&stored.doc)
        {
            stored.doc["metadata"]["generation"] = json!(Object(old.doc.clone()).generation() + 1);
        }
        let version = self.next_revision();
        stored.doc["metadata"]["resourceVersion"] = json!(version.to_string());
        self.objects.insert(target.clone(), stored.clone());
        self.changed_to(version, target, manager, old, Some(stored.clone()));
        stored.doc
    }

    fn changed_to(
        &mut self,
        version: u64,
        target: &ObjectRef,
        by: &str,
        old: Option<Stored>,
        new: Option<Stored>,
    ) {
        let (at, target, by) = (Runtime::instant(), target.clone(), by.to_owned());
        let (old, new) = (old.map(Arc::new), new.map(Arc::new));
        self.changes.push(Change { version, at, target, by, old, new });
    }

    /// A new revision, as a version; watches hear of it.
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        let version = FIRST_VERSION + self.revision;
        self.changed.modify(|latest| {
            *latest = version;
            true
        });
        version
    }

    fn delete(&mut self, target: &ObjectRef, manager: &str) {
        let Some(mut stored) = self.objects.get(target).cloned() else { return };
        if stored.doc["metadata"].get("deletionTimestamp").is_none() {
            let now = self.clock.as_ref().map(Runtime::now).unwrap_or_default();
            let now = format!("{now:.0}");
            stored.doc["metadata"]["deletionTimestamp"] = json!(now);
            stored.doc["metadata"]["generation"] = json!(Object(stored.doc.clone()).generation() + 1);
        }
        self.store(target, stored, manager);
    }
}

impl Stored {
    fn shown(&self, kind: &Kind) -> Object {
        let mut doc = self.doc.clone();
        doc["metadata"]["managedFields"] = self.owners.managed_fields(&kind.api_version());
        Object(doc)
    }
}

fn guard(live: &Stored, body: &Value) -> Result<(), ApiError> {
    for field in ["uid", "resourceVersion"] {
        if body["metadata"].get(field).is_some_and(|wanted| *wanted != live.doc["metadata"][field]) {
            return Err(ApiError::Conflict(field.into()));
        }
    }
    Ok(())
}
