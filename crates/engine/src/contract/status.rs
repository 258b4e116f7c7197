//! The status of a subject: conditions by the Kubernetes convention and the family's own fields.
//! Compares with what is there, so that nothing is written when nothing changed. No clock of its own.

use aquifer_base::{Field, Reason, Writer};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{Class, Failure};
use crate::object::Object;

/// What a status shall say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Report {
    /// The family's own fields; those of the shape that are missing here are cleared.
    pub(crate) fields: Map<String, Value>,
    /// Our conditions; those of the shape that are missing here are removed.
    pub conditions: Vec<Condition>,
    /// How soon it must be written.
    pub urgency: Urgency,
}

/// How soon a change of status must be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Urgency {
    /// At once: results, failures, blockers.
    #[default]
    Now,
    /// Progress only: a later pass will probably say more. It waits a second, and longer while many objects are under way.
    Soon,
}

/// One condition, without its times: those are the engine's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Condition {
    /// Type, such as `Ready`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub state: State,
    /// One word: read it with [`Condition::reason`].
    pub(crate) reason: String,
    /// What is wrong, where, and what to do.
    pub message: String,
    /// Whether people get an event when this comes about.
    pub event: Option<EventType>,
}

/// The two types of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// Good news that somebody waits for, such as the end of a trouble.
    Normal,
    /// Trouble.
    Warning,
}

impl EventType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Holds.
    True,
    /// Does not hold.
    False,
    /// Cannot be told.
    Unknown,
}

impl State {
    /// Reads what stands in a condition; anything else than `True` and `False` counts as unknown.
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Which parts of a kind's status one controller writes. Everything else in there belongs to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Top-level fields, besides `conditions` and `observedGeneration`.
    pub fields: Vec<&'static str>,
    /// Condition types. `Ready` and `Progressing` must be among them for failures to show.
    pub conditions: Vec<&'static str>,
    /// Where `observedGeneration` is.
    pub observed_generation: ObservedGeneration,
}

/// Where a kind's status says which generation it is about. Schemas of others may lack the field: the server drops what they lack, and
/// it would be written for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObservedGeneration {
    /// In the status and in each condition.
    #[default]
    Everywhere,
    /// In the status, and not in conditions.
    StatusOnly,
    /// Nowhere.
    Nowhere,
}

impl Shape {
    /// The part of a kind's status that a controller writes, from the table of writers.
    pub fn of(table: &[Field], kind: &str, controller: &str) -> Self {
        let ours = |field: &&Field| {
            field.kind == kind && matches!(field.writer, Writer::Controller(name) if name == controller)
        };
        let ours = || table.iter().filter(ours);
        let fields = ours().filter(|field| field.condition().is_none());
        let fields = fields.filter_map(|field| field.path.strip_prefix("status."));
        Self {
            fields: fields.filter(|name| *name != GENERATION).collect(),
            conditions: ours().filter_map(Field::condition).collect(),
            observed_generation: ObservedGeneration::Everywhere,
        }
    }

    /// The same, where `observedGeneration` is not everywhere.
    #[must_use]
    pub fn observed_generation(mut self, observed_generation: ObservedGeneration) -> Self {
        self.observed_generation = observed_generation;
        self
    }
}

const GENERATION: &str = "observedGeneration";
const CONDITIONS: &str = "conditions";

impl Condition {
    /// A condition.
    pub fn new(kind: &str, state: State, reason: impl Reason, message: impl Into<String>) -> Self {
        let reason = reason.as_str().to_owned();
        Self { kind: kind.into(), state, reason, message: message.into(), event: None }
    }

    /// The reason as one of a kind; none when another program or version wrote it.
    pub fn reason<R: Reason>(&self) -> Option<R> {
        R::parse(&self.reason)
    }

    /// The same, worth a Warning event when it comes about.
    pub fn warning(mut self) -> Self {
        self.event = Some(EventType::Warning);
        self
    }

    /// The same, worth a Normal event when it comes about. Each event is a write: not for what every object goes through.
    pub fn news(mut self) -> Self {
        self.event = Some(EventType::Normal);
        self
    }
}

