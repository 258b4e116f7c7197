//! The crash walk on a real server: one story is played again for every write in it and every kind of fault, and must end as it
//! does without a fault. Knows no family; decides only whether a walk may be believed.
//!
//! A story has steps. In one run, each step meets a fault at its n-th write: the operator dies before or after it, or does not get
//! the reply. A run ends well when after each step all objects are as in an undisturbed run, each was created as often
//! as there, and another pass over everything writes nothing.
//!
//! The walk goes on until a run meets no n-th write in any step, and fails when a write that every undisturbed run had was not met.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
pub use aquifer_engine::model::Mode;
use futures::StreamExt as _;

use super::mask::{State, differences};
use super::writes::created;
use super::{DEADLINE, is_full};
use crate::eventually;
use crate::proxy::{Fault, FaultId, Proxy};

/// Undisturbed runs before the walk: a write that one of them does without is not one that every run must have.
const UNDISTURBED: usize = 3;
/// How often a write that was not met is tried.
const TRIES: usize = 3;
/// No step has so many writes; a walk that gets here would never end.
const MOST_WRITES: u64 = 100;

/// What users do in every run, and how runs are made.
pub trait Story {
    /// One run of it.
    type Run: Run;
    /// How many steps it has.
    fn steps(&self) -> usize;
    /// A fresh place, with an operator that runs.
    fn begin(&self) -> impl Future<Output = Result<Self::Run>>;
}

/// One run of a story, in a place of its own.
pub trait Run {
    /// What stands between the operator and the API server.
    fn proxy(&self) -> &Proxy;
    /// What the user does in a step.
    fn act(&self, step: usize) -> impl Future<Output = Result<()>>;
    /// Fails, and says why, while a step has not come to its end.
    fn arrived(&self, step: usize) -> impl Future<Output = Result<()>>;
    /// Everything that there is, masked.
    fn state(&self) -> impl Future<Output = Result<State>>;
    /// The name of this run, as it is in paths of the API.
    fn name(&self) -> &str;
    /// Starts a new operator in place of one that died.
    fn restart(&self) -> impl Future<Output = Result<()>>;
    /// Every object has another pass; returns when those have ended. Says nothing about a step after which there is no object left.
    fn resync(&self, step: usize) -> impl Future<Output = Result<()>>;
    /// Ends the run.
    fn end(self) -> impl Future<Output = ()>;
    /// A fault at the n-th write to a system outside of Kubernetes, counted from now; with 0 none.
    fn arm_outside(&self, _n: u64, _mode: Mode) {}
    /// How many writes to the outside there were since the last [`Run::arm_outside`].
    fn outside_writes(&self) -> u64 {
        0
    }
}

/// How a walk is made.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Runs at the same time.
    pub side_by_side: usize,
    /// How long no write must come before an undisturbed step counts as ended.
    pub settle: Duration,
    /// The same for a step with a fault; whatever comes later would be found by the resync or by the next comparison.
    pub quiet: Duration,
    /// Without `AQUIFER_FULL`, at most so many runs.
    pub most_runs: usize,
    /// At least so many faults must strike: a story that lost its writes proves nothing.
    pub least_points: usize,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Kubernetes,
    Outside,
}

/// What one run tries: a fault at the n-th write of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    place: Place,
    mode: Mode,
    n: u64,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at write {} ({:?})", self.mode, self.n, self.place)
    }
}

/// How often each object was created.
type Created = BTreeMap<String, usize>;

/// One step of an undisturbed run.
struct Calm {
    state: State,
    created: Created,
    writes: BTreeMap<Place, u64>,
}

/// What one run with faults showed.
#[derive(Default)]
struct Seen {
    /// The steps in which the fault struck.
    struck: BTreeSet<usize>,
    divergent: Vec<String>,
    second_objects: usize,
}

