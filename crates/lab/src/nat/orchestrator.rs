//! Orchestrators of the laboratory: their configuration, and starting them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use super::{
    CLIENT, INSIDE, NAT_INSIDE_MAC, NAT_OUTSIDE_MAC, NatLab, OUTSIDE, SERVER, TRANSLATED_PREFIX,
};
use crate::error::LabError;
use crate::openvswitch::OpenVSwitch;
use crate::program::Program;

/// The bridge of a laboratory with a switch.
const BRIDGE: &str = "br0";
/// Port on which orchestrators hear hosts.
pub const ORCHESTRATOR_PORT: u16 = 7_500;

/// The address of an orchestrator on the state channel's segment.
#[must_use]
pub fn orchestrator_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 77, u8::try_from(place + 201).unwrap_or(u8::MAX))
}

impl NatLab {
    /// The line of `[cluster]` that names the orchestrators; empty if there are none.
    pub(super) fn orchestrators_line(&self) -> String {
        if self.orchestrators.is_empty() {
            return String::new();
        }
        let addresses: Vec<String> = (0..self.orchestrators.len())
            .map(|place| format!("{}:{ORCHESTRATOR_PORT}", orchestrator_address(place)))
            .collect();
        format!("orchestrators = {addresses:?}\n")
    }

    /// The tables of the orchestrators, which steer by the routes of client and server, by the switch or by the directors; empty if there are none.
    pub(super) fn orchestrator_tables(&self, lines: &str) -> String {
        if self.orchestrators.is_empty() {
            return String::new();
        }
        let mut text = format!("\n[orchestrator]\n{lines}\n");
        if self.switch.is_some() {
            self.switch_tables(&mut text);
            return text;
        }
        if !self.directors.is_empty() {
            self.director_tables(&mut text);
            return text;
        }
        let inside = format!("to = [\"0.0.0.0/0\"]\nsource = \"{CLIENT}\"");
        let outside =
            format!("to = [\"{TRANSLATED_PREFIX}\", \"{OUTSIDE}/32\"]\nsource = \"{SERVER}\"");
        for (side, router, to, gateway) in [
            ("inside", &self.client, inside, INSIDE),
            ("outside", &self.server, outside, OUTSIDE),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n[orchestrator.routes.{side}]\nnamespace = \"{}\"\n{to}\n",
                router.namespace_file()
            );
            for (place, host) in self.hosts.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "via.{} = {{ gateway = \"{gateway}\", interface = \"nat{}\" }}",
                    host.name(),
                    place + 1
                );
            }
        }
        text
    }

    /// The table of the switch, whose bridge is [`BRIDGE`].
    fn switch_tables(&self, text: &mut String) {
        let folder = self.lab.folder().join("ovs-switch");
        let folder = folder.display();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[orchestrator.openvswitch.lab]\nbridge = \"{BRIDGE}\"\nsocket = \"{folder}/{BRIDGE}.mgmt\"\n\
             database = \"{folder}/db.sock\"\n"
        );
        let inside = "\"0.0.0.0/0\"".to_owned();
        let outside = format!("\"{TRANSLATED_PREFIX}\", \"{OUTSIDE}/32\"");
        for (side, ingress, to, port, mac) in [
            ("inside", "up", inside, "in", NAT_INSIDE_MAC),
            ("outside", "down", outside, "out", NAT_OUTSIDE_MAC),
        ] {
            let _ = write!(
                text,
                "\n[orchestrator.openvswitch.lab.direction.{side}]\ningress = [\"{ingress}\"]\nto = [{to}]\n"
            );
            for (place, host) in self.hosts.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "via.{} = {{ port = \"{port}{}\", mac = \"{mac}\" }}",
                    host.name(),
                    place + 1
                );
            }
        }
    }

    /// Starts the switch of a laboratory with one, and its bridge with all ports, which forwards by Ethernet until it is steered.
    /// Needs Open vSwitch. Some 500 ms.
    pub fn start_switch(&self) -> Result<OpenVSwitch<'_>, LabError> {
        let Some(node) = &self.switch else {
            return Err(LabError::BadName {
                name: "a switch".to_owned(),
                fault: "this laboratory has none",
            });
        };
        let switch = OpenVSwitch::start(&self.lab, node)?;
        let mut ports = vec!["up".to_owned(), "down".to_owned()];
        for place in 1..=self.hosts.len() {
            ports.extend([format!("in{place}"), format!("out{place}")]);
        }
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        switch.bridge(BRIDGE, &ports)?;
        let rest = ["add-flow", BRIDGE, "priority=0,actions=NORMAL"];
        switch.ofctl("OpenFlow13", &rest)?;
        Ok(switch)
    }

    /// Starts `asterism orchestrate` on an orchestrator's node, with the configuration of [`NatLab::write_configuration`].
    pub fn start_orchestrator(
        &self,
        asterism: &Path,
        configuration: &Path,
        place: usize,
    ) -> Result<Program, LabError> {
        let address = format!("{}:{ORCHESTRATOR_PORT}", orchestrator_address(place));
        self.orchestrators[place]
            .program(asterism)
            .arg("orchestrate")
            .arg(configuration)
            .args(["--address", &address])
            .start()
    }
}
