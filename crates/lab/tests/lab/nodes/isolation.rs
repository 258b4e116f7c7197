//! No packet of the lab can leave the machine. Read from routing tables, settings and rules; nothing is sent to find out.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use aquifer_lab::Cluster;
use serde_json::Value;

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

fn read(pid: i32, command: &[&str]) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net=/proc/{pid}/ns/net"))
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn list(pid: i32, command: &[&str]) -> Vec<Value> {
    let text = read(pid, command);
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

#[tokio::test]
async fn no_packet_of_the_lab_can_leave_the_machine() {
    let cluster = shared().await;
    serve(cluster, "isolated", 3).await;
    // The core, three nodes, and at least the DNS server and the three servers.
    assert!(assert_inside(cluster, false) >= 8);

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
pub(super) fn assert_inside(cluster: &Cluster, connected: bool) -> usize {
    let networks = networks(cluster);
    let mut ends = Vec::new();
    let mut tunnels = 0;
    for (name, pid) in &networks {
        routes_stay_inside(name, *pid);
        rules_stay_inside(name, *pid);
        for link in list(*pid, &["ip", "-json", "-details", "link"]) {
            let kind = link["linkinfo"]["info_kind"].as_str().unwrap_or("loopback");
            let text = link["ifname"].as_str().unwrap();
            match kind {
                // Both ends of each must be in the lab.
                "veth" => ends.push((
                    link["ifindex"].as_u64().unwrap(),
                    link["link_index"].as_u64(),
                    format!("{name} {text}"),
                )),
                "bridge" => {}
                "tun" if name == "core" => tunnels += 1,
                "loopback" => assert_eq!(link["link_type"], "loopback", "{name} {link}"),
                other => panic!("{name} has a link {text} of the kind {other}"),
            }
        }
    }
    for (index, other, name) in &ends {
        let paired = ends.iter().any(|(their, back, _)| Some(*their) == *other && *back == Some(*index));
        assert!(paired, "the other end of {name} is not in the lab");
    }
    println!("{} namespaces, {} ends of links, all inside", networks.len(), ends.len());

    let core = networks.iter().find(|(name, _)| name == "core").unwrap().1;
    let forwards = read(core, &["cat", "/proc/sys/net/ipv4/ip_forward"]);
    assert_eq!((forwards.trim(), tunnels), if connected { ("1", 1) } else { ("0", 0) });
    if connected {
        let rules = read(core, &["nft", "list", "chain", "ip", "wide-area", "forward"]);
        let accepted: Vec<&str> =
            rules.lines().map(str::trim).filter(|line| line.ends_with("accept")).collect();
        assert!(rules.contains("policy drop"), "{rules}");
        assert_eq!(
            accepted,
            ["iifname \"nodes\" oifname \"wan0\" accept", "iifname \"wan0\" oifname \"nodes\" accept"]
        );
    }
    networks.len()
}

/// No default route, and no route to anywhere but the lab's ranges. A pod has a default route, to its node.
fn routes_stay_inside(name: &str, pid: i32) {
    let is_pod = name.starts_with('(');
    for route in list(pid, &["ip", "-4", "-json", "route", "show", "table", "all"]) {
        let to = route["dst"].as_str().unwrap();
        if to == "default" {
            let gateway: Ipv4Addr = route["gateway"].as_str().unwrap().parse().unwrap();
            assert!(is_pod && inside(gateway, 32), "{name} has a way out: {route}");
            continue;
        }
        let (address, length) = to.split_once('/').unwrap_or((to, "32"));
        assert!(inside(address.parse().unwrap(), length.parse().unwrap()), "{name} knows a way to {route}");
    }
    let sixth = read(pid, &["ip", "-6", "route", "show", "table", "all"]);
    assert!(!sixth.contains("default") && !sixth.contains("via"), "{name}: {sixth}");
}

/// Rules send packets to addresses of the lab only, and copy none to another link.
fn rules_stay_inside(name: &str, pid: i32) {
    let rules = read(pid, &["nft", "list", "ruleset"]);
    for word in [" dup ", " fwd ", " tproxy "] {
        assert!(!rules.contains(word), "{name} has a rule with{word}: {rules}");
    }
    for target in rules.split("dnat to ").skip(1) {
        let address = target.split([':', ' ', '\n']).next().unwrap();
        if let Ok(address) = address.parse() {
            assert!(inside(address, 32), "{name} rewrites to {address}");
        }
    }
}
