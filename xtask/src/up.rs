//! The main job for people: a cluster, the operator, the examples until each is Ready. Uses only what a user could use.

use std::{
    fs,
    io::{BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use aquifer_family::Family;
use aquifer_lab::Lab;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    core::TypeMeta,
};
use serde_json::Value;

use aquifer_lab::install;

use crate::{
    families,
    follow::{self, Followed},
    host, lab,
    operator::{self, Operator},
    process,
};

const CLUSTER: &str = "up";
/// How long the examples may take.
const DEADLINE: Duration = Duration::from_mins(2);

/// Flags of `cargo xtask up`.
#[derive(clap::Args)]
pub struct Args {
    /// End after success instead of running until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Use this context of your kubeconfig instead of a private cluster; shows what it would install and asks
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// With --context: do not ask
    #[arg(long, requires = "context")]
    yes: bool,
}

/// Runs Aquifer.
pub async fn run(args: Args) -> Result<()> {
    host::ensure()?;
    let examples = examples()?;
    match &args.context {
        None => on_lab(&args, &examples).await,
        Some(name) => on_context(&args, name, &examples).await,
    }
}

async fn on_lab(args: &Args, examples: &[Value]) -> Result<()> {
    lab::prepare().await?;
    let program = operator::build(false)?;
    println!("starting a private cluster");
    let cluster = Lab::cluster(CLUSTER).start().await?;
    let client = cluster.client()?;
    // Errors are kept until the cluster is stopped, so that it never stays behind.
    let result = async {
        println!("installing CRDs, roles and the operator's account");
        install::crds(&client).await?;
        install::user_roles(&client).await?;
        let account = install::identity(&cluster).await?;
        let log = cluster.dir().join("aquifer.log");
        let session = Session { client: client.clone(), program, kubeconfig: account.kubeconfig, log };
        session
            .run(args.once, examples, || {
                println!("\nkubeconfig: {}", cluster.kubeconfig().display());
                println!("logs:       {}", cluster.dir().display());
                println!("The cluster has no nodes, so pods are accepted but never run.\n\nTry, in another terminal:");
                for command in try_next(examples) {
                    println!("  cargo xtask lab kubectl {CLUSTER} -- {command}");
                }
            })
            .await
    }
    .await;
    let stopped = cluster.stop().await;
    result.and(stopped)
}

async fn on_context(args: &Args, context: &str, examples: &[Value]) -> Result<()> {
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let mut kubeconfig = Kubeconfig::read().context("cannot read your kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .with_context(|| format!("your kubeconfig has no usable context {context}"))?;
    println!("On the cluster of context {context} ({}) this would create or change:", config.cluster_url);
    for line in intended(examples) {
        println!("  {line}");
    }
    let warnings: Vec<&str> = families::all().iter().map(|family| family.warning()).collect();
    println!("and run the operator on this machine, as you, until Ctrl-C. {}", warnings.join(" "));
    if !args.yes && !confirmed("Go on?")? {
        bail!("nothing was changed");
    }
    let program = operator::build(false)?;
    let client = Client::try_from(config)?;
    let dir = process::target_dir().join("up");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // The operator reads a file; give it one that points at this context and nothing else, for as long as we run.
    kubeconfig.current_context = Some(context.to_owned());
    let file = Temporary(dir.join("context.kubeconfig"));
    install::write_private(&file.0, &serde_saphyr::to_string(&kubeconfig)?)?;
    install::crds(&client).await?;
    install::user_roles(&client).await?;
    install::for_families(&client).await?;
    let session = Session { client, program, kubeconfig: file.0.clone(), log: dir.join("aquifer.log") };
    session
        .run(args.once, examples, || {
            println!("\nlog: {}", dir.join("aquifer.log").display());
            println!("Try, in another terminal:");
            for command in try_next(examples) {
                println!("  kubectl --context {context} {command}");
            }
        })
        .await
}

/// A cluster that is ready for the operator.
struct Session {
    client: Client,
    program: PathBuf,
    kubeconfig: PathBuf,
    log: PathBuf,
}

impl Session {
    /// Runs the operator, applies the examples, follows them, and stays if asked to.
    async fn run(&self, once: bool, examples: &[Value], success: impl FnOnce()) -> Result<()> {
        println!("starting the operator (log: {})", self.log.display());
        let names: Vec<&str> = families::all().iter().map(|family| family.name()).collect();
        let mut operator = operator::start(&self.program, &names.join(","), &self.kubeconfig, &self.log)?;
        let converged = tokio::select! {
            result = self.converge(&mut operator, examples) => result.context("the examples are not Ready"),
            () = lab::interrupted() => Err(anyhow!("interrupted before the examples were Ready")),
        };
        let result = if let Err(error) = converged {
            Err(anyhow!("{error:#}{}", operator.log_tail()))
        } else {
            success();
            if once { Ok(()) } else { stay(&mut operator).await }
        };
        let stopped = operator.stop().await;
        result.and(stopped)
    }

    async fn converge(&self, operator: &mut Operator, examples: &[Value]) -> Result<()> {
        operator.ready(Duration::from_secs(30)).await?;
        let (health, metrics) = operator.addresses().await?;
        println!("the operator is ready; health: http://{health}/readyz, metrics: http://{metrics}/metrics");
        let mut followed = Vec::new();
        for example in examples {
            let object = install::apply(&self.client, example.clone()).await?;
            let types = object.types.clone().unwrap_or_default();
            println!("applied {} {}", types.kind, follow::place(&object.metadata));
            if is_ours(&types) {
                let api = install::api_of(&self.client, &types, object.metadata.namespace.as_deref()).await?;
                followed.push(Followed::new(api, &object));
            }
        }
        if followed.is_empty() {
            bail!("the examples hold no object of ours");
        }
        let start = Instant::now();
        follow::until_ready(&self.client, followed, DEADLINE).await?;
        println!("all examples are Ready after {}", process::took(start.elapsed()));
        for family in families::all() {
            for line in family.remarks(&self.client).await? {
                println!("{line}");
            }
        }
        Ok(())
    }
}

/// Keeps the operator running until the user ends it.
async fn stay(operator: &mut Operator) -> Result<()> {
    println!("\nCtrl-C ends it.");
    tokio::select! {
        status = operator.until_ended() => bail!("the operator ended with {}{}", status?, operator.log_tail()),
        () = lab::interrupted() => Ok(()),
    }
}

/// The examples of all families, in their order.
fn examples() -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for family in families::all() {
        for file in families::described(*family)?.examples() {
            objects.extend(documents(&process::root().join(file))?);
        }
    }
    Ok(objects)
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let all: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

fn is_ours(types: &TypeMeta) -> bool {
    let group = types.api_version.split('/').next().unwrap_or_default();
    crate::crds::all().iter().any(|crd| crd.spec.group == group && crd.spec.names.kind == types.kind)
}

fn intended(examples: &[Value]) -> Vec<String> {
    let crds = crate::crds::all();
    let crds = crds.iter().filter_map(|crd| crd.metadata.name.as_ref()).map(|name| format!("CRD {name}"));
    let roles = aquifer_families::all().into_iter().flat_map(Family::user_roles);
    let roles = roles.filter_map(|role| role.metadata.name).map(|name| format!("ClusterRole {name}"));
    let made = install::objects_for_families().into_iter().map(|one| {
        let text =
            |pointer| one.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}", text("/kind"), text("/metadata/name"))
    });
    let examples = examples.iter().map(|object| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        let dot = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{dot}{} (example)", text("/kind"), text("/metadata/name"))
    });
    crds.chain(roles).chain(made).chain(examples).collect()
}

