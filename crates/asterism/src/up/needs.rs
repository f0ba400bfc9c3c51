//! What a configuration needs of this machine to run on it as a whole: interfaces, capabilities, addresses, and for each process what
//! no other one has.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use asterism_config::{Config, Port, PortKind, files};
use asterism_host::run::control_path;
use asterism_io::port::ethernet_address;
use rustix::thread::{CapabilitySet, capabilities};

use super::error::UpError;
use super::plan::Plan;

/// Checks it, and opens nothing that stays open. Hosts that the orchestrator launches are its concern.
pub(super) fn check(plan: &Plan) -> Result<(), UpError> {
    let hosts = match plan.launches() {
        false => &plan.hosts[..],
        true => &[],
    };
    let faults = Claims::of(plan, hosts);
    if !faults.is_empty() {
        let file = plan.file.clone();
        return Err(UpError::NotOneMachine { file, faults });
    }
    let mut needs = Needs::default();
    for host in hosts {
        let who = format!("host {}", host.host.name);
        for port in &host.ports {
            needs.port(&who, port.kind, &port.interface, wanted(port));
        }
        needs.address(&who, "metrics", host.host.metrics);
        // Of a host that registers; the others' are listed.
        needs.address(&who, "state channel", host.host.address);
    }
    if !hosts.is_empty() {
        let cluster = &plan.config.cluster;
        for (name, address) in cluster.members.iter().zip(&cluster.addresses) {
            needs.address(&format!("host {name}"), "state channel", *address);
        }
    }
    for machine in plan.machines() {
        let who = format!("director {}", machine.name);
        needs.address(&who, "control address", Some(machine.control));
        for plug in &machine.plugs {
            let more = match plug.exclusive {
                true => CapabilitySet::BPF | CapabilitySet::NET_ADMIN,
                false => CapabilitySet::empty(),
            };
            needs.port(&who, plug.kind, &plug.interface, more);
        }
    }
    for address in &plan.config.cluster.orchestrators {
        needs.address("the orchestrator", "address", Some(*address));
    }
    if let Some(orchestrator) = &plan.config.orchestrator {
        let api = plan.api().map(|api| api.listen);
        needs.address("the orchestrator", "API", api);
        if !orchestrator.routes.is_empty() {
            needs.capabilities("the orchestrator writes routes", CapabilitySet::NET_ADMIN);
        }
    }
    match needs.missing.is_empty() {
        true => Ok(()),
        false => Err(UpError::Missing(needs.missing)),
    }
}

/// Capabilities that the settings of a port need beside those of its kind.
fn wanted(port: &Port) -> CapabilitySet {
    let mut wanted = CapabilitySet::empty();
    if port.exclusive {
        wanted |= CapabilitySet::BPF;
    }
    if port.exclusive || (port.offloads_off && port.kind == PortKind::AfPacket) {
        wanted |= CapabilitySet::NET_ADMIN;
    }
    wanted
}

/// What is missing, a sentence each.
#[derive(Default)]
struct Needs {
    missing: Vec<String>,
}

impl Needs {
    fn port(&mut self, who: &str, kind: PortKind, interface: &str, more: CapabilitySet) {
        let of_kind = match kind {
            PortKind::SharedMemory => return,
            PortKind::AfPacket => CapabilitySet::NET_RAW,
            PortKind::AfXdp => {
                CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF
            }
            // One that is there may be this user's own.
            PortKind::Tap if ethernet_address(interface).is_ok() => CapabilitySet::empty(),
            PortKind::Tap => CapabilitySet::NET_ADMIN,
        };
        if kind != PortKind::Tap
            && let Err(error) = ethernet_address(interface)
        {
            self.missing.push(format!(
                "{who}: the interface {interface} cannot be used ({error}): `ip link` lists those of this network namespace"
            ));
        }
        self.capabilities(&format!("{who} opens {interface}"), of_kind | more);
    }

