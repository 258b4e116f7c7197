//! How long tests may take: measured for each program, printed, and checked. Over a budget is a warning, twice over a failure.
//!
//! Budgets are for two cores. They count the time of tests: compiling, and preparing the lab's programs, are counted apart.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Ring;
use super::stamp::PACKAGE as LAB;
use crate::process::took;

/// The names of all families; the package of each is `aquifer-<family>`.
pub fn families() -> Vec<&'static str> {
    aquifer_families::all().into_iter().map(aquifer_family::Family::name).collect()
}

const LAB_BUDGET: Duration = Duration::from_mins(4);
/// With one family; each further one adds to it.
const TESTS: Duration = Duration::from_mins(10);
const TESTS_PER_FAMILY: Duration = Duration::from_mins(3);
/// With everything that a fresh machine has to compile and to prepare.
const EVERYTHING: Duration = Duration::from_mins(45);

/// The package of a family.
pub fn package(family: &str) -> String {
    format!("aquifer-{family}")
}

/// What one family may take in a ring.
fn family_budget(ring: Ring) -> Duration {
    match ring {
        Ring::Pure => Duration::from_secs(10),
        Ring::Cluster => Duration::from_secs(90),
        Ring::System | Ring::Full => Duration::from_mins(1),
    }
}

/// The times of one run.
#[derive(Default)]
pub struct Times {
    /// Building the lab's programs and images, where they were not cached.
    pub preparation: Duration,
    /// Building tests and the operator's image.
    pub compiling: Duration,
    tests: BTreeMap<(Ring, String), Duration>,
}

/// How a time stands to its budget.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Within,
    Over,
    TwiceOver,
}

impl Times {
    /// Adds the time of a test program, or of a family's part of it.
    pub fn add(&mut self, ring: Ring, package_name: &str, family: Option<&str>, time: Duration) {
        let name = family.map_or_else(|| package_name.to_owned(), package);
        *self.tests.entry((ring, name)).or_default() += time;
    }

    fn sum(&self) -> Duration {
        self.tests.values().sum()
    }

    /// Where the time went, in one line.
    pub fn line(&self) -> String {
        format!(
            "tests took {}, compiling {}, preparing the lab {}",
            took(self.sum()),
            took(self.compiling),
            took(self.preparation)
        )
    }

    /// Every budget with what was used of it.
    fn budgets(&self) -> Vec<(String, Duration, Duration)> {
        let mut budgets = Vec::new();
        for family in families() {
            for ring in Ring::ALL {
                if let Some(time) = self.tests.get(&(ring, package(family))) {
                    budgets.push((format!("family {family}, {}", ring.word()), *time, family_budget(ring)));
                }
            }
        }
        if let Some(time) = self.tests.get(&(Ring::System, LAB.to_owned())) {
            budgets.push(("the lab's tests of itself".to_owned(), *time, LAB_BUDGET));
        }
        let further = u32::try_from(families().len() - 1).unwrap_or(0);
        budgets.push(("all tests".to_owned(), self.sum(), TESTS + TESTS_PER_FAMILY * further));
        let everything = self.sum() + self.compiling + self.preparation;
        budgets.push(("all tests, with compiling and preparing".to_owned(), everything, EVERYTHING));
        budgets
    }

    /// Prints how each budget was kept. False when one was exceeded twice.
    pub fn print(&self) -> bool {
        for ((ring, package), time) in &self.tests {
            println!("{:>12}  {} {package}", took(*time), ring.word());
        }
        let mut worst = Standing::Within;
        for (what, used, budget) in self.budgets() {
            let standing = judge(used, budget);
            let note = match standing {
                Standing::Within => "",
                Standing::Over => "  warning: over its budget",
                Standing::TwiceOver => "  FAILED: more than twice its budget",
            };
            println!("{:>12} of {:<11} {what}{note}", took(used), took(budget));
            worst = worst.max(standing);
        }
        worst != Standing::TwiceOver
    }
}

fn judge(used: Duration, budget: Duration) -> Standing {
    if used > budget * 2 {
        Standing::TwiceOver
    } else if used > budget {
        Standing::Over
    } else {
        Standing::Within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_is_a_warning_and_twice_over_a_failure() {
        let budget = Duration::from_secs(10);
        assert_eq!(judge(Duration::from_secs(10), budget), Standing::Within);
        assert_eq!(judge(Duration::from_secs(20), budget), Standing::Over);
        assert_eq!(judge(Duration::from_secs(21), budget), Standing::TwiceOver);
    }

    #[test]
    fn a_familys_programs_count_for_the_family_and_compiling_only_for_everything() {
        let mut times = Times { compiling: Duration::from_mins(20), ..Times::default() };
        times.add(Ring::Cluster, "aquifer-efs", None, Duration::from_secs(80));
        times.add(Ring::System, "aquifer-system", Some("efs"), Duration::from_secs(200));
        times.add(Ring::System, "aquifer-system", None, Duration::from_secs(100));
        assert!(!times.print(), "the family's system tests take more than two minutes");
        let budgets = times.budgets();
        let used =
            |what: &str| budgets.iter().find(|(name, ..)| name == what).map(|(_, used, _)| used.as_secs());
        assert_eq!(used("family efs, cluster"), Some(80));
        assert_eq!(used("family efs, system"), Some(200));
        assert_eq!(used("family efs, pure"), None);
        assert_eq!(used("all tests"), Some(380));
        assert_eq!(used("all tests, with compiling and preparing"), Some(1580));
    }
}
