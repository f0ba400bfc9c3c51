//! Real programs through NAT hosts that are `asterism run`, on interfaces of network namespaces: requests through some hosts,
//! replies through others, a state channel that delays and loses. Needs root and the programs; says `SKIPPED` without.
#![expect(clippy::disallowed_types, reason = "tests of one process take turns")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asterism_lab::nat::{
    CLIENT, HostOptions, INSIDE, NatLab, NatLabConfig, SERVER, SERVER_OTHER, TRANSLATED,
};
use asterism_lab::{Offloads, Program, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
/// How long a server may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// An answer that overtakes its session waits so long: a host may stand still on a busy machine, and not every program asks twice.
const ABSENT_WAIT: &str = "wait 1s";
/// The chance that a datagram of the state channel is lost.
const LOSS: f64 = 0.01;

/// Laboratories share two cores: one after another.
static TURN: Mutex<()> = Mutex::new(());

/// Whether all programs are installed and laboratories may be built; if not, says so.
fn ready(programs: &[&str]) -> bool {
    let ready = asterism_lab::needs(programs);
    if let Err(why) = &ready {
        println!("SKIPPED real programs: {why}");
    }
    ready.is_ok()
}

/// A laboratory whose hosts run.
struct Cluster {
    lab: NatLab,
    hosts: Vec<Program>,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    fn start(config: &NatLabConfig, options: &HostOptions) -> Cluster {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = NatLab::new(config).unwrap();
        asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
        let configuration = lab.write_configuration(options).unwrap();
        let hosts = lab
            .start_hosts(Path::new(ASTERISM), &configuration)
            .unwrap();
        Cluster {
            lab,
            hosts,
            _turn: turn,
        }
    }

    /// Runs a program in the client; what it said.
    fn client(&self, program: &str, arguments: &str) -> String {
        let command = self
            .lab
            .client
            .program(program)
            .args(arguments.split_whitespace());
        match command.run() {
            Ok(finished) => finished.all_text(),
            Err(error) => panic!("{error}\n{}", self.hosts_say()),
        }
    }

    fn server(&self, program: &str, arguments: &str, says: &str) -> Program {
        let command = self
            .lab
            .server
            .program(program)
            .args(arguments.split_whitespace());
        let program = command.start().unwrap();
        if !says.is_empty() {
            program.wait_for_output(says, READY).unwrap();
        }
        program
    }

    fn hosts_say(&self) -> String {
        self.hosts
            .iter()
            .map(Program::stderr)
            .collect::<Vec<_>>()
            .join("\n---\n")
    }

    /// All hosts still run and end well when asked.
    fn end(self) {
        for host in self.hosts {
            assert!(host.runs(), "{}", host.stderr());
            host.terminate(READY).unwrap().successful().unwrap();
        }
    }
}

fn everything_works(cluster: &Cluster) {
    let lab = &cluster.lab;
    let said = cluster.client("ping", &format!("-c 5 -i 0.2 -W 3 {SERVER}"));
    assert!(said.contains("5 received"), "{said}");

    for how in ["", "-I"] {
        // All probes leave at once: what the state channel loses then may come later than answers wait for it.
        let mut said = String::new();
        let is_traced = (0..3).any(|_| {
            said = cluster.client("traceroute", &format!("-n {how} -q 1 -w 3 -m 4 {SERVER}"));
            said.contains(&format!(" 1  {INSIDE}  ")) && said.contains(&format!(" 2  {SERVER}  "))
        });
        assert!(is_traced, "{said}");
    }

    let _dns = cluster.server(
        "dnsmasq",
        &format!("-k -u root --conf-file=/dev/null --no-resolv --no-hosts --pid-file= --bind-interfaces --listen-address={SERVER} --address=/laboratory.test/192.0.2.77 --log-facility=-"),
        "started",
    );
    for _ in 0..20 {
        let said = cluster.client(
            "dig",
            &format!("+short +tries=1 +timeout=3 @{SERVER} laboratory.test"),
        );
        assert_eq!(said.trim(), "192.0.2.77");
    }

    // Names in a random order of bytes, as large as many downloads at once need.
    let document = asterism_lab::http::document(1 << 20);
    lab.lab.file("document", &document).unwrap();
    lab.lab.file("small", "small").unwrap();
    let _web = lab.serve(lab.lab.folder(), 0).unwrap();
    let folder = lab.lab.folder().display();
    cluster.client(
        "curl",
        &format!("-sS --fail --no-keepalive -Z --parallel-immediate --parallel-max 20 -H Connection:close http://{SERVER}/document?[1-40] -o {folder}/got-#1"),
    );
    for number in 1..=40 {
        let got = std::fs::read(lab.lab.folder().join(format!("got-{number}"))).unwrap();
        assert!(got == document, "download {number}: {} bytes", got.len());
    }
    let said = cluster.client(
        "wrk",
        &format!("-t 1 -c 20 -d 2s --timeout 15s http://{SERVER}/small"),
    );
    assert!(
        said.contains("Requests/sec")
            && !said.contains("Socket errors")
            && !said.contains("Non-2xx"),
        "{said}"
    );

    let _iperf = cluster.server(
        "iperf3",
        &format!("-s --forceflush -B {SERVER}"),
        "listening",
    );
    for arguments in ["-t 1", "-t 1 -R", "-t 1 -u -b 10M", "-t 1 -P 4"] {
        let mut said = String::new();
        // A busy machine may let nothing through within the second that is measured.
        let is_measured = (0..5).any(|_| {
            said = cluster.client("iperf3", &format!("-c {SERVER} -J {arguments}"));
            let document: serde_json::Value = serde_json::from_str(&said).unwrap();
            let end = &document["end"];
            let sum = if end["sum"].is_object() {
                &end["sum"]
            } else {
                &end["sum_received"]
            };
            sum["bits_per_second"].as_f64() > Some(1e6)
        });
        assert!(is_measured, "{arguments}: {said}");
    }
}

const PROGRAMS: &[&str] = &[
    "ping",
    "traceroute",
    "dnsmasq",
    "dig",
    "curl",
    "nginx",
    "wrk",
    "iperf3",
];

#[test]
fn requests_through_one_host_and_replies_through_another() {
    if !ready(PROGRAMS) {
        return;
    }
    let config = NatLabConfig::new(2, MS * 5).loss(LOSS);
    let cluster = Cluster::start(&config, &HostOptions::default().absent(ABSENT_WAIT));
    cluster.lab.requests_through(&[0]).unwrap();
    cluster.lab.replies_through(&[1]).unwrap();
    let before = (
        cluster.lab.counts("in").unwrap(),
        cluster.lab.counts("out").unwrap(),
    );
    everything_works(&cluster);
    let after = (
        cluster.lab.counts("in").unwrap(),
        cluster.lab.counts("out").unwrap(),
    );
    let taken = |place: usize| {
        (
            after.0[place].received - before.0[place].received,
            after.1[place].received - before.1[place].received,
        )
    };
    let ((requests, stray_replies), (stray_requests, replies)) = (taken(0), taken(1));
    assert!(
        requests > 10_000 && replies > 10_000,
        "{requests} {replies}"
    );
    assert!(
        stray_replies < 40 && stray_requests < 40,
        "{stray_replies} {stray_requests}"
    );
    cluster.end();
}

#[test]
fn any_of_three_hosts_each_way_and_a_slow_state_channel() {
    if !ready(PROGRAMS) {
        return;
    }
    let config = NatLabConfig::new(3, MS * 50).loss(LOSS);
    let cluster = Cluster::start(&config, &HostOptions::default().absent(ABSENT_WAIT));
    everything_works(&cluster);
    let counts = cluster.lab.counts("in").unwrap();
    assert!(counts.iter().all(|host| host.received > 500), "{counts:?}");
    cluster.end();
}

/// Every datagram of the state channel comes twice, half of them late, some not at all: documents come whole.
#[test]
fn a_state_channel_that_duplicates_and_reorders_everything() {
    if !ready(&["nginx", "curl"]) {
        return;
    }
    let mut config = NatLabConfig::new(2, MS * 5).loss(0.05);
    config.channel.conditions.duplication = 1.0;
    config.channel.conditions.reordering = 0.5;
    config.channel.conditions.reordering_delay = MS * 20;
    let options = HostOptions {
        absent: "wait 400ms".to_owned(),
        ..HostOptions::default()
    };
    let cluster = Cluster::start(&config, &options);
    cluster.lab.requests_through(&[0]).unwrap();
    cluster.lab.replies_through(&[1]).unwrap();
    let document = asterism_lab::http::document(300_000);
    cluster.lab.lab.file("document", &document).unwrap();
    let _web = cluster.lab.serve(cluster.lab.lab.folder(), 0).unwrap();
    let folder = cluster.lab.lab.folder().display();
    cluster.client(
        "curl",
        &format!("-sS --fail -Z --parallel-immediate --parallel-max 30 -H Connection:close http://{SERVER}/document?[1-60] -o {folder}/got-#1"),
    );
    for number in 1..=60 {
        let got = std::fs::read(cluster.lab.lab.folder().join(format!("got-{number}"))).unwrap();
        assert!(got == document, "download {number}: {} bytes", got.len());
    }
    let channel = cluster
        .lab
        .channel
        .as_ref()
        .unwrap()
        .report()
        .unwrap()
        .total();
    assert!(
        channel.duplicated > 50 && channel.reordered > 20 && channel.lost > 2,
        "{channel:?}"
    );
    cluster.end();
}

/// Connections until one shows what becomes of a reply that overtakes its session.
const CONNECTIONS_MAX: usize = 20;

/// Replies that overtake their session: dropped, each connection is a second late; waiting, it is late by the delay.
#[test]
fn what_absence_means_shows_in_the_time_to_connect() {
    if !ready(&["nginx", "curl"]) {
        return;
    }
    for delay in [5, 50] {
        for (absent, least, most) in [
            ("drop", 1_000.0, 1_900.0),
            ("wait 150ms", delay as f64, delay as f64 + 100.0),
        ] {
            let config = NatLabConfig::new(2, MS * delay);
            let cluster = Cluster::start(&config, &HostOptions::default().absent(absent));
            cluster.lab.lab.file("small", "small").unwrap();
            let _web = cluster.lab.serve(cluster.lab.lab.folder(), 0).unwrap();
            cluster.lab.requests_through(&[0]).unwrap();
            cluster.lab.replies_through(&[1]).unwrap();
            let connect = || {
                let said = cluster.client(
                    "curl",
                    &format!("-sS --fail -o /dev/null -w %{{time_connect}} http://{SERVER}/small"),
                );
                said.parse::<f64>().unwrap() * 1e3
            };
            // One shows it. On a busy machine a reply may be so late that it overtakes nothing, or its connection so late as if it was dropped.
            let mut times: Vec<f64> = (0..3).map(|_| connect()).collect();
            let is_shown = |times: &[f64]| times.iter().any(|one| (least..most).contains(one));
            while !is_shown(&times) && times.len() < CONNECTIONS_MAX {
                times.push(connect());
            }
            println!("{delay} ms, {absent}: connected after {times:.1?} ms");
            assert!(is_shown(&times), "{delay} ms, {absent}: {times:?}");
            if absent != "drop" {
                // No answer comes before its session.
                assert!(times.iter().all(|one| *one >= least), "{times:?}");
            }
            cluster.end();
        }
    }
}

/// The class of the NAT, as programs for that see it (RFC 5780, RFC 3489), with paths apart.
#[test]
fn programs_find_the_class_that_is_configured() {
    if !ready(&["turnserver", "turnutils_natdiscovery", "stun"]) {
        return;
    }
    for (filtering, discovered, class) in [
        (
            "endpoint-independent",
            "Endpoint Independent Filtering",
            "Independent Filter",
        ),
        (
            "address-and-port-dependent",
            "Address and Port Dependent Filtering",
            "Port Dependent Filter",
        ),
    ] {
        let options = HostOptions {
            filtering: filtering.to_owned(),
            ..HostOptions::default().absent(ABSENT_WAIT)
        };
        let cluster = Cluster::start(&NatLabConfig::new(2, MS * 5), &options);
        cluster.lab.requests_through(&[0]).unwrap();
        cluster.lab.replies_through(&[1]).unwrap();
        let folder = cluster.lab.lab.folder().display();
        let _turn = cluster.server(
            "turnserver",
            &format!("-n --no-cli --no-tls --no-dtls --stun-only -L {SERVER} -L {SERVER_OTHER} --log-file stdout --pidfile {folder}/turn.pid --db {folder}/turn.db"),
            "Total General servers",
        );
        // The server's addresses on the link are asked for by ARP first, which costs the packet that asks.
        for address in [SERVER, SERVER_OTHER] {
            let _ = cluster
                .lab
                .client
                .program("ping")
                .args(["-c3", "-i0.2", "-W1"])
                .arg(address.to_string())
                .finish();
        }
        let said = cluster.client(
            "turnutils_natdiscovery",
            &format!("-m -f -L {CLIENT} {SERVER}"),
        );
        assert!(
            said.contains("NAT with Endpoint Independent Mapping!"),
            "{said}"
        );
        assert!(
            said.contains(&format!("NAT with {discovered}!")),
            "{filtering}: {said}"
        );
        assert!(
            said.contains(&format!("UDP reflexive addr: {TRANSLATED}:")),
            "{said}"
        );
        // Its exit code is the class.
        let stun = cluster
            .lab
            .client
            .program("stun")
            .arg(SERVER.to_string())
            .finish()
            .unwrap()
            .all_text();
        assert!(
            stun.contains("Independent Mapping") && stun.contains(class),
            "{stun}"
        );
        // Filtering holds for inside hosts too: one that was not written to does not get through.
        let hairpins = filtering == "endpoint-independent";
        assert_eq!(stun.contains("will hairpin"), hairpins, "{stun}");
        cluster.end();
    }
}

/// A single host is killed while packets pass. The kernel keeps no socket, program or interface of it, and it can be started
/// again at once; the ping goes on.
#[test]
fn a_killed_host_leaves_nothing_in_the_kernel() {
    if !ready(&["ping"]) {
        return;
    }
    for port in ["af_packet", "af_xdp"] {
        // What a kernel leaves to the hardware, AF_XDP cannot finish.
        let config = NatLabConfig::new(1, Duration::ZERO).offloads(Offloads::Off);
        let options = HostOptions {
            port: port.to_owned(),
            ..HostOptions::default()
        };
        let mut cluster = Cluster::start(&config, &options);
        let configuration = cluster.lab.lab.folder().join("asterism.toml");
        // Programs and promiscuous interfaces, and packet sockets with their table's head.
        let of_kernel = |cluster: &Cluster| {
            let host = &cluster.lab.hosts[0];
            let said = |program, arguments: &[&str]| {
                host.program(program).args(arguments).run().unwrap().text()
            };
            let interfaces = said("ip", &["-details", "link", "show"]);
            let uses = ["prog/xdp", "promiscuity 1"].map(|sign| interfaces.matches(sign).count());
            let sockets = said("cat", &["/proc/net/packet"]).lines().count();
            (uses.iter().sum::<usize>(), sockets)
        };
        let running = of_kernel(&cluster);
        let ping = cluster.lab.client.program("ping");
        let ping = ping.args(["-i", "0.01", "-W", "1", &SERVER.to_string()]);
        let ping = ping.start().unwrap();
        ping.wait_for_output("icmp_seq=50 ", READY).unwrap();
        for host in cluster.hosts.drain(..) {
            host.kill();
        }
        assert!(running.0 > 0, "{port}: {running:?}");
        let gone = wait_until("nothing to be left", READY, || {
            of_kernel(&cluster) == (0, 1)
        });
        assert!(gone.is_ok(), "{port}: {:?}", of_kernel(&cluster));
        let again = cluster
            .lab
            .start_host(Path::new(ASTERISM), &configuration, 0);
        cluster.hosts.push(again.unwrap());
        assert_eq!(of_kernel(&cluster), running, "{port}");
        let answers = || ping.stdout().matches("icmp_seq=").count();
        let before = answers();
        wait_until("the ping to go on", READY, || answers() > before).unwrap();
        cluster.end();
    }
}

/// Interfaces that a host made go with it, however it ends.
#[test]
fn a_killed_host_takes_its_taps_along() {
    if !ready(&["ping"]) {
        return;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = NatLab::new(&NatLabConfig::new(1, Duration::ZERO)).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let options = HostOptions {
        port: "tap".to_owned(),
        ..HostOptions::default()
    };
    let text = lab
        .configuration(&options)
        .replace("interface = \"in\"", "interface = \"tap-in\"")
        .replace("interface = \"out\"", "interface = \"tap-out\"");
    let configuration = lab.lab.file("asterism.toml", text).unwrap();
    let taps = || {
        let interfaces = lab.hosts[0].ip(&["link show"]).unwrap();
        interfaces.matches(": tap-").count()
    };
    for _ in 0..2 {
        let host = lab.start_host(Path::new(ASTERISM), &configuration, 0);
        let host = host.unwrap();
        assert_eq!(taps(), 2);
        host.kill();
        wait_until("no interface", READY, || taps() == 0).unwrap();
    }
    drop(turn);
}

/// A port that is asked for by PCP (RFC 6887), for port 8080 of the client and TCP; the bytes are those of its figures 2 and 9.
fn ask_for_a_port(cluster: &Cluster, nonce: u8) -> Result<SocketAddr, u8> {
    let socket = cluster.lab.client.enter(|| UdpSocket::bind((CLIENT, 0)));
    let socket = socket.unwrap().unwrap();
    socket.set_read_timeout(Some(MS * 500)).unwrap();
    socket.connect((INSIDE, 5_351)).unwrap();
    let mut request = vec![2, 1, 0, 0, 0, 0, 0x0e, 0x10];
    request.extend(CLIENT.to_ipv6_mapped().octets());
    request.extend([nonce; 12]);
    request.extend([6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
    request.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    let mut answer = [0; 1_100];
    for _ in 0..20 {
        socket.send(&request).unwrap();
        let Ok(length) = socket.recv(&mut answer) else {
            continue;
        };
        assert_eq!((length, answer[..2].to_vec()), (60, vec![2, 0x81]));
        assert_eq!(answer[24..36], request[24..36]);
        let address: [u8; 4] = answer[56..60].try_into().unwrap();
        let port = u16::from_be_bytes([answer[42], answer[43]]);
        return match answer[3] {
            0 => Ok((address, port).into()),
            code => Err(code),
        };
    }
    panic!("no answer\n{}", cluster.hosts_say());
}

/// A host asks for a port at one NAT host, is reached by it through the other, and prolongs it there after the first was killed.
#[test]
fn a_port_that_was_asked_for_is_reached_and_outlives_the_host_that_gave_it() {
    if !ready(&[]) {
        return;
    }
    let options = HostOptions {
        filtering: "address-and-port-dependent".to_owned(),
        more: "[function.nat.port_control]\nlifetime = \"2m\"\n".to_owned(),
        ..HostOptions::default()
    };
    let mut cluster = Cluster::start(&NatLabConfig::new(2, MS * 5).loss(LOSS), &options);
    cluster.lab.requests_through(&[0]).unwrap();
    cluster.lab.replies_through(&[1]).unwrap();
    let listener = cluster
        .lab
        .client
        .enter(|| TcpListener::bind((CLIENT, 8_080)));
    let listener = listener.unwrap().unwrap();
    let visit = |cluster: &Cluster, outside: SocketAddr, said: &[u8]| {
        let entered = cluster
            .lab
            .server
            .enter(|| TcpStream::connect_timeout(&outside, READY));
        let mut visitor = entered
            .unwrap()
            .unwrap_or_else(|why| panic!("{why}\n{}", cluster.hosts_say()));
        visitor.set_read_timeout(Some(READY)).unwrap();
        let (mut host, from) = listener.accept().unwrap();
        assert!(!from.ip().is_loopback());
        visitor.write_all(said).unwrap();
        let mut heard = vec![0; said.len()];
        host.set_read_timeout(Some(READY)).unwrap();
        host.read_exact(&mut heard).unwrap();
        host.write_all(&heard).unwrap();
        visitor.read_exact(&mut heard).unwrap();
        assert_eq!(heard, said);
    };

    let outside = ask_for_a_port(&cluster, 7).unwrap();
    assert_eq!(outside.ip(), TRANSLATED);
    visit(&cluster, outside, b"by the other host");
    assert_eq!(ask_for_a_port(&cluster, 8), Err(2), "another one's");

    cluster.hosts.remove(0).kill();
    cluster.lab.requests_through(&[1]).unwrap();
    assert_eq!(ask_for_a_port(&cluster, 8), Err(2), "another one's");
    assert_eq!(ask_for_a_port(&cluster, 7), Ok(outside));
    visit(&cluster, outside, b"after the first died");
    cluster.end();
}
