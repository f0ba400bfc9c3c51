//! Real programs through balancer hosts that are `asterism run`: three nginx behind one address, requests through one host and
//! answers through another; a backend drains, one is killed, a host is killed. `direct.rs` has backends that answer by themselves.
//! Needs root and the programs; says `SKIPPED` without.
//!
//! The laboratory is the NAT's, the other way round: its server's node is the client, its client's node holds the backends,
//! each an nginx at an address of its own.

mod direct;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_lab::http::document;
use asterism_lab::nat::{CHANNEL_PORT, channel_address};
use asterism_lab::nat::{CLIENT, INSIDE, NatLab, NatLabConfig, OUTSIDE, SERVER, TRANSLATED};
use asterism_lab::{Cable, Node, Program, wait_until};
use serde_json::Value;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
const BACKENDS: usize = 3;
const DOWNLOADS: usize = 12;
const DOCUMENT_BYTES: usize = 4_000_000;
/// Eight seconds for a document.
const BYTES_PER_SECOND: usize = 500_000;

/// Whether all programs are installed and laboratories may be built; if not, says so.
fn ready(programs: &[&str]) -> bool {
    let ready = asterism_lab::needs(programs);
    if let Err(why) = &ready {
        println!("SKIPPED balancer with real programs: {why}");
    }
    ready.is_ok()
}

struct Balanced {
    lab: NatLab,
    hosts: Vec<Option<Program>>,
    backends: Vec<Option<Program>>,
    configuration: PathBuf,
}

fn backend_address(number: usize) -> String {
    format!("10.77.0.{}", 11 + number)
}

/// How the service is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Translated, and hosts check by themselves who lives.
    Checked,
    /// Translated, and two flows that fail make a backend dead.
    Reported,
    /// Backends have its address, and answer clients directly.
    Direct,
}

fn configuration(lab: &NatLab, kind: Kind, drains: Option<usize>) -> String {
    let names: Vec<_> = lab.hosts.iter().map(|host| host.name()).collect();
    let mut text = format!(
        "[cluster]\nname = \"laboratory\"\nkey = \"{}\"\nmembers = {names:?}\n",
        lab.key_file().display()
    );
    for (place, name) in names.iter().enumerate() {
        let (socket, address) = (lab.control_socket(place), channel_address(place));
        write!(
            text,
            "[on.{name}.host]\ncontrol = \"{}\"\n[cluster.member.{name}]\naddress = \"{address}:{CHANNEL_PORT}\"\n",
            socket.display()
        )
        .unwrap();
    }
    let backends: Vec<String> = (0..BACKENDS)
        .map(|number| {
            let (address, drain) = (backend_address(number), drains == Some(number));
            let port = match kind {
                Kind::Checked | Kind::Reported => "port = 8080, ",
                Kind::Direct => "",
            };
            format!("{{ address = \"{address}\", {port}drain = {drain} }}")
        })
        .collect();
    let how = match kind {
        Kind::Checked => "check = \"http\"\ncheck_path = \"/who\"",
        Kind::Reported => "passive = 2",
        Kind::Direct => "mode = \"direct\"",
    };
    write!(
        text,
        r#"
[host]
join_wait = "2s"
[port.inside]
kind = "af_packet"
interface = "in"
[port.outside]
kind = "af_packet"
interface = "out"
[function.balancer.services.web]
address = "{TRANSLATED}:80"
{how}
backends = [{}]
[function.balancer.checks]
interval = "200ms"
timeout = "200ms"
fall = 8
[function.balancer.clients_link]
address = "{OUTSIDE}/24"
mac = "02:00:00:00:02:01"
next_hop = "{SERVER}"
[function.balancer.backends_link]
address = "{INSIDE}/24"
mac = "02:00:00:00:01:01"
next_hop = "{CLIENT}"
"#,
        backends.join(", ")
    )
    .unwrap();
    text
}

