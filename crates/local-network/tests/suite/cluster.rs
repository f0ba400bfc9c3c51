//! Three hosts behind the director: the first translated packet, a host that is killed and returns, hosts that come and go.

use std::time::Duration;

use asterism_director::FlowBy;
use asterism_io::clock::MonotonicClock;
use asterism_local_network::traffic::TrafficSnapshot;
use asterism_local_network::{LocalNetwork, LocalNetworkConfig, NetworkSnapshot};
use asterism_orchestrator::steering::director::DirectorSteering;
use asterism_orchestrator::steering::{Desired, Generation, Steering, Target};

use crate::hosts::{Cluster, HostProcess, pause, wait};

const MS: Duration = Duration::from_millis(1);

/// Requests of new flows that hosts may refuse while another joins, at most.
const RETURN_LOST_MAX: u64 = 60;

/// A network, and its steering.
pub(crate) struct Steered {
    pub(crate) network: LocalNetwork,
    pub(crate) steering: DirectorSteering,
    generation: u64,
}

impl Steered {
    pub(crate) fn start(config: LocalNetworkConfig) -> Steered {
        let (network, controls) = LocalNetwork::start(config, MonotonicClock::new()).unwrap();
        let mut steering = DirectorSteering::new(network.space(), controls);
        for name in network.hosts() {
            steering
                .set_host(name, network.target(name).unwrap())
                .unwrap();
        }
        Steered {
            network,
            steering,
            generation: 0,
        }
    }

    /// Steers to these hosts.
    pub(crate) fn steer(&mut self, names: &[&str]) {
        self.generation += 1;
        let targets = names.iter().map(|name| ((*name).to_owned(), Target::TAKES));
        let desired = Desired::new(Generation(self.generation), targets).unwrap();
        self.steering.apply(&desired).unwrap();
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.network.clock().now().as_micros()
    }

    pub(crate) fn traffic(&self) -> TrafficSnapshot {
        self.network.snapshot().traffic
    }

    /// Clears the times of losses.
    pub(crate) fn mark(&self) {
        let mark = self.network.traffic().mark();
        wait("the mark", || {
            (self.traffic().client.marks == mark).then_some(())
        });
    }

    /// Waits until the traffic has begun and then for some time, in which nothing may be lost.
    pub(crate) fn run_without_loss(&self, time: Duration) {
        wait("the first answer", || {
            (self.traffic().client.first_answer_us > 0).then_some(())
        });
        self.mark();
        let before = self.traffic();
        pause(time);
        // A request counts as lost after a second.
        let after = wait("answers", || {
            let now = self.traffic();
            (now.client.at_us > before.client.at_us + 1_100_000).then_some(now)
        });
        assert!(after.client.answers > before.client.answers, "{after:?}");
        assert_eq!(
            after.client.lost,
            before.client.lost,
            "{:?}",
            self.network.snapshot()
        );
    }

    /// Ends the traffic; no flow may have failed or been broken.
    pub(crate) fn end(&self) -> TrafficSnapshot {
        self.network.traffic().begin_flows(false);
        let last = wait("the end of all flows", || {
            let now = self.traffic();
            (now.under_way() == 0).then_some(now)
        });
        let all = format!("{last:?}");
        assert_eq!(
            (last.failed(), last.broken(), last.wrong()),
            (0, 0, 0),
            "{all}"
        );
        assert_eq!(last.begun(), last.ended(), "{all}");
        assert!(
            last.client.tcp_complete > 0 && last.client.udp_ended > 0,
            "{all}"
        );
        last
    }
}

pub(crate) fn start_all(cluster: &Cluster) -> Vec<HostProcess> {
    let mut hosts: Vec<_> = cluster
        .names()
        .iter()
        .map(|name| cluster.start(name))
        .collect();
    hosts.iter_mut().for_each(HostProcess::wait_until_ready);
    hosts
}

fn packets_to(snapshot: &NetworkSnapshot, name: &str) -> u64 {
    let host = snapshot.hosts.iter().find(|(one, _)| one == name).unwrap();
    host.1.sent.iter().sum()
}

#[test]
fn a_killed_host_costs_the_packets_until_it_is_steered_around_and_no_flow() {
    let cluster = Cluster::new(3);
    let config = LocalNetworkConfig::new(cluster.folder.path(), cluster.names());
    let mut steered = Steered::start(config);
    let started = steered.now_us();
    let mut hosts = start_all(&cluster);
    steered.steer(&["a", "b", "c"]);
    steered.run_without_loss(MS * 1_500);
    let first = steered.traffic().server.first_translated_us - started;
    println!("first translated packet after {} ms", first / 1_000);
    let snapshot = steered.network.snapshot();
    for name in ["a", "b", "c"] {
        assert!(packets_to(&snapshot, name) > 200, "{name}: {snapshot:?}");
    }

    for killed in ["b", "a", "c"] {
        kill_and_return(&cluster, &mut steered, &mut hosts, killed);
    }
    steered.end();
    assert!(steered.network.is_running());
}

