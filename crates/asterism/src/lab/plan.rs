//! A laboratory of the user's own: nodes, what joins them, and what runs in them, from a file.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use asterism_config::text;
use asterism_config::{FILE_BYTES_MAX, value};
use asterism_io::link::LinkConditions;
use asterism_lab::{Cable, Lab, LabError, Node, Offloads, Program, Wire, WireConfig};
use serde::{Deserialize, Deserializer};

use super::error::{PlanError, PlanFault, PlanTextError};

/// Nodes of a laboratory at most.
pub(super) const NODES_MAX: usize = 64;
/// The longest interface name that the kernel takes, in bytes.
pub(super) const INTERFACE_BYTES_MAX: usize = 15;

/// A laboratory as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its nodes; the first is where `--exec` runs.
    node: Vec<PlannedNode>,
    /// Pairs of interfaces.
    #[serde(default)]
    cable: Vec<PlannedCable>,
    /// Bridges of the kernel.
    #[serde(default)]
    bridge: Vec<PlannedBridge>,
    /// Switches in user space, with conditions.
    #[serde(default)]
    wire: Vec<PlannedWire>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedNode {
    name: String,
    /// Lines for `ip`, once all is joined.
    #[serde(default)]
    ip: Vec<String>,
    /// Kernel settings, as `net/ipv4/ip_forward = "1"`, written in the order of their names.
    #[serde(default)]
    sysctl: std::collections::BTreeMap<String, String>,
    /// Commands that run until the end. `$LAB` is the laboratory's folder.
    #[serde(default)]
    run: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedCable {
    /// `node:interface`, two of them.
    ends: [String; 2],
    #[serde(default = "ethernet_mtu")]
    mtu: u32,
    #[serde(default)]
    offloads: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedBridge {
    node: String,
    name: String,
    ends: Vec<String>,
    #[serde(default = "ethernet_mtu")]
    mtu: u32,
    #[serde(default)]
    offloads: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedWire {
    ends: Vec<String>,
    #[serde(default = "ethernet_mtu")]
    mtu: u32,
    #[serde(default)]
    offloads: bool,
    #[serde(default, deserialize_with = "duration")]
    delay: Duration,
    #[serde(default, deserialize_with = "duration")]
    jitter: Duration,
    #[serde(default, deserialize_with = "share")]
    loss: f64,
    #[serde(default, deserialize_with = "share")]
    duplication: f64,
    #[serde(default, deserialize_with = "share")]
    reordering: f64,
    #[serde(default, deserialize_with = "duration")]
    reordering_delay: Duration,
    bits_per_second: Option<u64>,
    #[serde(default = "first_seed")]
    seed: u64,
}

const fn ethernet_mtu() -> u32 {
    1_500
}

const fn first_seed() -> u64 {
    1
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    value::duration(&text).map_err(serde::de::Error::custom)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(from)?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(serde::de::Error::custom("a share is a number from 0 to 1"))
    }
}

/// A laboratory that was built by a plan.
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    pub(super) wires: Vec<Wire>,
    pub(super) nodes: Vec<Node>,
    pub(super) lab: Lab,
}

impl Plan {
    /// Reads a plan; nothing is built.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn read(file: &Path) -> Result<Plan, PlanError> {
        let text = std::fs::read_to_string(file).map_err(|error| PlanError::Unreadable {
            file: file.to_owned(),
            error,
        })?;
        Plan::of(&text).map_err(|error| PlanError::Text {
            file: file.to_owned(),
            error,
        })
    }

    /// Reads a plan's text.
    ///
    /// # Errors
    /// See [`PlanTextError`].
    pub fn of(text: &str) -> Result<Plan, PlanTextError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(PlanTextError::TooLong);
        }
        let text = text::without_mark(text);
        let plan: Plan = toml::from_str(text).map_err(PlanTextError::Syntax)?;
        let faults = plan.faults();
        if faults.is_empty() {
            Ok(plan)
        } else {
            Err(PlanTextError::Faults(faults))
        }
    }

    /// All that cannot be built.
    fn faults(&self) -> Vec<PlanFault> {
        let mut faults = Vec::new();
        if !(1..=NODES_MAX).contains(&self.node.len()) {
            faults.push(PlanFault::Nodes(self.node.len()));
        }
        let mut names = BTreeSet::new();
        for node in &self.node {
            if !names.insert(node.name.as_str()) {
                faults.push(PlanFault::NodeTwice(node.name.clone()));
            }
            for setting in node.sysctl.keys() {
                if !setting.starts_with("net/") || setting.contains("..") {
                    faults.push(PlanFault::Setting {
                        node: node.name.clone(),
                        setting: setting.clone(),
                    });
                }
            }
        }
        for bridge in &self.bridge {
            if !names.contains(bridge.node.as_str()) {
                faults.push(PlanFault::NodeOfBridge {
                    bridge: bridge.name.clone(),
                    node: bridge.node.clone(),
                });
            }
        }
        for wire in &self.wire {
            if !(2..=asterism_lab::wire::PORTS_MAX).contains(&wire.ends.len()) {
                faults.push(PlanFault::WireEnds(wire.ends.len()));
            }
        }
        let mut ends = BTreeSet::new();
        let all = self.cable.iter().flat_map(|cable| &cable.ends);
        let all = all.chain(self.bridge.iter().flat_map(|bridge| &bridge.ends));
        for end in all.chain(self.wire.iter().flat_map(|wire| &wire.ends)) {
            match end.split_once(':') {
                None => faults.push(PlanFault::EndForm(end.clone())),
                Some((node, _)) if !names.contains(node) => {
                    faults.push(PlanFault::NodeOfEnd {
                        end: end.clone(),
                        node: node.to_owned(),
                    });
                }
                Some((_, interface))
                    if !(1..=INTERFACE_BYTES_MAX).contains(&interface.len())
                        || interface.contains(['/', ':', ' ']) =>
                {
                    faults.push(PlanFault::InterfaceName(end.clone()));
                }
                Some(_) if !ends.insert(end.as_str()) => {
                    faults.push(PlanFault::EndTwice(end.clone()));
                }
                Some(_) => {}
            }
        }
        faults
    }

    /// Builds it: nodes, then what joins them, then settings and addresses, then programs.
    pub(super) fn build(&self) -> Result<Built, LabError> {
        let lab = Lab::new()?;
        let nodes = self
            .node
            .iter()
            .map(|node| lab.node(&node.name))
            .collect::<Result<Vec<_>, _>>()?;
        let end = |text: &'_ str| -> Result<(&Node, String), LabError> {
            let (name, interface) = text.split_once(':').unwrap_or((text, ""));
            let node = nodes.iter().find(|node| node.name() == name);
            let node = node.ok_or_else(|| LabError::BadName {
                name: text.to_owned(),
                fault: "there is no such node",
            })?;
            Ok((node, interface.to_owned()))
        };
        let cable_of = |mtu: u32, offloads: bool| Cable {
            mtu_bytes: mtu,
            offloads: if offloads {
                Offloads::On
            } else {
                Offloads::Off
            },
            ..Cable::default()
        };
        for cable in &self.cable {
            let ((first, first_name), (second, second_name)) =
                (end(&cable.ends[0])?, end(&cable.ends[1])?);
            lab.cable(
                (first, &first_name),
                (second, &second_name),
                &cable_of(cable.mtu, cable.offloads),
            )?;
        }
        for bridge in &self.bridge {
            let (node, _) = end(&bridge.node)?;
            let ends = bridge
                .ends
                .iter()
                .map(|text| end(text))
                .collect::<Result<Vec<_>, _>>()?;
            let ends: Vec<_> = ends
                .iter()
                .map(|(node, name)| (*node, name.as_str()))
                .collect();
            lab.bridge(
                node,
                &bridge.name,
                &ends,
                &cable_of(bridge.mtu, bridge.offloads),
            )?;
        }
        let mut wires = Vec::new();
        for wire in &self.wire {
            let ends = wire
                .ends
                .iter()
                .map(|text| end(text))
                .collect::<Result<Vec<_>, _>>()?;
            let ends: Vec<_> = ends
                .iter()
                .map(|(node, name)| (*node, name.as_str()))
                .collect();
            let config = WireConfig {
                cable: cable_of(wire.mtu, wire.offloads),
                conditions: wire.conditions(),
                seed: wire.seed,
                ..WireConfig::default()
            };
            wires.push(lab.wire(&ends, &config)?);
        }
        for (planned, node) in self.node.iter().zip(&nodes) {
            for (setting, value) in &planned.sysctl {
                node.sysctl(setting, value)?;
            }
            if !planned.ip.is_empty() {
                node.ip(&planned.ip)?;
            }
        }
        let mut programs = Vec::new();
        for (planned, node) in self.node.iter().zip(&nodes) {
            for command in &planned.run {
                let program = node.program("/bin/sh").args(["-c", command]);
                programs.push(program.env("LAB", lab.folder()).start()?);
            }
        }
        Ok(Built {
            programs,
            wires,
            nodes,
            lab,
        })
    }
}

