//! `aquifer version`.

/// Prints what was built, from what.
pub fn print() {
    println!("aquifer {}", env!("CARGO_PKG_VERSION"));
}
