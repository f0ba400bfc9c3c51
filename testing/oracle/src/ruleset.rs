//! What a ruleset of nftables says of translation: the statements that our NAT has a setting for.
//!
//! A statement of translation that is not understood is an error: a NAT that does less than the ruleset would be
//! compared with the wrong thing.

use core::net::Ipv4Addr;

use asterism_function::{Endpoint, Protocol};
use asterism_functions::nat::{Forward, NatConfig};

/// Takes over what the ruleset says.
pub(crate) fn take_over(ruleset: &str, config: &mut NatConfig) -> Result<(), String> {
    let mut hairpins = false;
    for line in ruleset.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| {
            let place = words.iter().position(|one| *one == word)?;
            words.get(place + 1).copied()
        };
        let target = after("to").unwrap_or("");
        let wrong = || format!("this statement is not understood: {line}");
        if words.contains(&"masquerade") || after("snat") == Some("to") {
            // From the inside link to itself: hairpins.
            hairpins |= after("iifname").is_some() && after("iifname") == after("oifname");
            let (address, range) = target.split_once(':').unwrap_or((target, ""));
            if !address.is_empty() {
                let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
                if !config.outside_addresses.contains(&address) {
                    config.outside_addresses.push(address);
                }
            }
            if let Some((first, last)) = range.split_once('-') {
                let port = |text: &str| text.parse().map_err(|_| wrong());
                config.outside_ports = (port(first)?, port(last)?);
            }
        } else if after("dnat") == Some("to") {
            let (protocol, port) = match (after("tcp"), after("udp")) {
                (Some("dport"), _) => (Protocol::TCP, after("dport")),
                (_, Some("dport")) => (Protocol::UDP, after("dport")),
                _ => return Err(wrong()),
            };
            let port = port.and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
            let (address, inside_port) = target.split_once(':').ok_or_else(wrong)?;
            let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
            let inside_port = inside_port.parse().map_err(|_| wrong())?;
            let outside = after("daddr").and_then(|address| address.parse().ok());
            let outside = outside.unwrap_or(config.outside.address);
            config.forwards.push(Forward {
                outside: Endpoint::new(outside, port, protocol),
                inside: Endpoint::new(address, inside_port, protocol),
            });
        } else if words.last() == Some(&"redirect") || after("redirect") == Some("to") {
            return Err(wrong());
        }
    }
    // Without such a statement Linux takes a hairpin for its own.
    config.hairpinning = hairpins;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{MacAddress, PortNumber};
    use asterism_functions::nat::Interface;

    fn config() -> NatConfig {
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        NatConfig::new(
            Interface::new(PortNumber(0), [192, 168, 50, 1].into(), 24, mac),
            Interface::new(PortNumber(1), [198, 51, 100, 1].into(), 24, mac),
            vec![[198, 51, 100, 1].into()],
        )
    }

    #[test]
    fn statements_become_settings() {
        let ruleset = "
            oifname \"g1\" meta l4proto { tcp, udp } masquerade to :40000-40003
            iifname \"g0\" oifname \"g0\" snat to 198.51.100.1
            ip daddr 198.51.100.1 tcp dport 8080 dnat to 192.168.50.2:80
        ";
        let mut config = config();
        take_over(ruleset, &mut config).unwrap();
        assert_eq!(config.outside_ports, (40_000, 40_003));
        assert!(config.hairpinning);
        assert_eq!(config.outside_addresses.len(), 1);
        let [forward] = config.forwards[..] else {
            panic!("one forward")
        };
        assert_eq!(forward.outside.port, 8_080);
        assert_eq!(forward.inside.address, Ipv4Addr::from([192, 168, 50, 2]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "tcp dport 80 redirect to :8080",
            "ip saddr 10.0.0.1 dnat to 192.168.50.2:80",
            "tcp dport 80 dnat to 192.168.50.2",
            "oifname \"g1\" snat to nowhere",
            "oifname \"g1\" masquerade to :1-x",
        ] {
            assert!(take_over(line, &mut config()).is_err(), "{line}");
        }
    }
}