/// Kills a host, steers around it after 100 ms, starts it again and steers to it.
fn kill_and_return(
    cluster: &Cluster,
    steered: &mut Steered,
    hosts: &mut Vec<HostProcess>,
    killed: &str,
) {
    let others: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .filter(|one| *one != killed)
        .collect();
    steered.mark();
    let before = steered.traffic();
    let place = hosts.iter().position(|host| host.name == killed).unwrap();
    let killed_at = steered.now_us();
    hosts.remove(place).kill();
    pause(MS * 100);
    steered.steer(&others);
    let steered_at = steered.now_us();
    pause(MS * 2_000);
    let after = steered.traffic();
    let lost = after.client.lost - before.client.lost;
    let (first, last) = (after.client.first_lost_us, after.client.last_lost_us);
    println!(
        "{killed} killed: lost {lost} requests, the last sent {} ms after the kill, steered after {} ms; longest silence {} ms; \
         {} flows opened again",
        last.saturating_sub(killed_at) / 1_000,
        (steered_at - killed_at) / 1_000,
        after.client.longest_silence_us / 1_000,
        after.server.moved_while_opening - before.server.moved_while_opening,
    );
    assert!(
        lost > 10,
        "the traffic ran through the killed host: {after:?}"
    );
    // A request that was on its way when the host was killed was sent a moment before.
    assert!(first + 5_000 >= killed_at, "{first} {killed_at}");
    assert!(last <= steered_at, "{last} {steered_at}");

    // It comes back, takes its share, and no request of a flow under way is lost by that.
    cluster.epoch(&["--again", killed, "--hand"]);
    let mut again = cluster.start(killed);
    again.wait_until_ready();
    hosts.push(again);
    let packets = packets_to(&steered.network.snapshot(), killed);
    steered.steer(&["a", "b", "c"]);
    // Until all hosts have the epoch, one that has not refuses new flows; nothing else may be lost.
    pause(MS * 1_200);
    let returned = steered.traffic();
    let lost = returned.client.lost - after.client.lost;
    let refused = returned.client.refusals - before.client.refusals;
    println!("{killed} returned: lost {lost} requests, {refused} refused");
    assert!(lost <= RETURN_LOST_MAX, "{returned:?}");
    steered.run_without_loss(MS * 500);
    let taken = packets_to(&steered.network.snapshot(), killed) - packets;
    assert!(taken > 200, "{taken}");
}

#[test]
fn hosts_come_and_go_while_packets_flow() {
    let cluster = Cluster::new(2);
    let config = LocalNetworkConfig::new(cluster.folder.path(), vec!["a".to_owned()]);
    let mut steered = Steered::start(config);
    let _hosts = {
        assert!(steered.network.add_host("b", 0).is_err());
        steered.network.add_host("b", 1).unwrap();
        assert!(steered.network.add_host("b", 2).is_err());
        let target = steered.network.target("b").unwrap();
        steered.steering.set_host("b", target).unwrap();
        start_all(&cluster)
    };
    steered.steer(&["a"]);
    steered.run_without_loss(MS * 300);
    steered.steer(&["b"]);
    steered.run_without_loss(MS * 300);
    let snapshot = steered.network.snapshot();
    assert!(
        snapshot
            .hosts
            .iter()
            .all(|(_, links)| links.up == [true, true])
    );
    // In a network without it, the other goes on.
    steered.network.remove_host("a").unwrap();
    assert!(steered.network.remove_host("a").is_err());
    steered.run_without_loss(MS * 300);
    let snapshot = steered.network.snapshot();
    assert_eq!(snapshot.hosts.len(), 1);
    assert_eq!(cluster.status("b")["host"], "b");
    steered.end();
}

/// The two directions of a flow through different hosts: each knows the sessions of the other in time.
#[test]
fn directions_of_a_flow_may_take_different_hosts() {
    let cluster = Cluster::new(2);
    let mut config = LocalNetworkConfig::new(cluster.folder.path(), cluster.names());
    config.by = FlowBy::FiveTuple;
    let mut steered = Steered::start(config);
    let _hosts = start_all(&cluster);
    steered.steer(&["a", "b"]);
    steered.run_without_loss(MS * 1_000);
    steered.end();
    let snapshot = steered.network.snapshot();
    for (name, links) in &snapshot.hosts {
        let [inside, outside] = links.sent;
        assert!(inside.min(outside) > 100, "{name}: {snapshot:?}");
    }
}