/// The reason of a condition in a status that was read; none when the condition is absent or has another program's reason.
pub fn reason_in<R: Reason>(conditions: &[meta::Condition], kind: &str) -> Option<R> {
    conditions.iter().find(|condition| condition.type_ == kind).and_then(|found| R::parse(&found.reason))
}

/// What a condition in a status that was read says; none when it is absent.
pub fn state_in(conditions: &[meta::Condition], kind: &str) -> Option<State> {
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some(State::parse(&found.status))
}

/// The fields that a typed status states, as they are sent. What is none is left out; conditions and the observed generation
/// are the engine's.
pub(crate) fn fields_of(status: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(status) else { return Map::new() };
    fields.retain(|name, value| !value.is_null() && name != GENERATION && name != CONDITIONS);
    fields
}

impl Report {
    /// What a typed status says. Conditions are added one by one; those in the status itself, and fields that are not ours,
    /// are not sent.
    pub fn new(status: &impl Serialize) -> Self {
        Self { fields: fields_of(status), ..Self::default() }
    }

    /// What our part of a live status says.
    pub(crate) fn of(subject: &Object, shape: &Shape) -> Self {
        let field = |name: &&str| Some(((*name).to_owned(), subject.at("/status")?.get(name)?.clone()));
        let conditions = subject.at("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let conditions = conditions.filter(|c| shape.conditions.contains(&text(c, "type"))).map(|c| {
            let state = State::parse(text(c, "status"));
            let owned = |field: &str| text(c, field).to_owned();
            Condition {
                kind: owned("type"),
                state,
                reason: owned("reason"),
                message: owned("message"),
                event: None,
            }
        });
        Self {
            fields: shape.fields.iter().filter_map(field).collect(),
            conditions: conditions.collect(),
            urgency: Urgency::Now,
        }
    }

    /// Sets or replaces a condition.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.set(condition);
        self
    }

    /// The news can wait for a newer pass.
    pub fn soon(mut self) -> Self {
        self.urgency = Urgency::Soon;
        self
    }

    /// Sets or replaces a condition.
    pub fn set(&mut self, condition: Condition) {
        self.conditions.retain(|c| c.kind != condition.kind);
        self.conditions.push(condition);
    }

    /// The condition of a type.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// How a failure shows by default: `Ready` is false, with the class's reason. What will probably pass shows as `Progressing`
    /// and leaves `Ready` alone, unless that says for the first time that what the user wants now is served: it is not yet.
    pub fn failed(&mut self, failure: &Failure, subject: &Object) {
        let said = |kind: &str, state: State| {
            Condition::new(kind, state, failure.class.reason(), &failure.message).warning()
        };
        let says_ready = self.get(READY).is_some_and(|ready| ready.state == State::True);
        let was_ready = subject.condition(READY).is_some_and(|ready| {
            ready["status"] == State::True.as_str()
                && subject.observed(ready).is_none_or(|observed| observed == subject.generation())
        });
        match failure.class {
            Class::Transient => {
                self.set(said("Progressing", State::True));
                if says_ready && !was_ready {
                    self.set(said(READY, State::False));
                }
            }
            _ => self.set(said(READY, State::False)),
        }
        self.urgency = Urgency::Now;
    }
}

/// A status write that is worth making.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The `status` part of the merge patch.
    pub body: Value,
    /// Conditions that came about and deserve an event.
    pub news: Vec<Condition>,
}

const MESSAGE_LIMIT: usize = 1024;
/// The condition of every kind that says that nothing is written for an object.
const PAUSED: &str = "Paused";
/// The condition that sums up all others.
pub(crate) const READY: &str = "Ready";

/// What must be written so that the subject's status says `status`; none when it does already.
pub(crate) fn change(subject: &Object, status: &Report, shape: &Shape, now: Timestamp) -> Option<Change> {
    let empty = Value::Object(Map::new());
    let live = subject.at("/status").unwrap_or(&empty);
    let mut body = Map::new();
    for name in &shape.fields {
        let wanted = status.fields.get(*name).unwrap_or(&Value::Null);
        let found = live.get(name).unwrap_or(&Value::Null);
        if wanted != found {
            body.insert((*name).into(), replacing(found, wanted));
        }
    }
    let generation = Value::from(subject.generation());
    if shape.observed_generation != ObservedGeneration::Nowhere && live.get(GENERATION) != Some(&generation) {
        body.insert(GENERATION.into(), generation);
    }
    let (conditions, changed, news) = conditions(subject, live, status, shape, now);
    if changed {
        body.insert(CONDITIONS.into(), Value::Array(conditions));
    }
    (!body.is_empty()).then_some(Change { body: Value::Object(body), news })
}

