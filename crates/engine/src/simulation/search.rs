//! Plays many histories, and makes the first one that ends badly as short as it can.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::faults::Fault;
use super::tape::Tape;
use super::world::Played;
use crate::runtime::Runtime;

/// So many histories are played on the slowest machine too.
const LEAST: u64 = 3;
/// How long a history is played again to shorten it.
const SHORTENING: Duration = Duration::from_mins(1);

/// What many histories came to.
pub struct Search {
    /// How many were played.
    pub seeds: u64,
    /// Requests and other things that happened in them.
    pub steps: usize,
    /// How often each kind of fault has happened.
    pub faults: BTreeMap<Fault, usize>,
    /// How long it took.
    pub took: Duration,
    /// Those that ended badly: the first, unless all were wanted.
    pub bad: Vec<BadHistory>,
}

/// A history that ended badly.
pub struct BadHistory {
    /// Its seed.
    pub seed: u64,
    /// As it was first played.
    pub first: Played,
    /// With as many choices set to 0 as possible, where that was wanted.
    pub shortest: Option<Played>,
}

/// How long histories are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// For so long.
    Time(Duration),
    /// Until so many things have happened in them.
    Steps(usize),
}

/// What to do about histories that end badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The first ends the search, and is made as short as possible.
    Shorten,
    /// The first ends the search.
    Stop,
    /// All of them are wanted.
    All,
}

/// Plays histories as the environment says: `AQUIFER_SEED` is the first seed, `AQUIFER_SEEDS` how many, `AQUIFER_SECONDS` how long;
/// with `AQUIFER_ALL=1` it goes on after the first that ends badly, with `AQUIFER_SHORTEN=0` that one is not shortened. With
/// `AQUIFER_FULL` they are played until `full` things have happened in them, without it for the time `everyday`.
pub fn search_as_told(
    everyday: Duration,
    full: usize,
    play: impl Fn(Tape) -> std::io::Result<Played>,
) -> std::io::Result<Search> {
    let told = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = told("AQUIFER_SEED").unwrap_or(1);
    let seeds = first..first.saturating_add(told("AQUIFER_SEEDS").unwrap_or(1_000_000));
    let until = match (told("AQUIFER_SECONDS"), std::env::var_os("AQUIFER_FULL")) {
        (Some(seconds), _) => Until::Time(Duration::from_secs(seconds)),
        (None, Some(_)) => Until::Steps(full),
        (None, None) => Until::Time(everyday),
    };
    let bad = match (told("AQUIFER_ALL"), told("AQUIFER_SHORTEN")) {
        (Some(1), _) => Bad::All,
        (_, Some(0)) => Bad::Stop,
        _ => Bad::Shorten,
    };
    search(seeds, until, bad, play)
}

/// Plays the histories of `seeds` until one ends badly, unless all of those are wanted, or it was long enough and a few were played.
pub fn search(
    seeds: impl IntoIterator<Item = u64>,
    until: Until,
    bad: Bad,
    play: impl Fn(Tape) -> std::io::Result<Played>,
) -> std::io::Result<Search> {
    let started = Runtime::instant();
    let mut found =
        Search { seeds: 0, steps: 0, faults: BTreeMap::new(), took: Duration::ZERO, bad: Vec::new() };
    for seed in seeds {
        let played = play(Tape::from_seed(seed))?;
        found.seeds += 1;
        found.steps += played.history.len();
        for (fault, times) in &played.faults {
            *found.faults.entry(*fault).or_default() += times;
        }
        if played.end.is_err() {
            let shortest = if bad == Bad::Shorten { Some(shorten(&played, &play)?) } else { None };
            found.bad.push(BadHistory { seed, first: played, shortest });
            if bad != Bad::All {
                break;
            }
        }
        let enough = match until {
            Until::Time(limit) => started.elapsed() >= limit,
            Until::Steps(steps) => found.steps >= steps,
        };
        if enough && found.seeds >= LEAST {
            break;
        }
    }
    found.took = started.elapsed();
    Ok(found)
}

/// Sets ever smaller parts of the choices to 0, and keeps what still ends badly.
fn shorten(bad: &Played, play: impl Fn(Tape) -> std::io::Result<Played>) -> std::io::Result<Played> {
    let begun = Runtime::instant();
    let mut shortest = play(Tape::replay(bad.choices.clone()))?;
    assert_eq!(kind_of(&shortest), kind_of(bad), "one tape must give one history");
    let mut part = shortest.choices.len().div_ceil(2);
    while part > 0 && begun.elapsed() < SHORTENING {
        let mut from = 0;
        while from < shortest.choices.len() && begun.elapsed() < SHORTENING {
            let mut choices = shortest.choices.clone();
            let end = (from + part).min(choices.len());
            let eventful = choices[from..end].iter().any(|choice| *choice != 0);
            choices[from..end].fill(0);
            if eventful {
                let again = play(Tape::replay(choices))?;
                if kind_of(&again) == kind_of(bad) {
                    shortest = again;
                }
            }
            from = end;
        }
        part /= 2;
    }
    Ok(shortest)
}

/// The first words of what is wrong: a history is not shortened to one with another mistake.
fn kind_of(played: &Played) -> Option<Vec<&str>> {
    let said = played.end.as_ref().err()?;
    Some(
        said.split(' ')
            .filter(|word| word.len() > 2 && word.chars().all(char::is_alphabetic))
            .take(5)
            .collect(),
    )
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        let faults: Vec<String> =
            self.faults.iter().map(|(fault, times)| format!("{fault:?} {times}")).collect();
        let per_second = if seconds > 0.0 {
            f64::from(u32::try_from(self.seeds).unwrap_or(u32::MAX)) / seconds
        } else {
            0.0
        };
        write!(
            f,
            "{} histories, {} steps, {seconds:.1} s ({per_second:.1} histories a second); faults: {}",
            self.seeds,
            self.steps,
            faults.join(", ")
        )?;
        let said = |played: &Played| played.end.clone().err().unwrap_or_default();
        for bad in &self.bad {
            write!(f, "\nseed {} ends badly: {}", bad.seed, said(&bad.first))?;
            if let Some(shortest) = &bad.shortest {
                write!(
                    f,
                    "\nshortened from {} to {} eventful choices, it ends with: {}\n{}",
                    eventful(&bad.first),
                    eventful(shortest),
                    said(shortest),
                    shortest.history.join("\n")
                )?;
            } else if self.bad.len() == 1 {
                write!(f, "\n{}", bad.first.history.join("\n"))?;
            }
        }
        Ok(())
    }
}

fn eventful(played: &Played) -> usize {
    played.choices.iter().filter(|choice| **choice != 0).count()
}
