//! Which version of a kind the cluster serves, where a family can work with several. Everywhere else a kind has the one version that
//! the family prefers: it is translated on the way to the API server and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use crate::lock::lock;
use crate::object::Kind;

/// A server that does not say what it serves is not waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// The versions in which a process works with kinds. Copies share them.
#[derive(Clone, Default)]
pub(crate) struct Versions(Arc<Mutex<BTreeMap<Place, Known>>>);

/// Group, plural and preferred version: what one family prefers is nothing to another that works with one version only.
type Place = (String, String, String);

/// The versions of one kind.
#[derive(Clone, Default)]
struct Known {
    /// Besides the preferred one, the better first.
    others: Vec<String>,
    /// What the cluster serves, when it is not the preferred one.
    served: Option<String>,
}

fn place(kind: &Kind) -> Place {
    (kind.group.to_string(), kind.plural.to_string(), kind.version.to_string())
}

/// Whether the cluster says that it serves a kind in this version.
async fn is_served(client: &Client, kind: &Kind, version: &str) -> bool {
    let group = Kind { version: version.to_owned().into(), ..kind.clone() }.api_version();
    let told = tokio::time::timeout(DEADLINE, client.list_api_group_resources(&group)).await;
    matches!(told, Ok(Ok(served)) if served.resources.iter().any(|resource| resource.name == *kind.plural))
}

impl Versions {
    /// A kind can be worked with in these versions too.
    pub fn add(&self, kind: &Kind, others: &[&'static str]) {
        if others.is_empty() {
            return;
        }
        let mut all = lock(&self.0);
        let known = all.entry(place(kind)).or_default();
        for other in others {
            if !known.others.iter().any(|one| one == other) {
                known.others.push((*other).to_owned());
            }
        }
    }

    /// The kind as the cluster serves it.
    pub fn served<'a>(&self, kind: &'a Kind) -> Cow<'a, Kind> {
        match lock(&self.0).get(&place(kind)).and_then(|known| known.served.clone()) {
            Some(version) => Cow::Owned(Kind { version: version.into(), ..kind.clone() }),
            None => Cow::Borrowed(kind),
        }
    }

    /// An object that is sent, in the version that the cluster serves.
    pub fn translate<'a>(&self, kind: &Kind, body: &'a Value) -> Cow<'a, Value> {
        let served = self.served(kind);
        if *served == *kind || body["apiVersion"] != kind.api_version() {
            return Cow::Borrowed(body);
        }
        let mut body = body.clone();
        body["apiVersion"] = json!(served.api_version());
        Cow::Owned(body)
    }

    /// The cluster does not serve a kind in this version, which was asked for: looks for another. True when there is one.
    pub async fn look(&self, client: &Client, kind: &Kind, missing: &str) -> bool {
        let Some(known) = lock(&self.0).get(&place(kind)).cloned() else { return false };
        if self.served(kind).version != missing {
            return true; // another watch of the kind has found it meanwhile
        }
        if is_served(client, kind, missing).await {
            return false; // one stray answer does not make us leave a version
        }
        let preferred = std::iter::once(kind.version.to_string());
        for version in preferred.chain(known.others).filter(|version| *version != missing) {
            if is_served(client, kind, &version).await {
                tracing::info!(kind = %kind.plural, group = %kind.group, version, "The cluster serves this version");
                let chosen = (*version != *kind.version).then_some(version);
                if let Some(known) = lock(&self.0).get_mut(&place(kind)) {
                    known.served = chosen;
                }
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use tokio::time::Instant;

    use super::*;

    const KIND: Kind = Kind::namespaced("example.com", "v1", "Thing", "things");

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_say_what_it_serves_is_not_waited_for() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
        });
        let client = Client::new(silent, "default");
        let versions = Versions::default();
        versions.add(&KIND, &["v1beta1"]);
        let begun = Instant::now();
        assert!(!versions.look(&client, &KIND, "v1").await);
        assert!(begun.elapsed() <= 3 * DEADLINE, "{:?}", begun.elapsed());
    }

    #[test]
    fn who_works_with_one_version_only_is_not_moved_to_another() {
        let versions = Versions::default();
        versions.add(&KIND, &["v1beta1"]);
        if let Some(known) = lock(&versions.0).get_mut(&place(&KIND)) {
            known.served = Some("v1beta1".into());
        }
        assert_eq!(versions.served(&KIND).version, "v1beta1");
        let of_another = Kind { version: "v2".into(), ..KIND };
        assert_eq!(versions.served(&of_another).version, "v2");
    }
}
