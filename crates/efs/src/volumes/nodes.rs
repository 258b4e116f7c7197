//! On how many nodes the node plugin serves, as exactly as it is worth telling: every SharedVolume says it, and a node that comes and goes
//! shall not rewrite thousands of statuses. Pure.

use aquifer_engine::Object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Up to so many nodes the numbers are exact.
const EXACT: i64 = 10;

/// On how many nodes it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// Nodes that it is meant for; with two significant digits when there are many.
    pub wanted: i64,
    /// Tenths of them on which it serves when there are many, else their number.
    pub ready: i64,
}

/// How many of the nodes are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// It is meant for no node.
    NoNodes,
    None,
    Some,
    All,
}

impl Nodes {
    /// The numbers, rounded. A node in a hundred makes no difference, one of few does; that it serves at all always does.
    fn rounded(wanted: i64, ready: i64) -> Self {
        let (wanted, ready) = (wanted.max(0), ready.clamp(0, wanted.max(0)));
        if wanted <= EXACT {
            return Self { wanted, ready };
        }
        let tenths = (ready.saturating_mul(20) / wanted + 1) / 2;
        let tenths = if ready == 0 { 0 } else { tenths.max(1) };
        Self { wanted: two_digits(wanted), ready: tenths }
    }

    /// Reads what the driver's Component says; none when it gives no numbers.
    pub(super) fn of(component: &Object) -> Option<Self> {
        let number = |field: &str| component.at(&format!("/status/nodes/{field}")).and_then(Value::as_i64);
        Some(Self { wanted: number("wanted")?, ready: number("ready")? })
    }

    /// What a cache keeps of the numbers in the driver's Component.
    pub(super) fn kept(component: &Object) -> Value {
        let rounded = Self::of(component).map(|exact| Self::rounded(exact.wanted, exact.ready));
        rounded.map_or(Value::Null, |nodes| json!({"wanted": nodes.wanted, "ready": nodes.ready}))
    }

    pub(super) fn share(self) -> Share {
        let all = if self.wanted > EXACT { 10 } else { self.wanted };
        match self.ready {
            _ if self.wanted == 0 => Share::NoNodes,
            0 => Share::None,
            ready if ready >= all => Share::All,
            _ => Share::Some,
        }
    }

    /// "3 of 5 nodes", or "about 90 % of about 240 nodes".
    pub(super) fn said(self) -> String {
        let Self { wanted, ready } = self;
        match (self.share(), wanted > EXACT) {
            (Share::All, false) => format!("all {wanted} nodes"),
            (_, false) => format!("{ready} of {wanted} nodes"),
            (Share::All, true) => format!("all or nearly all of about {wanted} nodes"),
            (_, true) => format!("about {} % of about {wanted} nodes", ready * 10),
        }
    }
}

fn two_digits(number: i64) -> i64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    (number + unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_are_told_exactly_and_many_in_tenths() {
        let table = [
            (0, 0, Share::NoNodes, "0 of 0 nodes"),
            (1, 0, Share::None, "0 of 1 nodes"),
            (1, 1, Share::All, "all 1 nodes"),
            (10, 9, Share::Some, "9 of 10 nodes"),
            (10, 10, Share::All, "all 10 nodes"),
            (3, 7, Share::All, "all 3 nodes"),
            (11, 11, Share::All, "all or nearly all of about 11 nodes"),
            (11, 10, Share::Some, "about 90 % of about 11 nodes"),
            (244, 0, Share::None, "about 0 % of about 240 nodes"),
            (244, 1, Share::Some, "about 10 % of about 240 nodes"),
            (244, 220, Share::Some, "about 90 % of about 240 nodes"),
            (244, 243, Share::All, "all or nearly all of about 240 nodes"),
            (5_049, 2_500, Share::Some, "about 50 % of about 5000 nodes"),
        ];
        for (wanted, ready, share, said) in table {
            let nodes = Nodes::rounded(wanted, ready);
            assert_eq!((nodes.share(), nodes.said().as_str()), (share, said), "{ready} of {wanted}");
        }
    }

    #[test]
    fn one_node_of_many_that_comes_and_goes_is_no_news() {
        let component = |wanted: i64, ready: i64| {
            Object(json!({"status": {"nodes": {"wanted": wanted, "ready": ready}}}))
        };
        let kept = |wanted, ready| Nodes::kept(&component(wanted, ready));
        assert_eq!(kept(240, 240), kept(240, 239));
        assert_eq!(kept(240, 240), kept(241, 241));
        assert_ne!(kept(5, 5), kept(5, 4));
        assert_ne!(kept(240, 240), kept(240, 200));
        assert_eq!(Nodes::kept(&Object(json!({"status": {}}))), Value::Null);
    }
}