impl PlannedWire {
    fn conditions(&self) -> LinkConditions {
        LinkConditions {
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            duplication: self.duplication,
            reordering: self.reordering,
            reordering_delay: self.reordering_delay,
            bits_per_second: self.bits_per_second,
            ..LinkConditions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_listed() {
        let mistakes = Plan::of(
            "[[node]]\nname = \"a\"\nsysctl = { \"kernel/panic\" = \"1\" }\n[[node]]\nname = \"a\"\n\
             [[cable]]\nends = [\"a:eth0\", \"b:eth0\"]\n[[cable]]\nends = [\"a:eth0\", \"a\"]\n\
             [[bridge]]\nnode = \"c\"\nname = \"br\"\nends = [\"a:an-interface-too-long\"]\n[[wire]]\nends = [\"a:eth1\"]\n",
        )
        .unwrap_err()
        .to_string();
        for word in [
            "\"a\" is there twice",
            "kernel/panic",
            "no node \"b\"",
            "\"a:eth0\" is there twice",
            "node:interface",
            "no node \"c\"",
            "1 to 15 bytes",
            "a wire of 1 ends",
        ] {
            assert!(mistakes.contains(word), "{word}: {mistakes}");
        }
        for (text, word) in [
            ("[[node]]\nname = 1\n", "line 2"),
            ("[[node]]\nname = \"a\"\nnome = 2\n", "unknown field"),
            ("", "missing field `node`"),
            (
                "[[node]]\nname=\"a\"\n[[wire]]\nends = []\ndelay = \"5\"\n",
                "line 5",
            ),
            (
                "[[node]]\nname=\"a\"\n[[wire]]\nends = []\nloss = 1.5\n",
                "from 0 to 1",
            ),
        ] {
            let mistake = Plan::of(text).unwrap_err().to_string();
            assert!(mistake.contains(word), "{word}: {mistake}");
        }
    }
}
