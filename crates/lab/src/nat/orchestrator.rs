//! Orchestrators of the laboratory: their configuration, and starting them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use super::{CLIENT, INSIDE, NatLab, OUTSIDE, SERVER, TRANSLATED_PREFIX};
use crate::error::LabError;
use crate::program::Program;

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

    /// The tables of the orchestrators, which steer by the routes of client and server; empty if there are none.
    pub(super) fn orchestrator_tables(&self, lines: &str) -> String {
        if self.orchestrators.is_empty() {
            return String::new();
        }
        let mut text = format!("\n[orchestrator]\n{lines}\n");
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
