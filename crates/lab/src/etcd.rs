//! Reads and writes the key-values of a cluster's etcd without its API server, and keeps them in files. Tests use it to start from
//! what an earlier version left behind. It does not know what a value means, and must not be used to change a cluster that is in use.
//!
//! It uses the JSON gateway that every etcd serves beside gRPC, so that the lab needs no etcd client. The API server follows etcd
//! by a watch: what is written here appears there a moment later.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Cluster;
use crate::cluster::blocking;
use crate::programs::CONTROLLER_MANAGER;

/// Every key of Kubernetes begins with this.
pub const REGISTRY: &str = "/registry/";
/// The time limit of one request.
const DEADLINE: Duration = Duration::from_secs(30);
/// etcd refuses transactions of more than 128 operations, and requests of more than 1.5 MiB.
const ENTRIES_AT_ONCE: usize = 50;

/// One key with its value, as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Such as `/registry/persistentvolumes/NAME`.
    pub key: String,
    /// Protobuf or JSON; the API server decides.
    pub value: Vec<u8>,
}

impl Cluster {
    /// All key-values whose key begins with `prefix`, sorted by key.
    pub async fn etcd_entries(&self, prefix: &str) -> Result<Vec<Entry>> {
        #[derive(Deserialize)]
        struct Range {
            #[serde(default)]
            kvs: Vec<Pair>,
        }
        #[derive(Deserialize)]
        struct Pair {
            key: String,
            #[serde(default)]
            value: String,
        }
        let asked = json!({"key": encode(prefix.as_bytes()), "range_end": encode(&end_of(prefix))});
        let range: Range = serde_json::from_value(self.ask_etcd("/v3/kv/range", &asked).await?)
            .context("cannot read the reply of etcd")?;
        let decode = |pair: Pair| -> Result<Entry> {
            let key = String::from_utf8(BASE64_STANDARD.decode(pair.key)?)?;
            Ok(Entry { key, value: BASE64_STANDARD.decode(pair.value)? })
        };
        range.kvs.into_iter().map(decode).collect::<Result<_>>().context("cannot decode the reply of etcd")
    }

    /// Writes key-values. kube-controller-manager is stopped meanwhile: it would take a claim whose volume is still missing for lost.
    pub async fn restore_etcd(&self, entries: &[Entry]) -> Result<()> {
        self.stop_program(CONTROLLER_MANAGER).await?;
        for part in entries.chunks(ENTRIES_AT_ONCE) {
            let put = |entry: &Entry| json!({"request_put": {"key": encode(entry.key.as_bytes()), "value": encode(&entry.value)}});
            let transaction = json!({"success": part.iter().map(put).collect::<Vec<Value>>()});
            self.ask_etcd("/v3/kv/txn", &transaction).await?;
        }
        self.start_program(CONTROLLER_MANAGER).await
    }

    async fn ask_etcd(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.etcd_url()?);
        let request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
        let ask = async {
            let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
            Ok(serde_json::from_slice(&bytes)?)
        };
        let reply = tokio::time::timeout(DEADLINE, ask).await.context("no reply in time");
        reply.and_then(|reply| reply).with_context(|| format!("cannot ask etcd at {url}"))
    }
}

/// The first key that no longer begins with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd reads a single zero as "to the last key".
    vec![0]
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Writes key-values into a compressed file. Each key and each value is preceded by its length, four bytes, big end first. Values are
/// not encoded, because encoded ones compress badly.
pub async fn save(file: &Path, entries: &[Entry]) -> Result<()> {
    let mut raw = tempfile::tempfile().context("cannot make a temporary file")?;
    for entry in entries {
        for part in [entry.key.as_bytes(), &entry.value] {
            let length = u32::try_from(part.len()).with_context(|| format!("{} is too long", entry.key))?;
            raw.write_all(&length.to_be_bytes())?;
            raw.write_all(part)?;
        }
    }
    let path = file.to_path_buf();
    blocking(move || {
        use std::io::Seek as _;
        raw.rewind()?;
        // Without the time and the name, so that equal content gives an equal file.
        let packed = gzip(&["-9", "-n", "-c"], raw)?;
        std::fs::write(&path, packed).with_context(|| format!("cannot write {}", path.display()))
    })
    .await
}

/// Reads what [`save`] wrote.
pub async fn load(file: &Path) -> Result<Vec<Entry>> {
    let path = file.to_path_buf();
    blocking(move || {
        let packed = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let raw = gzip(&["-d", "-c"], packed)?;
        parse(&raw).with_context(|| format!("cannot read {}", path.display()))
    })
    .await
}

fn parse(mut raw: &[u8]) -> Result<Vec<Entry>> {
    let mut part = || -> Result<Option<Vec<u8>>> {
        let Some((length, rest)) = raw.split_first_chunk::<4>() else {
            ensure!(raw.is_empty(), "{} bytes are left at the end", raw.len());
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        ensure!(rest.len() >= length, "a part of {length} bytes is cut off after {}", rest.len());
        let (part, rest) = rest.split_at(length);
        raw = rest;
        Ok(Some(part.to_vec()))
    };
    let mut entries = Vec::new();
    while let Some(key) = part()? {
        let Some(value) = part()? else { bail!("the last key has no value") };
        entries.push(Entry { key: String::from_utf8(key)?, value });
    }
    Ok(entries)
}

/// gzip is on every Debian machine; a library only for this would be one more dependency of every build.
fn gzip(args: &[&str], input: File) -> Result<Vec<u8>> {
    let output = Command::new("gzip")
        .args(args)
        .stdin(input)
        .stderr(Stdio::piped())
        .output()
        .context("cannot start gzip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gzip failed ({}): {}", output.status, error.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &[u8]) -> Entry {
        Entry { key: key.into(), value: value.into() }
    }

    #[tokio::test]
    async fn what_is_saved_is_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("entries.gz");
        let entries = [entry("/registry/a", b"k8s\0\x0a\xff\x00"), entry("/registry/b", b"")];
        save(&file, &entries).await.unwrap();
        assert_eq!(load(&file).await.unwrap(), entries);
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused() {
        assert!(parse(&[0, 0, 0, 2, b'a']).is_err());
        assert!(parse(&[0, 0, 0, 1, b'a']).is_err(), "a key without a value");
        assert!(parse(&[0, 0]).is_err());
        assert_eq!(parse(&[]).unwrap(), []);
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_that_has_another_one() {
        assert_eq!(end_of("/registry/"), b"/registry0");
    }
}
