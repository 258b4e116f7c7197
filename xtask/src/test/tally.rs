//! Counts what test programs say about themselves while they are shown. Judges nothing but their ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::process;

/// What tests said about themselves.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
    /// What failed: test programs, and checks.
    pub broken: Vec<String>,
    /// What the failed tests said, said again at the end: before it there is much that others said.
    said_by_failed: Vec<String>,
    /// Tests that failed, as the program lists them.
    named: Vec<String>,
    /// Whether the lines are those of a failed test.
    in_failure: bool,
}

/// So much of what a failed test said is said again, in characters: its beginning and its end.
const FIRST: usize = 2_000;
const LAST: usize = 4_000;

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.broken.extend(other.broken);
        self.said_by_failed.extend(other.said_by_failed);
    }

    /// What each failed test said, without the middle when that is long.
    pub fn said_by_failed(&self) -> impl Iterator<Item = String> {
        self.said_by_failed.iter().map(|said| {
            let length = said.chars().count();
            if length <= FIRST + LAST {
                return said.clone();
            }
            let (first, last): (String, String) =
                (said.chars().take(FIRST).collect(), said.chars().skip(length - LAST).collect());
            format!("{first}\n({} characters are left out here)\n{last}", length - FIRST - LAST)
        })
    }

    pub fn line(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }

    fn see(&mut self, line: &str) {
        let words = line;
        let line = line.trim();
        let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = heading {
            self.in_failure = self.named.iter().any(|failed| failed == name);
        } else if ["failures:", "successes:"].contains(&line) {
            self.in_failure = false;
        }
        if self.in_failure {
            match self.said_by_failed.last_mut().filter(|_| heading.is_none()) {
                Some(said) => {
                    said.push('\n');
                    said.push_str(words);
                }
                None => self.said_by_failed.push(words.to_owned()),
            }
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.named.push(name.to_owned());
        }
    }
}

/// The number before a word in "ok. 3 passed; 0 failed; 1 ignored; …".
fn count(result: &str, word: &str) -> usize {
    let words: Vec<&str> = result.split([' ', ';']).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// A check that counts as one test, also when it cannot be made.
pub fn of_check(good: Result<bool>, otherwise: &str) -> Tally {
    let broken = match good {
        Ok(true) => return Tally { passed: 1, ..Tally::default() },
        Ok(false) => otherwise.to_owned(),
        Err(error) => format!("cannot check: {error:#}"),
    };
    Tally { failed: 1, broken: vec![broken], ..Tally::default() }
}

/// Shows a test program while it runs and counts what it says.
pub fn follow(command: &mut Command, name: &str) -> Result<Tally> {
    follow_into(command, name, std::io::stdout())
}

fn follow_into(command: &mut Command, name: &str, show: impl Write + Send + 'static) -> Result<Tally> {
    let mut child = command
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{}`", process::show(command)))?;
    let out = child.stdout.take().context("no stdout")?;
    let reader = thread::spawn(move || read(out, show));
    let mut tally = reader.join().map_err(|_| anyhow::anyhow!("lost the output of the tests"))?;
    let status = child.wait()?;
    let named = std::mem::take(&mut tally.named);
    tally.broken.extend(named.into_iter().map(|test| format!("{name} {test}")));
    // A test program that ends without a result (a crash, an abort) is one failure.
    if !status.success() && tally.failed == 0 {
        tally.failed = 1;
        tally.broken.push(format!("{name} ended with {status}"));
    }
    Ok(tally)
}

/// Passes every line on and counts.
fn read(from: impl Read, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // When the reader is gone, still count to the end, so that the tests are not stopped half way.
        let _ = writeln!(to, "{line}").and_then(|()| to.flush());
        tally.see(&line);
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown would be counted by the run that these tests are part of.
    fn quietly(script: &str) -> Tally {
        follow_into(Command::new("sh").args(["-c", script]), "a lib", std::io::sink()).unwrap()
    }

    #[test]
    fn results_of_a_program_are_counted() {
        let text = "running 7 tests\ntest one ... FAILED\n\
            test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let tally = read(text.as_bytes(), std::io::sink());
        assert_eq!((tally.passed, tally.failed, tally.ignored), (4, 2, 1));
        assert_eq!(tally.named, ["one"]);
        assert_eq!(tally.line(), "4 passed, 2 failed");
    }

    #[test]
    fn failed_tests_are_named_with_their_program() {
        let tally =
            quietly("echo 'test x::y ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed;'; exit 101");
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(tally.broken, ["a lib x::y"]);
    }

    #[test]
    fn what_failed_tests_said_is_kept_and_nothing_of_others() {
        let text = "test good ... ok\ntest bad ... FAILED\n\nsuccesses:\n\n---- good stdout ----\nfine\n\n\nsuccesses:\n    good\n\n\
            failures:\n\n---- bad stdout ----\nthe reason\n  more of it\n\nfailures:\n    bad\n";
        let tally = read(text.as_bytes(), std::io::sink());
        let said: Vec<String> = tally.said_by_failed().collect();
        assert_eq!(said, ["---- bad stdout ----\nthe reason\n  more of it\n"]);
    }

    #[test]
    fn of_what_is_long_the_beginning_and_the_end_are_kept() {
        let long = "x".repeat(2 * (FIRST + LAST));
        let text = format!("test bad ... FAILED\n---- bad stdout ----\nthe beginning\n{long}\nthe end\n");
        let said = read(text.as_bytes(), std::io::sink()).said_by_failed().next().unwrap();
        assert!(said.contains("\nthe beginning\n") && said.ends_with("\nthe end"), "{said}");
        assert!(said.chars().count() < FIRST + LAST + 100, "{}", said.len());
    }

    #[test]
    fn a_program_that_ends_without_a_result_is_a_failure() {
        let tally = quietly("exit 3");
        assert_eq!(tally.failed, 1);
        assert_eq!(tally.broken.len(), 1);
        assert!(tally.broken[0].starts_with("a lib ended with"), "{:?}", tally.broken);
    }

    #[test]
    fn a_check_that_cannot_be_made_is_one_failure_with_its_reason() {
        let tally = of_check(Err(anyhow::anyhow!("no such record")), "bad");
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert!(tally.broken[0].contains("no such record"), "{:?}", tally.broken);
        assert_eq!(of_check(Ok(true), "bad").line(), "1 passed, 0 failed");
        assert_eq!(of_check(Ok(false), "bad").broken, ["bad"]);
    }
}
