//! No packet of the lab can leave the machine. Read from routing tables, settings and rules; nothing is sent to find out.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aquifer_lab::{Cluster, eventually};
use serde_json::Value;

use super::links::{Link, links};
use super::{serve, shared};

/// What addresses in the lab may be: nodes, pods, services, the wide area, loopback, multicast of a link.
const RANGES: [(Ipv4Addr, u8); 6] = [
    (Ipv4Addr::new(10, 90, 0, 0), 24),
    (Ipv4Addr::new(10, 244, 0, 0), 16),
    (Ipv4Addr::new(10, 96, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 24),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
];

fn inside(address: Ipv4Addr, length: u8) -> bool {
    RANGES.iter().any(|&(range, bits)| {
        let mask = u32::MAX << (32 - u32::from(bits));
        length >= bits && u32::from(address) & mask == u32::from(range)
    })
}

/// The programs of a cluster and their processes.
pub(super) fn programs(dir: &Path) -> Vec<(String, i32)> {
    let files = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "pid"))
        .filter_map(|path| {
            let pid = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
            Some((path.file_stem()?.to_string_lossy().into_owned(), pid))
        })
        .collect()
}

/// A process in each of the lab's network namespaces: core, nodes, and pods.
pub(super) fn networks(cluster: &Cluster) -> Vec<(String, i32)> {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let machine = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let mut seen = BTreeSet::from([own]);
    let mut found = Vec::new();
    let mut all = super::leftovers::everything(cluster.dir());
    // The first process of a namespace names it.
    all.sort_by_key(|(name, _)| {
        !std::path::Path::new(cluster.dir()).join(format!("{name}.init.sh")).exists()
    });
    for (name, pid) in all {
        // A relay or a line of a wide area stands in a network of the lab, maybe another cluster's, but is the machine's process.
        if std::fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|of| of == machine) {
            continue;
        }
        let Ok(namespace) = std::fs::read_link(format!("/proc/{pid}/ns/net")) else { continue };
        if seen.insert(namespace) {
            found.push((name, pid));
        }
    }
    found
}

