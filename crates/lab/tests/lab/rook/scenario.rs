//! One story with a Rook, whichever it is, and all that its users see on the way. Knows nothing of the stand-in.
//!
//! It needs a CephCluster that is Ready, a CephFilesystem `lab-fs` and at least three OSDs on three hosts.

use anyhow::{Context, Result, ensure};
use aquifer_lab::eventually;
use aquifer_lab::rook::FILE_SYSTEM;
use aquifer_lab::rook::Kind;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::observations::Observations;
use super::story::{PATIENCE, Story};

const POOL: &str = "scenario-pool";
const PART: &str = "scenario-part";
const USER: &str = "scenario-user";
const GROUP: &str = "scenario-group";

/// Makes a pool with a quota, users, groups and a rados namespace, changes and deletes them in right and wrong order.
pub async fn scenario(client: &Client, namespace: &str) -> Result<Observations> {
    let mut run = Run { client, namespace, seen: Observations::default() };
    run.the_cluster().await.context("the cluster")?;
    let pool = run.a_pool_with_a_quota().await.context("a pool")?;
    run.a_user().await.context("a user")?;
    run.a_user_without_caps().await.context("a user without caps")?;
    run.a_group().await.context("a group")?;
    run.a_group_without_a_file_system().await.context("a group without a file system")?;
    run.a_pool_that_is_in_use(pool).await.context("a pool that is in use")?;
    Ok(run.seen)
}

struct Run<'a> {
    client: &'a Client,
    namespace: &'a str,
    seen: Observations,
}

