//! Usage of two tenants of a cluster of real processes, through the death of a host and of the orchestrator: what is metered is what the
//! clients sent and received, less what the killed host had not reported.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asterism_config::key_file;
use asterism_elasticity::usage::Usage;
use asterism_io::clock::MonotonicClock;
use asterism_local_network::traffic::TrafficConfig;
use asterism_local_network::{ClusterFile, LocalNetwork, LocalNetworkConfig, loopback_addresses};
use asterism_orchestrator::controller::Times;
use asterism_orchestrator::run::{ClusterView, OrchestratorConfig, Running};
use asterism_orchestrator::steering::Steering;
use asterism_orchestrator::steering::director::DirectorSteering;
use asterism_placement::{ClusterId, Time};
use asterism_truth_store::clock::monotonic;
use asterism_truth_store::embedded::EmbeddedStore;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
/// How long any step may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Whose the clients are; see `asterism up`.
const TENANTS: &str = "\n[tenants.blue]\nnetworks = [\"10.78.0.0/25\"]\n\n[tenants.green]\nnetworks = [\"10.78.0.128/25\"]\n";
/// What a host that is killed had counted and not reported is at most its packets of this time: it sums up every 50 ms, its
/// heartbeats leave every 50 ms, the leader stores every two seconds, and the machine is busy.
const UNREPORTED: f64 = 2.0;

/// Asks until something is there.
fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let clock = MonotonicClock::new();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(
            clock.now() < Time::ZERO + PATIENCE,
            "waited for {what} in vain"
        );
        pause(Duration::from_millis(20));
    }
}

fn pause(time: Duration) {
    let clock = MonotonicClock::new();
    let until = clock.now() + time;
    while clock.now() < until {
        std::thread::park_timeout(until.since(clock.now()));
    }
}

struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_host(config: &Path, name: &str) -> Host {
    let log = std::fs::File::create(config.with_file_name(format!("{name}.log"))).unwrap();
    let command = Command::new(ASTERISM)
        .args(["run", config.to_str().unwrap(), "--member", name])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Host(command.unwrap())
}

/// An orchestrator on the store in the cluster's folder.
fn orchestrate(file: &ClusterFile, number: u8, steering: Vec<Box<dyn Steering>>) -> Running {
    let truth = file.folder.join("truth");
    std::fs::create_dir_all(&truth).unwrap();
    Running::start(OrchestratorConfig {
        is_open: false,
        steered_only: None,
        cluster: file.cluster.clone(),
        cluster_id: cluster_id(file),
        keys: key_file::read(&file.folder.join(&file.key)).unwrap(),
        identity: 1,
        elastic: None,
        places: file.hosts.clone(),
        name: format!("orchestrator-{number}"),
        times: Times {
            found_after: Duration::from_secs(2),
            ..Times::default()
        },
        term: Duration::from_secs(3),
        random: [number; 48],
        socket: UdpSocket::bind(file.orchestrators[0]).unwrap(),
        store: Box::new(move || Ok(Box::new(EmbeddedStore::open(&truth, monotonic())?))),
        steering,
    })
    .unwrap()
}

fn cluster_id(file: &ClusterFile) -> ClusterId {
    let path = file.path();
    let functions = asterism_config::functions::Functions::default();
    let purpose = asterism_config::Purpose::Host;
    let (config, report) = asterism_config::files::load(&path, purpose, None, functions).unwrap();
    let config = config.unwrap_or_else(|| panic!("{:?}", report.diagnostics));
    config.cluster.id()
}

fn takers(view: &ClusterView) -> usize {
    view.hosts.iter().filter(|host| host.takes).count()
}

fn sum(totals: &BTreeMap<String, Usage>, of: fn(&Usage) -> u128) -> f64 {
    totals.values().map(of).sum::<u128>() as f64
}

