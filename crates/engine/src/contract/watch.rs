//! What a controller watches: a kind or a part of it, whom its objects wake, and what the cache keeps of them.

use std::sync::Arc;

use serde_json::Value;

use crate::cluster::{Listing, is_selected};
use crate::kept::Kept;
use crate::object::{Key, Kind, Object};

/// Whom a change of an object wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// None: it is only looked up.
    NoKey,
    /// The key that it has itself: it is a subject.
    Itself,
    /// These keys.
    Keys(Vec<Key>),
    /// The subjects of this topic: see [`Watch::topics`].
    Topic(String),
    /// Every key of the controller.
    AllKeys,
}

type WakesFn = Arc<dyn Fn(&Object) -> Wakes + Send + Sync>;
type TopicsFn = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;
type GroupFn = Arc<dyn Fn(&Object) -> Option<String> + Send + Sync>;
type SelectorFn = Arc<dyn Fn(&Key) -> String + Send + Sync>;

/// A kind to watch, and what its objects mean to the controller.
#[derive(Clone)]
#[must_use]
pub struct Watch {
    /// The kind.
    pub kind: Kind,
    /// Label selector; the cache then holds a part only, and absence from it proves nothing.
    pub labels: Option<String>,
    /// Only objects of this name.
    pub name: Option<String>,
    /// Only objects in this namespace.
    pub namespace: Option<String>,
    pub(crate) wakes: WakesFn,
    pub(crate) group: Option<GroupFn>,
    pub(crate) topics: Option<TopicsFn>,
    pub(crate) kept: Kept,
    /// By a key, the labels of the objects that wake it.
    pub(crate) named_by: Option<SelectorFn>,
    /// Versions of the kind that will do where the cluster does not serve its own.
    pub(crate) versions: Vec<&'static str>,
    /// Each object wakes the owner that its marks name, and nobody else.
    pub(crate) children: bool,
    /// The kind of the controller's subjects.
    pub(crate) subject: Option<Kind>,
    /// Beginnings of the names of labels and annotations that mean something to the family, besides the engine's own.
    marks: Vec<String>,
}

impl Watch {
    /// Watches a kind.
    pub fn new(kind: Kind, wakes: impl Fn(&Object) -> Wakes + Send + Sync + 'static) -> Self {
        Self {
            kind,
            labels: None,
            name: None,
            namespace: None,
            wakes: Arc::new(wakes),
            group: None,
            topics: None,
            kept: Kept::Content,
            named_by: None,
            versions: Vec::new(),
            children: false,
            subject: None,
            marks: vec![crate::intent::PREFIX.to_owned()],
        }
    }

    /// Watches the kind of the subjects: each wakes itself.
    pub fn subjects(kind: Kind) -> Self {
        Self::new(kind, |_| Wakes::Itself)
    }

    /// Watches children that carry our marks: each wakes the owner it names.
    pub fn children(kind: Kind) -> Self {
        let wakes = |object: &Object| {
            // What lives in a namespace cannot make itself the child of somebody in another one.
            let near = |key: &Key| {
                object.namespace().is_empty()
                    || key.namespace.is_empty()
                    || *key.namespace == *object.namespace()
            };
            let owner = crate::intent::owner_key(object).filter(near);
            owner.map_or(Wakes::NoKey, |key| Wakes::Keys(vec![key]))
        };
        Self { children: true, ..Self::new(kind, wakes) }
    }

    /// Only objects with these labels; the label is one of ours then.
    pub fn labelled(mut self, selector: &str) -> Self {
        self.marks.push(selector.split('=').next().unwrap_or(selector).to_owned());
        self.labels = Some(selector.to_owned());
        self
    }

    /// Labels and annotations whose names begin so are ours too.
    pub fn marked(mut self, prefix: &str) -> Self {
        self.marks.push(prefix.to_owned());
        self
    }

    /// Whether a label or annotation is one of ours.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.marks.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Only the object (in every namespace) of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Where the cluster does not serve the version of the kind, one of these will do; the first that is served. What is read and
    /// written of it must be the same in all of them. Watches of one process that prefer the same version share it: only versions that
    /// all of them name will do.
    pub fn or_versions(mut self, versions: &[&'static str]) -> Self {
        self.versions = versions.to_vec();
        self
    }

    /// Only objects in this namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// For a controller whose subjects are of this kind: children of other kinds' objects are not its own.
    pub(crate) fn of_subjects(self, kind: Kind) -> Self {
        Self { subject: Some(kind), ..self }
    }

    /// Whom a change of an object wakes.
    pub(crate) fn whom(&self, object: &Object) -> Wakes {
        let strange = |kind: &Kind| self.children && !crate::intent::may_be_owned_by(object, kind);
        if self.subject.as_ref().is_some_and(strange) { Wakes::NoKey } else { (self.wakes)(object) }
    }

    /// What of the cluster it shows.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            name: self.name.clone(),
        }
    }

    /// The objects that wake a key carry these labels: where they are read live, others are left out.
    pub fn named_by(mut self, selector: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        self.named_by = Some(Arc::new(selector));
        self
    }

    /// Objects of one group wake each other when one joins or leaves, unless they are very many, and can be looked up by the group. For
    /// objects that others wake, see [`Watch::topics`].
    pub fn grouped(mut self, group: impl Fn(&Object) -> Option<String> + Send + Sync + 'static) -> Self {
        self.group = Some(Arc::new(group));
        self
    }

    /// What an object is about, such as the namespace that it lives in, or a resource outside that it names. Whatever else is watched
    /// may wake all subjects of a topic ([`Wakes::Topic`]); all objects of a topic can be looked up by it ([`View::cached_topic`]).
    ///
    /// [`View::cached_topic`]: crate::View::cached_topic
    pub fn topics(mut self, topics: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.topics = Some(Arc::new(topics));
        self
    }

    /// For a kind that we apply: the cache keeps only these parts (JSON pointers), besides metadata that is ours. They must
    /// hold all that our intents say, or we would write for ever.
    pub fn keep(mut self, parts: &'static [&'static str]) -> Self {
        self.kept = Kept::Parts(parts);
        self
    }

    /// For a kind that is only looked at: the cache keeps what this makes of the object, and since when it is being
    /// deleted. When none of it has changed, nobody is woken.
    pub fn facts(mut self, facts: impl Fn(&Object) -> Value + Send + Sync + 'static) -> Self {
        self.kept = Kept::Facts(Arc::new(facts));
        self
    }

    /// For a kind that is replaced wholesale: the cache keeps everything, with `managedFields`.
    pub fn replaced(mut self) -> Self {
        self.kept = Kept::Whole;
        self
    }
}

/// A part of a kind that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub labels: Option<String>,
    pub name: Option<String>,
}

impl Scope {
    /// What of the kind it is, for people; empty for all of it.
    pub fn part(&self) -> String {
        let parts = [("namespace", &self.namespace), ("name", &self.name), ("labels", &self.labels)];
        let parts = parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The same as a list.
    pub fn listing(&self) -> Listing {
        Listing {
            kind: self.kind.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            labels: self.labels.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
            parts: Vec::new(),
        }
    }

    /// Whether an object is in it.
    pub fn shows(&self, object: &Object) -> bool {
        self.may_hold(&object.key())
            && is_selected(&object.0["metadata"], self.labels.as_deref().unwrap_or_default())
    }

    /// Whether an object of this key is in it, its labels apart.
    pub fn may_hold(&self, key: &Key) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == &*key.namespace)
            && self.name.as_deref().is_none_or(|name| name == &*key.name)
    }
}
