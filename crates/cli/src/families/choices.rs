//! Flags of `run` that a family lets people choose already when they install: the same flags, without their defaults. Knows no family by name.

use std::collections::BTreeMap;

use clap::builder::Resettable;
use clap::error::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// What was chosen, by the variable that the operator reads it from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices(BTreeMap<String, String>);

impl Choices {
    /// What an operator with these variables was given.
    pub fn of<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Self {
        let variables = flags().into_iter().map(|flag| variable_of(&flag));
        Self(variables.filter_map(|name| Some((name.clone(), variable(&name)?.to_owned()))).collect())
    }

    /// These, and of the others what these do not say.
    pub fn or(mut self, others: Self) -> Self {
        for (name, value) in others.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }

    /// What was chosen for a variable.
    pub fn get(&self, variable: &str) -> Option<&str> {
        self.0.get(variable).map(String::as_str)
    }
}

/// The flags as `run` has them.
fn flags() -> Vec<Arg> {
    let of_family = |family: &'static dyn aquifer_family::Family| {
        let command = family.flags(Command::new("run"));
        let chosen = |flag: &&Arg| family.choices().contains(&flag.get_id().as_str());
        command.get_arguments().filter(chosen).cloned().collect::<Vec<_>>()
    };
    aquifer_families::all().into_iter().flat_map(of_family).collect()
}

fn variable_of(flag: &Arg) -> String {
    flag.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The flag as `install` has it.
fn of_install(flag: Arg) -> Arg {
    let variable = variable_of(&flag).replacen("AQUIFER_", "AQUIFER_INSTALL_", 1);
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let first = flag.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let help = format!("{help}; by default as installed, or at first {}", first.unwrap_or_default());
    flag.env(variable).default_value(Resettable::Reset).help(help)
}

impl Args for Choices {
    fn augment_args(command: Command) -> Command {
        command.args(flags().into_iter().map(of_install))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Choices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self> {
        let said = |flag: &Arg| {
            let value = matches.get_raw(flag.get_id().as_str())?.next()?;
            Some((variable_of(flag), value.to_string_lossy().into_owned()))
        };
        Ok(Self(flags().iter().filter_map(said).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Self::from_arg_matches(matches)?.or(std::mem::take(self));
        Ok(())
    }
}
