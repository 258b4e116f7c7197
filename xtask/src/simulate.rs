//! `cargo xtask simulate`: plays histories in which everything goes wrong that can: of the proving ground, or of a family.

use anyhow::Result;
use clap::Args as Flags;

use crate::process;

/// Where the histories of the proving ground are played.
pub const TEST: &str =
    "with_faults::whatever_goes_wrong_nothing_is_lost_or_done_twice_and_in_the_end_all_is_well";

/// The module in which a family plays its histories.
const OF_FAMILY: &str = "with_faults::whatever_goes_wrong";

#[derive(Flags)]
pub struct Args {
    /// A family whose histories are played, such as efs; those of the proving ground when left out
    #[arg(long)]
    family: Option<String>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1_000_000)]
    seeds: u64,
    /// How long at most, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Go on after the first history that ends badly, and shorten none
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let mut command = match &args.family {
        None => {
            let mut command =
                process::cargo(&["test", "--package", "aquifer-engine", "--test", "proving_ground"]);
            command.args(["--", "--exact", TEST, "--nocapture"]);
            command
        }
        Some(family) => {
            let package = format!("aquifer-{family}");
            let mut command = process::cargo(&["test", "--package", &package, "--lib"]);
            command.args(["--", OF_FAMILY, "--nocapture"]);
            command
        }
    };
    command.env("AQUIFER_SEED", args.seed.to_string());
    command.env("AQUIFER_SEEDS", args.seeds.to_string());
    command.env("AQUIFER_SECONDS", args.seconds.to_string());
    command.env("AQUIFER_ALL", u8::from(args.all).to_string());
    process::run(&mut command)
}
