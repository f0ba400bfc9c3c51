//! The kernel as the NAT: for tests of the laboratory itself, and to compare with.

use super::{INSIDE, NatLab, OUTSIDE, TRANSLATED};
use crate::error::LabError;

impl NatLab {
    /// Lets the kernel of a host forward packets and translate them, by nftables. Only for paths that are symmetric: kernels
    /// do not share what they know.
    pub fn use_kernel(&self, place: usize) -> Result<(), LabError> {
        let host = &self.hosts[place];
        host.ip(&[
            format!("address add {INSIDE}/24 dev in"),
            format!("address add {OUTSIDE}/24 dev out"),
            format!("address add {TRANSLATED}/32 dev lo"),
        ])?;
        host.sysctl("net/ipv4/ip_forward", "1")?;
        host.program("nft")
            .args(["-f", "-"])
            .input(format!(
                "table ip nat {{\n chain out {{\n  type nat hook postrouting priority 100\n  oifname \"out\" snat to {TRANSLATED}\n }}\n}}\n"
            ))
            .run()?;
        Ok(())
    }

    /// Lets the kernel of a host forward packets and change nothing, with routes for the server to answer by.
    pub fn use_forwarding(&self, place: usize) -> Result<(), LabError> {
        self.use_routes(place)?;
        self.hosts[place].sysctl("net/ipv4/ip_forward", "1")
    }

    /// Addresses for the links of a host, whose kernel does not forward, and routes for the server to answer the client by.
    pub fn use_routes(&self, place: usize) -> Result<(), LabError> {
        let host = &self.hosts[place];
        host.ip(&[
            format!("address add {INSIDE}/24 dev in"),
            format!("address add {OUTSIDE}/24 dev out"),
        ])?;
        // A namespace may have been born with what the machine has set.
        host.sysctl("net/ipv4/ip_forward", "0")?;
        self.server.ip(&[format!(
            "route replace 10.77.0.0/24 via {OUTSIDE} dev nat{} onlink",
            place + 1
        )])?;
        Ok(())
    }
}
