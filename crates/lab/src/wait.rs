//! Waiting for a condition with a deadline. Never sleeps blindly: each try looks, and the error reports what it saw.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Tries `condition` until it gives a value or `deadline` has passed.
///
/// `Ok(None)` means not yet. `Err` means not yet as well, and says what was seen instead; the last one is the
/// cause of the error that a passed deadline gives.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn phase() -> anyhow::Result<String> { Ok("Bound".into()) }
/// # async fn example() -> anyhow::Result<()> {
/// let bound = aquifer_lab::eventually(Duration::from_secs(10), "the claim is Bound", || async {
///     let phase = phase().await?;
///     anyhow::ensure!(phase == "Bound", "the claim is {phase}");
///     Ok(Some(phase))
/// })
/// .await?;
/// # Ok(()) }
/// ```
pub async fn eventually<T, F, Fut>(deadline: Duration, what: &str, mut condition: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut tries = 0_u32;
    let mut seen: Option<anyhow::Error> = None;
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        tries += 1;
        match tokio::time::timeout(left, condition()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => seen = None,
            Ok(Err(error)) => seen = Some(error),
            // A try that was cut off saw nothing new; what an earlier one saw is worth more.
            Err(_) => {
                seen = Some(seen.unwrap_or_else(|| anyhow!("the look itself did not end in time")));
            }
        }
        if started.elapsed() + pause >= deadline {
            let summary =
                format!("waited {:.1} s for: {what} ({tries} looks)", started.elapsed().as_secs_f64());
            return Err(match seen {
                Some(error) => error.context(summary),
                None => anyhow!("{summary}; it was not there"),
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_value_ends_the_wait() {
        let mut looks = 0;
        let value = eventually(Duration::from_secs(5), "three looks", || {
            looks += 1;
            let now = looks;
            async move { Ok((now == 3).then_some(now)) }
        })
        .await
        .unwrap();
        assert_eq!(value, 3);
    }

    #[tokio::test]
    async fn a_passed_deadline_reports_what_was_seen_last() {
        let error = eventually::<(), _, _>(Duration::from_millis(100), "the claim is Bound", || async {
            Err(anyhow!("the claim is Pending"))
        })
        .await
        .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("the claim is Bound"), "{text}");
        assert!(text.contains("the claim is Pending"), "{text}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut_off() {
        let error = eventually::<(), _, _>(Duration::from_millis(100), "an answer", std::future::pending)
            .await
            .unwrap_err();
        assert!(format!("{error:#}").contains("did not end in time"), "{error:#}");
    }
}
