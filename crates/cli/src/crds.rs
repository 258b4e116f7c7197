//! `aquifer crds`.

use std::io::Write;

use anyhow::Context;

/// Prints all CRDs as one YAML stream.
pub fn print() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in aquifer_api::crds() {
        let yaml = serde_saphyr::to_string(&crd).context("cannot write a CRD as YAML")?;
        // A reader that has seen enough closes the pipe.
        if write!(out, "---\n{yaml}").is_err() {
            break;
        }
    }
    Ok(())
}