impl Balanced {
    /// A translated service, whose backends are all in the client's node.
    fn start(kind: Kind) -> Balanced {
        let lab = NatLab::new(&NatLabConfig::new(2, MS * 2)).unwrap();
        let node = &lab.client;
        let addresses = (0..BACKENDS)
            .map(|number| format!("address add {}/32 dev lo", backend_address(number)));
        node.ip(&addresses.collect::<Vec<_>>()).unwrap();
        for (place, host) in lab.hosts.iter().enumerate() {
            // What the hosts' own operating systems check by.
            let own = format!("10.77.0.{}", 201 + place);
            host.ip(&[format!("address add {own}/24 dev in")]).unwrap();
            node.ip(&[format!("route add {own}/32 dev nat{}", place + 1)])
                .unwrap();
        }
        lab.lab.file("document", document(DOCUMENT_BYTES)).unwrap();
        let backends = (0..BACKENDS).map(|number| Some(translated_nginx(&lab, number)));
        let backends = backends.collect();
        Balanced::with(lab, backends, kind)
    }

    fn with(lab: NatLab, backends: Vec<Option<Program>>, kind: Kind) -> Balanced {
        asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
        let file = lab
            .lab
            .file("asterism.toml", configuration(&lab, kind, None))
            .unwrap();
        let hosts = lab.start_hosts(Path::new(ASTERISM), &file).unwrap();
        Balanced {
            lab,
            hosts: hosts.into_iter().map(Some).collect(),
            backends,
            configuration: file,
        }
    }

    /// The client's requests go through one host, what the backends answer through another.
    fn ways(&self, requests: usize, answers: usize) {
        // In the NAT's laboratory, what the server sends are replies.
        self.lab.replies_through(&[requests]).unwrap();
        self.lab.requests_through(&[answers]).unwrap();
    }

    /// Which backend answers a new connection.
    fn who(&self) -> Option<usize> {
        let curl = self.lab.server.program("curl").args([
            "-sS",
            "--max-time",
            "15",
            &format!("http://{TRANSLATED}/who"),
        ]);
        let said = curl.finish().unwrap();
        said.text().trim().parse().ok()
    }

    /// Of forty new connections each backend gets some.
    fn every_backend_answers(&self) {
        let mut seen = [0; BACKENDS];
        for _ in 0..40 {
            let who = self.who();
            seen[who.unwrap_or_else(|| panic!("no answer\n{}", self.hosts_say()))] += 1;
        }
        assert!(seen.iter().all(|count| *count > 2), "{seen:?}");
    }

    fn hosts_say(&self) -> String {
        let said = self.hosts.iter().flatten().map(Program::stderr);
        said.collect::<Vec<_>>().join("\n---\n")
    }

    fn download(&self, number: usize) -> Program {
        let folder = self.lab.lab.folder().display();
        let arguments = [
            "-sS".to_owned(),
            "--fail".to_owned(),
            "--max-time".to_owned(),
            "40".to_owned(),
            "-D".to_owned(),
            format!("{folder}/headers-{number}"),
            "-o".to_owned(),
            format!("{folder}/got-{number}"),
            format!("http://{TRANSLATED}/document"),
        ];
        self.lab
            .server
            .program("curl")
            .args(arguments)
            .start()
            .unwrap()
    }

    /// Which backend a download has, once its answer has begun.
    fn backend_of(&self, number: usize) -> Option<usize> {
        let file = self.lab.lab.folder().join(format!("headers-{number}"));
        let headers = std::fs::read_to_string(file).ok()?;
        let line = headers
            .lines()
            .find_map(|line| line.strip_prefix("X-Backend: "))?;
        line.trim().parse().ok()
    }