/// What a walk showed.
#[derive(Debug, Default)]
pub struct Report {
    /// Faults that struck.
    pub points: usize,
    /// Runs with faults.
    pub runs: usize,
    /// Runs that a whole walk has.
    pub all_runs: usize,
    /// What ended differently, in words.
    pub divergent: Vec<String>,
    /// Objects that were created more often than without a fault.
    pub second_objects: usize,
    /// Writes of every undisturbed run that no fault met.
    pub missed: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { points, runs, all_runs, divergent, second_objects, missed } = self;
        let short = if runs < all_runs {
            format!(" of {all_runs} (AQUIFER_FULL=1 makes all)")
        } else {
            String::new()
        };
        write!(
            f,
            "crash walk: {points} points in {runs} runs{short}, {} divergent ends, {second_objects} second objects, {} points missed",
            divergent.len(),
            missed.len()
        )
    }
}

impl Walk {
    /// Walks, prints the report, and fails unless every run ended as without a fault and every point was met.
    pub async fn run<S: Story>(&self, story: &S) -> Result<Report> {
        let began = Instant::now();
        let calm = self.undisturbed(story).await?;
        let report = self.disturbed(story, &calm).await?;
        println!("{report}, {:.0} s", began.elapsed().as_secs_f64());
        report.judge(self.least_points)?;
        Ok(report)
    }

    /// Several runs without a fault, which must be equal. Of their writes the least number counts.
    async fn undisturbed<S: Story>(&self, story: &S) -> Result<Vec<Calm>> {
        let mut all: Option<Vec<Calm>> = None;
        for number in 0..UNDISTURBED {
            let run = story.begin().await?;
            let mut steps = Vec::new();
            for step in 0..story.steps() {
                steps.push(
                    self.calm_step(&run, step)
                        .await
                        .with_context(|| format!("step {step} without a fault"))?,
                );
            }
            run.end().await;
            let Some(known) = &mut all else {
                all = Some(steps);
                continue;
            };
            for (step, (known, found)) in known.iter_mut().zip(steps).enumerate() {
                let different = differences(&known.state, &found.state);
                ensure!(
                    different.is_empty(),
                    "step {step} of undisturbed run {number} differs: {different:#?}"
                );
                ensure!(
                    known.created == found.created,
                    "step {step} creates {:?}, then {:?}",
                    known.created,
                    found.created
                );
                for (place, writes) in found.writes {
                    known.writes.entry(place).and_modify(|least| *least = writes.min(*least));
                }
            }
        }
        let all = all.context("no undisturbed run")?;
        for (step, calm) in all.iter().enumerate() {
            println!("step {step} without a fault: {:?}", calm.writes);
        }
        Ok(all)
    }

    async fn calm_step(&self, run: &impl Run, step: usize) -> Result<Calm> {
        self.before(run).await?;
        run.arm_outside(0, Mode::LostReply);
        run.act(step).await?;
        eventually(DEADLINE, "the end of the step", || async { run.arrived(step).await.map(Some) }).await?;
        ensure!(run.proxy().wait_idle(self.settle, DEADLINE).await, "writes without an end");
        let writes = u64::try_from(run.proxy().writes().len())?;
        let writes = BTreeMap::from([(Place::Kubernetes, writes), (Place::Outside, run.outside_writes())]);
        Ok(Calm { state: run.state().await?, created: created(run.proxy(), run.name()), writes })
    }

    /// Nothing of the step before is under way, and writes are counted from 1.
    async fn before(&self, run: &impl Run) -> Result<()> {
        ensure!(run.proxy().wait_idle(Duration::from_millis(50), DEADLINE).await, "writes without an end");
        run.proxy().reset();
        Ok(())
    }