/// Commands that show something worth seeing.
fn try_next(examples: &[Value]) -> Vec<String> {
    families::all().iter().flat_map(|family| family.try_next(examples)).collect()
}

fn confirmed(question: &str) -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("there is no terminal to ask on; pass --yes if you agree");
    }
    print!("{question} [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A file that goes when we do.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_kinds_with_a_crd_of_ours_are_followed() {
        let ours = TypeMeta {
            api_version: "aws-efs.managed.openshift.io/v1alpha1".into(),
            kind: "SharedVolume".into(),
        };
        let other = TypeMeta { api_version: "v1".into(), kind: "Namespace".into() };
        assert!(is_ours(&ours) && !is_ours(&other));
    }

    #[test]
    fn the_plan_for_a_foreign_cluster_names_every_object() {
        let example = json!({"kind": "SharedVolume", "metadata": {"name": "a", "namespace": "b"}});
        let lines = intended(&[example]);
        assert!(lines.contains(&"CRD sharedvolumes.aws-efs.managed.openshift.io".to_owned()), "{lines:?}");
        assert!(lines.contains(&"SharedVolume b/a (example)".to_owned()), "{lines:?}");
    }

    #[test]
    fn every_example_belongs_to_a_family_and_can_be_read() {
        let listed: Vec<&str> =
            aquifer_families::all().iter().flat_map(|family| family.examples()).copied().collect();
        for entry in fs::read_dir(process::root().join("examples")).unwrap() {
            let name = format!("examples/{}", entry.unwrap().file_name().to_string_lossy());
            assert!(listed.contains(&name.as_str()), "{name} is in no family's examples");
        }
        assert!(examples().unwrap().len() >= listed.len());
    }
}
