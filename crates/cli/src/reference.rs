//! `aquifer reference`: what this program accepts and what it prints, as JSON. `cargo xtask docs` makes docs/reference from it, so
//! that flags and metrics are described once, where they are defined. Holds no text of its own.

use aquifer_engine::metrics;
use clap::{Arg, Command};
use serde::Serialize;

/// Everything.
#[derive(Serialize)]
struct Reference {
    commands: Vec<CommandEntry>,
    metrics: Vec<metrics::Described>,
    reasons: Vec<aquifer_family::Word>,
}

/// One command that does something by itself.
#[derive(Serialize)]
struct CommandEntry {
    /// As one types it.
    name: String,
    about: String,
    arguments: Vec<ArgumentEntry>,
}

/// One flag or positional argument.
#[derive(Serialize)]
struct ArgumentEntry {
    /// As one types it, with the name of its value.
    usage: String,
    heading: String,
    variable: String,
    default: String,
    choices: Vec<String>,
    help: String,
}

/// Prints the reference of the whole command line.
pub fn print(command: &Command) -> anyhow::Result<()> {
    let mut commands = Vec::new();
    collect("", command, &mut commands);
    let reasons = aquifer_families::all().into_iter().flat_map(aquifer_family::Family::words).collect();
    let reference = Reference { commands, metrics: metrics::described(), reasons };
    say!("{}", serde_json::to_string_pretty(&reference)?);
    Ok(())
}

fn collect(parent: &str, command: &Command, into: &mut Vec<CommandEntry>) {
    let path = format!("{parent} {}", command.get_name()).trim_start().to_owned();
    let mut children = command.get_subcommands().filter(|child| !child.is_hide_set()).peekable();
    if children.peek().is_none() {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        into.push(CommandEntry {
            name: path.clone(),
            about: command.get_about().map(ToString::to_string).unwrap_or_default(),
            arguments: arguments.map(entry).collect(),
        });
    }
    for child in children {
        collect(&path, child, into);
    }
}

fn entry(argument: &Arg) -> ArgumentEntry {
    let value = argument.get_action().takes_values().then(|| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" ")
    });
    let flag = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short},"));
    let words: Vec<String> =
        [short, flag, value].into_iter().flatten().filter(|word| !word.is_empty()).collect();
    let text = |value: Option<&std::ffi::OsStr>| value.map(|it| it.to_string_lossy().into_owned());
    let defaults = argument.get_default_values().iter().filter_map(|value| text(Some(value)));
    // What is on or off has no value that a person would give.
    let choices = argument.get_action().takes_values().then(|| argument.get_possible_values());
    let choices = choices.unwrap_or_default();
    ArgumentEntry {
        usage: words.join(" "),
        heading: argument.get_help_heading().unwrap_or_default().to_owned(),
        variable: text(argument.get_env()).unwrap_or_default(),
        default: defaults.collect::<Vec<_>>().join(","),
        choices: choices.iter().map(|choice| choice.get_name().to_owned()).collect(),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn all() -> Vec<CommandEntry> {
        let mut commands = Vec::new();
        collect("", &crate::Cli::command(), &mut commands);
        commands
    }

    #[test]
    fn every_command_and_every_argument_says_what_it_does() {
        for entry in all() {
            assert!(!entry.about.is_empty(), "{}", entry.name);
            for argument in entry.arguments {
                let name = format!("{} {}", entry.name, argument.usage);
                assert!(!argument.usage.is_empty() && !argument.help.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn a_flag_comes_with_its_value_its_variable_and_its_default() {
        let all = all();
        let run = all.iter().find(|entry| entry.name == "aquifer run").unwrap();
        let listen =
            run.arguments.iter().find(|argument| argument.usage == "--http-listen <ADDRESS>").unwrap();
        assert_eq!(
            (listen.variable.as_str(), listen.default.as_str()),
            ("AQUIFER_HTTP_LISTEN", "0.0.0.0:8080")
        );
        assert!(!all.iter().any(|entry| entry.name.contains("reference")), "it is for us alone");
    }
}
