//! `aquifer completions`.

use clap_complete::Shell;

/// Prints the script by which a shell completes our commands and flags.
pub fn print(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "aquifer", &mut script);
    // A reader that has seen enough closes the pipe.
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), &script);
}
