//! The rings of tests, cheapest first, summed up in one line. Knows nothing about any single test.

mod budget;
mod listing;
mod programs;
mod shared_rook;
mod stamp;
mod tally;

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{host, image, lab, process, rights};
use budget::Times;
use programs::Program;
use shared_rook::SharedRook;
use stamp::Stamp;
use tally::Tally;

/// Flags of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Which ring; all of them when none is given
    ring: Option<Ring>,
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Only tests of this family: its crate, and its part of the system tests
    #[arg(long)]
    family: Option<String>,
    /// Print one line for each test (ring, package, name) and run none
    #[arg(long)]
    list: bool,
}

/// A ring of tests; see docs/testing.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Ring {
    /// Beside the code, without a cluster
    Pure,
    /// Behaviour against a real control plane
    Cluster,
    /// The programs themselves
    System,
    /// All rings, with the long walks
    Full,
}

impl Ring {
    const ALL: [Self; 3] = [Self::Pure, Self::Cluster, Self::System];

    fn heading(self) -> &'static str {
        match self {
            Ring::Pure => "pure: decisions, plans, quantities; no cluster",
            Ring::Cluster => "cluster: behaviour against a real control plane",
            Ring::System => "system: the binary, the chart, the lab, kill -9",
            Ring::Full => "full",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Ring::Pure => "pure",
            Ring::Cluster => "cluster",
            Ring::System => "system",
            Ring::Full => "full",
        }
    }
}

/// Runs the rings and fails when anything in them did.
pub async fn run(args: &Args) -> Result<()> {
    host::ensure()?;
    args.check()?;
    let (rings, full) = (args.rings(), args.ring == Some(Ring::Full));
    if args.list {
        let (programs, _) = programs::build(&rings, args.family.as_deref())?;
        for test in listing::tests_of(&programs)? {
            println!("{test}");
        }
        return Ok(());
    }
    let (mut times, stamp) = (Times::default(), Stamp::now()?);
    let began = Instant::now();
    if rings.iter().any(|ring| *ring != Ring::Pure) {
        rights::begin(&args.shown())?;
        // Here and not inside the first test, so that the wait is explained.
        lab::prepare().await?;
    }
    let mut rook = None;
    if rings.contains(&Ring::System) {
        lab::prepare_nodes().await?;
        lab::prepare_rook().await?;
        lab::prepare_efs().await?;
        // A filter mostly leaves out what needs it; a test that does need it then starts one by itself.
        if args.filter.is_none() && args.family.is_none() {
            rook = Some(SharedRook::start()?);
            println!(
                "starting the shared cluster with Rook beside the tests (log: {})",
                SharedRook::log().display()
            );
        }
    }
    times.preparation = began.elapsed();
    let (programs, compiling) = match programs::build(&rings, args.family.as_deref()) {
        Ok(built) => built,
        Err(error) => {
            println!("\nfailed: {error:#}\n0 passed, 1 failed");
            std::process::exit(1);
        }
    };
    times.compiling = compiling;
    if rings.contains(&Ring::System) {
        let start = Instant::now();
        image::prepare(full).await?;
        times.compiling += start.elapsed();
    }
    let mut total = Tally::default();
    let run = Run { args, full, rook: rook.as_ref(), stamp };
    for ring in &rings {
        total.add(run_ring(*ring, &programs, &run, &mut times)?);
    }
    // Its audit log is complete when it has ended.
    if let Some(rook) = rook {
        rook.stop()?;
    }
    // Only everything together shows what nothing needs.
    if args.is_everything() {
        println!("\n== rights: the operator has what it needs, and nothing else");
        total.add(tally::of_check(
            rights::check(),
            "what the chart grants is not what was used; see `cargo xtask rights`",
        ));
        println!("\n== names: every test that there was is there, or its absence has a reason");
        total.add(tally::of_check(listing::check(&programs), "tests are missing; see above"));
        if !full {
            println!("\n== budgets");
            total.add(tally::of_check(Ok(times.print()), "a budget was exceeded twice; see above"));
        }
    }
    sum_up(&total, &times, args)
}

