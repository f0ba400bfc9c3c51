//! Firewalls in network namespaces whose flows are in the real Redis: a primary, and replicas of it.
//!
//! ```text
//!          ┌─ firewall 1 ─┐
//!   client ┤      ⋮       ├ server
//!          └─ firewall n ─┘
//!                 │
//!               store
//! ```
//!
//! Each firewall is `asterism run`, a bridge between the client's and the server's port to it. Which one a packet goes through, the
//! routes of client and server say.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use asterism_lab::nat::{
    CHANNEL_PORT, CLIENT, INSIDE, INSIDE_MACS, NatLab, NatLabConfig, OUTSIDE, OUTSIDE_MACS, SERVER,
    channel_address,
};
use asterism_lab::{Cable, LabError, Node, Program, wait_until};
use serde_json::Value;

use crate::contract::Failure;
use crate::measures::lab::{absent, product, unsound, write_key};

/// The store's address on the network that it has with the firewalls; each of its servers has a port.
const STORE: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 254);
const FIRST_PORT: u16 = 6_379;
/// Packets that wait in the kernel for a firewall: the machine may have no time for it for long.
const RING: u32 = 16_384;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the flows are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flows {
    /// In the store.
    Remote,
    /// In each firewall's own memory.
    Local,
}

/// What is to be built.
pub(super) struct Setting {
    /// Firewalls, of which the first so many are started.
    pub(super) firewalls: usize,
    pub(super) started: usize,
    /// Servers of the store: one, and replicas of it.
    pub(super) servers: usize,
    /// Further lines of `[store]`.
    pub(super) store: &'static str,
    pub(super) flows: Flows,
}

/// See the module. The store's servers, and the firewalls that run, are at their places.
pub(super) struct Firewalls {
    pub(super) hosts: Vec<Option<Program>>,
    servers: Vec<Option<Program>>,
    pub(super) lab: NatLab,
    store: Node,
    product: PathBuf,
    /// Of each firewall.
    configurations: Vec<PathBuf>,
    flows: Flows,
}

fn address_of(macs: &[u8]) -> String {
    let octets: Vec<String> = macs[..6].iter().map(|one| format!("{one:02x}")).collect();
    octets.join(":")
}

impl Firewalls {
    /// Starts it; all packets go through the first firewall.
    pub(super) fn start(setting: &Setting) -> Result<Self, Failure> {
        let product = product()?;
        let config = NatLabConfig::new(setting.firewalls, Duration::ZERO);
        let lab = NatLab::new(&config).map_err(absent)?;
        let store = join_store(&lab).map_err(absent)?;
        make_bridged(&lab).map_err(absent)?;
        write_key(&lab, &product)?;
        let rules = "allow tcp, udp on inside\ndefault drop\n";
        lab.lab.file("firewall.rules", rules).map_err(absent)?;
        let configurations = write_configurations(&lab, setting).map_err(absent)?;
        let mut firewalls = Self {
            hosts: (0..setting.firewalls).map(|_| None).collect(),
            servers: (0..setting.servers).map(|_| None).collect(),
            lab,
            store,
            product,
            configurations,
            flows: setting.flows,
        };
        for place in 0..setting.servers {
            firewalls.start_server(place, (place > 0).then_some(0))?;
        }
        for place in 0..setting.started {
            firewalls.start_host(place)?;
        }
        firewalls.requests_through(&[0])?;
        firewalls.replies_through(&[0])?;
        Ok(firewalls)
    }

    /// Starts a firewall, and waits until it is connected to its store.
    pub(super) fn start_host(&mut self, place: usize) -> Result<(), Failure> {
        let started = self
            .lab
            .start_host(&self.product, &self.configurations[place], place);
        self.hosts[place] = Some(started.map_err(unsound)?);
        match self.flows {
            Flows::Remote => self.wait_until_connected(place, None),
            Flows::Local => Ok(()),
        }
    }

    /// Waits until a firewall is connected to its store, to this server of it.
    pub(super) fn wait_until_connected(
        &self,
        place: usize,
        server: Option<usize>,
    ) -> Result<(), Failure> {
        let expected = server.map(|server| format!("{STORE}:{}", port(server)));
        wait_until("a firewall's store", PATIENCE, || {
            let Ok(reported) = self.status(place) else {
                return false;
            };
            let store = &reported["store"];
            let is_there = expected
                .as_ref()
                .is_none_or(|expected| store["address"] == **expected);
            store["connected"] == true && is_there
        })
        .map_err(|error| self.unsound(error))
    }

