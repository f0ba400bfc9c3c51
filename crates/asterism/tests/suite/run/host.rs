//! Hosts as processes of their own, on loopback, with the test at the other end of their ports. Nothing here needs root: ports
//! are shared-memory links.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use asterism::command_line;
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{LinkState, Port, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole};
use asterism_output::End;
use asterism_packet::{Flow4, Packet, Protocol, build};
use asterism_placement::Time;
use serde_json::Value;

/// How long anything may take that should take a moment: other tests run beside this one.
const PATIENCE: Duration = Duration::from_secs(30);

/// The address that inside hosts appear as.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Their peer.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// Asks again until there is an answer.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = MonotonicClock::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            clock.now() < Time::ZERO + PATIENCE,
            "waited for {what} in vain"
        );
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The tables of hosts' ports. Hosts that are begun one after the other have two seconds to hear of each other: one that hears nobody for
/// `join_wait` goes on alone, and a busy machine takes longer than 0.4 s to run two programs. Those that hear each other do not wait so long.
const PORTS: &str = r#"
[host]
join_wait = "2s"
[port]
inside = { kind = "shared_memory", role = "listen" }
outside = { kind = "shared_memory", role = "listen" }
"#;

/// The tables of a NAT.
pub(crate) const NAT: &str = r#"
[function.nat]
outside = ["203.0.113.1"]
[function.nat.inside_link]
promiscuous = true
next_hop = "10.0.0.2"
next_hop_mac = "02:00:00:00:01:02"
address = "10.0.0.1/24"
[function.nat.outside_link]
promiscuous = true
address = "198.51.100.1/24"
next_hop = "198.51.100.2"
next_hop_mac = "02:00:00:00:02:02"
"#;

/// The tables of a firewall, whose rules are in `some.rules`.
pub(crate) const FIREWALL: &str = "[function.firewall]\nrules = \"some.rules\"\n";

/// An address of loopback that nothing else binds: a port chosen there stays free until its host takes it. On 127.0.0.1 the kernel gave
/// such ports to sockets of other tests.
pub(crate) fn own_loopback_address() -> Ipv4Addr {
    static CLUSTERS: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = CLUSTERS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let [.., process] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | process >> 2, high, low)
}

/// Such an address with a port, for a program that is started later and listens there.
pub(crate) fn own_loopback_socket() -> SocketAddr {
    let socket = TcpListener::bind((own_loopback_address(), 0)).unwrap();
    socket.local_addr().unwrap()
}

/// A cluster's files.
pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    names: Vec<String>,
    parted: bool,
}

impl Cluster {
    /// A cluster of NAT hosts named `a`, `b`, ... on loopback; `more` is put at the end of its configuration.
    pub(crate) fn new(hosts: usize, more: &str) -> Cluster {
        Cluster::of(hosts, "", &format!("{NAT}{more}"))
    }

