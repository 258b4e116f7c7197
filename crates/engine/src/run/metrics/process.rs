//! The process as the operating system sees it, under the names that every dashboard knows. Read from /proc when a scraper asks.
//! By hand: the collectors of other crates are for other registries, and four numbers are no reason for a dependency.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

#[derive(Debug)]
pub(super) struct Process;

/// What /proc says.
#[derive(Debug, Default, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: i64,
    open_files: i64,
    /// Since the epoch.
    started: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Where there is no /proc there are no numbers.
        let Some(usage) = Usage::read() else { return Ok(()) };
        let help = "Processor time of the process, user and system";
        let mut cpu = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        cpu.encode_counter::<NoLabelSet, f64, f64>(&usage.cpu_seconds, None)?;
        let gauges = [
            ("process_resident_memory_bytes", "Memory of the process that is in RAM", usage.resident_bytes),
            ("process_open_fds", "Files and sockets that the process has open", usage.open_files),
        ];
        for (name, help, value) in gauges {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let help = "When the process started, in seconds since 1970";
        encoder
            .encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?
            .encode_gauge(&usage.started)
    }
}

impl Usage {
    fn read() -> Option<Self> {
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        parse(
            &fs::read_to_string("/proc/self/stat").ok()?,
            &fs::read_to_string("/proc/stat").ok()?,
            rustix::param::clock_ticks_per_second(),
            rustix::param::page_size(),
            // The directory itself was open while it was read.
            i64::try_from(open_files).ok()? - 1,
        )
    }
}

/// The program's name comes before the numbers and may hold anything, so they are counted from its end.
fn parse(own: &str, system: &str, ticks: u64, page: usize, open_files: i64) -> Option<Usage> {
    let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "about a hundred")]
    let ticks = ticks as f64;
    let pages: i64 = fields.get(21)?.parse().ok()?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Usage {
        cpu_seconds: (number(11)? + number(12)?) / ticks,
        resident_bytes: pages * i64::try_from(page).ok()?,
        open_files,
        started: booted + number(19)? / ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_a_strange_program_name() {
        let own = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 500 1000 7 18446744073709551615";
        let usage = parse(own, "cpu 1 2\nbtime 1000\n", 100, 4096, 3);
        let wanted = Usage { cpu_seconds: 2.0, resident_bytes: 7 * 4096, open_files: 3, started: 1005.0 };
        assert_eq!(usage, Some(wanted));
        assert_eq!(parse("nonsense", "", 100, 4096, 0), None);
    }

    #[test]
    fn our_own_numbers_are_read() {
        let usage = Usage::read().unwrap();
        assert!(usage.resident_bytes > 0 && usage.open_files > 0 && usage.started > 1e9, "{usage:?}");
    }
}
