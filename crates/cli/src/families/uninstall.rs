//! `aquifer FAMILY uninstall`: asks, requests the removal, and waits. The work is the running operator's; see [`aquifer_family::Uninstall`].

use std::time::Duration;

use anyhow::bail;
use aquifer_family::{Family, Outcome};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _, value_parser};

use crate::confirm::confirm;
use crate::connection::Connection;

const YES: &str = "yes";
const TIMEOUT: &str = "timeout";

/// The command of a family.
pub fn command(family: &'static dyn Family) -> Command {
    let variable = |flag: &str| format!("AQUIFER_{}_UNINSTALL_{flag}", family.name().to_uppercase());
    let uninstall = Command::new("uninstall")
        .arg(
            Arg::new(YES)
                .long(YES)
                .env(variable("YES"))
                .action(ArgAction::SetTrue)
                .value_parser(BoolishValueParser::new())
                .help("Do not ask for confirmation"),
        )
        .arg(
            Arg::new(TIMEOUT)
                .long(TIMEOUT)
                .env(variable("TIMEOUT"))
                .default_value("300")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64))
                .help(
                    "How long to wait until everything is gone, in seconds; the operator goes on afterwards",
                ),
        );
    Command::new(family.name())
        .about(family.summary())
        .subcommand_required(true)
        .arg_required_else_help(true)
        // After the flags of the connection, which would say what they are about.
        .subcommand(
            Connection::augment_args(uninstall).about(
                "Deletes everything that the family made; asks first, and can be repeated at any point",
            ),
        )
}

/// Carries it out.
pub async fn run(family: &'static dyn Family, matches: &ArgMatches) -> anyhow::Result<()> {
    let client = Connection::from_arg_matches(matches)?.client().await?;
    let Some(uninstall) = family.uninstall(client) else {
        say!("The family {} made nothing that has to be deleted.", family.name());
        return Ok(());
    };
    for line in uninstall.announcement().await? {
        say!("{line}");
    }
    confirm(matches.get_flag(YES))?;
    let seconds = matches.get_one::<u64>(TIMEOUT).copied().unwrap_or_default();
    let mut last = String::new();
    let mut report = |line: String| {
        if line != last {
            say!("{line}");
            last = line;
        }
    };
    match uninstall.run(Duration::from_secs(seconds), &mut report).await? {
        Outcome::Done(hint) => {
            say!("{hint}");
            Ok(())
        }
        Outcome::Unfinished(left) => bail!(
            "cannot finish within {seconds} s: {left}. The operator goes on; run the command again to see how far it is"
        ),
    }
}
