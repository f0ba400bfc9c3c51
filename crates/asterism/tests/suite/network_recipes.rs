//! The recipes of `docs/src/getting-into-a-network.md`: several next hops, BGP by bird, takeover of an address by keepalived.
//! The files that the page shows are the files that run here. Needs root and the programs; says `SKIPPED` without.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, document};
use asterism_lab::nat::{HostOptions, Middle, NatLab, NatLabConfig, SERVER};
use asterism_lab::{Program, pause, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const READY: Duration = Duration::from_secs(30);

/// The files that the page shows.
const BIRD_HOST: &str = include_str!("../../recipes/bird-host.conf");
const BIRD_ROUTER: &str = include_str!("../../recipes/bird-router.conf");
const KEEPALIVED: &str = include_str!("../../recipes/keepalived.conf");
const TAKEOVER: &str = include_str!("../../recipes/takeover.sh");
const ANNOUNCE: &str = include_str!("../../recipes/announce-while-running.sh");

fn ready(programs: &[&str]) -> bool {
    let ready = asterism_lab::needs(programs);
    if let Err(why) = &ready {
        println!("SKIPPED recipes for networks: {why}");
    }
    ready.is_ok()
}

fn cluster(config: &NatLabConfig) -> (NatLab, Vec<Program>) {
    let lab = NatLab::new(config).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let configuration = lab.write_configuration(&HostOptions::default()).unwrap();
    let hosts = lab
        .start_hosts(Path::new(ASTERISM), &configuration)
        .unwrap();
    (lab, hosts)
}

/// Downloads while `change` happens to the network; every one must come whole.
fn downloads_survive(lab: &NatLab, change: impl FnOnce() + Send) {
    let server = DocumentServer::start(&lab.server, (SERVER, 80).into(), 300_000).unwrap();
    let right = document(1_200_000);
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: "/1200000".to_owned(),
        document: &right,
        count: 20,
        at_once: 20,
        patience: MS * 20_000,
    };
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run(&lab.client).unwrap());
        pause(MS * 1_000);
        change();
        running.join().unwrap()
    });
    drop(server);
    assert_eq!(report.complete(), 20, "{}", report.faults());
}

#[test]
fn the_page_shows_the_files_that_are_run() {
    let page =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/getting-into-a-network.md");
    let page = std::fs::read_to_string(page).unwrap();
    for file in [BIRD_HOST, BIRD_ROUTER, KEEPALIVED, TAKEOVER, ANNOUNCE] {
        assert!(page.contains(file), "{file}");
    }
}

/// A router takes a host out of its next hops, and puts it back: connections go on.
#[test]
fn next_hops_come_and_go() {
    if !ready(&[]) {
        return;
    }
    let (lab, hosts) = cluster(&NatLabConfig::new(3, MS));
    let route = lab.server.ip(&["route show 203.0.113.0/29"]).unwrap();
    assert_eq!(route.matches("nexthop").count(), 3, "{route}");
    downloads_survive(&lab, || {
        for left in [&[1, 2][..], &[2], &[0, 1], &[0, 1, 2]] {
            lab.requests_through(left).unwrap();
            lab.replies_through(left).unwrap();
            pause(MS * 400);
        }
    });
    assert!(hosts.iter().all(Program::runs));
}

/// Each host announces the outside prefix, the router spreads over all, and a host that dies is withdrawn.
#[test]
fn bird_announces_the_outside_prefix() {
    if !ready(&["bird", "birdc"]) {
        return;
    }
    let (lab, mut hosts) = cluster(&NatLabConfig::new(2, MS));
    let folder = lab.lab.folder().display().to_string();
    lab.server.ip(&["route del 203.0.113.0/29"]).unwrap();
    let mut routers = Vec::new();
    let mut watchers = Vec::new();
    for (place, host) in lab.hosts.iter().enumerate() {
        let number = place + 1;
        // The host's own address on the link, beside the NAT's.
        host.ip(&[format!(
            "address add 198.51.100.1{number}/32 peer 198.51.100.254 dev out"
        )])
        .unwrap();
        lab.server
            .ip(&[format!(
                "address add 198.51.100.254/32 peer 198.51.100.1{number} dev nat{number}"
            )])
            .unwrap();
        let text = BIRD_HOST.replace("198.51.100.11", &format!("198.51.100.1{number}"));
        let file = lab.lab.file(&format!("bird-{number}.conf"), text).unwrap();
        let socket = format!("{folder}/bird-{number}.ctl");
        let bird = host
            .program("bird")
            .args(["-f", "-s", &socket, "-c"])
            .arg(file);
        routers.push(bird.start().unwrap());
        let script = lab.lab.file("announce-while-running.sh", ANNOUNCE).unwrap();
        let watcher = host
            .program("sh")
            .arg(script)
            .env("CONTROL", lab.control_socket(place))
            .env("BIRD", &socket)
            .env("ASTERISM", ASTERISM);
        watchers.push(watcher.start().unwrap());
    }
    let file = lab.lab.file("bird-router.conf", BIRD_ROUTER).unwrap();
    let socket = format!("{folder}/bird-router.ctl");
    let router = lab
        .server
        .program("bird")
        .args(["-f", "-s", &socket, "-c"])
        .arg(file);
    routers.push(router.start().unwrap());
    let next_hops = || {
        let routes = lab.server.ip(&["route show 203.0.113.0/29"]).unwrap();
        (1..=2)
            .filter(|number| routes.contains(&format!("dev nat{number}")))
            .count()
    };
    let said = || routers.iter().map(Program::stderr).collect::<String>();
    let started = wait_until("two next hops", READY, || next_hops() == 2);
    assert!(started.is_ok(), "{started:?} {}", said());
    downloads_survive(&lab, || {});
    let frames = lab.counts("out").unwrap();
    assert!(
        frames.iter().all(|host| host.received > 1_000),
        "{frames:?}"
    );

    // The second host dies; its neighbour in the segment notices by its control socket, and withdraws. The client's own
    // routes are not BGP's here.
    lab.requests_through(&[0]).unwrap();
    downloads_survive(&lab, || {
        hosts.pop().unwrap().kill();
        wait_until("one next hop", READY, || next_hops() == 1).unwrap();
    });
}

