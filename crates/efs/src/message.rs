//! Lists of names in messages for people: a few, and how many more.

/// How many names a message lists.
const NAMES: usize = 5;

/// The first names, and the number of the others.
pub(crate) fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES);
    let shown = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Names without their number: where it grows with every newcomer, the message of each of them would change every time.
pub(crate) fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMES { format!("{shown} and others") } else { shown }
}
