//! The laboratory of a NAT cluster: a client, NAT hosts, a server, and the state channel between the hosts.
//!
//! ```text
//!                    ┌─ nat1 ── in [nat-1] out ── nat1 ─┐
//!   client 10.77.0.2 ┤          [   wire   ]            ├ server 198.51.100.2 (and .3)
//!                    └─ nat2 ── in [nat-2] out ── nat2 ─┘
//! ```
//!
//! The hosts are one box: the same addresses and Ethernet addresses on each, 10.77.0.1 inside, 198.51.100.1 outside, and
//! 203.0.113.1 for translated flows. Client and server are routers with a port to each host, and each chooses a host by its
//! own routes: so requests and replies may go through different hosts. The state channel is a [`Wire`] (192.168.77.0/24),
//! which delays and loses.

mod configuration;
mod directors;
mod kernel;
mod middle;
mod orchestrated;
mod orchestrator;
mod steering;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::LabError;
use crate::lab::{Cable, Lab};
use crate::node::{InterfaceCounts, Node, Offloads};
use crate::program::{Program, wait_until};
use crate::wire::{Wire, WireConfig};

pub use configuration::HostOptions;
pub use directors::director_address;
pub use middle::Middle;
pub use orchestrated::OrchestratedLab;
pub use orchestrator::{ORCHESTRATOR_PORT, orchestrator_address};
pub use steering::NatSteering;

/// NAT hosts of a laboratory at most.
pub const HOSTS_MAX: usize = 16;
/// The client.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The NAT's own inside address, the client's router.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The NAT's own outside address, the server's next hop to the client.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// What the client appears as.
pub const TRANSLATED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The prefix that the server routes to the NAT hosts.
pub const TRANSLATED_PREFIX: &str = "203.0.113.0/29";
/// The server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The server's other address, which NAT discovery needs.
pub const SERVER_OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 3);
/// Port of the state channel.
pub const CHANNEL_PORT: u16 = 7_400;

/// Ethernet addresses: the NAT's are the same on every host, the routers' the same on every port.
const NAT_INSIDE_MAC: &str = "02:00:00:00:01:01";
const CLIENT_MAC: &str = "02:00:00:00:01:02";
const NAT_OUTSIDE_MAC: &str = "02:00:00:00:02:01";
const SERVER_MAC: &str = "02:00:00:00:02:02";
/// Where packets that leave by the inside link go, and where from, as an Ethernet header has it.
pub const INSIDE_MACS: [u8; 12] = header_of(CLIENT_MAC, NAT_INSIDE_MAC);
/// The same of the outside link.
pub const OUTSIDE_MACS: [u8; 12] = header_of(SERVER_MAC, NAT_OUTSIDE_MAC);
/// How long a host may take from its start until it reads packets.
const READY_TIME_MAX: Duration = Duration::from_secs(15);

/// The two addresses, each six pairs of digits below ten.
const fn header_of(to: &str, from: &str) -> [u8; 12] {
    let texts = [to.as_bytes(), from.as_bytes()];
    let mut bytes = [0; 12];
    let mut at = 0;
    while at < bytes.len() {
        let pair = at % 6 * 3;
        let text = texts[at / 6];
        bytes[at] = (text[pair] - b'0') << 4 | (text[pair + 1] - b'0');
        at += 1;
    }
    bytes
}

/// What the laboratory is to be like.
#[derive(Clone, Debug)]
pub struct NatLabConfig {
    /// NAT hosts.
    pub hosts: usize,
    /// Cables between the hosts and the routers.
    pub cable: Cable,
    /// The state channel.
    pub channel: WireConfig,
    /// Conditions between the hosts and the server, by a wire for each host; none: cables.
    pub outside: Option<WireConfig>,
    /// What is between the hosts and the routers.
    pub middle: Middle,
    /// Orchestrators, each a node with an end on the state channel's segment.
    pub orchestrators: usize,
    /// The cores on which client and server receive, as machines of their own would, instead of on the core of anyone who sends.
    pub end_cores: Option<(usize, usize)>,
}

impl NatLabConfig {
    /// A laboratory of so many hosts, with a state channel of this delay one way.
    #[must_use]
    pub fn new(hosts: usize, delay: Duration) -> NatLabConfig {
        NatLabConfig {
            hosts,
            cable: Cable::default(),
            channel: WireConfig::default().delay(delay),
            outside: None,
            middle: Middle::Cables,
            orchestrators: 0,
            end_cores: None,
        }
    }

