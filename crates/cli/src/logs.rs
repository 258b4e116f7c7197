//! Log output: JSON for machines, plain lines for people.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// One JSON object a line
    Json,
    /// For reading
    Pretty,
}

/// Starts logging to standard error.
pub fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        anyhow::anyhow!("--log-level {filter}: {error} (for example: info, or aquifer_engine=debug,info)")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Json => builder.json().init(),
        Format::Pretty => builder.with_ansi(false).init(),
    }
    Ok(())
}
