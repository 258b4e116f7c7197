//! The names of all tests, and the check that none of an earlier commit got lost. A test that moved or went has a line in
//! `xtask/tests-moved.txt` that says where to, or why.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::programs::Program;

/// The tests of the commit f7d08d7, as `cargo xtask test --list` prints them.
const THEN: &str = include_str!("../../tests-f7d08d7.txt");
/// What became of those that are not there any more: `old -> new`, or `old # reason`. A `*` at the end of both names stands for the
/// same text.
const MOVED: &str = include_str!("../../tests-moved.txt");

/// One line for each test: ring, package, name.
pub fn tests_of(programs: &[Program]) -> Result<BTreeSet<String>> {
    let mut tests = BTreeSet::new();
    for program in programs {
        for name in program.tests()? {
            tests.insert(format!("{} {} {name}", program.ring.word(), program.package));
        }
    }
    Ok(tests)
}

/// Compares with the committed list; prints what is missing. False when something is.
pub fn check(programs: &[Program]) -> Result<bool> {
    let now = tests_of(programs)?;
    let missing = missing(THEN, &moves(MOVED)?, &now);
    for test in &missing {
        println!("missing, and not in xtask/tests-moved.txt: {test}");
    }
    println!("{} tests then, {} now, {} missing", THEN.lines().count(), now.len(), missing.len());
    Ok(missing.is_empty())
}

/// What became of a test.
#[derive(Debug, PartialEq, Eq)]
enum Fate<'a> {
    Moved(&'a str),
    Gone,
}

fn moves(text: &str) -> Result<BTreeMap<&str, Fate<'_>>> {
    let mut moves = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (old, fate) = match (line.split_once(" -> "), line.split_once(" # ")) {
            (Some((old, new)), None) => (old, Fate::Moved(new)),
            (None, Some((old, reason))) if !reason.trim().is_empty() => (old, Fate::Gone),
            _ => anyhow::bail!("cannot read this line of xtask/tests-moved.txt: {line}"),
        };
        let both = matches!(&fate, Fate::Moved(new) if new.ends_with('*') != old.ends_with('*'));
        ensure!(!both, "only one name ends with * in this line of xtask/tests-moved.txt: {line}");
        ensure!(moves.insert(old, fate).is_none(), "two lines of xtask/tests-moved.txt are about {old}");
    }
    Ok(moves)
}

fn missing(then: &str, moves: &BTreeMap<&str, Fate<'_>>, now: &BTreeSet<String>) -> Vec<String> {
    let is_there = |test: &str| {
        if now.contains(test) {
            return true;
        }
        // The longest name that fits counts.
        let fits = moves.iter().filter_map(|(old, fate)| match old.strip_suffix('*') {
            None => (*old == test).then_some((usize::MAX, "", fate)),
            Some(start) => test.strip_prefix(start).map(|rest| (start.len(), rest, fate)),
        });
        match fits.max_by_key(|(length, ..)| *length) {
            None => false,
            Some((_, _, Fate::Gone)) => true,
            Some((_, rest, Fate::Moved(new))) => {
                now.contains(&format!("{}{rest}", new.trim_end_matches('*')))
            }
        }
    };
    then.lines().filter(|test| !is_there(test)).map(str::to_owned).collect()
}

/// Every line of the map must be readable, and about tests that there were.
#[cfg(test)]
mod tests {
    use super::*;

    fn now(tests: &[&str]) -> BTreeSet<String> {
        tests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_map_can_be_read_and_names_only_tests_that_there_were() {
        for old in moves(MOVED).unwrap().keys() {
            let known = THEN.lines().any(|test| match old.strip_suffix('*') {
                Some(start) => test.starts_with(start),
                None => test == *old,
            });
            assert!(known, "{old} was no test");
        }
    }

    #[test]
    fn a_test_is_missing_unless_it_is_there_or_moved_or_has_a_reason() {
        let then = "pure a one\npure a two\npure a three\npure b x::four\npure b x::five\n";
        let map = moves("pure a two -> pure c two\npure a three # not needed\npure b x::* -> pure b y::*\n")
            .unwrap();
        let all = ["pure a one", "pure c two", "pure b y::four", "pure b y::five"];
        assert_eq!(missing(then, &map, &now(&all)), Vec::<String>::new());
        assert_eq!(missing(then, &map, &now(&all[1..])), ["pure a one"]);
        assert_eq!(missing(then, &map, &now(&all[..3])), ["pure b x::five"]);
        assert_eq!(
            missing(then, &map, &now(&["pure a one", "pure b y::four", "pure b y::five"])),
            ["pure a two"]
        );
    }

    #[test]
    fn a_line_without_a_reason_or_a_new_name_is_refused() {
        assert!(moves("pure a one").is_err());
        assert!(moves("pure a one # ").is_err());
        assert!(moves("pure a * -> pure b one").is_err());
        assert!(moves("pure a one # x\npure a one -> pure b one").is_err());
    }
}
