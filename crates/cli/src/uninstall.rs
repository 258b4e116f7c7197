//! `aquifer efs uninstall`: asks, says so, and waits. The work is the operator's; see `aquifer_efs::uninstall`.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use aquifer_efs::uninstall::{Progress, Uninstall};
use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;

use crate::run::Connection;

#[derive(ClapArgs)]
pub struct Args {
    /// Do not ask
    #[arg(long, env = "AQUIFER_EFS_UNINSTALL_YES", value_parser = BoolishValueParser::new())]
    yes: bool,
    /// How long to wait for the end, in seconds; what is left then is reported, and goes on without us
    #[arg(long, env = "AQUIFER_EFS_UNINSTALL_TIMEOUT", default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let uninstall = Uninstall::new(args.connection.client().await?);
    let volumes = uninstall.shared_volumes().await?;
    say!(
        "This deletes {} SharedVolume(s), their claims and volumes, and then the EFS driver.",
        volumes.len()
    );
    for name in &volumes {
        say!("  SharedVolume {name}");
    }
    say!("The data at AWS stays.");
    if !args.yes && !confirmed()? {
        bail!("nothing was done");
    }
    let mut last = String::new();
    let end = uninstall
        .run(Duration::from_secs(args.timeout), |progress| {
            let line = progress.to_string();
            if line != last {
                say!("{line}");
                last = line;
            }
        })
        .await?;
    match end {
        Progress::Done => {
            say!("To have the driver again: kubectl delete component efs-driver (while the operator runs)");
            Ok(())
        }
        left => bail!("not finished: {left}. It goes on by itself; run this again to see how far it is"),
    }
}

/// Asks whether to go on.
pub fn confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("there is no terminal to ask on; say --yes if you mean it");
    }
    print!("Go on? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