    /// What a host that lives knows of the service's backends, in their order.
    fn backends(&self, place: usize) -> Vec<Value> {
        let reported = std::process::Command::new(ASTERISM)
            .args(["backends", "--format", "json", "--socket"])
            .arg(self.lab.control_socket(place))
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&reported.stdout).unwrap();
        let backends = document["services"][0]["backends"].as_array();
        backends.unwrap().clone()
    }

    /// Whether a host knows the station of an address, which answered.
    fn knows_station(&self, place: usize, address: &str) -> bool {
        let shown = std::process::Command::new(ASTERISM)
            .args(["state", "get", address, "--object", "neighbours"])
            .args(["--format", "json", "--socket"])
            .arg(self.lab.control_socket(place))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&shown.stdout);
        text.contains(address) && !text.contains("00:00:00:00:00:00")
    }

    fn reload(&self, drains: Option<usize>) {
        std::fs::write(
            &self.configuration,
            configuration(&self.lab, Kind::Checked, drains),
        )
        .unwrap();
        for (place, host) in self.hosts.iter().enumerate() {
            if host.is_none() {
                continue;
            }
            let socket = self.lab.control_socket(place);
            let reported = std::process::Command::new(ASTERISM)
                .args(["reload", "--socket"])
                .arg(socket)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&reported.stderr).into_owned();
            assert!(reported.status.success(), "{said}");
        }
    }
}

fn translated_nginx(lab: &NatLab, number: usize) -> Program {
    let listens = format!("{}:8080", backend_address(number));
    nginx(lab, &lab.client, &listens, number)
}

