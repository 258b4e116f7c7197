//! `aquifer crds`: the definitions of kinds as YAML. Marked as ours, so that `aquifer install` knows them.

use std::io::Write;

use anyhow::Context;
use aquifer_api::labels::{MANAGER, PART_OF};

use crate::families::{self, Chosen};

const FAMILIES_HELP: &str =
    "Families whose kinds are printed; kinds that families share always are. By default all families";

#[derive(clap::Args)]
#[command(mut_arg(families::FLAG, |flag| flag.env("AQUIFER_CRDS_FAMILIES").help(FAMILIES_HELP)))]
pub struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

/// Prints the CRDs as one YAML stream.
pub fn print(args: &Args) -> anyhow::Result<()> {
    let families = args.chosen.families().map_or_else(aquifer_families::all, |all| families::in_order(&all));
    let mut out = std::io::stdout().lock();
    for mut crd in aquifer_families::crds(&families) {
        crd.metadata.labels.get_or_insert_default().insert(PART_OF.to_owned(), MANAGER.to_owned());
        let yaml = serde_saphyr::to_string(&crd).context("cannot write a CRD as YAML")?;
        // A reader that has seen enough closes the pipe.
        if write!(out, "---\n{yaml}").is_err() {
            break;
        }
    }
    Ok(())
}
