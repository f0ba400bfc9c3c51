//! A pair of directors: either may end, and returns.

use std::time::Duration;

use asterism_local_network::LocalNetworkConfig;
use asterism_orchestrator::steering::Steering;

use crate::cluster::{Steered, start_all};
use crate::hosts::{Cluster, pause};

const MS: Duration = Duration::from_millis(1);

#[test]
fn either_of_two_directors_may_end_and_return() {
    let cluster = Cluster::new(2);
    let mut config = LocalNetworkConfig::new(cluster.folder.path(), cluster.names());
    config.directors = 2;
    (config.pair_key, config.incarnation) = ([7; 32], 99);
    let mut steered = Steered::start(config);
    let _hosts = start_all(&cluster);
    steered.steer(&["a", "b"]);
    steered.run_without_loss(MS * 500);
    for number in [0, 1] {
        steered.mark();
        let before = steered.traffic();
        let ended_at = steered.now_us();
        steered.network.end_director(number).unwrap();
        pause(MS * 2_500);
        let after = steered.traffic();
        let lost = after.client.lost - before.client.lost;
        let last = after.client.last_lost_us.saturating_sub(ended_at) / 1_000;
        println!("director {number} ended: lost {lost} requests, the last sent {last} ms later");
        assert!(
            after.client.answers > before.client.answers + 500,
            "{after:?}"
        );
        // A standby takes over after 350 ms of silence, and announces the addresses.
        assert!(last < 1_000, "{last}");
        let control = steered.network.start_director(number).unwrap();
        // The driver leaves the one that ended out when it next speaks to it.
        steered.steering.observe().unwrap();
        steered.steering.add_director(control).unwrap();
        assert_eq!(steered.steering.directors().0, 2);
        steered.run_without_loss(MS * 700);
    }
    steered.end();
    assert!(steered.network.end_director(2).is_err());
}
