//! Reads a cluster's audit log: who called the API server, and what for. Never judges what is too much.
//!
//! The API server writes each call down before its reply ends, so a call whose reply was read to the end is there.
//! Watches are there once they end.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// How much is read at once when looking for the end of the last line.
const BLOCK: usize = 8192;

/// Names a directory in which the audit logs of clusters started now are kept when the clusters are removed.
pub const KEEP_IN: &str = "AQUIFER_LAB_AUDIT";
/// How the names of kept logs end; before it is the cluster's name and a number.
const KEPT: &str = ".audit";

/// Puts the log of a cluster into a directory, beside those that are there. It stays where it was, too: its owner may want to keep that.
pub(crate) fn keep(cluster: &str, log: &Path, into: &Path) -> Result<()> {
    std::fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    let free = (1..=u32::MAX).map(|n| into.join(format!("{cluster}.{n}{KEPT}"))).find(|path| !path.exists());
    let to = free.context("no name is free")?;
    // A second name for the same file, or a copy on another file system.
    std::fs::hard_link(log, &to)
        .or_else(|_| std::fs::copy(log, &to).map(drop))
        .with_context(|| format!("cannot write {}", to.display()))
}

/// The kept logs in a directory with the names of their clusters. A directory that is not there holds none.
pub fn kept(dir: &Path) -> Result<Vec<(String, Audit)>> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((cluster, _)) = name.strip_suffix(KEPT).and_then(|name| name.rsplit_once('.')) {
            found.push((cluster.to_owned(), Audit::new(path)));
        }
    }
    Ok(found)
}

/// The audit log of one cluster.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

/// A position in an audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// Later than everything.
    pub const END: Self = Self(u64::MAX);
}

/// One finished call to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who called; the impersonated user when there was one.
    pub user: String,
    /// What the client called itself.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group and for calls that are not about objects.
    pub group: String,
    /// The plural, such as `persistentvolumes`; empty for calls such as `/version`.
    pub resource: String,
    /// Such as `status`; else empty.
    pub subresource: String,
    /// Empty for what has no namespace.
    pub namespace: String,
    /// Empty for lists and watches.
    pub name: String,
    /// The HTTP status of the reply.
    pub code: u16,
    /// Path and query as asked.
    pub uri: String,
    /// Whether nothing was to be stored.
    pub dry_run: bool,
    /// Whether the caller had no right to ask. Other refusals, such as a full quota, have the same code.
    pub denied: bool,
}

impl Call {
    /// Whether this call asked to change what is stored. Also true when it was refused: see [`Call::succeeded`].
    /// Reviews and tokens are made by `create` too, but are not stored and do not count.
    pub fn is_write(&self) -> bool {
        let changes =
            matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        let review = matches!(self.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io");
        let token = self.resource == "serviceaccounts" && self.subresource == "token";
        changes && !self.dry_run && !review && !token
    }

    /// Whether it is about a Lease or an Event, which are counted apart.
    pub fn is_lease_or_event(&self) -> bool {
        matches!(
            (self.group.as_str(), self.resource.as_str()),
            ("coordination.k8s.io", "leases") | ("" | "events.k8s.io", "events")
        )
    }

    /// Whether the reply was a success.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The field manager that the caller named; else empty.
    pub fn manager(&self) -> String {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        let named = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager="));
        named.unwrap_or_default().replace("%2F", "/")
    }
}

impl Audit {
    /// The log in a file.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file: one JSON event a line.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the log ends now. A call that is being written down at this moment counts as later.
    pub fn mark(&self) -> Result<Mark> {
        let look = || -> std::io::Result<u64> {
            let mut file = File::open(&self.path)?;
            let mut end = file.metadata()?.len();
            let mut block = vec![0; BLOCK];
            // Back to the end of the last whole line: a reader could not make sense of half a line.
            while end > 0 {
                let start = end.saturating_sub(BLOCK as u64);
                let part = &mut block[..usize::try_from(end - start).unwrap_or(BLOCK)];
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(part)?;
                if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
                    return Ok(start + at as u64 + 1);
                }
                end = start;
            }
            Ok(0)
        };
        let at = look().with_context(|| format!("cannot look at the audit log {}", self.path.display()))?;
        Ok(Mark(at))
    }

    /// The beginning of the log.
    pub fn beginning(&self) -> Mark {
        Mark(0)
    }

    /// Every call that finished after `mark`, oldest first.
    pub fn since(&self, mark: Mark) -> Result<Vec<Call>> {
        self.between(mark, Mark::END)
    }

    /// Every call that finished between two marks, oldest first.
    pub fn between(&self, mark: Mark, until: Mark) -> Result<Vec<Call>> {
        let mut calls = Vec::new();
        self.each(mark, until, |call| calls.push(call))?;
        Ok(calls)
    }

    /// The same, one by one: a long log need not fit into memory.
    pub fn each(&self, mark: Mark, until: Mark, mut see: impl FnMut(Call)) -> Result<()> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("cannot open the audit log {}", self.path.display()))?;
        let length = file.metadata()?.len();
        ensure!(
            length >= mark.0,
            "the audit log {} is shorter than the mark ({length} < {}): the mark is of another cluster",
            self.path.display(),
            mark.0
        );
        file.seek(SeekFrom::Start(mark.0))?;
        let mut reader = BufReader::new(file.take(until.0.saturating_sub(mark.0)));
        let mut line = String::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            // A line without its end is still being written; so is nothing that a caller has a reply for.
            if !line.ends_with('\n') {
                return Ok(());
            }
            let call = parse(&line).with_context(|| format!("in the audit log {}", self.path.display()))?;
            call.into_iter().for_each(&mut see);
        }
    }
}

