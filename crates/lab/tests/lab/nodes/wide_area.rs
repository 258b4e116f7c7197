//! Two clusters with the same addresses cannot reach each other, except over the line that a test lays between them.

use std::time::{Duration, Instant};

use aquifer_lab::{Lab, LineState, eventually};

use super::isolation::assert_inside;
use super::{eventually_get, get, serve};

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
        assert_inside(cluster, true);
    }
    // Connected, but nothing is exposed yet.
    assert!(get(&here, pod, &url).await.is_err());
    let exposed = area.expose(&there, "default", "web", 80).await.unwrap();
    assert_eq!(format!("http://{exposed}"), url);
    assert_eq!(&eventually_get(&here, pod, &url).await, other);

    // A connection and a request are two round trips, so four times the delay of one way.
    let quick = took(|| get(&here, pod, &url)).await;
    area.set(LineState { delay: Duration::from_millis(150), ..LineState::default() }).await.unwrap();
    let slow = took(|| get(&here, pod, &url)).await;
    println!("over the line: {quick:?}, with a delay of 150 ms: {slow:?}");
    assert!(slow >= Duration::from_millis(600), "{slow:?}");

    area.set(LineState { loss: 1.0, ..LineState::default() }).await.unwrap();
    assert!(get(&here, pod, &url).await.is_err());
    area.set(LineState { loss: 0.2, ..LineState::default() }).await.unwrap();
    eventually(Duration::from_secs(40), "a line with losses lets some through", || async {
        get(&here, pod, &url).await.map(Some)
    })
    .await
    .unwrap();
    area.cut().await.unwrap();
    assert!(get(&here, pod, &url).await.is_err());
    area.restore().await.unwrap();
    assert_eq!(&eventually_get(&here, pod, &url).await, other);

    // Without the line they are strangers again.
    drop(area);
    assert_inside(&here, false);
    assert!(get(&here, pod, &url).await.is_err());
}

async fn took<F: Future<Output = anyhow::Result<String>>>(work: impl FnOnce() -> F) -> Duration {
    let began = Instant::now();
    work().await.unwrap();
    began.elapsed()
}
