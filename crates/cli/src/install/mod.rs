//! `aquifer install` and `aquifer uninstall`: what the Helm chart does, for people without Helm. The objects are the chart's with
//! its default values; a test compares them.

mod apply;
mod needed;
mod objects;
mod present;
mod rollout;
mod uninstall;

use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_base::NamespaceName;
use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};

use self::apply::{CRD, Change};
pub use self::objects::{COMPONENT, NAME, NAME_LABEL, NAMESPACE, VERSION_LABEL};
use self::objects::{DEFAULT_IMAGE, Wanted, kind, title};
use self::present::Present;
pub use self::uninstall::{Args as UninstallArgs, run as uninstall};
use crate::connection::Connection;
use crate::families::{self, Choices, Chosen};

const FAMILIES_HELP: &str =
    "Families to run, each with its own kinds and rights; by default the installed ones, or at first efs";

#[derive(ClapArgs)]
#[command(mut_arg(families::FLAG, |flag| flag.env("AQUIFER_INSTALL_FAMILIES").help(FAMILIES_HELP)))]
pub struct Args {
    /// Print the objects as YAML and change nothing
    #[arg(long, env = "AQUIFER_INSTALL_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// Image of the operator; by default the installed one, or at first the one that `cargo xtask image` makes
    #[arg(long, env = "AQUIFER_INSTALL_IMAGE", value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// Namespace of the operator, created if missing; by default the installed one, or at first aquifer-system
    #[arg(long, short, env = "AQUIFER_INSTALL_NAMESPACE", value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<NamespaceName>,
    /// Number of replicas, of which one acts and the others wait; by default as many as installed, or at first 2
    #[arg(long, env = "AQUIFER_INSTALL_REPLICAS", value_name = "N", value_parser = clap::value_parser!(i32).range(0..=10))]
    replicas: Option<i32>,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    choices: Choices,
    /// Use what another tool or user made: definitions of our kinds, which are left as they are by default, and what families need, such as
    /// the driver's namespace, which is refused by default
    #[arg(long, env = "AQUIFER_INSTALL_TAKE_OVER", value_parser = BoolishValueParser::new())]
    take_over: bool,
    /// Wait until all replicas are ready
    #[arg(long, env = "AQUIFER_INSTALL_WAIT", value_parser = BoolishValueParser::new())]
    wait: bool,
    /// How long to wait, in seconds
    #[arg(long, env = "AQUIFER_INSTALL_TIMEOUT", default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

impl Args {
    /// The choices that were made now, else those of the installation, else the defaults.
    fn wanted(
        &self,
        namespace: NamespaceName,
        installed: Present,
        apis: Vec<String>,
    ) -> anyhow::Result<Wanted> {
        let families = match self.chosen.families() {
            Some(chosen) => chosen,
            None => installed.families()?.unwrap_or_else(aquifer_families::default),
        };
        Ok(Wanted {
            image: self.image.clone().or(installed.image).unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            namespace,
            replicas: self.replicas.or(installed.replicas).unwrap_or(2),
            families: families::in_order(&families),
            choices: self.choices.clone().or(installed.choices),
            apis,
        })
    }
}

/// Installs, or makes what is installed as it should be.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if args.dry_run {
        let namespace = present::choose_namespace(None, args.namespace.as_ref())?;
        return print(&args.wanted(namespace, Present::default(), Vec::new())?.objects()?);
    }
    let client = args.connection.client().await?;
    let installed = present::operator_namespace(&client).await?;
    let namespace = present::choose_namespace(installed, args.namespace.as_ref())?;
    let installed = Present::read(&client, &namespace).await?;
    let wanted = args.wanted(namespace, installed, present::apis(&client).await?)?;
    let objects = wanted.objects()?;
    let found = rehearse(&client, &objects, args.take_over).await?;
    let (mut created, mut changed, mut unchanged, mut left) = (0, 0, 0, 0);
    for (object, live) in objects.iter().zip(&found) {
        let change = apply::apply(&client, object, live.as_ref(), args.take_over).await?;
        match change {
            Change::Created => created += 1,
            Change::Changed => changed += 1,
            Change::Unchanged => unchanged += 1,
            Change::Left => left += 1,
        }
        let note = if change == Change::Left && kind(object) == CRD { FOREIGN_CRD } else { "" };
        say!("{:<9} {}{note}", change.word(), title(object));
    }
    apply::wait_until_served(&client, &objects).await?;
    let left = if left == 0 { String::new() } else { format!(", {left} left alone") };
    say!(
        "{} objects: {created} created, {changed} changed, {unchanged} as they should be{left}",
        objects.len()
    );
    say!("image: {}", wanted.image);
    for component in needed::unwanted(&client).await? {
        say!(
            "Component {component} is marked as removed and will not be installed; to install it: kubectl delete component {component}"
        );
    }
    if args.wait {
        rollout::wait(&client, &wanted.namespace, Duration::from_secs(args.timeout)).await?;
    }
    Ok(())
}

/// What is said of a definition that was left as it is.
const FOREIGN_CRD: &str = " (not installed by Aquifer; --take-over replaces it)";

/// Everything is looked at, and as far as possible tried, before anything is written: a refusal leaves nothing half done. Gives what is there.
async fn rehearse(
    client: &Client,
    objects: &[DynamicObject],
    take_over: bool,
) -> anyhow::Result<Vec<Option<DynamicObject>>> {
    let mut found = Vec::new();
    for object in objects {
        let live = apply::look(client, object).await?;
        if let Some(live) = &live {
            apply::may_change(object, live, take_over)?;
        }
        found.push(live);
    }
    let both = || objects.iter().zip(&found);
    let to_make = both().filter(|(object, live)| kind(object) == "Namespace" && live.is_none());
    let to_make: Vec<String> = to_make.map(|(object, _)| object.name_any()).collect();
    for (object, live) in both() {
        // Nothing can be tried in a namespace that is still to be made.
        if !object.namespace().is_some_and(|namespace| to_make.contains(&namespace)) {
            apply::try_out(client, object, live.as_ref(), take_over).await?;
        }
    }
    Ok(found)
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

/// Something that can be an image; which ones can be pulled, only the nodes know.
fn image(text: &str) -> anyhow::Result<String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        bail!("an image is written like registry.example/aquifer:0.1.0");
    }
    Ok(text.to_owned())
}

/// What Kubernetes accepts as the name of a namespace.
fn namespace(text: &str) -> anyhow::Result<NamespaceName> {
    let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if text.is_empty() || text.len() > 63 || !plain || text.starts_with('-') || text.ends_with('-') {
        bail!("a namespace has 1 to 63 characters of a-z, 0-9 and -, and neither begins nor ends with -");
    }
    Ok(text.into())
}