aquifer_base::reasons! {
    /// The reason of the condition `Paused`, on every kind.
    pub enum PauseReason {
        /// The annotation `aquifer.storage/paused` is `true`.
        Annotation,
    }
}

/// What must be written so that the status of a subject says that it is paused, and changes in nothing else.
pub(crate) fn paused(subject: &Object, shape: &Shape, now: Timestamp) -> Option<Change> {
    let message = "nothing is written for this object, not even when it is deleted, while its annotation aquifer.storage/paused is true";
    let report = Report::default()
        .condition(Condition::new(PAUSED, State::True, PauseReason::Annotation, message).news());
    let shape = Shape { observed_generation: shape.observed_generation, ..Shape::default() };
    let empty = Value::Object(Map::new());
    let live = subject.at("/status").unwrap_or(&empty);
    let (conditions, changed, news) = conditions(subject, live, &report, &shape, now);
    changed.then(|| Change { body: json!({CONDITIONS: conditions}), news })
}

/// A merge patch merges maps, but a status field shall become exactly what we say: keys that go are nulled.
fn replacing(found: &Value, wanted: &Value) -> Value {
    let (Value::Object(found), Value::Object(wanted)) = (found, wanted) else { return wanted.clone() };
    let mut patch = Map::new();
    for (key, old) in found {
        match wanted.get(key) {
            None => patch.insert(key.clone(), Value::Null),
            Some(new) if new != old => patch.insert(key.clone(), replacing(old, new)),
            Some(_) => None,
        };
    }
    for (key, new) in wanted {
        if !found.contains_key(key) {
            patch.insert(key.clone(), new.clone());
        }
    }
    Value::Object(patch)
}

fn conditions(
    subject: &Object,
    live: &Value,
    status: &Report,
    shape: &Shape,
    now: Timestamp,
) -> (Vec<Value>, bool, Vec<Condition>) {
    let none = Vec::new();
    let is_ours = |kind: &str| shape.conditions.contains(&kind) || kind == PAUSED;
    let old = live.get(CONDITIONS).and_then(Value::as_array).unwrap_or(&none);
    let mut changed = false;
    let mut news = Vec::new();
    let mut result = Vec::new();
    for found in old {
        let kind = text(found, "type");
        if !is_ours(kind) {
            result.push(found.clone()); // another writer's
        } else if status.get(kind).is_none() {
            changed = true; // ours, and it no longer applies
        }
    }
    // What is not in the shape is not ours to write: nobody would ever take it away again.
    for wanted in status.conditions.iter().filter(|c| is_ours(&c.kind)) {
        let before = old.iter().find(|c| text(c, "type") == wanted.kind);
        let message = cut(&wanted.message, MESSAGE_LIMIT);
        let same_state = before.is_some_and(|c| text(c, "status") == wanted.state.as_str());
        let same_reason = same_state && before.is_some_and(|c| text(c, "reason") == wanted.reason);
        let generation = (shape.observed_generation == ObservedGeneration::Everywhere)
            .then(|| Value::from(subject.generation()));
        let same = same_reason
            && before
                .is_some_and(|c| text(c, "message") == message && c.get(GENERATION) == generation.as_ref());
        changed |= !same;
        if wanted.event.is_some() && !same_reason {
            news.push(wanted.clone());
        }
        let since = before.filter(|_| same_state).map(|c| text(c, "lastTransitionTime").to_owned());
        let mut condition = json!({
            "type": wanted.kind,
            "status": wanted.state.as_str(),
            "reason": wanted.reason,
            "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| seconds(now)),
        });
        if let Some(generation) = generation {
            condition[GENERATION] = generation;
        }
        result.push(condition);
    }
    (result, changed, news)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Kubernetes keeps whole seconds.
fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Cuts a text at a character border.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    match text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= limit).last() {
        Some(end) => &text[..end],
        None => "",
    }
}

#[cfg(test)]
mod tests;
