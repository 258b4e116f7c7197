//! `aquifer install` and `aquifer uninstall`: what the Helm chart does, for people without Helm. The objects are the chart's with
//! its default values; a test compares them.

mod apply;
mod objects;
mod remove;
mod rollout;

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use kube::api::DynamicObject;

use self::apply::Change;
pub use self::objects::{COMPONENT, NAME, NAME_LABEL, NAMESPACE, VERSION_LABEL};
use self::objects::{DEFAULT_IMAGE, Wanted, title};
pub use self::remove::{Args as RemoveArgs, run as remove};
use crate::run::{Connection, Family};

#[derive(ClapArgs)]
pub struct Args {
    /// Print the objects as YAML and change nothing
    #[arg(long, env = "AQUIFER_INSTALL_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// Image of the operator
    #[arg(long, env = "AQUIFER_INSTALL_IMAGE", default_value = DEFAULT_IMAGE, value_name = "IMAGE")]
    image: String,
    /// Namespace of the operator; made when it is missing
    #[arg(long, short, env = "AQUIFER_INSTALL_NAMESPACE", default_value = NAMESPACE, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: String,
    /// How many; one acts, the others stand by
    #[arg(long, env = "AQUIFER_INSTALL_REPLICAS", default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=10))]
    replicas: i32,
    /// Families to run; each brings its own rights
    #[arg(
        long,
        env = "AQUIFER_INSTALL_FAMILIES",
        value_enum,
        value_delimiter = ',',
        default_value = "efs",
        value_name = "FAMILIES"
    )]
    families: Vec<Family>,
    /// Wait until all replicas are ready
    #[arg(long, env = "AQUIFER_INSTALL_WAIT", value_parser = BoolishValueParser::new())]
    wait: bool,
    /// How long to wait, in seconds
    #[arg(long, env = "AQUIFER_INSTALL_TIMEOUT", default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

/// Installs, or makes what is installed as it should be.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let wanted = Wanted {
        image: args.image,
        namespace: args.namespace,
        replicas: args.replicas,
        families: args.families,
    };
    let objects = wanted.objects()?;
    if args.dry_run {
        return print(&objects);
    }
    let client = args.connection.client().await?;
    // Everything is looked at before anything is written, so that a refusal leaves nothing half done.
    let mut found = Vec::new();
    for object in &objects {
        let live = apply::look(&client, object).await?;
        if let Some(live) = &live {
            apply::may_change(object, live)?;
        }
        found.push(live);
    }
    let (mut created, mut changed, mut unchanged) = (0, 0, 0);
    for (object, live) in objects.iter().zip(&found) {
        let change = apply::apply(&client, object, live.as_ref()).await?;
        match change {
            Change::Created => created += 1,
            Change::Changed => changed += 1,
            Change::Unchanged | Change::Left => unchanged += 1,
        }
        println!("{:<9} {}", change.word(), title(object));
    }
    apply::wait_until_served(&client, &objects).await?;
    println!(
        "{} objects: {created} created, {changed} changed, {unchanged} as they should be",
        objects.len()
    );
    if args.wait {
        rollout::wait(&client, &wanted.namespace, Duration::from_secs(args.timeout)).await?;
    }
    Ok(())
}

fn print(objects: &[DynamicObject]) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for object in objects {
        let yaml = serde_saphyr::to_string(&serde_json::to_value(object)?)
            .with_context(|| format!("cannot print {}", title(object)))?;
        // A reader that has seen enough closes the pipe.
        if write!(out, "---\n{yaml}").is_err() {
            break;
        }
    }
    Ok(())
}

/// What Kubernetes accepts as the name of a namespace.
fn namespace(text: &str) -> anyhow::Result<String> {
    let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if text.is_empty() || text.len() > 63 || !plain || text.starts_with('-') || text.ends_with('-') {
        bail!("a namespace has 1 to 63 of a-z, 0-9 and -, and neither begins nor ends with -");
    }
    Ok(text.to_owned())
}
