//! `cargo xtask bench engine`: what many objects cost the engine, in the simulation. No cluster; one thread.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::say;
use crate::process;

/// Each size is measured so often, and the least counts: whatever else the machine does only adds. The sizes take turns, so that a
/// slow minute of the machine falls on all of them.
const TIMES: usize = 5;
/// Sizes of the supply when none are given.
const CLAIMANTS: [usize; 3] = [100, 1_000, 10_000];
const VOLUMES: usize = 5_000;

/// Where a benchmark is: package, its target, the test, and the variable with the number of objects.
struct Case {
    package: &'static str,
    target: &'static [&'static str],
    test: &'static str,
    number: &'static str,
}

const SUPPLY: Case = Case {
    package: "aquifer-engine",
    target: &["--test", "proving_ground"],
    test: "scale::one_supply_is_divided_among_many_and_their_heartbeats_cost_it_nothing",
    number: "AQUIFER_CLAIMANTS",
};
const EQUAL: Case = Case {
    package: "aquifer-efs",
    target: &["--lib"],
    test: "simulated::one_of_many_equal_volumes_is_changed_without_a_look_at_the_others",
    number: "AQUIFER_VOLUMES",
};

pub fn run(sizes: &[usize], json: bool) -> Result<()> {
    let sizes = if sizes.is_empty() { &CLAIMANTS } else { sizes };
    let rows = least(&SUPPLY, sizes, "cpu_ms")?;
    let equal = least(&EQUAL, &[VOLUMES], "one_changed_cpu_ms")?.remove(0);
    if json {
        rows.iter().chain([&equal]).for_each(|row| println!("{row}"));
        return Ok(());
    }
    println!(
        "\n{:>10} {:>7} {:>7} {:>13} {:>10} {:>10} {:>15} {:>16} {:>10}",
        "claimants",
        "passes",
        "grants",
        "supply writes",
        "CPU ms",
        "floor ms",
        "heartbeats ms",
        "heartbeat passes",
        "peak MiB"
    );
    for row in &rows {
        let cell = |field: &str| row[field].to_string(); // a `Value` does not know of widths
        println!(
            "{:>10} {:>7} {:>7} {:>13} {:>10} {:>10} {:>15} {:>16} {:>10}",
            cell("claimants"),
            cell("passes"),
            cell("grants"),
            cell("supply_writes"),
            cell("cpu_ms"),
            cell("floor_cpu_ms"),
            cell("heartbeats_cpu_ms"),
            cell("heartbeat_passes"),
            row["peak_kib"].as_u64().unwrap_or_default() / 1024
        );
    }
    println!(
        "The floor is the same grants by a client that does nothing else; the peak is that of the simulated server too."
    );
    let per_claimant = |row: &Value| number(row, "cpu_ms") / number(row, "claimants");
    if let [.., before, last] = &*rows {
        let growth = per_claimant(last) / per_claimant(before);
        println!(
            "Per claimant, {} cost {growth:.2} of what {} cost.",
            last["claimants"], before["claimants"]
        );
    }
    println!(
        "Of {} equal SharedVolumes one is changed: {} ms of CPU (idle for as long: {} ms).",
        equal["equal_volumes"], equal["one_changed_cpu_ms"], equal["idle_cpu_ms"]
    );
    Ok(())
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_default()
}

/// For each size the run with the least of one measure.
fn least(case: &Case, sizes: &[usize], measure: &str) -> Result<Vec<Value>> {
    let mut best: Vec<Value> = Vec::new();
    for time in 1..=TIMES {
        for (at, size) in sizes.iter().enumerate() {
            say(&format!("{} {size}, {time} of {TIMES}", case.number));
            let row = once(case, *size)?;
            match best.get_mut(at) {
                Some(best) if number(&row, measure) < number(best, measure) => *best = row,
                Some(_) => {}
                None => best.push(row),
            }
        }
    }
    Ok(best)
}

fn once(case: &Case, size: usize) -> Result<Value> {
    let mut command = process::cargo(&["test", "--quiet", "--package", case.package]);
    command.args(case.target).args(["--", "--exact", case.test, "--nocapture"]);
    command.env(case.number, size.to_string());
    let output = command.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{} failed:\n{text}", case.test);
    let line = text.lines().find_map(|line| line.split_once("bench: ")).context("it printed no measures")?.1;
    Ok(serde_json::from_str(line)?)
}
