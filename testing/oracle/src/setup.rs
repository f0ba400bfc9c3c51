//! The box around a recording: its links, its neighbours and its times, as lines of `name = value`.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use asterism_function::{MacAddress, PortNumber};
use asterism_functions::nat::{Filtering, IdleTimes, Interface, NatConfig, Prefix, Route, Side};

use crate::recording::Frame;
use crate::ruleset;
use crate::wire;

/// What our NAT is set to, and what must be known of Linux.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The settings of our NAT.
    pub nat: NatConfig,
    /// Linux forgets no session sooner after its last packet: seconds.
    pub linux_idle_least: u64,
}

/// Seconds after which Linux forgets a reset connection, its shortest time unless sysctls say otherwise.
const LINUX_IDLE_LEAST: u64 = 10;

impl Setup {
    /// Reads the description of a box and its ruleset.
    ///
    /// # Errors
    /// With a sentence when a line or statement is not understood or the NAT refuses the settings.
    pub fn read(text: &str, rules: &str) -> Result<Self, String> {
        let mut links: [Option<Interface>; 2] = [None, None];
        let mut rest = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once('=').ok_or_else(|| wrong(line))?;
            let words: Vec<&str> = value.split_whitespace().collect();
            match name.trim() {
                "inside" => links[0] = Some(interface(0, &words).ok_or_else(|| wrong(line))?),
                "outside" => links[1] = Some(interface(1, &words).ok_or_else(|| wrong(line))?),
                name => rest.push((name, words, line)),
            }
        }
        let [Some(inside), Some(outside)] = links else {
            return Err("the box needs the lines `inside` and `outside`".to_owned());
        };
        let mut setup = Self {
            nat: NatConfig {
                // What Linux does: a session lets in its remote endpoint.
                filtering: Filtering::AddressAndPortDependent,
                idle: IdleTimes::RFC,
                short_idle: true,
                icmp_errors_per_second: u16::MAX,
                ..NatConfig::new(inside, outside, vec![outside.address])
            },
            linux_idle_least: LINUX_IDLE_LEAST,
        };
        for (name, words, line) in rest {
            setup.set(name, &words).ok_or_else(|| wrong(line))?;
        }
        ruleset::take_over(rules, &mut setup.nat)?;
        setup.nat.validate().map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            faults.join("; ")
        })?;
        Ok(setup)
    }

    fn set(&mut self, name: &str, words: &[&str]) -> Option<()> {
        match (name, words) {
            ("neighbour", [address, mac]) => {
                let neighbour = (address.parse().ok()?, read_mac(mac)?);
                self.nat.neighbours.push(neighbour);
            }
            ("route", [side, prefix, "via", router]) => self.nat.routes.push(Route {
                prefix: prefix.parse().ok()?,
                side: read_side(side)?,
                next_hop: Some(router.parse().ok()?),
            }),
            ("linux_idle_least", [seconds]) => self.linux_idle_least = seconds.parse().ok()?,
            ("idle", [class, seconds]) => {
                let idle = &mut self.nat.idle;
                let time = match *class {
                    "tcp_transitory" => &mut idle.tcp_transitory,
                    "tcp_established" => &mut idle.tcp_established,
                    "tcp_closing" => &mut idle.tcp_closing,
                    "udp" => &mut idle.udp,
                    "icmp_query" => &mut idle.icmp_query,
                    _ => return None,
                };
                *time = seconds.parse().ok()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// The Ethernet address of the box on a side.
    pub(crate) fn mac(&self, side: Side) -> MacAddress {
        self.interface(side).mac
    }

    pub(crate) fn interface(&self, side: Side) -> &Interface {
        match side {
            Side::Inside => &self.nat.inside,
            Side::Outside => &self.nat.outside,
        }
    }

    pub(crate) fn is_outside_address(&self, address: Ipv4Addr) -> bool {
        self.nat.outside_addresses.contains(&address)
    }

    /// Microseconds for which our NAT may remember a session after its last packet: the idle time of its protocol, the
    /// quarter by which uses may be announced late, and what counting in seconds and sweeping add.
    pub(crate) fn our_idle_most_us(&self, protocol: u8) -> u64 {
        const COUNTING_SECONDS: u64 = 3;
        let idle = &self.nat.idle;
        let seconds = match protocol {
            wire::TCP => idle.tcp_established.max(idle.tcp_transitory),
            wire::UDP => idle.udp,
            _ => idle.icmp_query,
        };
        let seconds = u64::from(seconds);
        (seconds + seconds / 4 + COUNTING_SECONDS) * 1_000_000
    }

    /// Whether an address is one that the box itself has.
    pub(crate) fn is_own(&self, address: Ipv4Addr) -> bool {
        self.is_outside_address(address)
            || address == self.nat.inside.address
            || address == self.nat.outside.address
    }
}

/// The description of a box from the ARP packets on its links, each with the box's address and prefix.
pub(crate) fn from_captures(inside: (&[Frame], &str), outside: (&[Frame], &str)) -> String {
    let mut text = String::new();
    for (name, (frames, prefix)) in [("inside", inside), ("outside", outside)] {
        let own = prefix.split('/').next().unwrap_or(prefix);
        let mut stations = BTreeMap::new();
        for frame in frames {
            let arp = frame.bytes.get(12..14) == Some(&[8, 6]) && frame.bytes.len() >= 42;
            if arp {
                let octets = [28, 29, 30, 31].map(|at| frame.bytes[at]);
                let mac = frame.bytes[22..28].try_into().map(MacAddress);
                stations.extend(mac.map(|mac| (Ipv4Addr::from(octets).to_string(), mac)));
            }
        }
        for (address, mac) in stations {
            if address == own {
                text += &format!("{name} = {prefix} {mac} mtu 1500\n");
            } else {
                text += &format!("neighbour = {address} {mac}\n");
            }
        }
    }
    text
}

fn wrong(line: &str) -> String {
    format!("this line of the box is not understood: {line}")
}

fn read_side(word: &str) -> Option<Side> {
    match word {
        "inside" => Some(Side::Inside),
        "outside" => Some(Side::Outside),
        _ => None,
    }
}

/// `192.168.50.1/24 02:00:00:00:00:01 mtu 1500`.
fn interface(port: u16, words: &[&str]) -> Option<Interface> {
    let [prefix, mac, "mtu", mtu] = words else {
        return None;
    };
    let prefix: Prefix = prefix.parse().ok()?;
    Some(Interface {
        mtu: mtu.parse().ok()?,
        ..Interface::new(
            PortNumber(port),
            prefix.address,
            prefix.length,
            read_mac(mac)?,
        )
    })
}

fn read_mac(text: &str) -> Option<MacAddress> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        *octet = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(MacAddress(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: &str = "
        # The box.
        inside = 192.168.50.1/24 02:00:00:00:00:01 mtu 1500
        outside = 198.51.100.1/24 02:00:00:00:00:02 mtu 1400
        neighbour = 192.168.50.2 02:00:00:00:01:02
        route = outside 0.0.0.0/0 via 198.51.100.10
        idle = udp 6
        linux_idle_least = 2
    ";

    #[test]
    fn a_box_is_read() {
        let setup = Setup::read(BOX, "").unwrap();
        assert_eq!(setup.nat.outside.mtu, 1_400);
        assert_eq!(setup.nat.idle.udp, 6);
        assert_eq!(setup.linux_idle_least, 2);
        assert_eq!(setup.mac(Side::Inside), MacAddress([2, 0, 0, 0, 0, 1]));
        assert!(setup.is_own([198, 51, 100, 1].into()));
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for line in [
            "nonsense",
            "colour = green",
            "idle = udp soon",
            "neighbour = 192.168.50.2 02:00",
            "route = beside 0.0.0.0/0 via 198.51.100.10",
        ] {
            let fault = Setup::read(&format!("{BOX}\n{line}"), "").unwrap_err();
            assert!(fault.contains(line), "{fault}");
        }
        assert!(Setup::read("", "").is_err());
        // What the NAT refuses is refused here too.
        let fault = Setup::read(&format!("{BOX}\nidle = udp 0"), "").unwrap_err();
        assert!(fault.contains("for ever"), "{fault}");
    }
}