/// Prints the end of a run, and ends the process when something failed.
fn sum_up(total: &Tally, times: &Times, args: &Args) -> Result<()> {
    println!();
    for said in total.said_by_failed() {
        println!("{said}");
    }
    for broken in &total.broken {
        println!("failed: {broken}");
    }
    if total.ignored > 0 {
        println!("{} ignored", total.ignored);
    }
    println!("{}", times.line());
    println!("{}", total.line());
    if total.passed + total.failed == 0 {
        bail!(
            "no test ran{}",
            args.filter.as_ref().map(|name| format!(": none is named like `{name}`")).unwrap_or_default()
        );
    }
    if total.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

impl Args {
    fn check(&self) -> Result<()> {
        if let Some(family) = &self.family
            && !budget::families().contains(&family.as_str())
        {
            bail!("cannot find a family `{family}`; there are: {}", budget::families().join(", "));
        }
        Ok(())
    }

    fn rings(&self) -> Vec<Ring> {
        match self.ring {
            None | Some(Ring::Full) => Ring::ALL.to_vec(),
            Some(ring) => vec![ring],
        }
    }

    /// Whether nothing is left out.
    fn is_everything(&self) -> bool {
        matches!(self.ring, None | Some(Ring::Full)) && self.filter.is_none() && self.family.is_none()
    }

    /// As one would type it.
    fn shown(&self) -> String {
        let ring = self.ring.and_then(|ring| ring.to_possible_value());
        let ring = ring.as_ref().map(clap::builder::PossibleValue::get_name);
        let words = ["cargo xtask test"].into_iter().chain(ring).chain(self.filter.as_deref());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The variable that sets how many tests of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// Cluster tests mostly wait, so more of them than cores run at once. So do system tests, but what they start weighs more.
const CLUSTER_TESTS_AT_ONCE: &str = "6";
const SYSTEM_TESTS_AT_ONCE: &str = "3";
/// The shared cluster counts as one of them: its programs use up the kernel's inotify instances of a user, of which there are 128.
const SYSTEM_TESTS_BESIDE_ROOK: &str = "2";

/// What is the same for all rings of a run.
struct Run<'a> {
    args: &'a Args,
    full: bool,
    rook: Option<&'a SharedRook>,
    stamp: Stamp,
}

/// Runs one ring's programs.
fn run_ring(ring: Ring, programs: &[Program], run: &Run<'_>, times: &mut Times) -> Result<Tally> {
    let Run { args, full, rook, .. } = *run;
    println!("\n== {}", ring.heading());
    let begin = Instant::now();
    let mut tally = Tally::default();
    for program in programs.iter().filter(|program| program.ring == ring) {
        let is_lab = ring == Ring::System && program.package == stamp::PACKAGE;
        if is_lab && !full && args.filter.is_none() && run.stamp.is_green() {
            println!(
                "skipped: the lab's tests of itself ({} tests of {}): the lab has not changed since they last passed; `cargo xtask test full` runs them",
                program.tests()?.len(),
                program.package
            );
            continue;
        }
        for part in program.parts(args.family.as_deref())? {
            let mut command = program.command();
            // What passing tests print too: walks say how many points they visited.
            command.arg("--show-output").args(&part.arguments).args(args.filter.as_deref());
            let at_once = match ring {
                Ring::Cluster => Some(CLUSTER_TESTS_AT_ONCE),
                Ring::System if rook.is_some() => Some(SYSTEM_TESTS_BESIDE_ROOK),
                Ring::System => Some(SYSTEM_TESTS_AT_ONCE),
                _ => None,
            };
            if let Some(at_once) = at_once.filter(|_| env::var_os(THREADS).is_none()) {
                command.env(THREADS, at_once);
            }
            if full {
                command.env("AQUIFER_FULL", "1");
            }
            if ring != Ring::Pure {
                command.env(aquifer_lab::audit::KEEP_IN, rights::dir());
            }
            if let Some(rook) = rook {
                command.env(aquifer_lab::rook::SHARED, rook.name());
            }
            println!("\n-- {} {}{}", program.package, program.target, part.title());
            let (start, used) = (Instant::now(), children_cpu()?);
            let one = tally::follow(&mut command, &format!("{} {}", program.package, program.target))
                .with_context(|| format!("cannot run the tests of {}", program.package))?;
            // Pure tests only compute. Beside the shared Rook cluster that starts meanwhile they take longer, which says nothing
            // about them: more than their processor time is not counted.
            let computed = children_cpu()?.saturating_sub(used);
            let time = if ring == Ring::Pure { start.elapsed().min(computed) } else { start.elapsed() };
            times.add(ring, &program.package, part.family.as_deref(), time);
            if is_lab && args.filter.is_none() && one.failed == 0 {
                run.stamp.write()?;
            }
            tally.add(one);
        }
    }
    println!("== {}: {} in {}", ring.heading(), tally.line(), process::took(begin.elapsed()));
    Ok(tally)
}

/// Processor time of all programs that this one has started and that have ended.
fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name comes first and may hold anything, so fields are counted from its end.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Result<f64> {
        Ok(fields.get(index).context("/proc/self/stat is too short")?.parse()?)
    };
    let (user, system) = (ticks(13)?, ticks(14)?);
    #[expect(clippy::cast_precision_loss, reason = "it is about 100")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(Duration::try_from_secs_f64((user + system) / per_second)?)
}
