//! All choices of one history in the order in which they were made. Recorded, so that the same history can be played again, and
//! played again with some of its choices set to 0: no fault, no delay.

use std::sync::Mutex;

use crate::lock::lock;

/// The choices of one history. Those that were not recorded are drawn.
#[derive(Debug)]
pub struct Tape(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Vec<u64>,
    next: usize,
    /// None where a tape is played again: what is beyond its end is 0.
    random: Option<fastrand::Rng>,
}

impl Tape {
    /// A new history.
    pub fn from_seed(seed: u64) -> Self {
        Self::with(Vec::new(), Some(fastrand::Rng::with_seed(seed)))
    }

    /// A history that was recorded, or a variation of it.
    pub fn replay(entries: Vec<u64>) -> Self {
        Self::with(entries, None)
    }

    fn with(entries: Vec<u64>, random: Option<fastrand::Rng>) -> Self {
        Self(Mutex::new(Inner { entries, next: 0, random }))
    }

    /// A number below `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.choose(|random| random.u64(..limit.max(1))) % limit.max(1)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&self, per_mille: u64) -> bool {
        self.choose(|random| u64::from(random.u64(..1000) < per_mille)) == 1
    }

    /// One of several things that happen with these chances in a thousand; mostly none.
    pub fn one_of<T: Copy>(&self, things: &[(T, u64)]) -> Option<T> {
        let chosen = self.choose(|random| {
            let mut draw = random.u64(..1000);
            let hit = things.iter().position(|(_, chance)| {
                let hit = draw < *chance;
                draw = draw.saturating_sub(*chance);
                hit
            });
            hit.map_or(0, |at| at as u64 + 1)
        });
        let at = usize::try_from(chosen).ok()?.checked_sub(1)?;
        things.get(at).map(|(thing, _)| *thing)
    }

    /// What was chosen so far.
    pub fn entries(&self) -> Vec<u64> {
        let inner = lock(&self.0);
        inner.entries[..inner.next].to_vec()
    }

    fn choose(&self, draw: impl FnOnce(&mut fastrand::Rng) -> u64) -> u64 {
        let mut inner = lock(&self.0);
        let at = inner.next;
        inner.next += 1;
        if at >= inner.entries.len() {
            let choice = inner.random.as_mut().map_or(0, draw);
            inner.entries.push(choice);
        }
        inner.entries[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(tape: &Tape) -> (Vec<u64>, Vec<bool>, Vec<Option<char>>) {
        let times = || 0..50;
        let numbers = times().map(|_| tape.below(7)).collect();
        let chances = times().map(|_| tape.chance(500)).collect();
        (numbers, chances, times().map(|_| tape.one_of(&[('a', 300), ('b', 300)])).collect())
    }

    #[test]
    fn a_recorded_tape_gives_the_same_choices_and_an_empty_one_gives_none() {
        let first = Tape::from_seed(3);
        let (numbers, chances, things) = draws(&first);
        assert!(numbers.iter().all(|number| *number < 7) && numbers.iter().any(|number| *number > 3));
        assert!(chances.contains(&true) && chances.contains(&false));
        assert!([None, Some('a'), Some('b')].iter().all(|thing| things.contains(thing)));
        assert_eq!(draws(&Tape::replay(first.entries())), (numbers, chances, things));
        let (numbers, chances, things) = draws(&Tape::replay(Vec::new()));
        assert!(numbers.iter().all(|number| *number == 0) && !chances.contains(&true));
        assert!(things.iter().all(Option::is_none));
    }
}