    /// The same with this between the hosts and the routers.
    #[must_use]
    pub fn middle(mut self, middle: Middle) -> NatLabConfig {
        self.middle = middle;
        self
    }

    /// The same with so many orchestrators.
    #[must_use]
    pub fn orchestrators(mut self, orchestrators: usize) -> NatLabConfig {
        self.orchestrators = orchestrators;
        self
    }

    /// The same with a client that receives on one core, and a server that receives on another.
    #[must_use]
    pub fn ends_on_cores(mut self, client: usize, server: usize) -> NatLabConfig {
        self.end_cores = Some((client, server));
        self
    }

    /// The same with these offloads on the packets' path.
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> NatLabConfig {
        self.cable.offloads = offloads;
        self
    }

    /// The same with this probability (0 to 1) of loss on the state channel.
    #[must_use]
    pub fn loss(mut self, loss: f64) -> NatLabConfig {
        self.channel.conditions.loss = loss;
        self
    }
}

/// A client, NAT hosts and a server. Nothing runs in it yet but the kernel.
#[derive(Debug)]
pub struct NatLab {
    /// Holds programs and files.
    pub lab: Lab,
    /// The inside.
    pub client: Node,
    /// The NAT hosts, named `nat-1` and so on: the names of the cluster's members.
    pub hosts: Vec<Node>,
    /// The outside.
    pub server: Node,
    /// The orchestrators' nodes.
    pub orchestrators: Vec<Node>,
    /// The state channel; end `n` is at `hosts[n]`, and the ends of the orchestrators and of the directors follow. None with a single host and no orchestrator.
    pub channel: Option<Wire>,
    /// What is between each host and the server, if it is not a cable.
    pub outside: Vec<Wire>,
    /// The node with the two bridges, `inside` and `outside`, if hosts are on segments: port 0 of each is the router's, the
    /// others are the hosts' in their order.
    pub segments: Option<Node>,
    /// Where an Open vSwitch is to run, if hosts are behind one: its ports are `up` to the client, `down` to the server, and `in1`,
    /// `out1` and so on to the hosts.
    pub switch: Option<Node>,
    /// The directors' nodes, if hosts are behind directors: interfaces `in` and `out`.
    pub directors: Vec<Node>,
}

impl NatLab {
    /// Builds it. Some 150 ms for two hosts.
    pub fn new(config: &NatLabConfig) -> Result<NatLab, LabError> {
        if !(1..=HOSTS_MAX).contains(&config.hosts) {
            return Err(LabError::BadName {
                name: format!("{} hosts", config.hosts),
                fault: "a laboratory has 1 to 16",
            });
        }
        let lab = Lab::new()?;
        let client = lab.node("client")?;
        let server = lab.node("server")?;
        let mut hosts = Vec::new();
        for number in 1..=config.hosts {
            hosts.push(lab.node(&format!("nat-{number}"))?);
        }
        let joined = middle::join(&lab, &client, &server, &hosts, config)?;
        // Where Ethernet or a switch decides who gets a frame, routes lead to the only port.
        let ports = match config.middle {
            Middle::Cables => config.hosts,
            Middle::Segments | Middle::Directors(_) | Middle::Switch => 1,
        };
        if let Some((client_core, server_core)) = config.end_cores {
            for (end, core) in [(&client, client_core), (&server, server_core)] {
                for port in 1..=ports {
                    end.receive_on_core(&format!("nat{port}"), core)?;
                }
            }
        }
        let orchestrators: Result<Vec<Node>, LabError> = (1..=config.orchestrators)
            .map(|number| lab.node(&format!("orchestrator-{number}")))
            .collect();
        let orchestrators = orchestrators?;
        let channel = channel(
            &lab,
            &hosts,
            &orchestrators,
            &joined.directors,
            &config.channel,
        )?;
        for (router, addresses) in [(&client, &[CLIENT][..]), (&server, &[SERVER, SERVER_OTHER])] {
            let lines: Vec<_> = addresses
                .iter()
                .map(|address| format!("address add {address}/32 dev lo"))
                .collect();
            router.ip(&lines)?;
            // Flows are spread by addresses and ports, and every answer is known by its port.
            router.sysctl("net/ipv4/fib_multipath_hash_policy", "1")?;
        }
        let built = NatLab {
            lab,
            client,
            hosts,
            server,
            orchestrators,
            channel,
            outside: joined.outside,
            segments: joined.segments,
            switch: joined.switch,
            directors: joined.directors,
        };
        let all: Vec<usize> = (0..ports).collect();
        built.requests_through(&all)?;
        built.replies_through(&all)?;
        Ok(built)
    }

