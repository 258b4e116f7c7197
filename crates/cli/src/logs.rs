//! Log output: JSON for machines, plain lines for people.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// One JSON object on each line
    Json,
    /// Text for people
    Pretty,
}

/// Starts logging to standard error.
pub fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    let refused = |why: &str| {
        anyhow::anyhow!(
            "cannot use --log-level {filter}: {why} (for example: info, or aquifer_engine=debug,info)"
        )
    };
    // A filter takes any other word alone for the name of a module, and would silence all the rest.
    for word in filter.split(',').filter(|part| !part.contains('=')) {
        word.parse::<LevelFilter>().map_err(|_| refused(&format!("{word:?} is not a level")))?;
    }
    let filter = EnvFilter::try_new(filter).map_err(|error| refused(&error.to_string()))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Json => builder.json().init(),
        Format::Pretty => builder.with_ansi(false).init(),
    }
    Ok(())
}
