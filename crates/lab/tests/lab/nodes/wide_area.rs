//! Two clusters with the same addresses cannot reach each other, except over the line that a test lays between them.

use std::time::Duration;

use aquifer_lab::{Lab, LineState};

use super::datagrams::{Ends, LATE, SENT, SOON};
use super::isolation::assert_inside;
use super::{eventually_get, get, serve};

const DELAY: Duration = Duration::from_millis(300);

#[tokio::test]
async fn two_clusters_with_the_same_addresses_meet_only_on_the_wide_area() {
    let start = |_| Lab::test_cluster().nodes(1).start();
    let (here, there) = tokio::try_join!(start(1), start(2)).unwrap();
    let (ours, theirs) = (serve(&here, "web", 1).await, serve(&there, "web", 1).await);
    // The same address on both sides, and each side means its own.
    assert_eq!(ours[0].1, theirs[0].1);
    let (pod, other) = (&ours[0].0, &theirs[0].0);
    assert_eq!(&get(&here, pod, &format!("http://{}:8080", theirs[0].1)).await.unwrap(), pod);

    let area = Lab::wide_area(&[&here, &there]).await.unwrap();
    let address = area.address_of(&there).unwrap().to_owned();
    let url = format!("http://{address}:80");
    for cluster in [&here, &there] {
        assert_inside(cluster, true).await;
    }
    // Connected, but nothing is exposed yet.
    assert!(get(&here, pod, &url).await.is_err());
    let exposed = area.expose(&there, "default", "web", 80).await.unwrap();
    assert_eq!(format!("http://{exposed}"), url);
    assert_eq!(&eventually_get(&here, pod, &url).await, other);

    let ends = Ends::open(&[&here, &there], &area);
    let perfect = LineState::default();
    area.set(LineState { delay: DELAY, ..perfect }).await.unwrap();
    let slow = ends.quickest();
    area.restore().await.unwrap();
    let quick = ends.quickest();
    println!("one way over the line: {quick:?}, with a delay of {DELAY:?}: {slow:?}");
    for way in 0..2 {
        // No packet is early. The quickest of some is not later than another delay would make it.
        assert!(slow[way] >= DELAY && slow[way] < 2 * DELAY, "{slow:?}");
        assert!(quick[way] < DELAY, "{quick:?}");
    }
    assert_eq!(ends.arrivals(LATE), [SENT, SENT], "a perfect line loses packets");
    area.set(LineState { loss: 1.0, ..perfect }).await.unwrap();
    assert_eq!(ends.arrivals(SOON), [0, 0]);
    assert!(get(&here, pod, &url).await.is_err());
    area.set(LineState { loss: 0.2, ..perfect }).await.unwrap();
    let arrived = ends.arrivals(SOON);
    println!("with a loss of a fifth {arrived:?} of {SENT} arrive");
    // 800 are to be expected, and chance takes it hardly 50 from there.
    assert!(arrived.iter().all(|count| (700..=900).contains(count)), "{arrived:?}");
    area.restore().await.unwrap();
    assert_eq!(&eventually_get(&here, pod, &url).await, other);
    area.cut().await.unwrap();
    assert!(get(&here, pod, &url).await.is_err());
    area.restore().await.unwrap();
    assert_eq!(&eventually_get(&here, pod, &url).await, other);

    // Without the line they are strangers again.
    drop((ends, area));
    assert_inside(&here, false).await;
    assert!(get(&here, pod, &url).await.is_err());
}
