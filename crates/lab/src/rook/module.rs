//! The files of Rook's release, found in the Go module cache. Reads them; never writes or copies them.
//!
//! `lab/rook` pins the release; what is not in the cache yet is fetched once.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, ResourceExt};

use crate::install;
use crate::programs::source_dir;

const MODULE: &str = "github.com/rook/rook";
const CRDS: &str = "deploy/examples/crds.yaml";

/// The path of a file of the release, such as `deploy/examples/common.yaml`. Blocks.
pub fn file(path: &str) -> Result<PathBuf> {
    let mut dir = directory()?;
    if dir.is_empty() {
        go(&["mod", "download", MODULE])?;
        dir = directory()?;
    }
    let file = PathBuf::from(&dir).join(path);
    ensure!(file.is_file(), "{MODULE} has no {path} (looked in {dir:?})");
    Ok(file)
}

/// The definitions of all kinds of the release. Blocks.
pub fn crds() -> Result<Vec<CustomResourceDefinition>> {
    let file = file(CRDS)?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not a list of CRDs", file.display()))
}

/// Installs the definitions of all kinds of the release and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<()> {
    let crds = tokio::task::spawn_blocking(crds).await.context("reading Rook's CRDs was cut off")??;
    for crd in &crds {
        install::crd(client, crd).await?;
    }
    for crd in &crds {
        install::served(client, &crd.name_any()).await?;
    }
    Ok(())
}

/// Where the module is; empty while it is not in the cache.
fn directory() -> Result<String> {
    Ok(go(&["list", "-m", "-f", "{{.Dir}}", MODULE])?.trim().to_owned())
}

fn go(args: &[&str]) -> Result<String> {
    let recipe = source_dir("rook");
    let output = Command::new("go")
        .args(args)
        .envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")])
        .current_dir(&recipe)
        .output()
        .context("Rook's files come with its Go module, but there is no `go` on the PATH (Debian: golang)")?;
    ensure!(
        output.status.success(),
        "`go {}` failed in {}: {}",
        args.join(" "),
        recipe.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("go printed what is not text")
}