#[test]
fn usage_is_what_the_clients_sent_through_the_death_of_a_host_and_an_orchestrator() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let mut addresses = loopback_addresses(names.len() + 1, std::process::id() ^ 0x51).unwrap();
    let orchestrator = addresses.pop().unwrap();
    let file = ClusterFile {
        orchestrators: vec![orchestrator],
        more: TENANTS.to_owned(),
        ..ClusterFile::new(folder.path(), "tenants", names.clone(), addresses)
    };
    key_file::write_new(&file.folder.join(&file.key), 1).unwrap();
    let config = file.write().unwrap();
    let traffic = TrafficConfig {
        udp_flows_per_second: 20,
        tcp_connections_per_second: 4,
        ..TrafficConfig::default()
    };
    let clock = MonotonicClock::new();
    let network = LocalNetworkConfig {
        traffic,
        ..LocalNetworkConfig::new(folder.path(), names.clone())
    };
    let (network, controls) = LocalNetwork::start(network, clock).unwrap();
    let mut steering = DirectorSteering::new(network.space(), controls);
    for name in &names {
        let target = network.target(name).unwrap();
        steering.set_host(name, target).unwrap();
    }
    let running = orchestrate(&file, 1, vec![Box::new(steering)]);
    let mut hosts: Vec<Host> = names.iter().map(|name| start_host(&config, name)).collect();
    let view = || running.asking().view().ok();
    wait("three hosts that take packets", || {
        view().filter(|view| takers(view) == 3)
    });
    wait("traffic", || {
        let traffic = network.snapshot().traffic;
        (traffic.client.received > 2_000).then_some(())
    });
    let rate = {
        let before = network.snapshot().traffic.client;
        pause(Duration::from_secs(2));
        let now = network.snapshot().traffic.client;
        (now.sent + now.received - before.sent - before.received) as f64 / 2.0
    };
    hosts[1].0.kill().unwrap();
    hosts[1].0.wait().unwrap();
    wait("an epoch without the killed host", || {
        view().filter(|view| view.hosts[1].incarnation.is_none())
    });
    hosts[1] = start_host(&config, "b");
    wait("the host's next incarnation", || {
        view().filter(|view| takers(view) == 3)
    });
    network.traffic().begin_flows(false);
    wait("the end of all flows", || {
        (network.snapshot().traffic.under_way() == 0).then_some(())
    });
    // Every heartbeat and every round of the store is over.
    let mut last = (BTreeMap::new(), clock.now());
    let totals = wait("usage that stays", || {
        let totals = view()?.usage.totals;
        if packets_of(&totals) != packets_of(&last.0) {
            last = (totals, clock.now());
            return None;
        }
        (clock.now().since(last.1) > Duration::from_secs(5)).then_some(totals)
    });
    let clients = network.snapshot().traffic.client;
    let (sent, received) = (clients.sent as f64, clients.received as f64);
    let metered = sum(&totals, |usage| usage.packets);
    let text = format!(
        "{metered} packets metered, {sent} sent and {received} received by the clients, {rate:.0} a second"
    );
    println!("{text}");
    // Packets that the killed host had, on its links too, never came to a port; questions of ARP are of nobody.
    assert!(metered <= sent + received, "{text}");
    let lost = sent + received - metered;
    assert!(
        lost <= rate * UNREPORTED + 0.02 * (sent + received),
        "{lost} lost: {text}"
    );
    for tenant in ["blue", "green"] {
        let used = totals[tenant];
        assert!(
            used.packets > 500 && used.bytes > 50 * used.packets,
            "{used:?}"
        );
        assert!(used.flows > 20 && used.instance_ms > 1_000, "{used:?}");
    }
    let begun = (clients.udp_begun + clients.tcp_begun) as f64;
    let flows = sum(&totals, |usage| usage.flows);
    // A flow of UDP that moves to another host begins there again.
    assert!(
        flows > 0.8 * begun && flows < 2.0 * begun,
        "{flows} flows metered, {begun} begun"
    );

    // Another orchestrator goes on from what is stored: the hosts report the same again, and it counts once.
    running.end();
    let running = orchestrate(&file, 2, Vec::new());
    let resumed = wait("the next leader's usage", || {
        let view = running.asking().view().ok()?;
        (view.term.is_some() && !view.usage.totals.is_empty()).then_some(view.usage.totals)
    });
    pause(Duration::from_secs(5));
    let later = running.asking().view().unwrap().usage.totals;
    for (tenant, before) in &totals {
        assert_eq!(resumed[tenant].packets, before.packets, "{tenant}");
        // Nothing but the instances' time goes on.
        let now = later[tenant];
        assert_eq!(
            (now.packets, now.flows),
            (before.packets, before.flows),
            "{tenant}"
        );
        assert!(now.instance_ms >= before.instance_ms, "{tenant}");
    }
    running.end();
    drop(hosts);
}

fn packets_of(totals: &BTreeMap<String, Usage>) -> Vec<u128> {
    totals.values().map(|usage| usage.packets).collect()
}