    async fn disturbed<S: Story>(&self, story: &S, calm: &[Calm]) -> Result<Report> {
        let mut report = Report::default();
        // Which (place, mode, n, step) was met.
        let mut met: BTreeSet<(Place, String, u64, usize)> = BTreeSet::new();
        let most = |place| calm.iter().map(|step| step.writes[&place]).max().unwrap_or_default();
        let mut plans: Vec<Plan> = [Place::Kubernetes, Place::Outside]
            .into_iter()
            .flat_map(|place| (1..=most(place)).map(move |n| (place, n)))
            .flat_map(|(place, n)| Mode::ALL.map(|mode| Plan { place, mode, n }))
            .collect();
        report.all_runs = plans.len();
        let every = if is_full() { 1 } else { every(plans.len(), self.most_runs) };
        plans = plans.into_iter().step_by(every).collect();
        let chosen = plans.clone();
        let mut tries = 1;
        loop {
            let ends: Vec<(Plan, Result<Seen>)> = futures::stream::iter(plans.iter().copied())
                .map(|plan| async move { (plan, self.play(story, calm, plan).await) })
                .buffer_unordered(self.side_by_side)
                .collect()
                .await;
            report.runs += ends.len();
            // Beyond the undisturbed runs: as long as there is a write to meet.
            let mut further = Vec::new();
            for (plan, seen) in ends {
                let seen = seen.with_context(|| plan.to_string())?;
                report.points += seen.struck.len();
                report.second_objects += seen.second_objects;
                report.divergent.extend(seen.divergent);
                if every == 1 && plan.n >= most(plan.place) && !seen.struck.is_empty() {
                    ensure!(plan.n < MOST_WRITES, "a step has more than {MOST_WRITES} writes");
                    further.push(Plan { n: plan.n + 1, ..plan });
                }
                met.extend(
                    seen.struck
                        .into_iter()
                        .map(|step| (plan.place, format!("{:?}", plan.mode), plan.n, step)),
                );
            }
            let missed = |plan: &Plan| {
                let (plan, met) = (*plan, &met);
                calm.iter().enumerate().filter(move |(step, calm)| {
                    let point = (plan.place, format!("{:?}", plan.mode), plan.n, *step);
                    plan.n <= calm.writes[&plan.place] && !met.contains(&point)
                })
            };
            // Writes fall together now and then, so that a run has one less: once more then.
            let again = chosen.iter().filter(|plan| missed(plan).next().is_some() && tries < TRIES);
            plans = further.into_iter().chain(again.copied()).collect();
            tries += 1;
            if plans.is_empty() {
                report.missed = chosen
                    .iter()
                    .flat_map(|plan| missed(plan).map(move |(step, _)| format!("{plan}, step {step}")))
                    .collect();
                report.all_runs = report.all_runs.max(if every == 1 { report.runs } else { 0 });
                return Ok(report);
            }
        }
    }

    /// One run with a fault in each step.
    async fn play<S: Story>(&self, story: &S, calm: &[Calm], plan: Plan) -> Result<Seen> {
        let run = story.begin().await?;
        let mut seen = Seen::default();
        for (step, calm) in calm.iter().enumerate() {
            self.before(&run).await?;
            let fault = arm(&run, plan);
            run.act(step).await?;
            let end = self.finish(&run, step, calm).await;
            let struck = match fault {
                Some(fault) => run.proxy().fired(fault) > 0,
                None => run.outside_writes() >= plan.n,
            };
            // The proxy counts writes, so a fault that did not strike had none to strike.
            let writes =
                if fault.is_some() { run.proxy().writes().len() as u64 } else { run.outside_writes() };
            if !struck && writes >= plan.n {
                bail!("step {step} had {writes} writes, but the fault did not strike");
            }
            if struck {
                seen.struck.insert(step);
            }
            let made = created(run.proxy(), run.name());
            run.proxy().clear();
            run.arm_outside(0, plan.mode);
            if let Err(error) = end {
                seen.divergent.push(format!("{plan}, step {step}: {error:#}"));
                // The next step would only say the same again.
                break;
            }
            let second: Vec<String> = made
                .iter()
                .filter(|(object, count)| **count > calm.created.get(*object).copied().unwrap_or_default())
                .map(|(object, count)| format!("{object} ({count} times)"))
                .collect();
            seen.second_objects += second.len();
            if made != calm.created {
                let wanted = &calm.created;
                seen.divergent.push(format!(
                    "{plan}, step {step}: created {made:?} instead of {wanted:?}; too often: {second:?}"
                ));
            }
            if let Err(error) = self.nothing_left_to_do(&run, step).await {
                seen.divergent.push(format!("{plan}, after step {step}: {error:#}"));
                break;
            }
        }
        run.end().await;
        Ok(seen)
    }