    /// What `asterism status` says of a firewall.
    pub(super) fn status(&self, place: usize) -> Result<Value, Failure> {
        let reported = Command::new(&self.product)
            .args(["status", "--format", "json", "--socket"])
            .arg(self.lab.control_socket(place))
            .output();
        let reported = reported.ok().filter(|output| output.status.success());
        reported
            .and_then(|output| serde_json::from_slice(&output.stdout).ok())
            .ok_or_else(|| Failure::Unsound(format!("firewall {} does not answer", place + 1)))
    }

    /// Packets that a firewall and its ports dropped, by reason.
    pub(super) fn dropped(&self, place: usize) -> Result<BTreeMap<String, u64>, Failure> {
        let reported = self.status(place)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut dropped = BTreeMap::new();
        for instance in list(&reported["instances"]) {
            let ports = list(&instance["ports"]);
            for part in ports.iter().chain([&instance]) {
                for (reason, count) in part["dropped"].as_object().into_iter().flatten() {
                    *dropped.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
                }
            }
        }
        Ok(dropped)
    }

    /// Sends what the client sends through these firewalls, flow by flow.
    pub(super) fn requests_through(&self, places: &[usize]) -> Result<(), Failure> {
        self.lab.requests_through(places).map_err(unsound)
    }

    /// The same of what the server sends.
    pub(super) fn replies_through(&self, places: &[usize]) -> Result<(), Failure> {
        let hop = |place: &usize| format!("nexthop via {OUTSIDE} dev nat{} onlink ", place + 1);
        let hops: String = places.iter().map(hop).collect();
        let lines = [
            format!("route replace {CLIENT}/32 src {SERVER} {hops}"),
            "route flush cache".to_owned(),
        ];
        self.lab.server.ip(&lines).map_err(unsound)?;
        Ok(())
    }

    /// Starts a server of the store, as a replica of another one, and waits until it has all that that one has.
    pub(super) fn start_server(&mut self, place: usize, of: Option<usize>) -> Result<(), Failure> {
        let folder = self.lab.lab.folder().join(format!("server-{place}"));
        // What it had before it was killed is of no use.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).map_err(|error| Failure::Absent(error.to_string()))?;
        let of = of.map(|of| (STORE.to_string(), port(of).to_string()));
        let program = self
            .store
            .program("redis-server")
            .args(["--port", &port(place).to_string()])
            .args(["--bind", &STORE.to_string(), "--protected-mode", "no"])
            .args(["--save", "", "--appendonly", "no"])
            // A replica that has just begun is to be of use at once.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(
                of.iter()
                    .flat_map(|(host, port)| ["--replicaof", host, port]),
            )
            .current_folder(&folder);
        self.servers[place] = Some(program.start().map_err(absent)?);
        let is_ready = || match self.server(place, &["ROLE"]) {
            Ok(role) if of.is_some() => role.lines().nth(3) == Some("connected"),
            Ok(role) => role.starts_with("master"),
            Err(_) => false,
        };
        wait_until("a server of the store", PATIENCE, is_ready).map_err(unsound)
    }

    /// Kills a server of the store, as `kill -9` does.
    pub(super) fn kill_server(&mut self, place: usize) {
        if let Some(server) = self.servers[place].take() {
            server.kill();
        }
    }

    /// Has a server of the store do this; what it replies, a value a line.
    pub(super) fn server(&self, place: usize, words: &[&str]) -> Result<String, Failure> {
        let done = self
            .store
            .program("redis-cli")
            .args(["-h", &STORE.to_string(), "-p", &port(place).to_string()])
            .time_max(PATIENCE)
            .args(words)
            .run();
        Ok(done.map_err(unsound)?.text())
    }

    /// A replica receives nothing more, and keeps what it has.
    pub(super) fn cut_off(&self, place: usize) -> Result<(), Failure> {
        // Nobody listens there.
        let done = self.server(place, &["REPLICAOF", "127.0.0.1", "1"]);
        done.map(|_| ())
    }

    /// Of the servers that run the one that has received most becomes the primary of the others, as Sentinel does it.
    pub(super) fn fail_over(&self) -> Result<usize, Failure> {
        let mut best = None;
        for place in self.running_servers() {
            let info = self.server(place, &["INFO", "replication"])?;
            let offset = info.lines().find_map(|line| {
                let offset = line.strip_prefix("slave_repl_offset:")?;
                offset.trim().parse::<u64>().ok()
            });
            best = best.max(offset.map(|offset| (offset, place)));
        }
        let (_, heir) = best.ok_or_else(|| Failure::Unsound("no replica is left".into()))?;
        self.server(heir, &["REPLICAOF", "NO", "ONE"])?;
        let port = port(heir).to_string();
        for place in self.running_servers().filter(|place| *place != heir) {
            self.server(place, &["REPLICAOF", &STORE.to_string(), &port])?;
        }
        Ok(heir)
    }

    fn running_servers(&self) -> impl Iterator<Item = usize> + '_ {
        let places = self.servers.iter().enumerate();
        places.filter_map(|(place, server)| server.as_ref().map(|_| place))
    }

    /// A failure with what the firewalls said.
    pub(super) fn unsound(&self, error: LabError) -> Failure {
        let said = self.hosts.iter().flatten().map(Program::stderr);
        Failure::Unsound(format!("{error}; {}", said.collect::<String>()))
    }
}

