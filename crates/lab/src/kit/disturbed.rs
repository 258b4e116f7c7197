//! A story on a real server while requests go wrong: refused, done but not answered, never answered, done later. It must end as it
//! does when nothing goes wrong. Knows no family; the walk (`walk`) is about crashes at single writes, this about everything else.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use http::StatusCode;

use super::is_full;
use super::mask::{State, differences};
use super::walk::{Run, Story};
use super::writes::created;
use crate::eventually;
use crate::proxy::{Fault, FaultId, Proxy, Select};

/// Longer than any wait of the operator: one for an answer, and the backoff after it.
const DEADLINE: Duration = Duration::from_mins(2);
/// How long no write must come before a step counts as ended.
const SETTLE: Duration = Duration::from_millis(500);
/// When a write lands whose client has given it up. By then it has been made again.
const LATER: Duration = Duration::from_secs(4);

/// What goes wrong in every step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// 429, with a time to wait.
    TooManyRequests,
    /// 500.
    ServerError,
    /// Writes are done, and the answer is 504.
    DoneButTimeout,
    /// Writes and reads are never answered.
    Silence,
    /// Watches must begin anew, and the lists for that are answered with 403.
    ListDenied,
    /// Watches end, and when they begin again the answer is 404.
    WatchNotFound,
    /// Writes are done when their client has given them up.
    LandsLater,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DoneButTimeout,
        Self::LandsLater,
        Self::TooManyRequests,
        Self::ServerError,
        Self::ListDenied,
        Self::WatchNotFound,
        Self::Silence,
    ];

    /// Begins it. Gives its faults: each must have struck when the story is over.
    fn begin(self, proxy: &Proxy, resources: &[&str]) -> Vec<FaultId> {
        let fail = |select: Select, status: StatusCode, times: Option<u32>| Fault::Fail {
            select,
            status,
            times,
            retry_after: None,
        };
        match self {
            Self::TooManyRequests => {
                let retry_after = Some(Duration::from_secs(1));
                let (select, status) = (Select::writes(), StatusCode::TOO_MANY_REQUESTS);
                vec![proxy.inject(Fault::Fail { select, status, times: Some(4), retry_after })]
            }
            Self::ServerError => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let reads = fail(Select::reads(), status, Some(2));
                vec![proxy.inject(fail(Select::writes(), status, Some(4))), proxy.inject(reads)]
            }
            Self::DoneButTimeout => {
                vec![proxy.inject(Fault::FailAfter { select: Select::writes(), times: Some(4) })]
            }
            Self::Silence => {
                let reads = Fault::Silence { select: Select::reads(), times: Some(1) };
                let writes = Fault::Silence { select: Select::writes(), times: Some(2) };
                vec![proxy.inject(writes), proxy.inject(reads)]
            }
            Self::LandsLater => {
                let select = Select::writes();
                vec![proxy.inject(Fault::LandsLater { select, by: LATER, times: Some(3) })]
            }
            Self::ListDenied => anew(proxy, resources, |resource| {
                proxy.inject(Fault::Gone { resource: resource.to_owned() });
                fail(Select::lists().resource(resource), StatusCode::FORBIDDEN, Some(2))
            }),
            Self::WatchNotFound => anew(proxy, resources, |resource| {
                fail(Select::watches().resource(resource), StatusCode::NOT_FOUND, Some(1))
            }),
        }
    }
}

/// A fault for the watches of each resource, which then begin anew.
fn anew(proxy: &Proxy, resources: &[&str], fault: impl Fn(&str) -> Fault) -> Vec<FaultId> {
    let faults: Vec<FaultId> = resources.iter().map(|resource| proxy.inject(fault(resource))).collect();
    for resource in resources {
        proxy.inject(Fault::CloseWatch { resource: (*resource).to_owned() });
    }
    faults
}

/// How a story is disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Disturbed<'a> {
    /// Runs at the same time.
    pub side_by_side: usize,
    /// What the operator watches, as `plural` or `plural.group`.
    pub resources: &'a [&'a str],
    /// Without `AQUIFER_FULL`, only the first so many troubles.
    pub most: usize,
}

