//! Numbers from outside the program under test: calls from the audit log, processor time and memory from /proc.

use std::fs;

use anyhow::{Context, Result};
use aquifer_lab::Call;

use super::row::{Writes, float};

/// What one user asked of the API server.
#[derive(Default, Debug, PartialEq)]
pub struct Calls {
    create: usize,
    patch: usize,
    update: usize,
    delete: usize,
    status: usize,
    /// Writes of objects and statuses that were refused, for example by a conflict. They are counted above too.
    refused: usize,
    reads: usize,
    /// Leases and Events, which nothing above counts.
    apart: usize,
}

impl Calls {
    /// Counts the calls of the users that `is_user` accepts.
    pub fn count<'a>(calls: impl IntoIterator<Item = &'a Call>, is_user: impl Fn(&str) -> bool) -> Self {
        let mut sum = Self::default();
        for call in calls.into_iter().filter(|call| is_user(&call.user)) {
            if call.is_lease_or_event() {
                sum.apart += 1;
            } else if call.is_write() {
                sum.refused += usize::from(!call.succeeded());
                match (call.subresource.as_str(), call.verb.as_str()) {
                    ("status", _) => sum.status += 1,
                    (_, "create") => sum.create += 1,
                    (_, "patch") => sum.patch += 1,
                    (_, "update") => sum.update += 1,
                    _ => sum.delete += 1,
                }
            } else if matches!(call.verb.as_str(), "get" | "list" | "watch") && !call.resource.is_empty() {
                sum.reads += 1;
            }
        }
        sum
    }

    /// Writes for each of `n` objects.
    pub fn writes_per_object(&self, n: usize) -> Writes {
        let each = |count: usize| float(count) / float(n);
        Writes {
            create: each(self.create),
            patch: each(self.patch),
            update: each(self.update),
            delete: each(self.delete),
            status: each(self.status),
        }
    }

    /// All writes, statuses included, for each of `n` objects.
    pub fn all_writes_per_object(&self, n: usize) -> f64 {
        float(self.create + self.patch + self.update + self.delete + self.status) / float(n)
    }

    /// Reads for each of `n` objects.
    pub fn reads_per_object(&self, n: usize) -> f64 {
        float(self.reads) / float(n)
    }

    /// Writes that were refused.
    pub fn refused(&self) -> f64 {
        float(self.refused)
    }

    /// Leases and Events for each of `n` objects.
    pub fn apart_per_object(&self, n: usize) -> f64 {
        float(self.apart) / float(n)
    }
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Processor time.
    pub cpu_seconds: f64,
    /// Peak of its resident memory.
    pub rss_mib: f64,
    /// Its text: the code of the program itself, without libraries.
    pub text_mib: f64,
}

impl Usage {
    /// Reads it from /proc.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} has ended"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            cpu_seconds: cpu_ticks(&stat).with_context(|| format!("cannot read /proc/{pid}/stat"))?
                / float(usize::try_from(rustix::param::clock_ticks_per_second())?),
            rss_mib: mib(&status, "VmHWM:").with_context(|| format!("cannot read /proc/{pid}/status"))?,
            text_mib: mib(&status, "VmExe:").with_context(|| format!("cannot read /proc/{pid}/status"))?,
        })
    }
}

/// User and system time. The program's name comes before them and may contain anything, so count from its end.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(ticks(11)? + ticks(12)?)
}

/// A line of /proc/PID/status, which counts in KiB.
fn mib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(user: &str, verb: &str, resource: &str, subresource: &str, code: u16) -> Call {
        Call {
            user: user.into(),
            user_agent: String::new(),
            verb: verb.into(),
            group: if resource == "leases" { "coordination.k8s.io".into() } else { String::new() },
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: String::new(),
            name: String::new(),
            code,
            uri: String::new(),
            dry_run: false,
            denied: false,
        }
    }

    #[test]
    fn writes_are_counted_by_verb_and_statuses_and_leases_apart() {
        let calls = [
            call("us", "create", "persistentvolumes", "", 201),
            call("us", "patch", "sharedvolumes", "", 200),
            call("us", "patch", "sharedvolumes", "status", 200),
            call("us", "patch", "sharedvolumes", "status", 409),
            call("us", "update", "leases", "", 200),
            call("us", "list", "persistentvolumes", "", 200),
            call("them", "create", "persistentvolumes", "", 201),
        ];
        let sum = Calls::count(&calls, |user| user == "us");
        assert_eq!(
            sum,
            Calls { create: 1, patch: 1, status: 2, refused: 1, reads: 1, apart: 1, ..Calls::default() }
        );
        assert!((sum.all_writes_per_object(2) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn processor_time_is_found_behind_a_strange_program_name() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu_ticks(stat), Some(200.0));
    }

    #[test]
    fn our_own_usage_can_be_read() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.rss_mib > 0.0 && usage.text_mib > 0.0 && usage.cpu_seconds >= 0.0, "{usage:?}");
    }
}