    /// The same of other functions: `top` is written in front of all tables, `tables` behind those of the hosts.
    pub(crate) fn of(hosts: usize, top: &str, tables: &str) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = ('a'..).take(hosts).map(String::from).collect();
        // Held all at once, so that they differ.
        let address = own_loopback_address();
        let sockets: Vec<_> = names
            .iter()
            .map(|_| UdpSocket::bind((address, 0)).unwrap())
            .collect();
        let mut text = format!("{top}\n[cluster]\nkey = \"cluster.key\"\nmembers = {names:?}\n");
        for (name, socket) in names.iter().zip(&sockets) {
            text.push_str(&format!(
                "[cluster.member.{name}]\naddress = \"{}\"\n[on.{name}]\nhost = {{ control = \"{name}.sock\", state = \"{name}.state\" }}\nport.inside.path = \"{name}.inside\"\nport.outside.path = \"{name}.outside\"\n",
                socket.local_addr().unwrap()
            ));
        }
        text.push_str(PORTS);
        text.push_str(tables);
        std::fs::write(folder.path().join("asterism.toml"), text).unwrap();
        let key = folder.path().join("cluster.key");
        asterism_config::key_file::write_new(&key, 1).unwrap();
        Cluster {
            folder,
            names,
            parted: false,
        }
    }

    /// Two hosts that take packets, with these rules in `some.rules`, which `tables` name for a firewall; see [`Cluster::of`].
    pub(crate) fn of_rules(top: &str, tables: &str, rules: &str) -> (Cluster, [Host; 2]) {
        let cluster = Cluster::of(2, top, tables);
        std::fs::write(cluster.path("some.rules"), rules).unwrap();
        // Each waits for the other.
        let mut hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
        for host in &mut hosts {
            host.wait_for("READY=1");
        }
        (cluster, hosts)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Changes the configuration.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let path = self.path("asterism.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Gives every host a configuration and a key file of its own, as hosts on machines of their own have: `a.toml`,
    /// `a.key` and so on.
    pub(crate) fn part(&mut self) {
        let text = std::fs::read_to_string(self.path("asterism.toml")).unwrap();
        for name in &self.names {
            let text = text.replace("cluster.key", &format!("{name}.key"));
            std::fs::write(self.path(&format!("{name}.toml")), text).unwrap();
            self.copy_key("cluster.key", name);
        }
        self.parted = true;
    }

    /// Copies a key file to a host, which has a configuration of its own.
    pub(crate) fn copy_key(&self, from: &str, host: &str) {
        std::fs::copy(self.path(from), self.path(&format!("{host}.key"))).unwrap();
    }

    /// The configuration of a host.
    pub(crate) fn config(&self, host: &str) -> PathBuf {
        if self.parted {
            self.path(&format!("{host}.toml"))
        } else {
            self.path("asterism.toml")
        }
    }

    pub(crate) fn begin(&self, place: usize, arguments: &[&str]) -> Host {
        let name = &self.names[place];
        let notify = self.path(&format!("{name}.notify"));
        let _ = std::fs::remove_file(&notify);
        let notices = UnixDatagram::bind(&notify).unwrap();
        notices.set_nonblocking(true).unwrap();
        let log = self.path(&format!("{name}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_asterism"))
            .arg("run")
            .arg(self.config(name))
            .args(["--member", name])
            .args(arguments)
            .env("NOTIFY_SOCKET", &notify)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Host {
            name: name.clone(),
            child,
            socket: self.path(&format!("{name}.sock")),
            log,
            notices,
            said: Vec::new(),
        }
    }

    /// Starts a host and waits until it takes packets.
    pub(crate) fn start(&self, place: usize) -> Host {
        let mut host = self.begin(place, &[]);
        host.wait_for("READY=1");
        host
    }

    /// The other end of a host's port.
    pub(crate) fn end(&self, host: &str, port: &str) -> PortEnd {
        PortEnd::open(&self.path(&format!("{host}.{port}")))
    }
}

/// A host's process. It is killed when this is dropped.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
    notices: UnixDatagram,
    said: Vec<String>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it tells the service manager this line.
    pub(crate) fn wait_for(&mut self, line: &str) {
        wait(&format!("{line} of {}", self.name), || {
            let mut buffer = [0; 1_024];
            while let Ok(length) = self.notices.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                self.said.extend(text.lines().map(str::to_owned));
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(
                    line == "STOPPING=1",
                    "{} ended, {status}: {}",
                    self.name,
                    self.log()
                );
            }
            self.said.iter().any(|said| said == line).then_some(())
        });
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        wait("the end", || self.child.try_wait().unwrap()).code()
    }

    /// Stops it as the service manager does.
    pub(crate) fn stop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert_eq!(self.ended(), Some(0), "{}", self.log());
    }

    /// Asks it by the command line; the document. Instances are in one as soon as they have shown what they counted, which they may not
    /// have when their host has just begun.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        wait("what the instances counted", || {
            let (end, stdout) = self.command(&[arguments, &["--format", "json"]].concat());
            assert!(matches!(end, End::Done | End::DoesNotHold), "{stdout}");
            let document: Value = serde_json::from_str(&stdout).unwrap();
            crate::validator::validate(&document);
            (document["instances"] != serde_json::json!([])).then_some(document)
        })
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> (End, String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let socket = self.socket.to_str().unwrap();
        let at = ["--socket", socket];
        let all = ["asterism"].iter().chain(arguments).chain(&at);
        let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
        let mut text = String::from_utf8(stdout).unwrap();
        text.push_str(&String::from_utf8(stderr).unwrap());
        (end, text)
    }

    /// A command ends as expected, and what it says has these parts.
    #[track_caller]
    pub(crate) fn says(&self, arguments: &[&str], expected: End, parts: &[&str]) {
        let (end, text) = self.command(arguments);
        assert_eq!(end, expected, "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }

    /// Entries that can be found in an object.
    pub(crate) fn live(&self, object: &str) -> u64 {
        let status = self.ask(&["status"]);
        let objects = status["instances"][0]["objects"].as_array().unwrap();
        let object = objects
            .iter()
            .find(|entry| entry["name"] == object)
            .unwrap();
        object["live"].as_u64().unwrap()
    }
}

/// The test's end of a port.
pub(crate) struct PortEnd {
    port: SharedMemoryPort,
    pool: FramePool,
    clock: MonotonicClock,
}

impl PortEnd {
    fn open(path: &Path) -> PortEnd {
        let config = SharedMemoryConfig::new("test", path, SharedMemoryRole::Connect);
        let mut end = PortEnd {
            port: SharedMemoryPort::open(&config).unwrap(),
            pool: FramePool::new(512).unwrap(),
            clock: MonotonicClock::new(),
        };
        wait("the link", || {
            end.port.advance(end.clock.now());
            (end.port.link() == LinkState::Up).then_some(())
        });
        end
    }

    pub(crate) fn send(&mut self, flow: &Flow4) {
        let mut bytes = [0; 256];
        let length = build::flow4(flow, b"hello", &mut bytes).unwrap();
        self.send_frame(&bytes[..length]);
    }

    pub(crate) fn send_frame(&mut self, bytes: &[u8]) {
        let mut burst = Burst::default();
        burst.push(self.pool.allocate_copy(bytes).unwrap()).unwrap();
        self.port.advance(self.clock.now());
        assert_eq!(self.port.send(&mut self.pool, &mut burst), 1);
        let _ = self.port.flush(&mut self.pool);
    }

    /// The frames that came.
    pub(crate) fn take_frames(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::default();
        self.port.advance(self.clock.now());
        self.port.receive(&mut self.pool, &mut burst);
        let frames = burst.iter();
        let frames = frames
            .map(|frame| self.pool.bytes(frame).to_vec())
            .collect();
        self.pool.release_all(&mut burst);
        frames
    }

    /// The flows of the packets that came.
    pub(crate) fn take(&mut self) -> Vec<Flow4> {
        let frames = self.take_frames().into_iter();
        frames
            .filter_map(|mut bytes| Packet::parse(&mut bytes).ok()?.flow4())
            .collect()
    }

    pub(crate) fn next(&mut self) -> Flow4 {
        wait("a packet", || self.take().pop())
    }
}

/// A flow of an inside host to the server.
pub(crate) fn outbound(port: u16) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::new(10, 0, 0, 2),
        destination: SERVER,
        source_port: port,
        destination_port: 7,
        protocol: Protocol::UDP.0,
    }
}

/// The answer to a flow as it left.
pub(crate) fn answer(left: &Flow4) -> Flow4 {
    Flow4 {
        source: left.destination,
        destination: left.source,
        source_port: left.destination_port,
        destination_port: left.source_port,
        ..*left
    }
}
