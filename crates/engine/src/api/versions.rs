//! Which version of a kind the cluster serves, where a family can work with several. Everywhere else a kind has the one version that
//! the family prefers: it is translated on the way to the API server and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
pub(crate) struct Versions(Arc<Mutex<BTreeMap<Preferred, Known>>>);

/// Group, plural and preferred version: what is known here concerns only watches that prefer the same version.
type Preferred = (String, String, String);

/// The versions of one kind.
#[derive(Clone, Default)]
struct Known {
    /// Besides the preferred one, the better first.
    others: Vec<String>,
    /// What the cluster serves, when it is not the preferred one.
    served: Option<String>,
}

fn preferred(kind: &Kind) -> Preferred {
    (kind.group.to_string(), kind.plural.to_string(), kind.version.to_string())
}

/// Whether the cluster says that it serves a kind in this version.
async fn is_served(client: &Client, kind: &Kind, version: &str) -> bool {
    let group = Kind { version: version.to_owned().into(), ..kind.clone() }.api_version();
    let told = tokio::time::timeout(DEADLINE, client.list_api_group_resources(&group)).await;
    matches!(told, Ok(Ok(served)) if served.resources.iter().any(|resource| resource.name == *kind.plural))
}

impl Versions {
    /// A watch can work with a kind in these versions too. What several watches prefer is shared by them, so that only versions will do
    /// that all of them name.
    pub fn add(&self, kind: &Kind, others: &[&'static str]) {
        match lock(&self.0).entry(preferred(kind)) {
            Entry::Vacant(place) => {
                let others = others.iter().map(ToString::to_string).collect();
                place.insert(Known { others, served: None });
            }
            Entry::Occupied(mut known) => {
                let Known { others: shared, served } = known.get_mut();
                shared.retain(|one| others.contains(&one.as_str()));
                *served = served.take().filter(|served| shared.contains(served));
            }
        }
    }

    /// The kind as the cluster serves it.
    pub fn served<'a>(&self, kind: &'a Kind) -> Cow<'a, Kind> {
        match lock(&self.0).get(&preferred(kind)).and_then(|known| known.served.clone()) {
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
        let known = lock(&self.0).get(&preferred(kind)).cloned();
        let Some(known) = known.filter(|known| !known.others.is_empty()) else { return false };
        if self.served(kind).version != missing {
            return true; // another watch of the kind has found it meanwhile
        }
        if is_served(client, kind, missing).await {
            return false; // one stray answer does not make us leave a version
        }
        let first = std::iter::once(kind.version.to_string());
        for version in first.chain(known.others).filter(|version| *version != missing) {
            if is_served(client, kind, &version).await {
                let chosen = (*version != *kind.version).then(|| version.clone());
                let mut all = lock(&self.0);
                let Some(known) = all.get_mut(&preferred(kind)) else { return false };
                // Another watch may have come meanwhile that cannot work with it.
                if chosen.as_ref().is_some_and(|chosen| !known.others.contains(chosen)) {
                    return false;
                }
                known.served = chosen;
                tracing::info!(kind = %kind.plural, group = %kind.group, version, "The cluster serves this version");
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

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
        // Two versions are asked for.
        let longest = 2 * DEADLINE + Duration::from_secs(1);
        let found = tokio::time::timeout(longest, versions.look(&client, &KIND, "v1")).await;
        assert!(!found.expect("a silent server was waited for longer than two deadlines"));
    }

    #[test]
    fn watches_that_prefer_the_same_version_get_another_only_if_all_of_them_name_it() {
        let (versions, of) = (Versions::default(), |versions: &Versions| {
            lock(&versions.0).get(&preferred(&KIND)).cloned().unwrap_or_default()
        });
        versions.add(&KIND, &["v1beta2", "v1beta1"]);
        if let Some(known) = lock(&versions.0).get_mut(&preferred(&KIND)) {
            known.served = Some("v1beta1".into());
        }
        versions.add(&KIND, &["v1beta1", "v1alpha1"]);
        assert_eq!(of(&versions).others, ["v1beta1"]);
        assert_eq!(versions.served(&KIND).version, "v1beta1");
        versions.add(&KIND, &[]);
        assert_eq!(of(&versions).others, [""; 0]);
        assert_eq!(versions.served(&KIND).version, "v1", "one of them works with nothing else");
    }

    #[test]
    fn who_prefers_another_version_is_not_moved() {
        let versions = Versions::default();
        versions.add(&KIND, &["v1beta1"]);
        if let Some(known) = lock(&versions.0).get_mut(&preferred(&KIND)) {
            known.served = Some("v1beta1".into());
        }
        assert_eq!(versions.served(&KIND).version, "v1beta1");
        let of_another = Kind { version: "v2".into(), ..KIND };
        assert_eq!(versions.served(&of_another).version, "v2");
    }
}