    /// Waits until a step has ended as it does without a fault; an operator that died on the way is replaced.
    async fn finish(&self, run: &impl Run, step: usize, calm: &Calm) -> Result<()> {
        eventually(DEADLINE, "the end of the step", || async {
            let proxy = run.proxy();
            if proxy.crashed() {
                proxy.wait_crash(DEADLINE).await?;
                run.restart().await?;
            }
            run.arrived(step).await?;
            let different = differences(&calm.state, &run.state().await?);
            ensure!(different.is_empty(), "{}", different.join("\n"));
            // The fault may still be on its way: the last write of a step is the one that ends it.
            ensure!(proxy.wait_idle(self.quiet, DEADLINE).await, "writes without an end");
            ensure!(!proxy.crashed(), "the operator died at the very end");
            Ok(Some(()))
        })
        .await
    }

    async fn nothing_left_to_do(&self, run: &impl Run, step: usize) -> Result<()> {
        run.proxy().reset();
        run.resync(step).await?;
        ensure!(run.proxy().wait_idle(Duration::from_millis(50), DEADLINE).await, "writes without an end");
        let writes = run.proxy().writes();
        ensure!(writes.is_empty(), "a resync wrote {writes:?}");
        Ok(())
    }
}

impl Report {
    fn judge(&self, least_points: usize) -> Result<()> {
        ensure!(self.divergent.is_empty(), "runs with a fault end differently: {:#?}", self.divergent);
        ensure!(self.second_objects == 0, "{} objects were created a second time", self.second_objects);
        ensure!(self.missed.is_empty(), "writes that no fault met: {:#?}", self.missed);
        ensure!(
            self.points >= least_points,
            "only {} faults struck, {least_points} are the least",
            self.points
        );
        Ok(())
    }
}

fn arm(run: &impl Run, plan: Plan) -> Option<FaultId> {
    match plan.place {
        Place::Kubernetes => Some(run.proxy().inject(match plan.mode {
            Mode::CrashBefore => Fault::CrashBefore(plan.n),
            Mode::CrashAfter => Fault::CrashAfter(plan.n),
            Mode::LostReply => Fault::CutReply(plan.n),
        })),
        Place::Outside => {
            run.arm_outside(plan.n, plan.mode);
            None
        }
    }
}

/// How far apart the runs are that are chosen. Plans come mode by mode, so a multiple of the number of modes would leave some out.
fn every(plans: usize, most: usize) -> usize {
    let every = plans.div_ceil(most.max(1)).max(1);
    if every > 1 && every.is_multiple_of(Mode::ALL.len()) { every + 1 } else { every }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report { points: 30, runs: 10, all_runs: 10, ..Report::default() }
    }

    #[test]
    fn a_walk_is_believed_only_when_nothing_differs_and_every_point_was_met() {
        assert!(good().judge(30).is_ok());
        assert!(good().judge(31).is_err(), "too few points");
        assert!(Report { divergent: vec!["x".into()], ..good() }.judge(1).is_err());
        assert!(Report { missed: vec!["x".into()], ..good() }.judge(1).is_err());
        assert!(Report { second_objects: 1, ..good() }.judge(1).is_err());
    }

    #[test]
    fn a_report_says_what_was_left_out_and_how_many_second_objects_there_are() {
        let report = Report { second_objects: 2, all_runs: 40, ..good() };
        let text = report.to_string();
        assert!(text.contains("2 second objects") && text.contains("10 runs of 40"), "{text}");
    }
}
