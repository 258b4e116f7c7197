//! The links of some network namespaces, with both ends of each. Changes nothing that others see.

use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aquifer_lab::eventually;
use serde_json::Value;

/// Numbers of links repeat from namespace to namespace. `ip` shows where another end is if it finds the namespace under a name in
/// `/run/netns`, so they get their number for a name, in a mount namespace that ends with the script.
const SCRIPT: &str = r#"set -e
mount -t tmpfs none /run
mkdir /run/netns
n=0
for pid in "$@"; do
    touch /run/netns/$n
    mount --bind /proc/$pid/ns/net /run/netns/$n
    n=$((n + 1))
done
for name in $(seq 0 $((n - 1))); do
    echo "$(nsenter --net=/run/netns/$name ip -json -details link)"
    echo "$(nsenter --net=/run/netns/$name ip -json netns list-id)"
done
"#;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    /// Such as `veth`; a loopback and a device of the machine have none.
    pub(super) kind: Option<String>,
    /// Such as `loopback`.
    pub(super) of: String,
    index: u64,
    /// The number of the other end, when that is in another namespace.
    other: Option<u64>,
    /// Which namespace that is; none when it is not one of these.
    place: Option<usize>,
}

/// The links of each namespace, which a process in it stands for. Fails if a link leads to another namespace than these.
pub(super) fn links(networks: &[(String, i32)]) -> Result<Vec<Vec<Link>>> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", SCRIPT, "links"]);
    let output = command.args(networks.iter().map(|(_, pid)| pid.to_string())).output()?;
    ensure!(output.status.success(), "the links cannot be read: {output:?}");
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.len() == 2 * networks.len(), "{} networks, but: {text}", networks.len());
    let parsed: Result<Vec<_>> = lines.chunks(2).map(|pair| parse(pair[0], pair[1])).collect();
    let all = parsed?;
    for (n, links) in all.iter().enumerate() {
        for link in links.iter().filter(|link| link.other.is_some()) {
            let there = link.place.map(|place| all[place].as_slice()).unwrap_or_default();
            let back = there.iter().find(|end| Some(end.index) == link.other);
            ensure!(
                back.is_some_and(|end| end.place == Some(n) && end.other == Some(link.index)),
                "the other end of {} {} is not in the lab",
                networks[n].0,
                link.name
            );
        }
    }
    Ok(all)
}

fn parse(links: &str, ids: &str) -> Result<Vec<Link>> {
    let read = |text: &str| -> Result<Vec<Value>> {
        if text.is_empty() { Ok(Vec::new()) } else { Ok(serde_json::from_str(text)?) }
    };
    let ids = read(ids)?;
    let place = |link: &Value| -> Option<usize> {
        ids.iter().find(|known| known["nsid"] == link["link_netnsid"])?["name"].as_str()?.parse().ok()
    };
    let links = read(links)?;
    ensure!(!links.is_empty(), "a network without any link");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    links
        .iter()
        .map(|link| {
            Ok(Link {
                name: text(&link["ifname"]).context("a link without a name")?,
                kind: text(&link["linkinfo"]["info_kind"]),
                of: text(&link["link_type"]).unwrap_or_default(),
                index: link["ifindex"].as_u64().context("a link without a number")?,
                other: link["link_index"].as_u64(),
                place: place(link),
            })
        })
        .collect()
}

/// A network namespace that ends with this.
struct Scratch(Child);

impl Scratch {
    async fn new() -> Self {
        let scratch = Self(Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap());
        let network = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net"));
        let own = network("self").unwrap();
        eventually(Duration::from_secs(10), "a new network namespace", || async {
            Ok((network(&scratch.0.id().to_string())? != own).then_some(()))
        })
        .await
        .unwrap();
        scratch
    }

    /// A link to another one, with these numbers.
    fn link(&self, index: u32, other: &Self, there: u32) {
        let status = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .args(["ip", "link", "add", &format!("to{there}"), "index", &index.to_string(), "type", "veth"])
            .args(["peer", "name", &format!("from{index}"), "index", &there.to_string()])
            .args(["netns", &other.0.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }

    fn place(&self, name: &str) -> (String, i32) {
        (name.to_owned(), i32::try_from(self.0.id()).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_is_found_although_its_numbers_are_known() {
    let [one, two, three, elsewhere] =
        [Scratch::new().await, Scratch::new().await, Scratch::new().await, Scratch::new().await];
    one.link(30, &two, 20);
    let inside = [one.place("one"), two.place("two"), three.place("three")];
    let counts: Vec<usize> = links(&inside).unwrap().iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 2, 1]);

    // By its numbers alone this end would fit the first one of the other link.
    three.link(20, &elsewhere, 30);
    let error = links(&inside).unwrap_err().to_string();
    assert_eq!(error, "the other end of three to30 is not in the lab");
    let all = [&inside[..], &[elsewhere.place("elsewhere")]].concat();
    assert_eq!(links(&all).unwrap().len(), 4);
}
