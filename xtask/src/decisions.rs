//! The lint of decisions: no JSON and no raw object in a file of decisions, no reason compared as text anywhere, and no `select!`
//! that draws its branch by lot where code is simulated. Works on the words of the source, so that comments and texts do not
//! count; knows no types.

mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use words::{Token, Word};

/// Files with these names, and files in folders with these names, hold decisions and what a status says.
const DECISIONS: [&str; 3] = ["decide", "conditions", "planner"];
/// What a file of decisions must not mention.
const RAW: [&str; 3] = ["serde_json", "Value", "Object"];
/// The lab writes in the place of other programs, with their reasons; it is never shipped.
const EXEMPT: [&str; 1] = ["crates/lab/"];

/// Never simulated.
const NOT_SIMULATED: [&str; 4] = ["crates/cli/", "crates/lab/", "crates/system/", "xtask/"];

/// Something that a lint of decisions does not allow.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Checks every source file of the tree below `root`.
pub fn check(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask/src"] {
        sources(&root.join(folder), &mut files)?;
    }
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
        found.extend(findings(&path, &source).into_iter().map(|finding| format!("{path}:{finding}")));
    }
    if !found.is_empty() {
        bail!("{}", found.join("\n"));
    }
    Ok(())
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        // Samples of what the lint must find are not part of the tree.
        if path.is_dir() && path.file_name().is_some_and(|name| name != "samples" && name != "target") {
            sources(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    into.sort();
    Ok(())
}

/// Tests look at what users see, so they may compare texts.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn is_decision(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let file = parts.next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    DECISIONS.contains(&file) || parts.next().is_some_and(|folder| DECISIONS.contains(&folder))
}

fn findings(path: &str, source: &str) -> Vec<Finding> {
    let tokens = words::without_tests(&words::read(source));
    let mut found = Vec::new();
    if is_decision(path) {
        found.extend(raw(&tokens));
    }
    if !is_test(path) {
        found.extend(compared_reasons(&tokens));
        if !NOT_SIMULATED.iter().any(|start| path.starts_with(start)) {
            found.extend(unbiased_selects(&tokens));
        }
    }
    found.sort_by_key(|finding| finding.line);
    found
}

/// JSON and raw objects.
fn raw(tokens: &[Token]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Word::Name(name) = &token.word else { continue };
        let is_macro = tokens.get(at + 1).is_some_and(|next| next.word == Word::Sign('!'));
        if RAW.contains(&name.as_str()) || (name == "json" && is_macro) {
            let what = format!(
                "a file of decisions must not use {name}: give it facts, and build children elsewhere"
            );
            found.push(Finding { line: token.line, what });
        }
    }
    found
}

/// `select!` without `biased` polls its branches in an order that is drawn by lot: then one seed has more than one history.
fn unbiased_selects(tokens: &[Token]) -> Vec<Finding> {
    let sign = |at: usize, sign: char| tokens.get(at).is_some_and(|token| token.word == Word::Sign(sign));
    let is_unbiased = |at: usize| {
        tokens[at].word.is_name("select")
            && sign(at + 1, '!')
            && !tokens.get(at + 3).is_some_and(|token| token.word.is_name("biased"))
    };
    let found = (0..tokens.len()).filter(|at| is_unbiased(*at));
    let what = "a select! must begin with `biased;`: one seed must give one history";
    found.map(|at| Finding { line: tokens[at].line, what: what.to_owned() }).collect()
}

/// Reasons that are compared with a text: by `==` and `!=`, in a `match`, or in `matches!`.
fn compared_reasons(tokens: &[Token]) -> Vec<Finding> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let range = if comparison(tokens, at) {
            Some(operands(tokens, at))
        } else if tokens[at].word.is_name("match") {
            match_arms(tokens, at)
        } else if tokens[at].word.is_name("matches")
            && tokens.get(at + 1).is_some_and(|next| next.word == Word::Sign('!'))
        {
            closed(tokens, at + 2).map(|end| (at + 2, end))
        } else {
            None
        };
        let Some((from, to)) = range else { continue };
        let part = &tokens[from..to];
        if part.iter().any(|token| token.word.is_reason())
            && part.iter().any(|token| token.word.is_other_text())
        {
            let what = "a reason must not be compared as text: parse it into its enumeration".to_owned();
            found.push(Finding { line: tokens[at].line, what });
        }
    }
    found
}

