//! What a request is about: the API path taken apart, and whether it is a write. Pure; must not do IO.

use http::Method;
use serde::Deserialize;

/// The object or collection that an API path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, as `v1`.
    pub version: String,
    /// Namespace of a namespaced object or collection.
    pub namespace: Option<String>,
    /// Plural name, as `persistentvolumes`.
    pub resource: String,
    /// Name of the object; none for a collection.
    pub name: Option<String>,
    /// What follows the name, as `status`; further parts stay joined by `/`.
    pub subresource: Option<String>,
    /// The path has the old form `/api/v1/watch/…`.
    pub watch_path: bool,
}

impl Target {
    /// Takes an API path apart; `None` for discovery, health and whatever else names no resource.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let mut target = Self { group: group.to_owned(), version: version.to_owned(), ..Self::default() };
        if let ["watch", after @ ..] = rest
            && !after.is_empty()
        {
            target.watch_path = true;
            rest = after;
        }
        // `namespaces/x/status` and `namespaces/x/finalize` are the Namespace itself, not a collection in it.
        if let ["namespaces", namespace, resource, ..] = rest
            && !matches!(*resource, "status" | "finalize")
        {
            target.namespace = Some((*namespace).to_owned());
            rest = &rest[2..];
        }
        let (resource, rest) = rest.split_first()?;
        (*resource).clone_into(&mut target.resource);
        if let Some((name, sub)) = rest.split_first() {
            target.name = Some((*name).to_owned());
            if !sub.is_empty() {
                target.subresource = Some(sub.join("/"));
            }
        }
        Some(target)
    }

    /// Whether this is about `resource`, written `plural` or `plural.group`.
    pub fn is_resource(&self, resource: &str) -> bool {
        match resource.split_once('.') {
            None => self.resource == resource,
            Some((plural, group)) => self.resource == plural && self.group == group,
        }
    }
}

/// One request, as far as faults care.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) target: Option<Target>,
    /// Name of the object, also for a create, whose path does not have it.
    pub(super) object: Option<String>,
    pub(super) kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A numbered write.
    Write,
    /// Changes something that is not counted: a Lease, an Event; or only asks by POST.
    Uncounted,
    /// Everything else that only reads.
    Read,
    /// A read that stays open.
    Watch,
}

/// The few fields of a request body that matter here.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Peek {
    metadata: PeekMetadata,
    dry_run: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PeekMetadata {
    name: Option<String>,
}

impl Call {
    pub(super) fn new(method: &Method, uri: &http::Uri, body: &[u8]) -> Self {
        let path = uri.path().to_owned();
        let query = uri.query().unwrap_or_default().to_owned();
        let target = Target::parse(&path);
        // A body that is not JSON (protobuf, YAML) has no name that we need: only creates lack it in the path.
        let peek: Peek = if *method == Method::POST || *method == Method::DELETE {
            serde_json::from_slice(body).unwrap_or_default()
        } else {
            Peek::default()
        };
        let dry_run = peek.dry_run.iter().any(|value| !value.is_empty())
            || pairs(&query).any(|(key, value)| key == "dryRun" && !value.is_empty());
        let object = target.as_ref().and_then(|target| target.name.clone()).or(peek.metadata.name);
        let kind = kind(method, target.as_ref(), &query, dry_run);
        Self { method: method.clone(), path, query, target, object, kind }
    }

    pub(super) fn is_resource(&self, resource: &str) -> bool {
        self.target.as_ref().is_some_and(|target| target.is_resource(resource))
    }

    /// A plain list (not a watch) of a collection.
    pub(super) fn is_list(&self) -> bool {
        self.kind == CallKind::Read
            && self.method == Method::GET
            && self.target.as_ref().is_some_and(|target| target.name.is_none())
    }

    pub(super) fn query_value(&self, key: &str) -> Option<&str> {
        pairs(&self.query).find_map(|(k, value)| (k == key).then_some(value))
    }
}