    fn capabilities(&mut self, why: &str, wanted: CapabilitySet) {
        // If the kernel does not say what it permits, the process that needs it does.
        let Ok(sets) = capabilities(None) else {
            return;
        };
        let mut has = sets.effective;
        if has.contains(CapabilitySet::SYS_ADMIN) {
            has |= CapabilitySet::BPF;
        }
        let lacking: Vec<&str> = [
            (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
            (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
            (CapabilitySet::BPF, "CAP_BPF"),
        ]
        .into_iter()
        .filter(|(one, _)| wanted.contains(*one) && !has.contains(*one))
        .map(|(_, name)| name)
        .collect();
        if !lacking.is_empty() {
            self.missing.push(format!(
                "{why}, which needs {}: run `asterism up` as root",
                lacking.join(", ")
            ));
        }
    }

    fn address(&mut self, who: &str, what: &str, address: Option<SocketAddr>) {
        let Some(mut address) = address else {
            return;
        };
        address.set_port(0);
        if let Err(error) = UdpSocket::bind(address)
            && error.kind() == ErrorKind::AddrNotAvailable
        {
            let ip = address.ip();
            self.missing.push(format!(
                "{who}: its {what} is at {ip}, which is no address of this machine: add it (`ip address add {ip} dev lo`), or run this part on its own machine"
            ));
        }
    }
}

/// What only one process of a machine can have, and who has it.
#[derive(Default)]
struct Claims {
    by: BTreeMap<String, String>,
    faults: Vec<String>,
}

impl Claims {
    /// What more than one process would have, a sentence each.
    fn of(plan: &Plan, hosts: &[Config]) -> Vec<String> {
        let mut claims = Claims::default();
        for host in hosts {
            claims.of_host(plan, host);
        }
        for (place, host) in hosts.iter().enumerate() {
            for other in &hosts[..place] {
                claims.alike(other, host);
            }
        }
        for machine in plan.machines() {
            for plug in &machine.plugs {
                let (name, interface) = (&machine.name, &plug.interface);
                let what = format!("the interface {interface} for packets");
                claims.take(what, &format!("director {name}"), "name others in its arms");
            }
        }
        for (number, _) in (1..).zip(&plan.config.cluster.orchestrators) {
            if let Some(api) = plan.api() {
                let cure = "leave one in [cluster] orchestrators";
                let who = format!("orchestrator-{number}");
                claims.take(format!("the API at {}", api.listen), &who, cure);
            }
        }
        claims.faults
    }

    fn of_host(&mut self, plan: &Plan, host: &Config) {
        let name = &host.host.name;
        let cure = |field: &str| format!("write another {field} into [on.{name}.host]");
        let who = format!("host {name}");
        let control = control_path(&plan.file, host);
        self.take(
            format!("the control socket {}", control.display()),
            &who,
            &cure("control"),
        );
        if let Some(state) = &host.host.state {
            let state = files::key_path(&plan.file, state);
            self.take(
                format!("the state in {}", state.display()),
                &who,
                &cure("state"),
            );
        }
        if let Some(metrics) = host.host.metrics {
            self.take(format!("metrics at {metrics}"), &who, &cure("metrics"));
        }
        if let Some(eve) = &host.host.eve {
            let eve = files::key_path(&plan.file, &eve.file);
            self.take(
                format!("alerts in {}", eve.display()),
                &who,
                "write another file into its table `eve`",
            );
        }
        for port in &host.ports {
            // A packet socket sees all packets of an interface, also if others do.
            let what = match port.kind {
                PortKind::AfPacket => continue,
                PortKind::SharedMemory => {
                    format!(
                        "the link {}",
                        files::key_path(&plan.file, &port.path).display()
                    )
                }
                PortKind::AfXdp => format!("queue {} of {}", port.queue, port.interface),
                PortKind::Tap => format!("the TAP {}", port.interface),
            };
            let cure = format!("write another one into [on.{name}.port.{}]", port.name);
            self.take(what, &who, &cure);
        }
    }

    /// Two hosts on one interface tell their packets apart by addresses.
    fn alike(&mut self, first: &Config, second: &Config) {
        if first.function.settings != second.function.settings {
            return;
        }
        for (one, other) in first.ports.iter().zip(&second.ports) {
            if one.kind == PortKind::AfPacket
                && other.kind == PortKind::AfPacket
                && one.interface == other.interface
            {
                let (a, b) = (&first.host.name, &second.host.name);
                self.faults.push(format!(
                    "hosts {a} and {b} would both take the packets of {}: write another interface into [on.{b}.port.{}]",
                    one.interface, one.name
                ));
            }
        }
    }

    fn take(&mut self, what: String, who: &str, cure: &str) {
        match self.by.get(&what) {
            None => _ = self.by.insert(what, who.to_owned()),
            Some(other) => self
                .faults
                .push(format!("{other} and {who} would both have {what}: {cure}")),
        }
    }
}
