//! Ways into a cluster: client configurations and kubeconfig files for a given identity. Grants nothing.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{
    AuthInfo, Cluster as ServerInfo, Context as ContextInfo, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use crate::certificates::Authority;

/// Where the API server is and how to recognise it.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Shown to people as the name of the context.
    pub(crate) cluster: String,
    pub(crate) url: String,
    pub(crate) ca_file: PathBuf,
    pub(crate) authority: Authority,
}

/// Who one is there.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) token: String,
    pub(crate) acting_as: Option<(String, Vec<String>)>,
}

impl Server {
    fn kubeconfig(&self, identity: &Identity) -> Kubeconfig {
        let name = format!("lab-{}", self.cluster);
        Kubeconfig {
            api_version: Some("v1".into()),
            kind: Some("Config".into()),
            clusters: vec![NamedCluster {
                name: name.clone(),
                cluster: Some(ServerInfo {
                    server: Some(self.url.clone()),
                    certificate_authority: Some(self.ca_file.display().to_string()),
                    ..ServerInfo::default()
                }),
                other: BTreeMap::new(),
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name.clone(),
                auth_info: Some(identity.auth_info()),
                other: BTreeMap::new(),
            }],
            contexts: vec![NamedContext {
                name: name.clone(),
                context: Some(ContextInfo {
                    cluster: name.clone(),
                    user: Some(name.clone()),
                    ..ContextInfo::default()
                }),
                other: BTreeMap::new(),
            }],
            current_context: Some(name),
            ..Kubeconfig::default()
        }
    }

    /// Writes a kubeconfig file that only its owner can read.
    pub(crate) fn write_kubeconfig(&self, path: &Path, identity: &Identity) -> Result<()> {
        let text =
            serde_saphyr::to_string(&self.kubeconfig(identity)).context("cannot print a kubeconfig")?;
        write_private(path, &text)
    }

    /// A client that fails soon and never retries by itself: a test must see what the server really answered.
    /// It belongs to the async runtime that it was made in, so each caller makes its own.
    pub(crate) fn client(&self, identity: &Identity) -> Result<kube::Client> {
        let mut config = kube::Config::new(self.url.parse().context("the address of the API server")?);
        config.root_cert = Some(vec![self.authority.der.clone()]);
        config.auth_info = identity.auth_info();
        config.connect_timeout = Some(Duration::from_secs(5));
        config.write_timeout = Some(Duration::from_secs(30));
        // Longer than the pause between two bookmarks of a quiet watch.
        config.read_timeout = Some(Duration::from_mins(2));
        config.reset_reader_on_write = true;
        config.default_retry = false;
        kube::Client::try_from(config).context("cannot make a client")
    }
}

impl Identity {
    fn auth_info(&self) -> AuthInfo {
        let (impersonate, impersonate_groups) = match self.acting_as.clone() {
            Some((user, groups)) => (Some(user), (!groups.is_empty()).then_some(groups)),
            None => (None, None),
        };
        AuthInfo {
            token: Some(self.token.clone().into()),
            impersonate,
            impersonate_groups,
            ..AuthInfo::default()
        }
    }
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