fn read(pid: i32, command: &[&str]) -> Result<String> {
    let output =
        Command::new("nsenter").arg(format!("--net=/proc/{pid}/ns/net")).arg("--").args(command).output()?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// All that decides where packets of one network namespace go.
struct Network {
    name: String,
    links: Vec<Link>,
    routes: Vec<Value>,
    routes_of_version_6: String,
    forwards: String,
    rules: String,
    /// Where rules send packets instead.
    targets: Vec<Ipv4Addr>,
}

impl Network {
    fn read(name: &str, pid: i32, links: Vec<Link>) -> Result<Self> {
        let routes = read(pid, &["ip", "-4", "-json", "route", "show", "table", "all"])?;
        let rules = read(pid, &["nft", "list", "ruleset"])?;
        let network = Self {
            name: name.to_owned(),
            links,
            routes: if routes.trim().is_empty() { Vec::new() } else { serde_json::from_str(&routes)? },
            routes_of_version_6: read(pid, &["ip", "-6", "route", "show", "table", "all"])?,
            forwards: read(pid, &["cat", "/proc/sys/net/ipv4/ip_forward"])?.trim().to_owned(),
            targets: targets(&rules).with_context(|| name.to_owned())?,
            rules,
        };
        // The services of the API server and of DNS are everywhere, as soon as the proxy has seen them.
        ensure!(network.is_of_a_pod() || !network.targets.is_empty(), "{name} has no rule for a service");
        Ok(network)
    }

    fn is_of_a_pod(&self) -> bool {
        self.name.starts_with('(')
    }
}

/// All networks of a cluster, with both ends of every link. Other tests start and end pods meanwhile, and the network of such a pod
/// has no process: then this looks again.
async fn all(cluster: &Cluster) -> Vec<Network> {
    eventually(Duration::from_secs(30), "every link of the lab has both ends in it", || async {
        let networks = networks(cluster);
        let links = links(&networks)?;
        let look = |((name, pid), links): (&(String, i32), _)| Network::read(name, *pid, links);
        networks.iter().zip(links).map(look).collect::<Result<Vec<_>>>().map(Some)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn no_packet_of_the_lab_can_leave_the_machine() {
    let cluster = shared().await;
    serve(cluster, "isolated", 3).await;
    // The core, three nodes, and at least the DNS server and the three servers.
    assert!(assert_inside(cluster, false).await >= 8);

    // The way in is on loopback only.
    let port: u16 = cluster.url().rsplit(':').next().unwrap().parse().unwrap();
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let listening: Vec<&str> = sockets
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
            (state == "0A" && local.ends_with(&format!(":{port:04X}"))).then_some(local)
        })
        .collect();
    assert_eq!(listening, [format!("0100007F:{port:04X}")]);
}

/// Looks at every network of a cluster, and gives how many there are. A cluster on a wide area has one tunnel, and forwards to it only.
pub(super) async fn assert_inside(cluster: &Cluster, connected: bool) -> usize {
    let networks = all(cluster).await;
    let mut tunnels = 0;
    for network in &networks {
        routes_stay_inside(network);
        rules_stay_inside(network);
        for link in &network.links {
            match link.kind.as_deref() {
                Some("veth" | "bridge") => {}
                Some("tun") if network.name == "core" => tunnels += 1,
                None => assert_eq!(link.of, "loopback", "{} {link:?}", network.name),
                Some(_) => panic!("{} has a link of another kind: {link:?}", network.name),
            }
        }
    }
    let count = |of: fn(&Network) -> usize| networks.iter().map(of).sum::<usize>();
    let (ends, targets) = (count(|network| network.links.len()), count(|network| network.targets.len()));
    println!("{} namespaces, {ends} links, {targets} targets of rules, all inside", networks.len());

    let core = networks.iter().find(|network| network.name == "core").unwrap();
    assert_eq!((core.forwards.as_str(), tunnels), if connected { ("1", 1) } else { ("0", 0) });
    if connected {
        let (_, chain) = core.rules.split_once("table ip wide-area {").unwrap();
        let (_, chain) = chain.split_once("chain forward {").unwrap();
        let (chain, _) = chain.split_once('}').unwrap();
        let accepted: Vec<&str> =
            chain.lines().map(str::trim).filter(|line| line.ends_with("accept")).collect();
        assert!(chain.contains("policy drop"), "{chain}");
        assert_eq!(
            accepted,
            ["iifname \"nodes\" oifname \"wan0\" accept", "iifname \"wan0\" oifname \"nodes\" accept"]
        );
    }
    networks.len()
}

/// No default route, and no route to anywhere but the lab's ranges. A pod has a default route, to its node.
fn routes_stay_inside(network: &Network) {
    let name = &network.name;
    for route in &network.routes {
        let to = route["dst"].as_str().unwrap();
        if to == "default" {
            let gateway: Ipv4Addr = route["gateway"].as_str().unwrap().parse().unwrap();
            assert!(network.is_of_a_pod() && inside(gateway, 32), "{name} has a way out: {route}");
            continue;
        }
        let (address, length) = to.split_once('/').unwrap_or((to, "32"));
        assert!(inside(address.parse().unwrap(), length.parse().unwrap()), "{name} knows a way to {route}");
    }
    let sixth = &network.routes_of_version_6;
    assert!(!sixth.contains("default") && !sixth.contains("via"), "{name}: {sixth}");
}

/// Rules send packets to addresses of the lab only, and copy none to another link.
fn rules_stay_inside(network: &Network) {
    let (name, rules) = (&network.name, &network.rules);
    for word in [" dup ", " fwd ", " tproxy ", " xt "] {
        assert!(!rules.contains(word), "{name} has a rule with{word}: {rules}");
    }
    for address in &network.targets {
        assert!(inside(*address, 32), "{name} rewrites to {address}");
    }
}

/// Every address that rules give to packets. One that cannot be read is an error, not nothing.
fn targets(rules: &str) -> Result<Vec<Ipv4Addr>> {
    let mut found = Vec::new();
    for (at, word) in rules.match_indices("dnat ") {
        let (before, rest) = (&rules[..at], &rules[at + word.len()..]);
        // The end of a chain's name, or a question: has the packet been sent elsewhere before?
        if before.ends_with(|last: char| !last.is_whitespace()) || before.ends_with("ct status ") {
            continue;
        }
        let line = rest.lines().next().unwrap_or_default();
        let target = line.strip_prefix("ip ").unwrap_or(line);
        let target = target.strip_prefix("to ").with_context(|| format!("dnat {line}"))?;
        // One address, or one of several by chance, each with its port.
        let several = target.split_once(" map { ").and_then(|(_, map)| map.strip_suffix(" }"));
        let addresses: Vec<&str> = match several {
            Some(map) => {
                map.split(", ").map(|entry| entry.split_once(" : ").unwrap_or(("", entry)).1).collect()
            }
            None => vec![target],
        };
        for address in addresses {
            let word = address.split([':', ' ']).next().unwrap_or_default();
            found.push(word.parse().with_context(|| format!("dnat {line}"))?);
        }
    }
    Ok(found)
}

#[test]
fn a_target_of_a_rule_is_read_or_is_an_error() {
    let rules = "chain after-dnat {
        ct status dnat counter packets 0 bytes 0
        meta l4proto tcp dnat to 10.244.1.2:53
        meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.90.0.1 . 6443, 1 : 8.8.8.8 . 6443 }
    }";
    let [dns, api, far] = [[10, 244, 1, 2], [10, 90, 0, 1], [8, 8, 8, 8]].map(Ipv4Addr::from);
    assert_eq!(targets(rules).unwrap(), [dns, api, far]);
    for unknown in ["dnat to @somewhere", "dnat to numgen random mod 1 map @all", "dnat 8.8.8.8"] {
        assert!(targets(unknown).is_err(), "{unknown}");
    }
}
