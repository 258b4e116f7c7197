//! What an earlier version leaves in etcd, kept as a file for the tests that take it over. Runs that version's own program; the
//! present code only creates the objects that a user would create.

mod objects;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use aquifer_lab::{
    Cluster, Lab,
    etcd::{self, Entry, REGISTRY},
    eventually, install,
};

use crate::{host, lab, process};

const DIR: &str = "crates/efs/tests/fixtures";
const PATIENCE: Duration = Duration::from_mins(3);
/// For how long the operator must have written nothing before its work counts as done.
const QUIET: Duration = Duration::from_secs(5);

/// Kinds of the new cluster itself, which the other cluster has its own of: tokens and certificates would not fit, and the rest is
/// made again by the API server and by kube-controller-manager.
const LEFT_OUT: [&str; 8] = [
    "apiregistration.k8s.io/",
    "configmaps/",
    "endpointslices/",
    "events/",
    "ipaddresses/",
    "leases/",
    "secrets/",
    "services/",
];
/// The account that kube-controller-manager makes in every namespace.
const DEFAULT_ACCOUNT: &str = "/default";

/// Flags of `cargo xtask fixture`.
#[derive(clap::Args)]
pub struct Args {
    /// A clean checkout of the earlier version, such as `git worktree add DIR COMMIT` makes
    checkout: PathBuf,
}

/// Makes the fixture of one version.
pub async fn run(args: Args) -> Result<()> {
    host::ensure()?;
    lab::prepare().await?;
    let commit = commit(&args.checkout)?;
    let program = build(&args.checkout)?;
    let cluster = Lab::cluster("fixture").start().await?;
    let result = record(&cluster, &program).await;
    let operator_log = fs::read_to_string(log_of(&cluster)).unwrap_or_default();
    cluster.stop().await?;
    let entries = result.with_context(|| format!("the operator's log:\n{operator_log}"))?;
    let dir = process::root().join(DIR);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let file = dir.join(format!("{commit}.etcd.gz"));
    etcd::save(&file, &entries).await?;
    println!("{} key-values, {} bytes: {}", entries.len(), fs::metadata(&file)?.len(), file.display());
    Ok(())
}

/// The short name of the commit, when nothing was changed since.
fn commit(checkout: &Path) -> Result<String> {
    let git = |args: &[&str]| process::output(Command::new("git").arg("-C").arg(checkout).args(args));
    let changes = git(&["status", "--porcelain"])?;
    ensure!(changes.is_empty(), "{} has changes that are not committed:\n{changes}", checkout.display());
    Ok(git(&["rev-parse", "--short=7", "HEAD"])?.trim().to_owned())
}

fn build(checkout: &Path) -> Result<PathBuf> {
    eprintln!("building the operator of {}", checkout.display());
    let mut cargo = process::cargo(&["build", "--locked", "--package", "aquifer"]);
    let target = checkout.join("target");
    // Its own target directory, whatever ours is.
    process::run(cargo.current_dir(checkout).env("CARGO_TARGET_DIR", &target))?;
    Ok(fs::canonicalize(target.join("debug/aquifer"))?)
}

fn log_of(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("operator.log")
}

async fn record(cluster: &Cluster, program: &Path) -> Result<Vec<Entry>> {
    let own: BTreeSet<String> =
        cluster.etcd_entries(REGISTRY).await?.into_iter().map(|entry| entry.key).collect();
    // No replicas: without nodes their pods could not run. The program below runs in their place, with the same account.
    let mut installed = Command::new(program);
    installed.args(["install", "--replicas=0", "--kubeconfig"]).arg(cluster.kubeconfig());
    process::run(&mut installed)?;
    let client = cluster.client()?;
    objects::create(&client).await?;
    let (_, kubeconfig) = cluster.service_account(install::NAMESPACE, "aquifer").await?;
    let log = fs::File::create(log_of(cluster))?;
    // The defaults of an earlier version are what its users had; its flags may have other names than today's.
    let mut operator = tokio::process::Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(["run", "--http-listen=127.0.0.1:0", "--kubeconfig"])
        .arg(kubeconfig)
        // A variable, which an earlier version does not mind: it had no such flag.
        .env("AQUIFER_METRICS_LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the operator")?;
    objects::wait(&client, PATIENCE).await?;
    quiet(cluster).await?;
    if let Some(status) = operator.try_wait()? {
        bail!("the operator ended with {status}");
    }
    // Not in order: what it leaves then is the harder case.
    operator.kill().await.context("cannot end the operator")?;
    let kept = |entry: &Entry| {
        let kind = entry.key.strip_prefix(REGISTRY).unwrap_or(&entry.key);
        let made_again = kind.starts_with("serviceaccounts/") && kind.ends_with(DEFAULT_ACCOUNT);
        let left_out = made_again || LEFT_OUT.iter().any(|left_out| kind.starts_with(left_out));
        !own.contains(&entry.key) && !left_out
    };
    Ok(cluster.etcd_entries(REGISTRY).await?.into_iter().filter(kept).collect())
}

/// Waits until the operator has stopped writing.
async fn quiet(cluster: &Cluster) -> Result<()> {
    eventually(PATIENCE, "the operator stops writing", || async {
        let mark = cluster.audit().mark()?;
        tokio::time::sleep(QUIET).await;
        let calls = cluster.audit().since(mark)?;
        let writes = calls
            .iter()
            .filter(|call| call.user == install::USER && call.is_write() && !call.is_lease_or_event())
            .count();
        ensure!(writes == 0, "{writes} writes within {} s", QUIET.as_secs());
        Ok(Some(()))
    })
    .await
}
