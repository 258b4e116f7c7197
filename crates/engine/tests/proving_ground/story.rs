//! What users do in every walk, in the model and on the control plane alike.

use crate::family::WellSpec;

pub enum Action {
    Spring(u64),
    Well(&'static str, WellSpec),
    Delete(&'static str),
}

/// What is expected of a well at the end of a step.
pub struct Expected {
    pub well: &'static str,
    pub size: u64,
}

pub const STEPS: usize = 4;

pub fn actions(step: usize) -> Vec<Action> {
    match step {
        0 => vec![
            Action::Spring(10),
            Action::Well("a", WellSpec::new(4, &["x", "y"])),
            Action::Well("b", WellSpec::new(8, &["x"])),
        ],
        // `a` grows at the cost of `b`, which must let go first.
        1 => vec![Action::Well("a", WellSpec::new(6, &["x", "y", "z"]))],
        // `a` shrinks: taps and meter are pruned, the basin stays.
        2 => vec![Action::Well("a", WellSpec { basin: false, metered: false, ..WellSpec::new(2, &["z"]) })],
        _ => vec![Action::Delete("a")],
    }
}

pub fn expected(step: usize) -> Vec<Expected> {
    let pair = |a, b| vec![Expected { well: "a", size: a }, Expected { well: "b", size: b }];
    match step {
        0 => pair(4, 6),
        1 => pair(6, 4),
        2 => pair(2, 8),
        _ => vec![Expected { well: "b", size: 8 }],
    }
}
