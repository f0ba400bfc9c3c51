//! The configuration with which `asterism run` makes hosts of the laboratory's nodes.

use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;

use super::{
    CHANNEL_PORT, CLIENT, CLIENT_MAC, INSIDE, NAT_INSIDE_MAC, NAT_OUTSIDE_MAC, NatLab, OUTSIDE,
    SERVER, SERVER_MAC, TRANSLATED, channel_address,
};
use crate::error::LabError;

/// What the hosts are to be like.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What it means that an outside port in use has no session here: `drop`, or `wait` and a duration (as the field
    /// `absent` of `ports` takes it). It is what happens to a reply that overtakes its session.
    pub absent: String,
    /// The filtering policy (as the field `filtering` takes it).
    pub filtering: String,
    /// The kind of both ports (as the field `kind` takes it).
    pub port: String,
    /// Whether both ports move frames of up to 64 KiB with offloads on.
    pub bulk: bool,
    /// Further lines of both ports' tables.
    pub port_lines: String,
    /// Further lines of the table `[function.nat]`.
    pub nat_lines: String,
    /// So many places for hosts that register, instead of a list of the hosts.
    pub places: Option<u16>,
    /// Whether the state channel goes by multicast.
    pub multicast: bool,
    /// Packet loops of each host.
    pub instances: u16,
    /// Whether a file of epochs says who takes part: `epoch.toml` beside the configuration, which `asterism epoch` writes.
    pub epochs: bool,
    /// Further lines of the table `[orchestrator]`, if the laboratory has orchestrators.
    pub orchestrator_lines: String,
    /// Further lines at the end of the file, whole tables.
    pub more: String,
}

impl Default for HostOptions {
    /// Replies that wait 150 ms for their session, endpoint-independent filtering, AF_PACKET, unicast, one instance, all
    /// members from the start.
    fn default() -> HostOptions {
        HostOptions {
            absent: "wait 150ms".to_owned(),
            filtering: "endpoint-independent".to_owned(),
            port: "af_packet".to_owned(),
            bulk: false,
            port_lines: String::new(),
            nat_lines: String::new(),
            places: None,
            multicast: false,
            instances: 1,
            epochs: false,
            orchestrator_lines: String::new(),
            more: String::new(),
        }
    }
}

impl HostOptions {
    /// The same with this fate of replies that overtake their session.
    #[must_use]
    pub fn absent(mut self, absent: &str) -> HostOptions {
        absent.clone_into(&mut self.absent);
        self
    }
}

impl NatLab {
    /// Writes the configuration of all hosts, `asterism.toml` in the laboratory's folder. The key is
    /// [`NatLab::key_file`], which `asterism keygen` writes.
    pub fn write_configuration(&self, options: &HostOptions) -> Result<PathBuf, LabError> {
        self.lab.file("asterism.toml", self.configuration(options))
    }

    /// Where the cluster's key is to be.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.lab.folder().join("cluster.key")
    }

    /// The configuration of all hosts.
    #[must_use]
    pub fn configuration(&self, options: &HostOptions) -> String {
        self.configuration_of(options, 0..self.hosts.len())
    }

    /// The configuration of these hosts, as if there were no others. The orchestrators' part has routes to all.
    #[must_use]
    pub fn configuration_of(&self, options: &HostOptions, hosts: Range<usize>) -> String {
        let names: Vec<_> = self.hosts.iter().map(|host| host.name()).collect();
        let HostOptions {
            absent,
            filtering,
            port,
            port_lines,
            nat_lines,
            instances,
            more,
            ..
        } = options;
        let mut text = format!(
            "[cluster]\nname = \"laboratory\"\nkey = \"{}\"\n",
            self.key_file().display()
        );
        match options.places {
            Some(places) => text.push_str(&format!("places = {places}\n")),
            None => text.push_str(&format!("members = {names:?}\n")),
        }
        if options.epochs || !self.orchestrators.is_empty() {
            text.push_str("epochs = \"epoch.toml\"\n");
        }
        text.push_str(&self.orchestrators_line());
        for (place, name) in names.iter().enumerate() {
            if !hosts.contains(&place) {
                continue;
            }
            let socket = self.control_socket(place);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n[on.{name}.host]\ncontrol = \"{}\"\n",
                socket.display()
            );
            if options.places.is_some() {
                let at = channel_address(place);
                let _ = writeln!(text, "address = \"{at}:{CHANNEL_PORT}\"");
            } else if names.len() > 1 {
                let _ = write!(
                    text,
                    "\n[cluster.member.{name}]\naddress = \"{}:{CHANNEL_PORT}\"\n",
                    channel_address(place),
                );
            }
        }
        if options.multicast {
            let _ = write!(
                text,
                "\n[cluster.channel]\nmulticast = \"239.77.0.1:{CHANNEL_PORT}\"\ninterface = \"channel\"\n"
            );
        }
        // Nobody else makes entries that a single host could wait for.
        let absent = if names.len() > 1 { absent } else { "drop" };
        let (mode, mtu) = if options.bulk {
            ("\nmode = \"bulk\"", "\nmtu = \"65535B\"")
        } else {
            ("", "")
        };
        let _ = write!(
            text,
            r#"
[host]
instances = {instances}
join_wait = "300ms"

[port.inside]
kind = "{port}"
interface = "in"{mode}
{port_lines}

[port.outside]
kind = "{port}"
interface = "out"{mode}
{port_lines}

[function.nat]
outside = ["{TRANSLATED}"]
inside = ["10.77.0.0/24"]
filtering = "{filtering}"
{nat_lines}

[function.nat.inside_link]
address = "{INSIDE}/24"
mac = "{NAT_INSIDE_MAC}"
next_hop = "{CLIENT}"
next_hop_mac = "{CLIENT_MAC}"
promiscuous = false{mtu}

[function.nat.outside_link]
address = "{OUTSIDE}/24"
mac = "{NAT_OUTSIDE_MAC}"
next_hop = "{SERVER}"
next_hop_mac = "{SERVER_MAC}"
promiscuous = false{mtu}

[function.nat.state]
sessions = {{ placement = "replicated" }}
ports = {{ placement = "replicated", allocation = "leased", absent = "{absent}" }}
{more}"#
        );
        self.hosts_behind_directors(&mut text);
        text.push_str(&self.orchestrator_tables(&options.orchestrator_lines));
        text
    }
}