    /// Sends what the client sends through these hosts, flow by flow.
    pub fn requests_through(&self, hosts: &[usize]) -> Result<(), LabError> {
        let way = self.way(INSIDE, hosts)?;
        self.client.ip(&[
            format!("route replace default src {CLIENT} {way}"),
            "route flush cache".to_owned(),
        ])?;
        Ok(())
    }

    /// Sends what the server answers through these hosts, flow by flow.
    pub fn replies_through(&self, hosts: &[usize]) -> Result<(), LabError> {
        let way = self.way(OUTSIDE, hosts)?;
        self.server.ip(&[
            format!("route replace {TRANSLATED_PREFIX} src {SERVER} {way}"),
            // Errors that the NAT's own outside address sends come from there.
            format!("route replace {OUTSIDE}/32 src {SERVER} {way}"),
            "route flush cache".to_owned(),
        ])?;
        Ok(())
    }

    /// Next hops of a route through these hosts.
    fn way(&self, address: Ipv4Addr, hosts: &[usize]) -> Result<String, LabError> {
        if hosts.is_empty() || hosts.iter().any(|host| *host >= self.hosts.len()) {
            return Err(LabError::BadName {
                name: format!("hosts {hosts:?}"),
                fault: "routes lead through one host at least, and only through those that there are",
            });
        }
        let hop = |host: &usize| format!("via {address} dev nat{} onlink", host + 1);
        Ok(match hosts {
            [host] => hop(host),
            hosts => hosts
                .iter()
                .map(|host| format!("nexthop {} ", hop(host)))
                .collect(),
        })
    }

    /// Starts `asterism run` on a host, with the configuration of [`NatLab::write_configuration`]. Returns when the host
    /// says that it is ready, as it says to systemd (sd_notify(3)).
    pub fn start_host(
        &self,
        asterism: &Path,
        configuration: &Path,
        place: usize,
    ) -> Result<Program, LabError> {
        let (program, notices) = self.begin_host(asterism, configuration, place)?;
        self.wait_for_host(&program, &notices, place)?;
        Ok(program)
    }

    /// Starts `asterism run` on all hosts at once, and waits for all.
    pub fn start_hosts(
        &self,
        asterism: &Path,
        configuration: &Path,
    ) -> Result<Vec<Program>, LabError> {
        self.start_first_hosts(asterism, configuration, self.hosts.len())
    }

    /// The same of the first so many hosts.
    pub fn start_first_hosts(
        &self,
        asterism: &Path,
        configuration: &Path,
        first: usize,
    ) -> Result<Vec<Program>, LabError> {
        let started: Result<Vec<_>, _> = (0..first.min(self.hosts.len()))
            .map(|place| self.begin_host(asterism, configuration, place))
            .collect();
        let mut programs = Vec::new();
        for (place, (program, notices)) in started?.into_iter().enumerate() {
            self.wait_for_host(&program, &notices, place)?;
            programs.push(program);
        }
        Ok(programs)
    }