/// The pairs of a query string, not decoded: the keys and values compared here are plain.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn kind(method: &Method, target: Option<&Target>, query: &str, dry_run: bool) -> CallKind {
    let changes = matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    if !changes {
        let asked =
            pairs(query).any(|(key, value)| key == "watch" && !matches!(value, "0" | "false" | "False"));
        let watch = target.is_some_and(|target| target.watch_path || asked);
        return if watch { CallKind::Watch } else { CallKind::Read };
    }
    let apart = target.is_some_and(|target| {
        let sub = target.subresource.as_deref().unwrap_or_default();
        match (target.group.as_str(), target.resource.as_str()) {
            ("coordination.k8s.io", "leases")
            | ("" | "events.k8s.io", "events")
            | ("authorization.k8s.io" | "authentication.k8s.io", _) => true,
            ("", "serviceaccounts") => sub == "token",
            // Streams into a pod or service, not changes of an object.
            ("", "pods" | "services" | "nodes") => {
                matches!(sub, "exec" | "attach" | "portforward" | "proxy") || sub.starts_with("proxy/")
            }
            _ => false,
        }
    });
    if apart || dry_run { CallKind::Uncounted } else { CallKind::Write }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        Target::parse(path).unwrap()
    }

    fn kind_of(method: &Method, uri: &str, body: &str) -> CallKind {
        Call::new(method, &uri.parse().unwrap(), body.as_bytes()).kind
    }

    #[test]
    fn paths_are_taken_apart() {
        let cases = [
            ("/api/v1/pods", ("", "v1", None, "pods", None, None)),
            ("/api/v1/namespaces", ("", "v1", None, "namespaces", None, None)),
            ("/api/v1/namespaces/a", ("", "v1", None, "namespaces", Some("a"), None)),
            ("/api/v1/namespaces/a/finalize", ("", "v1", None, "namespaces", Some("a"), Some("finalize"))),
            ("/api/v1/namespaces/a/pods/", ("", "v1", Some("a"), "pods", None, None)),
            (
                "/api/v1/namespaces/a/pods/b/proxy/c/d",
                ("", "v1", Some("a"), "pods", Some("b"), Some("proxy/c/d")),
            ),
            (
                "/apis/storage.k8s.io/v1/storageclasses/efs",
                ("storage.k8s.io", "v1", None, "storageclasses", Some("efs"), None),
            ),
            (
                "/apis/x.io/v1alpha1/namespaces/a/sharedvolumes/b/status",
                ("x.io", "v1alpha1", Some("a"), "sharedvolumes", Some("b"), Some("status")),
            ),
        ];
        for (path, (group, version, namespace, resource, name, sub)) in cases {
            let want = Target {
                group: group.to_owned(),
                version: version.to_owned(),
                namespace: namespace.map(str::to_owned),
                resource: resource.to_owned(),
                name: name.map(str::to_owned),
                subresource: sub.map(str::to_owned),
                watch_path: false,
            };
            assert_eq!(target(path), want, "{path}");
        }
    }

    #[test]
    fn paths_without_a_resource_have_no_target() {
        for path in ["/", "/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/readyz"] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }

    #[test]
    fn the_old_watch_path_is_a_watch() {
        let old = target("/api/v1/watch/namespaces/a/pods/b");
        assert!(old.watch_path);
        assert_eq!((old.resource.as_str(), old.name.as_deref()), ("pods", Some("b")));
    }

    #[test]
    fn a_resource_matches_with_and_without_its_group() {
        let lease = target("/apis/coordination.k8s.io/v1/leases");
        assert!(lease.is_resource("leases"));
        assert!(lease.is_resource("leases.coordination.k8s.io"));
        assert!(!lease.is_resource("leases.x.io"));
    }

    #[test]
    fn writes_are_distinguished_from_what_is_not_counted() {
        use CallKind::{Read, Uncounted, Watch, Write};
        let cases = [
            (Method::GET, "/api/v1/pods", "", Read),
            (Method::GET, "/api/v1/pods?watch=true", "", Watch),
            (Method::GET, "/api/v1/pods?limit=5&watch=1", "", Watch),
            (Method::GET, "/api/v1/pods?watch=false", "", Read),
            (Method::POST, "/api/v1/namespaces/a/pods", "{}", Write),
            (Method::PUT, "/api/v1/namespaces/a/pods/b/status", "{}", Write),
            (Method::PATCH, "/apis/x.io/v1/things/b?fieldManager=m", "{}", Write),
            (Method::PATCH, "/apis/x.io/v1/things/b?dryRun=All", "{}", Uncounted),
            (Method::DELETE, "/apis/x.io/v1/things/b", "", Write),
            (Method::DELETE, "/apis/x.io/v1/things/b", r#"{"dryRun":["All"]}"#, Uncounted),
            (Method::POST, "/api/v1/namespaces/a/pods/b/eviction", "{}", Write),
            (Method::POST, "/api/v1/namespaces/a/pods/b/exec?command=x", "", Uncounted),
            (Method::POST, "/api/v1/namespaces/a/events", "{}", Uncounted),
            (Method::PATCH, "/apis/events.k8s.io/v1/namespaces/a/events/b", "{}", Uncounted),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "{}", Uncounted),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "{}", Uncounted),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", "{}", Uncounted),
            (Method::POST, "/api/v1/namespaces/a/serviceaccounts/b/token", "{}", Uncounted),
            (Method::POST, "/api/v1/namespaces/a/serviceaccounts", "{}", Write),
        ];
        for (method, uri, body, want) in cases {
            assert_eq!(kind_of(&method, uri, body), want, "{method} {uri}");
        }
    }

    #[test]
    fn a_created_object_has_the_name_in_its_body() {
        let uri = "/api/v1/persistentvolumes".parse().unwrap();
        let call = Call::new(&Method::POST, &uri, br#"{"metadata":{"name":"pv-a"}}"#);
        assert_eq!(call.object.as_deref(), Some("pv-a"));
    }
}