fn comparison(tokens: &[Token], at: usize) -> bool {
    let sign = |at: usize, sign: char| tokens.get(at).is_some_and(|token| token.word == Word::Sign(sign));
    (sign(at, '=') || sign(at, '!')) && sign(at + 1, '=') && !(at > 0 && sign(at - 1, '='))
}

/// The words around a comparison, up to where another expression begins.
fn operands(tokens: &[Token], at: usize) -> (usize, usize) {
    let ends = |token: &Token| {
        matches!(token.word, Word::Sign('{' | '}' | ';' | ',' | '&' | '|')) || token.word.is_name("if")
    };
    let from = tokens[..at].iter().rposition(ends).map_or(0, |end| end + 1);
    let to = tokens[at + 2..].iter().position(ends).map_or(tokens.len(), |end| at + 2 + end);
    (from, to)
}

/// What a `match` looks at, and the patterns and arms below it.
fn match_arms(tokens: &[Token], at: usize) -> Option<(usize, usize)> {
    let open = tokens[at..].iter().position(|token| token.word == Word::Sign('{'))? + at;
    let close = closed(tokens, open)?;
    let looks = tokens[at..open].iter().any(|token| token.word.is_reason());
    // Only patterns count: what an arm does may well hold texts. A pattern ends at `=>`.
    let pattern = |at: usize| {
        let next = tokens[at..close]
            .iter()
            .find(|token| matches!(token.word, Word::Sign('=' | ',' | ';' | '{' | '}')));
        next.is_some_and(|next| next.word == Word::Sign('='))
    };
    let text = (open..close).any(|at| tokens[at].word.is_other_text() && pattern(at));
    (looks && text).then_some((at, close))
}

/// Where the bracket at `open` is closed.
fn closed(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.word {
            Word::Sign('(' | '[' | '{') => depth += 1,
            Word::Sign(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = include_str!("decisions/samples/decide.rs");
    const GOOD: &str = include_str!("decisions/samples/good.rs");

    /// The lines of a sample that say what the lint must find there.
    fn expected(sample: &str, mark: &str) -> Vec<usize> {
        sample.lines().enumerate().filter(|(_, line)| line.contains(mark)).map(|(at, _)| at + 1).collect()
    }

    fn lines(found: &[Finding], about: &str) -> Vec<usize> {
        let mut lines: Vec<_> =
            found.iter().filter(|finding| finding.what.contains(about)).map(|finding| finding.line).collect();
        lines.dedup();
        lines
    }

    #[test]
    fn json_and_raw_objects_in_a_file_of_decisions_are_found() {
        let found = findings("crates/x/src/decide.rs", BAD);
        assert_eq!(lines(&found, "must not use"), expected(BAD, "BAD: raw"), "{found:#?}");
        assert!(expected(BAD, "BAD: raw").len() >= 4);
        assert!(lines(&findings("crates/x/src/world.rs", BAD), "must not use").is_empty());
    }

    #[test]
    fn reasons_that_are_compared_as_text_are_found_everywhere_but_in_tests() {
        for path in ["crates/x/src/decide.rs", "crates/x/src/world.rs"] {
            let found = findings(path, BAD);
            assert_eq!(lines(&found, "as text"), expected(BAD, "BAD: reason"), "{found:#?}");
        }
        assert!(expected(BAD, "BAD: reason").len() >= 5);
        assert!(lines(&findings("crates/x/src/tests.rs", BAD), "as text").is_empty());
    }

    #[test]
    fn a_select_that_draws_its_branch_by_lot_is_found_where_code_is_simulated() {
        let found = |path: &str| lines(&findings(path, BAD), "biased");
        assert_eq!(found("crates/x/src/run.rs"), expected(BAD, "BAD: select"));
        assert_eq!(expected(BAD, "BAD: select").len(), 1);
        assert!(found("crates/lab/src/run.rs").is_empty() && found("crates/x/tests/run.rs").is_empty());
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        assert_eq!(findings("crates/x/src/decide.rs", GOOD), []);
    }

    #[test]
    fn files_of_decisions_are_known_by_their_names() {
        for path in [
            "crates/efs/src/driver/decide.rs",
            "crates/x/src/decide/pair.rs",
            "a/conditions.rs",
            "a/planner/b.rs",
        ] {
            assert!(is_decision(path), "{path}");
        }
        for path in ["crates/efs/src/driver/world.rs", "crates/engine/src/contract/plan.rs", "a/decided.rs"] {
            assert!(!is_decision(path), "{path}");
        }
    }

    #[test]
    fn the_tree_has_no_findings() {
        check(&crate::process::root()).unwrap();
    }
}