fn port(server: usize) -> u16 {
    FIRST_PORT + server as u16
}

/// The store's node, on a network with all firewalls.
fn join_store(lab: &NatLab) -> Result<Node, LabError> {
    let store = lab.lab.node("store")?;
    let ends: Vec<_> = lab.hosts.iter().map(|host| (host, "store")).collect();
    lab.lab.bridge(&store, "store", &ends, &Cable::default())?;
    store.ip(&[format!("address add {STORE}/24 dev store")])?;
    for (place, host) in lab.hosts.iter().enumerate() {
        let [a, b, c, _] = STORE.octets();
        host.ip(&[format!(
            "address add {a}.{b}.{c}.{}/24 dev store",
            place + 1
        )])?;
    }
    Ok(store)
}

/// Gives client and server each other's Ethernet addresses: firewalls are bridges.
fn make_bridged(lab: &NatLab) -> Result<(), LabError> {
    let (client_mac, server_mac) = (address_of(&INSIDE_MACS), address_of(&OUTSIDE_MACS));
    let neighbours = |hop: Ipv4Addr, mac: &str| -> Vec<String> {
        let line = |place| format!("neigh replace {hop} lladdr {mac} nud permanent dev nat{place}");
        (1..=lab.hosts.len()).map(line).collect()
    };
    lab.client.ip(&neighbours(INSIDE, &server_mac))?;
    lab.server.ip(&neighbours(OUTSIDE, &client_mac))?;
    Ok(())
}

/// The file of each firewall: one for all that share a store; each that shares nothing is a cluster of its own.
fn write_configurations(lab: &NatLab, setting: &Setting) -> Result<Vec<PathBuf>, LabError> {
    let places = 0..setting.firewalls;
    match setting.flows {
        Flows::Remote => {
            let servers = (0..setting.servers).map(|place| format!("{STORE}:{}", port(place)));
            let servers: Vec<String> = servers.collect();
            let store = format!("[store]\naddress = {servers:?}\n{}\n", setting.store);
            let text = configuration(lab, places.clone(), &store, "remote");
            let file = lab.lab.file("asterism.toml", text)?;
            Ok(places.map(|_| file.clone()).collect())
        }
        Flows::Local => places
            .map(|place| {
                let text = configuration(lab, place..place + 1, "", "local");
                lab.lab.file(&format!("asterism-{place}.toml"), text)
            })
            .collect(),
    }
}

fn configuration(lab: &NatLab, places: Range<usize>, store: &str, placement: &str) -> String {
    let names: Vec<_> = lab.hosts[places.clone()].iter().map(Node::name).collect();
    let mut text = format!(
        "[cluster]\nname = \"firewalls\"\nkey = \"{}\"\nmembers = {names:?}\n",
        lab.key_file().display()
    );
    for (place, name) in places.zip(&names) {
        if names.len() > 1 {
            let address = channel_address(place);
            text += &format!("[cluster.member.{name}]\naddress = \"{address}:{CHANNEL_PORT}\"\n");
        }
        let control = lab.control_socket(place);
        text += &format!("[on.{name}.host]\ncontrol = \"{}\"\n", control.display());
    }
    text += "[host]\njoin_wait = \"300ms\"\n";
    for (port, interface) in [("inside", "in"), ("outside", "out")] {
        text += &format!(
            "[port.{port}]\nkind = \"af_packet\"\ninterface = \"{interface}\"\nring = {RING}\n"
        );
    }
    text += store;
    text += &format!(
        "[function.firewall]\nrules = \"firewall.rules\"\n[function.firewall.state]\nflows.placement = \"{placement}\"\nfragments.placement = \"{placement}\"\n"
    );
    text
}

/// Refuses where it cannot be built.
pub(super) fn needs(more: &[&str]) -> Result<(), Failure> {
    let programs = ["ip", "redis-server", "redis-cli"];
    crate::measures::lab::needs(&[&programs, more].concat())
}