/// Two hosts on one segment: when the one that has the address dies, the other tells the switch.
#[test]
fn keepalived_moves_the_address() {
    if !ready(&["keepalived", "arping"]) {
        return;
    }
    let config = NatLabConfig::new(2, MS).middle(Middle::Segments);
    let (lab, mut hosts) = cluster(&config);
    let segments = lab.segments.as_ref().unwrap();
    let takeover = lab.lab.file("takeover.sh", TAKEOVER).unwrap();
    std::fs::set_permissions(&takeover, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut keepers: Vec<Program> = lab
        .hosts
        .iter()
        .enumerate()
        .map(|(place, host)| {
            let number = place + 1;
            host.ip(&[format!("address add 198.51.100.1{number}/24 dev out")])
                .unwrap();
            let text = KEEPALIVED
                .replace("priority 150", &format!("priority {}", 150 - 50 * place))
                .replace(
                    "/usr/local/sbin/takeover.sh",
                    &takeover.display().to_string(),
                )
                .replace("/usr/bin/asterism", ASTERISM)
                .replace(
                    "/run/asterism/asterism-a.sock",
                    &lab.control_socket(place).display().to_string(),
                );
            let file = lab
                .lab
                .file(&format!("keepalived-{number}.conf"), text)
                .unwrap();
            let folder = lab.lab.folder().display();
            host.program("keepalived")
                .args(["-n", "-l", "-D", "-f"])
                .arg(file)
                .args([
                    "-p",
                    &format!("{folder}/keepalived-{number}.pid"),
                    "-r",
                    &format!("{folder}/vrrp-{number}.pid"),
                    "-c",
                    &format!("{folder}/check-{number}.pid"),
                ])
                .start()
                .unwrap()
        })
        .collect();
    let port_of_nat = || {
        let table = segments
            .program("bridge")
            .args(["fdb", "show", "br", "outside"])
            .run()
            .unwrap()
            .text();
        let line = table
            .lines()
            .find(|line| line.starts_with("02:00:00:00:02:01") && !line.contains("permanent"));
        line.and_then(|line| line.split(' ').nth(2).map(str::to_owned))
    };
    let said = |keepers: &[Program]| {
        keepers
            .iter()
            .map(|keeper| keeper.stdout() + &keeper.stderr())
            .collect::<Vec<_>>()
            .join("\n---\n")
    };
    let master = wait_until("the first host being master", READY, || {
        keepers[0].stdout().contains("MASTER STATE") || keepers[0].stderr().contains("MASTER STATE")
    });
    assert!(master.is_ok(), "{master:?}\n{}", said(&keepers));
    let first = wait_until("the address at the first host", READY, || {
        port_of_nat().as_deref() == Some("outside1")
    });
    assert!(
        first.is_ok(),
        "{first:?} {:?}\n{}",
        port_of_nat(),
        said(&keepers)
    );
    downloads_survive(&lab, || {
        // The machine dies: its packets, its votes and its links.
        hosts.remove(0).kill();
        keepers.remove(0).kill();
        lab.hosts[0]
            .ip(&["link set dev in down", "link set dev out down"])
            .unwrap();
        let second = wait_until("the address at the second host", READY, || {
            port_of_nat().as_deref() == Some("outside2")
        });
        assert!(second.is_ok(), "{second:?}\n{}", said(&keepers));
    });
}
