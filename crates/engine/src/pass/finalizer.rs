//! Our finalizer: it goes on before the first effect, and comes off last.

use serde_json::json;

use super::Pass;
use super::steps::Done;
use crate::cluster::Verb;
use crate::object::{Object, revision};
use crate::store::Progress;

impl Pass<'_> {
    /// Puts it on. None when there is nothing to do.
    pub(super) async fn hold(&self, subject: Option<&Object>) -> Option<Done> {
        let object = subject?;
        let name = self.controller.finalizers().first()?;
        if object.finalizers().contains(name) {
            return None;
        }
        let target = self.target();
        let mut body = json!({
            "apiVersion": target.kind.api_version(), "kind": target.kind.kind,
            // With the version: a spec that changed since it was looked at must be looked at first.
            "metadata": {"name": self.key.name, "uid": object.uid(), "finalizers": [name],
                "resourceVersion": object.resource_version()},
        });
        if target.kind.namespaced {
            body["metadata"]["namespace"] = json!(self.key.namespace);
        }
        Some(match self.writer().write(&target, Verb::Apply(body), "our finalizer goes on").await {
            Ok(written) => Done::wrote(target, written),
            Err(error) => Done::failed(&target, "hold", &error),
        })
    }

    /// Takes every finalizer of ours off. None when there is nothing to do.
    pub(super) async fn release(&self, subject: Option<&Object>) -> Option<Done> {
        let object = subject?;
        let ours = self.controller.finalizers();
        let held = object.finalizers();
        let finalizers: Vec<(usize, String)> = held
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, name)| ours.contains(name))
            .map(|(at, name)| (at, (*name).to_owned()))
            .collect();
        if finalizers.is_empty() {
            return None;
        }
        let target = self.target();
        let uid = object.uid().to_owned();
        let verb = Verb::Unfinalize { finalizers, uid: uid.clone() };
        Some(match self.writer().write(&target, verb, "our finalizer comes off").await {
            Ok(written) => {
                let held = revision(object.resource_version());
                Done::Wrote(target, written, Progress::Released(uid, held))
            }
            Err(error) => Done::failed(&target, "release", &error),
        })
    }
}
