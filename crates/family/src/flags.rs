//! Flags that were renamed: the old name and its variable stay as hidden aliases.

use clap::ArgMatches;
use clap::parser::ValueSource;

/// The values of the flag `now`, which was named `before`. The command line wins over variables, and the new name over the old one;
/// a default counts only when neither was given.
pub fn renamed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, now: &str, before: &str) -> Vec<T> {
    let order = [ValueSource::CommandLine, ValueSource::EnvVariable, ValueSource::DefaultValue];
    let given = order
        .into_iter()
        .find_map(|source| [now, before].into_iter().find(|name| matches.value_source(name) == Some(source)));
    given.and_then(|name| matches.get_many::<T>(name)).into_iter().flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn chosen(arguments: &[&str]) -> Vec<String> {
        let command = Command::new("test")
            .arg(Arg::new("new").long("new").default_value("default"))
            .arg(Arg::new("old").long("old").hide(true));
        renamed(&command.get_matches_from(arguments), "new", "old")
    }

    #[test]
    fn the_old_name_counts_unless_the_new_one_is_given() {
        assert_eq!(chosen(&["test"]), ["default"]);
        assert_eq!(chosen(&["test", "--old", "a"]), ["a"]);
        assert_eq!(chosen(&["test", "--new", "b"]), ["b"]);
        assert_eq!(chosen(&["test", "--old", "a", "--new", "b"]), ["b"]);
    }
}