/// What a run showed.
struct End {
    states: Vec<State>,
    /// How often each fault of the trouble has struck, over all steps.
    struck: Vec<u64>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Troubles that were played.
    pub troubles: usize,
    /// Requests that went wrong.
    pub struck: u64,
    /// What ended differently, in words.
    pub divergent: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { troubles, struck, divergent } = self;
        write!(
            f,
            "{troubles} of {} troubles, {struck} requests went wrong, {} divergent ends",
            Trouble::ALL.len(),
            divergent.len()
        )
    }
}

impl Disturbed<'_> {
    /// Plays the story once undisturbed and once with each trouble, prints what was found, and fails unless all ends are the same.
    pub async fn run<S: Story>(&self, story: &S) -> Result<()> {
        let began = Instant::now();
        let calm = self.play(story, None, &[]).await.context("without a fault")?;
        let calm = &calm.states;
        let most = if is_full() { Trouble::ALL.len() } else { self.most };
        let ends: Vec<(Trouble, Result<End>)> = futures::stream::iter(Trouble::ALL.into_iter().take(most))
            .map(|trouble| async move { (trouble, self.play(story, Some(trouble), calm).await) })
            .buffer_unordered(self.side_by_side)
            .collect()
            .await;
        let mut found = Found { troubles: ends.len(), ..Found::default() };
        for (trouble, end) in ends {
            match end {
                Err(error) => found.divergent.push(format!("{trouble:?}: {error:#}")),
                Ok(end) => {
                    println!("{trouble:?}: {:?} requests went wrong", end.struck);
                    if end.struck.contains(&0) {
                        found
                            .divergent
                            .push(format!("{trouble:?}: a fault never struck, so nothing is proved"));
                    }
                    found.struck += end.struck.iter().sum::<u64>();
                }
            }
        }
        println!("disturbed: {found}, {:.0} s", began.elapsed().as_secs_f64());
        ensure!(found.divergent.is_empty(), "runs end differently: {:#?}", found.divergent);
        Ok(())
    }

    /// One run. Each step must end as in the calm run, where that is known.
    async fn play<S: Story>(&self, story: &S, trouble: Option<Trouble>, calm: &[State]) -> Result<End> {
        let run = story.begin().await?;
        let mut end = End { states: Vec::new(), struck: Vec::new() };
        for step in 0..story.steps() {
            let proxy = run.proxy();
            ensure!(proxy.wait_idle(SETTLE, DEADLINE).await, "writes without an end");
            proxy.reset();
            let faults = trouble.map(|trouble| trouble.begin(proxy, self.resources)).unwrap_or_default();
            run.act(step).await?;
            let what = format!("the end of step {step}");
            eventually(DEADLINE, &what, || async {
                run.arrived(step).await?;
                let different = match calm.get(step) {
                    Some(calm) => differences(calm, &run.state().await?),
                    None => Vec::new(),
                };
                ensure!(different.is_empty(), "{}", different.join("\n"));
                Ok(Some(()))
            })
            .await?;
            ensure!(proxy.wait_idle(SETTLE, DEADLINE).await, "writes without an end");
            end.struck.resize(faults.len(), 0);
            for (struck, fault) in end.struck.iter_mut().zip(&faults) {
                *struck += proxy.fired(*fault);
            }
            let made = created(proxy, run.name());
            let twice: Vec<_> = made.iter().filter(|(_, count)| **count > 1).collect();
            proxy.clear();
            proxy.reset();
            run.resync(step).await?;
            ensure!(proxy.wait_idle(SETTLE, DEADLINE).await, "writes without an end");
            let writes = proxy.writes();
            ensure!(writes.is_empty(), "after step {step} a resync wrote {writes:?}");
            ensure!(twice.is_empty(), "in step {step} some were created more than once: {twice:?}");
            end.states.push(run.state().await?);
        }
        run.end().await;
        Ok(end)
    }
}
