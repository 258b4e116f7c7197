//! Single packets over a wide area, in both directions, sent and received by the test itself: nothing sends one again.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aquifer_lab::{Cluster, WideArea};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How many are sent when they are counted.
pub(super) const SENT: usize = 1_000;
/// So many fit into the buffer of a socket, which nobody reads meanwhile.
const AT_ONCE: usize = 100;
/// When nothing has come for so long, the rest of a batch is lost.
pub(super) const SOON: Duration = Duration::from_millis(200);
/// For what is not to be lost.
pub(super) const LATE: Duration = Duration::from_secs(20);
const TRIES: u8 = 5;

/// A socket in the core of each of two clusters. Each exchanges datagrams with the other only.
pub(super) struct Ends([UdpSocket; 2]);

impl Ends {
    pub(super) fn open(clusters: &[&Cluster; 2], area: &WideArea) -> Self {
        let places = clusters.map(|cluster| {
            let address = format!("{}:9", area.address_of(cluster).unwrap());
            (cluster.dir().join("core.net"), address)
        });
        let sockets = places.clone().map(|(network, address)| socket(network, address));
        sockets[0].connect(&places[1].1).unwrap();
        sockets[1].connect(&places[0].1).unwrap();
        Self(sockets)
    }

    fn ways(&self) -> [(&UdpSocket, &UdpSocket); 2] {
        let [one, other] = &self.0;
        [(one, other), (other, one)]
    }

    /// How long a packet takes one way, in each direction: the quickest of some.
    pub(super) fn quickest(&self) -> [Duration; 2] {
        self.ways().map(|(from, to)| {
            let times = (0..TRIES).map(|n| {
                let began = Instant::now();
                from.send(&[n]).unwrap();
                assert_eq!(receive(to, LATE), Some(n));
                began.elapsed()
            });
            times.min().unwrap()
        })
    }

    /// How many of [`SENT`] packets arrive in each direction.
    pub(super) fn arrivals(&self, silence: Duration) -> [usize; 2] {
        self.ways().map(|(from, to)| {
            let batch = || {
                for _ in 0..AT_ONCE {
                    from.send(&[0]).unwrap();
                }
                std::iter::from_fn(|| receive(to, silence)).take(AT_ONCE).count()
            };
            (0..SENT / AT_ONCE).map(|_| batch()).sum()
        })
    }
}

fn receive(socket: &UdpSocket, patience: Duration) -> Option<u8> {
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut byte = [0];
    socket.recv(&mut byte).ok().map(|_| byte[0])
}

/// A socket stays in the network where it was made. The thread that made it there ends, so nothing else of this process does.
fn socket(network: PathBuf, address: String) -> UdpSocket {
    let open = move || {
        let network = File::open(network).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        UdpSocket::bind(address).unwrap()
    };
    std::thread::spawn(open).join().unwrap()
}