impl Run<'_> {
    async fn the_cluster(&mut self) -> Result<()> {
        let clusters = Kind::CephCluster.api(self.client, self.namespace);
        // Rook looks at it again and again, and is Progressing each time.
        let mut cluster = eventually(PATIENCE, "the CephCluster is Ready", || async {
            let cluster = clusters.list(&ListParams::default()).await?.items.pop();
            Ok(cluster.filter(|cluster| cluster.data["status"]["phase"] == "Ready"))
        })
        .await?;
        // A start ends when Rook is at rest, but Rook may keep this condition for ever: see rook/rest.rs of the lab.
        if let Some(conditions) = cluster.data["status"]["conditions"].as_array_mut() {
            conditions.retain(|is| is["type"] != "Progressing");
        }
        let (open, none) = (["cluster.status.ceph.details", "cluster.status.ceph.versions.*"], json!(null));
        self.object("cluster", &serde_json::to_value(&cluster)?, &open);
        ensure!(self.seen.get("cluster.status.phase") != Some(&none), "the CephCluster has no phase");

        let endpoints: ConfigMap = Api::namespaced(self.client.clone(), self.namespace)
            .get("rook-ceph-mon-endpoints")
            .await
            .context("the monitors' addresses")?;
        let data = endpoints.data.clone().unwrap_or_default();
        let monitors: Vec<&str> = data.get("data").map(|data| data.split(',').collect()).unwrap_or_default();
        let well_formed = monitors.iter().all(|is| {
            let (name, address) = is.split_once('=').unwrap_or_default();
            !name.is_empty() && address.parse::<std::net::SocketAddr>().is_ok()
        });
        self.seen.note("monitors.keys", json!(data.keys().collect::<Vec<_>>()));
        self.seen.note("monitors.well_formed", json!(well_formed));
        self.seen.note("monitors.count", json!(monitors.len()));
        self.note_metadata("monitors", &endpoints);

        let secret = self.secret("rook-ceph-mon").await?;
        self.note_secret("admin", &secret);
        self.csi_entry("cluster.csi", self.namespace.to_owned().as_str()).await
    }

    async fn a_pool_with_a_quota(&mut self) -> Result<Story> {
        let story = Story::of(self.client, Kind::CephBlockPool, self.namespace, POOL).await?;
        let spec =
            json!({ "failureDomain": "host", "replicated": { "size": 3 }, "quotas": { "maxSize": "100Mi" } });
        self.create(Kind::CephBlockPool, POOL, &spec).await?;
        let pool = story.until("Ready").await?;
        self.object("pool", &pool, &[]);
        self.event("pool", Kind::CephBlockPool, POOL, "ReconcileSucceeded").await?;

        let pool = self.patch(Kind::CephBlockPool, POOL, json!({ "quotas": { "maxSize": "200Mi" } })).await?;
        let pool = story.until_observed(pool.metadata.generation.unwrap_or_default()).await?;
        self.object("pool_with_new_quota", &pool, &[]);
        Ok(story)
    }

    async fn a_user(&mut self) -> Result<()> {
        let story = Story::of(self.client, Kind::CephClient, self.namespace, USER).await?;
        let caps = json!({ "mon": "profile rbd", "osd": format!("profile rbd pool={POOL}") });
        self.create(Kind::CephClient, USER, &json!({ "caps": caps })).await?;
        let user = story.until("Ready").await?;
        self.object("user", &user, &[]);
        self.event("user", Kind::CephClient, USER, "ReconcileSucceeded").await?;
        let name = user["status"]["info"]["secretName"].as_str().context("no name of a Secret")?.to_owned();
        let first = self.secret(&name).await?;
        self.note_secret("user_secret", &first);

        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        secrets.delete(&name, &DeleteParams::default()).await?;
        let again = eventually(PATIENCE, "the Secret of the user comes back", || async {
            let now = secrets.get_opt(&name).await?;
            Ok(now.filter(|now| now.uid() != first.uid()))
        })
        .await?;
        self.seen.note("user_secret.same_key_after_deletion", json!(again.data == first.data));

        let user = self.patch(Kind::CephClient, USER, json!({ "caps": { "mgr": "allow r" } })).await?;
        let user = story.until_observed(user.metadata.generation.unwrap_or_default()).await?;
        self.object("user_with_new_caps", &user, &[]);
        self.seen
            .note("user_secret.same_key_after_change", json!(self.secret(&name).await?.data == first.data));

        self.delete(Kind::CephClient, USER, &story).await?;
        eventually(PATIENCE, "the Secret of the user is gone", || async {
            Ok(secrets.get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
        self.seen.note("user.story", story.steps());
        Ok(())
    }

    async fn a_user_without_caps(&mut self) -> Result<()> {
        let name = "scenario-bad-user";
        let story = Story::of(self.client, Kind::CephClient, self.namespace, name).await?;
        self.create(Kind::CephClient, name, &json!({ "caps": { "mon": "" } })).await?;
        story.until("Progressing").await?;
        self.event("bad_user", Kind::CephClient, name, "ReconcileFailed").await?;
        let user = story.until("Progressing").await?;
        self.object("bad_user", &user, &[]);
        let secret = Api::<Secret>::namespaced(self.client.clone(), self.namespace)
            .get_opt(&format!("rook-ceph-client-{name}"))
            .await?;
        self.seen.note("bad_user.has_a_secret", json!(secret.is_some()));
        self.delete(Kind::CephClient, name, &story).await?;
        self.seen.note("bad_user.story", story.steps());
        Ok(())
    }

    async fn a_group(&mut self) -> Result<()> {
        let kind = Kind::CephFilesystemSubVolumeGroup;
        let story = Story::of(self.client, kind, self.namespace, GROUP).await?;
        self.create(kind, GROUP, &json!({ "filesystemName": FILE_SYSTEM })).await?;
        let group = story.until("Ready").await?;
        self.object("group", &group, &[]);
        let id = group["status"]["info"]["clusterID"].as_str().context("no clusterID")?.to_owned();
        self.csi_entry("group.csi", &id).await?;
        self.delete(kind, GROUP, &story).await?;
        self.seen.note("group.csi_afterwards", json!(self.csi(&id).await?.is_some()));
        self.seen.note("group.story", story.steps());
        Ok(())
    }

    async fn a_group_without_a_file_system(&mut self) -> Result<()> {
        let (kind, name) = (Kind::CephFilesystemSubVolumeGroup, "scenario-lost-group");
        let story = Story::of(self.client, kind, self.namespace, name).await?;
        self.create(kind, name, &json!({ "filesystemName": "no-such-fs" })).await?;
        let group = story.until("Progressing").await?;
        self.object("lost_group", &group, &[]);
        self.delete(kind, name, &story).await?;
        self.seen.note("lost_group.story", story.steps());
        Ok(())
    }

    async fn a_pool_that_is_in_use(&mut self, pool: Story) -> Result<()> {
        let kind = Kind::CephBlockPoolRadosNamespace;
        let story = Story::of(self.client, kind, self.namespace, PART).await?;
        self.create(kind, PART, &json!({ "blockPoolName": POOL })).await?;
        let part = story.until("Ready").await?;
        self.object("part", &part, &[]);
        let id = part["status"]["info"]["clusterID"].as_str().context("no clusterID")?.to_owned();
        self.csi_entry("part.csi", &id).await?;

        // The wrong order: the pool first.
        Kind::CephBlockPool.api(self.client, self.namespace).delete(POOL, &DeleteParams::default()).await?;
        let blocked = pool.until("blocked").await?;
        self.object("pool_in_use", &blocked, &[]);
        self.delete(kind, PART, &story).await?;
        pool.until("gone").await?;
        self.seen.note("part.story", story.steps());
        self.seen.note("pool.story", pool.steps());
        Ok(())
    }

    async fn create(&self, kind: Kind, name: &str, spec: &Value) -> Result<DynamicObject> {
        let object = json!({
            "apiVersion": "ceph.rook.io/v1", "kind": kind.name(),
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        });
        let object = serde_json::from_value(object)?;
        Ok(kind.api(self.client, self.namespace).create(&PostParams::default(), &object).await?)
    }

    async fn patch(&self, kind: Kind, name: &str, spec: Value) -> Result<DynamicObject> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        Ok(kind.api(self.client, self.namespace).patch(name, &PatchParams::default(), &patch).await?)
    }

    async fn delete(&self, kind: Kind, name: &str, story: &Story) -> Result<()> {
        kind.api(self.client, self.namespace).delete(name, &DeleteParams::default()).await?;
        story.until("gone").await.map(drop)
    }

    /// Notes all of an object that Rook has a hand in.
    fn object(&mut self, path: &str, object: &Value, open: &[&str]) {
        let metadata = &object["metadata"];
        self.seen.note(&format!("{path}.generation"), metadata["generation"].clone());
        self.seen.note(&format!("{path}.finalizers"), metadata["finalizers"].clone());
        self.seen.note(&format!("{path}.ownerReferences"), metadata["ownerReferences"].clone());
        if path != "cluster" {
            self.seen.note_tree(&format!("{path}.spec"), &object["spec"], &[]);
        }
        self.seen.note_tree(&format!("{path}.status"), &object["status"], open);
    }

    /// Waits for an event on an object and notes it.
    async fn event(&mut self, path: &str, kind: Kind, name: &str, reason: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let fields =
            format!("involvedObject.kind={},involvedObject.name={name},reason={reason}", kind.name());
        let event = eventually(PATIENCE, &format!("an event {reason} on {name}"), || async {
            Ok(events.list(&ListParams::default().fields(&fields)).await?.items.pop())
        })
        .await?;
        let source = event.source.and_then(|source| source.component);
        self.seen.note(
            &format!("{path}.event.{reason}"),
            json!({ "type": event.type_, "message": event.message, "source": source }),
        );
        Ok(())
    }

    async fn secret(&self, name: &str) -> Result<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        secrets.get(name).await.with_context(|| format!("Secret {name}"))
    }

    /// Notes the shape of a Secret, never its content.
    fn note_secret(&mut self, path: &str, secret: &Secret) {
        let data = secret.data.clone().unwrap_or_default();
        for (key, value) in &data {
            self.seen.note(&format!("{path}.data.{key}"), json!(shape(value)));
        }
        self.seen.note(&format!("{path}.name"), json!(secret.name_any()));
        self.seen.note(&format!("{path}.type"), json!(secret.type_));
        self.note_metadata(path, secret);
    }

    /// Notes finalizers and owners of something that Rook made.
    fn note_metadata<K: kube::Resource>(&mut self, path: &str, object: &K) {
        let owners: Vec<Value> = object
            .owner_references()
            .iter()
            .map(|is| {
                // The lab's CephCluster may have any name.
                let name = if is.kind == "CephCluster" { "*" } else { &is.name };
                json!({
                    "apiVersion": is.api_version, "kind": is.kind, "name": name,
                    "controller": is.controller, "blockOwnerDeletion": is.block_owner_deletion,
                })
            })
            .collect();
        self.seen.note(&format!("{path}.owners"), json!(owners));
        self.seen.note(&format!("{path}.finalizers"), json!(object.finalizers()));
    }

    /// The configuration of the CSI driver for a cluster, a group or a rados namespace.
    async fn csi(&self, id: &str) -> Result<Option<Value>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let map = maps.get("rook-ceph-csi-config").await.context("the CSI driver's ConfigMap")?;
        let text = map.data.as_ref().and_then(|data| data.get("csi-cluster-config-json"));
        let entries: Vec<Value> = serde_json::from_str(text.context("no list of clusters")?)?;
        Ok(entries.into_iter().find(|is| is["clusterID"] == id))
    }

    async fn csi_entry(&mut self, path: &str, id: &str) -> Result<()> {
        let mut entry = self.csi(id).await?.with_context(|| format!("no entry {id}"))?;
        let monitors = entry["monitors"].as_array().map(Vec::len);
        entry["monitors"] = json!(monitors);
        self.seen.note_tree(path, &entry, &[]);
        Ok(())
    }
}

/// What kind of text a Secret holds.
fn shape(value: &ByteString) -> String {
    let Ok(text) = std::str::from_utf8(&value.0) else { return "not text".to_owned() };
    let key: Result<ByteString, _> = serde_json::from_value(json!(text));
    match key {
        // Type 1, eight bytes of time, the length 16, the secret.
        Ok(key) if key.0.len() == 28 && key.0[..2] == [1, 0] && key.0[10..12] == [16, 0] => {
            "a cephx key".to_owned()
        }
        _ if text.len() == 36 && text.matches('-').count() == 4 => "a UUID".to_owned(),
        _ => format!("the text {text}"),
    }
}