    /// The same without waiting: the program, and the socket on which it says that it is ready.
    pub fn begin_host(
        &self,
        asterism: &Path,
        configuration: &Path,
        place: usize,
    ) -> Result<(Program, UnixDatagram), LabError> {
        let host = &self.hosts[place];
        let path = self.lab.folder().join(format!("{}.notify", host.name()));
        let bound = || {
            if path.exists() {
                // Of an earlier incarnation of this host.
                std::fs::remove_file(&path)?;
            }
            let socket = UnixDatagram::bind(&path)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let notices = bound()
            .map_err(|error| LabError::kernel(format!("making {}", path.display()), error))?;
        let program = host
            .program(asterism)
            .arg("run")
            .arg(configuration)
            .args(["--member", host.name()])
            .env("NOTIFY_SOCKET", &path)
            .start()?;
        Ok((program, notices))
    }

    fn wait_for_host(
        &self,
        program: &Program,
        notices: &UnixDatagram,
        place: usize,
    ) -> Result<(), LabError> {
        let what = format!("{} being ready", self.hosts[place].name());
        let mut ready = false;
        let waited = wait_until(&what, READY_TIME_MAX, || {
            let mut notice = [0; 4_096];
            while let Ok(length) = notices.recv(&mut notice) {
                ready |= notice[..length]
                    .split(|byte| *byte == b'\n')
                    .any(|line| line == b"READY=1");
            }
            ready || !program.runs()
        });
        if ready {
            return Ok(());
        }
        Err(LabError::Failed {
            what,
            said: format!(
                "{}; it had said: {}{}",
                waited
                    .err()
                    .map_or("it ended".to_owned(), |error| error.to_string()),
                program.stdout(),
                program.stderr()
            ),
        })
    }

    /// The control socket of a host.
    #[must_use]
    pub fn control_socket(&self, place: usize) -> PathBuf {
        self.lab.folder().join(format!("nat-{}.sock", place + 1))
    }

    /// What the interface `in` or `out` of each host has counted: which packets went through which.
    pub fn counts(&self, interface: &str) -> Result<Vec<InterfaceCounts>, LabError> {
        self.hosts
            .iter()
            .map(|host| host.interface_counts(interface))
            .collect()
    }

    /// Waits until the server accepts connections on this port.
    pub fn wait_for_server(&self, port: u16) -> Result<(), LabError> {
        self.server
            .wait_for_tcp(SocketAddr::from((SERVER, port)), Duration::from_secs(10))
    }

    /// Serves a folder by nginx on port 80 of the server: each connection for one document, at so many bytes a second
    /// at most (0: no limit). With a limit, they come in a few large pieces a second.
    pub fn serve(&self, folder: &Path, bytes_per_second: u64) -> Result<Program, LabError> {
        self.serve_pieces(folder, bytes_per_second, 2 << 20)
    }

    /// The same in pieces of so many bytes at most, evenly: for anyone who watches the time between them.
    pub fn serve_pieces(
        &self,
        folder: &Path,
        bytes_per_second: u64,
        piece_bytes: u64,
    ) -> Result<Program, LabError> {
        let work = self.lab.folder().display();
        let configuration = format!(
            "daemon off; master_process off; worker_processes 1; pid {work}/nginx.pid; error_log stderr error;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log off; keepalive_timeout 30; keepalive_requests 100000; limit_rate {bytes_per_second}; sendfile_max_chunk {piece_bytes};\n  \
             client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work}; uwsgi_temp_path {work}; scgi_temp_path {work};\n  \
             server {{ listen {SERVER}:80 backlog=4096; root {}; }}\n}}\n",
            folder.display()
        );
        let file = self.lab.file("nginx.conf", configuration)?;
        let program = self
            .server
            .program("nginx")
            .arg("-e")
            .arg("stderr")
            .arg("-c")
            .arg(&file)
            .start()?;
        match self.wait_for_server(80) {
            Ok(()) => Ok(program),
            Err(error) => Err(LabError::Failed {
                what: "nginx".to_owned(),
                said: format!("{error}; {}", program.stderr()),
            }),
        }
    }
}

/// Joins hosts, orchestrators and directors on a segment; `None` if there is only one of them.
fn channel(
    lab: &Lab,
    hosts: &[Node],
    orchestrators: &[Node],
    directors: &[Node],
    config: &WireConfig,
) -> Result<Option<Wire>, LabError> {
    let nodes = hosts.iter().chain(orchestrators).chain(directors);
    let ends: Vec<_> = nodes.map(|node| (node, "channel")).collect();
    if ends.len() < 2 {
        return Ok(None);
    }
    let wire = lab.wire(&ends, config)?;
    let addresses = (0..hosts.len()).map(channel_address);
    let addresses = addresses.chain((0..orchestrators.len()).map(orchestrator_address));
    let addresses = addresses.chain((0..directors.len()).map(director_address));
    for ((node, _), address) in ends.iter().zip(addresses) {
        node.ip(&[
            format!("address add {address}/24 dev channel"),
            "route add 224.0.0.0/4 dev channel".to_owned(),
        ])?;
    }
    Ok(Some(wire))
}

/// The address of a host on the state channel.
#[must_use]
pub fn channel_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 77, u8::try_from(place + 1).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_addresses_that_configurations_have() {
        assert_eq!(INSIDE_MACS, [2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 1]);
        assert_eq!(OUTSIDE_MACS, [2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 1]);
    }
}
