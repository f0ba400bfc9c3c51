//! Directors of the laboratory: their configuration, that of the hosts behind them, and starting them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use super::middle::host_mac;
use super::{INSIDE, NatLab, OUTSIDE};
use crate::error::LabError;
use crate::program::Program;

/// Port on which directors take commands.
const CONTROL_PORT: u16 = 7_600;

/// The address of a director on the state channel's segment.
#[must_use]
pub fn director_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 77, u8::try_from(place + 221).unwrap_or(u8::MAX))
}

/// An address in the network of the NAT's own one, on either side.
fn beside(own: Ipv4Addr, last: usize) -> Ipv4Addr {
    let [a, b, c, _] = own.octets();
    Ipv4Addr::new(a, b, c, u8::try_from(last).unwrap_or(u8::MAX))
}

/// A host's own address on the side of this address of the NAT.
fn host_address(own: Ipv4Addr, place: usize) -> Ipv4Addr {
    beside(own, 16 + place)
}

impl NatLab {
    /// What is different of each host behind directors: addresses of its own.
    pub(super) fn hosts_behind_directors(&self, text: &mut String) {
        if self.directors.is_empty() {
            return;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n[on.{}.function.nat]", host.name());
            for (link, side, own) in [("inside_link", 1, INSIDE), ("outside_link", 2, OUTSIDE)] {
                let (address, mac) = (host_address(own, place), host_mac(side, place));
                let _ = writeln!(
                    text,
                    "{link} = {{ address = \"{address}/24\", mac = \"{mac}\" }}"
                );
            }
        }
    }

    /// The table of the directors.
    pub(super) fn director_tables(&self, text: &mut String) {
        let _ = writeln!(text, "\n[orchestrator.director.lab]");
        for (side, own) in [("inside", INSIDE), ("outside", OUTSIDE)] {
            let _ = write!(
                text,
                "\n[orchestrator.director.lab.arm.{side}]\nside = \"{side}\"\nshared = [\"{own}\"]\n"
            );
            for (place, host) in self.hosts.iter().enumerate() {
                let address = host_address(own, place);
                let _ = writeln!(text, "via.{} = {{ address = \"{address}\" }}", host.name());
            }
        }
        for (place, node) in self.directors.iter().enumerate() {
            let _ = write!(
                text,
                "\n[orchestrator.director.lab.machine.{}]\ncontrol = \"{}:{CONTROL_PORT}\"\n\
                 arm.inside = {{ interface = \"in\", address = \"{}\" }}\n\
                 arm.outside = {{ interface = \"out\", address = \"{}\" }}\n",
                node.name(),
                director_address(place),
                beside(INSIDE, 8 + place),
                beside(OUTSIDE, 8 + place),
            );
        }
    }

    /// Starts `asterism direct` on a director's node, with the configuration of [`NatLab::write_configuration`].
    pub fn start_director(
        &self,
        asterism: &Path,
        configuration: &Path,
        place: usize,
    ) -> Result<Program, LabError> {
        let node = &self.directors[place];
        node.program(asterism)
            .arg("direct")
            .arg(configuration)
            .args(["--machine", node.name()])
            .start()
    }
}