/// A backend in a node, once it listens.
fn nginx(lab: &NatLab, node: &Node, listens: &str, number: usize) -> Program {
    let folder = lab.lab.folder().display();
    let work = format!("{folder}/nginx-{number}");
    std::fs::create_dir_all(&work).unwrap();
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {work}/pid; error_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; limit_rate {BYTES_PER_SECOND}; sendfile_max_chunk 16k;\n\
         client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work}; uwsgi_temp_path {work}; scgi_temp_path {work};\n\
         server {{ listen {listens} backlog=1024; root {folder}; add_header X-Backend {number};\n\
         location = /who {{ return 200 \"{number}\\n\"; }} }} }}\n"
    );
    let file = lab.lab.file(&format!("nginx-{number}.conf"), text).unwrap();
    let program = node
        .program("nginx")
        .args(["-e", "stderr", "-c"])
        .arg(&file)
        .start()
        .unwrap();
    node.wait_for_tcp(listens.parse().unwrap(), PATIENCE)
        .unwrap();
    program
}

#[test]
fn downloads_outlive_a_drain_the_death_of_another_backend_and_of_a_host() {
    if !ready(&["ip", "nginx", "curl", "wrk"]) {
        return;
    }
    let mut cluster = Balanced::start(Kind::Checked);
    cluster.ways(0, 1);
    cluster.every_backend_answers();
    let url = format!("http://{TRANSLATED}/who");
    let arguments = ["-t", "1", "-c", "20", "-d", "1s", "--timeout", "15s", &url];
    // A busy machine may need more than a second for so many packets.
    wait_until("a thousand packets each way", PATIENCE, || {
        let said = cluster.lab.server.program("wrk").args(arguments).run();
        let said = said.unwrap().all_text();
        assert!(
            said.contains("Requests/sec") && !said.contains("Socket errors"),
            "{said}"
        );
        let counts = |port: &str| cluster.lab.counts(port).unwrap();
        counts("out")[0].received > 1_000 && counts("in")[1].received > 1_000
    })
    .unwrap();
    let outside = cluster.lab.counts("out").unwrap();
    assert!(outside[1].received < 100, "{outside:?}");

    let downloads: Vec<Program> = (0..DOWNLOADS)
        .map(|number| cluster.download(number))
        .collect();
    wait_until("all downloads to begin", PATIENCE, || {
        (0..DOWNLOADS).all(|number| cluster.backend_of(number).is_some())
    })
    .unwrap();
    let had: Vec<usize> = (0..DOWNLOADS)
        .map(|number| cluster.backend_of(number).unwrap())
        .collect();
    println!("downloads by backend: {had:?}");
    let shared = |number: usize| had.iter().filter(|one| **one == number).count() as u64;
    for place in 0..2 {
        wait_until(
            "a host to know the flows of the downloads",
            PATIENCE,
            || {
                let reported = cluster.backends(place);
                let mut all = reported.iter().enumerate();
                all.all(|(number, backend)| backend["flows"].as_u64() >= Some(shared(number)))
            },
        )
        .unwrap();
    }

    // The last one drains: it gets nobody new.
    cluster.reload(Some(2));
    for _ in 0..20 {
        let who = cluster.who().expect("an answer");
        assert_ne!(who, 2, "it drains\n{}", cluster.hosts_say());
    }
    // Another is killed, and noticed.
    cluster.backends[1].take().unwrap().kill();
    wait_until("the hosts to notice", PATIENCE, || {
        cluster
            .hosts
            .iter()
            .flatten()
            .all(|host| host.stderr().contains("backend-down"))
    })
    .unwrap();
    // Each host tells who lives, once it has the other one's vote.
    for place in 0..2 {
        wait_until("both votes", PATIENCE, || {
            let reported = cluster.backends(place);
            let states: Vec<_> = reported.iter().map(|one| one["state"].as_str()).collect();
            let mut drains = reported.iter().map(|one| &one["drains"]).enumerate();
            states == [Some("alive"), Some("dead"), Some("alive")]
                && reported[1]["votes_dead"] == 2
                && drains.all(|(number, drains)| *drains == (number == 2))
        })
        .unwrap();
    }
    for _ in 0..20 {
        assert_eq!(cluster.who(), Some(0), "{}", cluster.hosts_say());
    }
    // A host dies; the client's router sends by the other.
    cluster.hosts[0].take().unwrap().kill();
    cluster.ways(1, 1);
    for _ in 0..10 {
        assert_eq!(cluster.who(), Some(0), "{}", cluster.hosts_say());
    }

    let right = document(DOCUMENT_BYTES);
    for (number, download) in downloads.into_iter().enumerate() {
        let ended = download.wait(PATIENCE * 3).unwrap().successful();
        if had[number] == 1 {
            assert!(ended.is_err(), "its backend was killed");
            continue;
        }
        let got = std::fs::read(cluster.lab.lab.folder().join(format!("got-{number}")));
        assert!(
            ended.is_ok() && got.unwrap() == right,
            "download {number} of backend {}: {ended:?}\n{}",
            had[number],
            cluster.hosts_say()
        );
    }
    // The killed one returns, the other drains no more.
    cluster.backends[1] = Some(translated_nginx(&cluster.lab, 1));
    cluster.reload(None);
    let mut back = [false; BACKENDS];
    wait_until("all backends to be chosen again", PATIENCE, || {
        if let Some(who) = cluster.who() {
            back[who] = true;
        }
        back == [true; BACKENDS]
    })
    .unwrap();
    for host in cluster.hosts.into_iter().flatten() {
        assert!(host.runs(), "{}", host.stderr());
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}

#[test]
fn flows_find_out_that_a_backend_is_dead() {
    if !ready(&["ip", "nginx", "curl"]) {
        return;
    }
    let mut cluster = Balanced::start(Kind::Reported);
    cluster.ways(0, 1);
    cluster.every_backend_answers();
    // Anyone who asks it now is refused by its kernel. Two places of eight must have noted that: a few flows share one.
    cluster.backends[1].take().unwrap().kill();
    let mut answers: Vec<Option<usize>> = (0..80).map(|_| cluster.who()).collect();
    // A host that a busy machine does not run learns of it later.
    while answers.len() < 400 && answers.iter().rev().take(20).any(Option::is_none) {
        answers.push(cluster.who());
    }
    let refused = answers.iter().filter(|who| who.is_none()).count();
    println!("refused before two instances agreed that it is dead: {refused}");
    assert!((2..80).contains(&refused), "{answers:?}");
    let mut last = answers.iter().rev().take(20);
    assert!(last.all(Option::is_some), "{answers:?}");
    for host in cluster.hosts.into_iter().flatten() {
        assert!(host.runs(), "{}", host.stderr());
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}
