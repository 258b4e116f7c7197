//! Asks a person before something is deleted.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;

/// Fails unless the person agrees. `yes` is the flag that agrees beforehand.
pub fn confirm(yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("cannot ask for confirmation: there is no terminal. Pass --yes to agree; nothing was changed");
    }
    print!("Continue? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("cancelled: nothing was changed");
    }
    Ok(())
}