/// The parts of an audit event that a [`Call`] is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(default, rename = "authorization.k8s.io/decision")]
    decision: String,
}

#[derive(Deserialize, Default)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

fn parse(line: &str) -> Result<Option<Call>> {
    let event: Event =
        serde_json::from_str(line).with_context(|| format!("not an audit event: {}", line.trim_end()))?;
    if event.stage != "ResponseComplete" {
        return Ok(None);
    }
    let query = event.request_uri.split_once('?').map_or("", |(_, query)| query);
    let dry_run = query.split('&').any(|pair| pair.starts_with("dryRun=") && pair != "dryRun=");
    Ok(Some(Call {
        user: event.impersonated_user.unwrap_or(event.user).username,
        user_agent: event.user_agent,
        verb: event.verb,
        group: event.object_ref.api_group,
        resource: event.object_ref.resource,
        subresource: event.object_ref.subresource,
        namespace: event.object_ref.namespace,
        name: event.object_ref.name,
        code: event.response_status.code,
        uri: event.request_uri,
        dry_run,
        denied: event.annotations.decision == "forbid",
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn event(verb: &str, uri: &str, object: &serde_json::Value) -> String {
        json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": uri, "userAgent": "test/1",
            "user": {"username": "admin"}, "objectRef": object, "responseStatus": {"code": 201},
        })
        .to_string()
    }

    fn call(verb: &str, uri: &str, object: &serde_json::Value) -> Call {
        parse(&event(verb, uri, object)).unwrap().unwrap()
    }

    #[test]
    fn the_impersonated_user_is_the_user() {
        let mut event: serde_json::Value =
            serde_json::from_str(&event("get", "/version", &json!({}))).unwrap();
        event["impersonatedUser"] = json!({"username": "jane"});
        assert_eq!(parse(&event.to_string()).unwrap().unwrap().user, "jane");
    }

    #[test]
    fn other_stages_are_not_calls() {
        let line = event("watch", "/api/v1/pods", &json!({})).replace("ResponseComplete", "ResponseStarted");
        assert_eq!(parse(&line).unwrap(), None);
    }

    #[test]
    fn a_dry_run_is_not_a_write() {
        let pods = json!({"resource": "pods"});
        assert!(call("create", "/api/v1/namespaces/a/pods", &pods).is_write());
        assert!(!call("create", "/api/v1/namespaces/a/pods?fieldManager=x&dryRun=All", &pods).is_write());
        assert!(!call("get", "/api/v1/namespaces/a/pods/b", &pods).is_write());
    }

    #[test]
    fn only_a_missing_right_counts_as_denied() {
        let mut quota: serde_json::Value =
            serde_json::from_str(&event("create", "/x", &json!({"resource": "pods"}))).unwrap();
        quota["responseStatus"]["code"] = 403.into();
        quota["annotations"] = json!({"authorization.k8s.io/decision": "allow"});
        assert!(!parse(&quota.to_string()).unwrap().unwrap().denied);
        quota["annotations"] = json!({"authorization.k8s.io/decision": "forbid"});
        assert!(parse(&quota.to_string()).unwrap().unwrap().denied);
    }

    #[test]
    fn the_field_manager_is_read_from_the_question() {
        let asked = |uri: &str| call("patch", uri, &json!({})).manager();
        assert_eq!(asked("/x?fieldManager=aquifer%2Flease"), "aquifer/lease");
        assert_eq!(asked("/x?force=true&fieldManager=me"), "me");
        assert_eq!(asked("/x"), "");
    }

    #[test]
    fn reviews_and_tokens_are_not_writes() {
        let review = json!({"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"});
        assert!(!call("create", "/x", &review).is_write());
        let token = json!({"resource": "serviceaccounts", "subresource": "token", "name": "x"});
        assert!(!call("create", "/x", &token).is_write());
    }

    #[test]
    fn leases_and_events_are_recognised_in_every_group() {
        assert!(
            call("update", "/x", &json!({"resource": "leases", "apiGroup": "coordination.k8s.io"}))
                .is_lease_or_event()
        );
        assert!(call("create", "/x", &json!({"resource": "events"})).is_lease_or_event());
        assert!(
            call("create", "/x", &json!({"resource": "events", "apiGroup": "events.k8s.io"}))
                .is_lease_or_event()
        );
        assert!(
            !call("create", "/x", &json!({"resource": "events", "apiGroup": "example.com"}))
                .is_lease_or_event()
        );
    }

    #[test]
    fn a_half_written_line_waits_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(dir.path().join("audit.log"));
        let line = event("get", "/version", &json!({}));
        std::fs::write(audit.path(), format!("{line}\n{}", &line[..20])).unwrap();
        assert_eq!(audit.since(audit.beginning()).unwrap().len(), 1);
    }

    #[test]
    fn a_mark_never_stands_within_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(dir.path().join("audit.log"));
        let line = event("get", "/version", &json!({"padding": "x".repeat(3 * BLOCK)}));
        std::fs::write(audit.path(), &line[..line.len() - 2]).unwrap();
        assert_eq!(audit.mark().unwrap(), audit.beginning());
        std::fs::write(audit.path(), format!("{line}\n{}", &line[..2 * BLOCK])).unwrap();
        let mark = audit.mark().unwrap();
        std::fs::write(audit.path(), format!("{line}\n{line}\n")).unwrap();
        assert_eq!(audit.since(mark).unwrap().len(), 1);
    }
}
