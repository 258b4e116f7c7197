//! Secrets: made once by a recipe, or composed of others and kept as they should be. Their content is in no plan: it is read,
//! made and compared here.

use aquifer_base::Uid;
use serde_json::{Map, Value, json};

use super::{ABSENT, Done, Executor};
use crate::cluster::{ApiError, Verb};
use crate::failure::{Class, Failure};
use crate::intent::{OWNER, OWNER_UID};
use crate::object::{Identity, Key, ObjectRef};
use crate::outside::Verified;
use crate::plan::{Mint, Seal};
use crate::runtime::Runtime;
use crate::secret::{Composition, SECRET, SecretContent, StoredSecret, encoded};

impl Executor<'_> {
    pub(super) async fn mint(&self, mint: &Mint) -> Done {
        let target = SECRET.key(&mint.secret);
        let Some(uid) = self.owner_uid else { return self.ownerless(&target) };
        let content = match self.code.mint(&mint.recipe) {
            Ok(content) => content,
            Err(failure) => return Done::Failed(failure),
        };
        let labels = mint.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let body = self.secret(&mint.secret, uid, labels, &content);
        match self.writer.write(&target, Verb::Create(body), ABSENT).await {
            Ok(Some(object)) => Done::wrote(target, Some(object)),
            Ok(None) => Done::Stale(target),
            Err(ApiError::AlreadyExists) => match self.writer.cluster.secret(&mint.secret).await {
                // A lost answer to our own write, or a cache that is late.
                Ok(Some(found)) if is_owned(&found, uid) => Done::Stale(target),
                Ok(Some(_)) => Done::Failed(somebody_elses(&target)),
                Ok(None) => Done::Stale(target),
                Err(error) => Done::failed(&target, "read", &error),
            },
            Err(error) => Done::failed(&target, "create", &error),
        }
    }

    pub(super) async fn seal(&self, seal: &Seal) -> Done {
        let target = SECRET.key(&seal.secret);
        let Some(uid) = self.owner_uid else { return self.ownerless(&target) };
        let recipe = json!([seal, uid]).to_string();
        if self.outside.verified(&target).is_some_and(|verified| self.is_current(&verified, seal, &recipe)) {
            return Done::Unchanged;
        }
        let mut sources = Vec::new();
        for key in &seal.sources {
            match self.writer.cluster.secret(key).await {
                Ok(Some(source)) => sources.push(source),
                Ok(None) => {
                    let message = format!("{target} is made of Secret {key}, which is not there yet");
                    return Done::Failed(Failure::new(Class::Waiting, message));
                }
                Err(error) => return Done::Failed(Failure::api(&format!("read Secret {key}"), &error)),
            }
        }
        let current = match self.writer.cluster.secret(&seal.secret).await {
            Ok(current) => current,
            Err(error) => return Done::Failed(Failure::api(&format!("read {target}"), &error)),
        };
        if current.as_ref().is_some_and(|current| !is_owned(current, uid)) {
            return Done::Failed(somebody_elses(&target));
        }
        let contents: Vec<&SecretContent> = sources.iter().map(|source| &source.content).collect();
        let before = current.as_ref().map(|current| &current.content);
        let composition = Composition {
            recipe: &seal.recipe,
            arguments: &seal.arguments,
            sources: &contents,
            current: before,
        };
        let content = match self.code.compose(composition) {
            Ok(content) => content,
            Err(failure) => return Done::Failed(failure),
        };
        let verify = |own: Identity| {
            let sources = sources.iter().map(|source| source.identity.clone()).collect();
            let since = Runtime::instant();
            self.outside.verify(&target, Verified { recipe: recipe.clone(), own, sources, since });
        };
        let mut labels: Map<String, Value> =
            seal.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let (verb, why) = match &current {
            None => {
                let mut body = self.secret(&seal.secret, uid, labels, &content);
                body["type"] = json!(seal.secret_type);
                (Verb::Create(body), ABSENT)
            }
            Some(current) if current.secret_type != seal.secret_type => {
                let message = format!(
                    "{target} has the type {}, which cannot be changed to {}; delete it, and it is made anew",
                    current.secret_type, seal.secret_type
                );
                return Done::Failed(Failure::new(Class::Invalid, message));
            }
            Some(current)
                if current.content == content
                    && self.is_marked(current)
                    && seal.labels.iter().all(|(name, value)| current.labels.get(name) == Some(value)) =>
            {
                verify(current.identity.clone());
                return Done::Unchanged;
            }
            Some(current) => {
                let gone = current.content.keys().filter(|name| !content.contains_key(*name));
                let mut data = encoded(&content);
                data.extend(gone.map(|name| (name.clone(), Value::Null)));
                labels.insert(OWNER_UID.to_owned(), json!(uid));
                let Identity { uid, version } = &current.identity;
                let body = json!({"data": data,
                    "metadata": {"uid": uid, "resourceVersion": version, "labels": labels,
                        "annotations": self.owner_marks()}});
                (Verb::Merge { body, status: false }, "its content is out of date")
            }
        };
        let word = verb.as_str();
        match self.writer.write(&target, verb, why).await {
            Ok(Some(object)) => {
                // The answer is without the content: whether that was kept is read.
                let kept = self.writer.cluster.secret(&seal.secret).await.ok().flatten();
                match kept.filter(|kept| kept.identity == object.identity()) {
                    Some(kept) if kept.content != content => {
                        let message = format!(
                            "{target} was stored otherwise than it was sent: a webhook or policy changes it"
                        );
                        return Done::Altered(target, object, Failure::new(Class::Altered, message));
                    }
                    Some(_) => verify(object.identity()),
                    None => {} // it is compared by the next pass
                }
                Done::wrote(target, Some(object))
            }
            Ok(None) => Done::Stale(target),
            Err(error) => Done::failed(&target, word, &error),
        }
    }

    /// Whether nothing has changed since this very content was compared. Versions tell that where a cache shows them.
    fn is_current(&self, verified: &Verified, seal: &Seal, recipe: &str) -> bool {
        let cached =
            |key: &Key| self.stores.get(&SECRET.key(key)).present().map(crate::object::Object::identity);
        verified.is_young()
            && verified.recipe == recipe
            && cached(&seal.secret).as_ref() == Some(&verified.own)
            && seal.sources.iter().map(cached).eq(verified.sources.iter().cloned().map(Some))
    }

    /// Whether a Secret names our owner.
    fn is_marked(&self, secret: &StoredSecret) -> bool {
        secret.owner.as_deref() == Some(&*self.owner.to_string())
            && !self.is_of_another_kind(secret.owner_kind.as_deref())
    }

    fn owner_marks(&self) -> Value {
        let mut marks = json!({OWNER: self.owner.to_string()});
        self.add_owner_kind(&mut marks);
        marks
    }

    /// The marks are without a hash: it would speak of the content.
    fn secret(
        &self,
        secret: &Key,
        uid: &Uid,
        mut labels: Map<String, Value>,
        content: &SecretContent,
    ) -> Value {
        labels.insert(OWNER_UID.to_owned(), json!(uid));
        json!({"apiVersion": "v1", "kind": "Secret", "data": encoded(content),
            "metadata": {"name": secret.name, "namespace": secret.namespace, "labels": labels,
                "annotations": self.owner_marks()}})
    }
}

fn is_owned(secret: &StoredSecret, uid: &Uid) -> bool {
    secret.owner_uid.as_deref() == Some(uid.as_str())
}

fn somebody_elses(target: &ObjectRef) -> Failure {
    let message = format!("{target} is somebody else's: nothing of it is used; remove it or rename it");
    Failure::new(Class::Invalid, message)
}
