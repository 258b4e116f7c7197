//! Families on the command line: the flag that chooses them, and the commands of each. Goes through the list and knows none by name.

mod choices;
mod uninstall;

pub use self::choices::Choices;
use aquifer_family::Family;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, Command};

/// The id of the flag in [`Chosen`]. Each command that has it sets the flag's variable and help.
pub const FLAG: &str = "families";

// The flag by which a command chooses among the families. Not a doc comment: that would become the help of the command.
#[derive(Args)]
pub struct Chosen {
    #[arg(id = FLAG, long, value_parser = parser(), value_delimiter = ',', value_name = "FAMILIES")]
    families: Option<Vec<&'static dyn Family>>,
}

impl Chosen {
    /// The families that were named, as they were named; none without the flag.
    pub fn families(&self) -> Option<Vec<&'static dyn Family>> {
        self.families.clone()
    }
}

/// Reads the name of a family.
pub fn parser() -> impl TypedValueParser<Value = &'static dyn Family> {
    let known = aquifer_families::all();
    let values = known.iter().map(|family| PossibleValue::new(family.name()).help(family.summary()));
    PossibleValuesParser::new(values).try_map(|name| aquifer_families::named(&name).ok_or("not a family"))
}

/// Each family once, in the order of the list.
pub fn in_order(chosen: &[&'static dyn Family]) -> Vec<&'static dyn Family> {
    let is_chosen = |family: &&'static dyn Family| chosen.iter().any(|one| one.name() == family.name());
    aquifer_families::all().into_iter().filter(is_chosen).collect()
}

/// The names of families, as flags and variables list them.
pub fn names(families: &[&dyn Family]) -> String {
    families.iter().map(|family| family.name()).collect::<Vec<_>>().join(",")
}

/// Adds what families bring: their flags of `run`, and a command of their own.
pub fn extend(command: Command) -> Command {
    let all = aquifer_families::all();
    let run = |run: Command| all.iter().fold(run, |run, family| family.flags(run));
    let command = command.mut_subcommand("run", run);
    all.iter().fold(command, |command, family| command.subcommand(uninstall::command(*family)))
}

/// Carries out the command of a family. None when the command is not a family's.
pub async fn dispatch(matches: &ArgMatches) -> Option<anyhow::Result<()>> {
    let (name, matches) = matches.subcommand()?;
    let family = aquifer_families::named(name)?;
    let (_, matches) = matches.subcommand()?;
    Some(uninstall::run(family, matches).await)
}
