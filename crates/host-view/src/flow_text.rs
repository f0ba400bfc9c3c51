//! Flows in the text of keys.
//!
//! Objects show their keys as text. A key with two endpoints, as in `inside 10.0.0.1:4000/udp outside … remote …` or
//! `tcp 10.0.0.1:4000 and 192.0.2.1:443`, is that of a flow; [`FlowText::of`] reads it, whichever function it is of.

use std::net::{IpAddr, SocketAddr};

use asterism_function::Protocol;
use serde::{Deserialize, Serialize};

/// Which flows are searched. A part that is absent matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowWanted {
    /// An end, before or after translation, has this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// An end has this port; with an address, that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The protocol, as in keys: `tcp`, `udp`, `icmp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A flow by its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowText {
    /// Protocol and ends, as `tcp 192.0.2.1:40000 198.51.100.7:443`.
    pub flow: String,
    /// The same after translation; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translated: Option<String>,
}

/// An endpoint in a key, with the word before it.
struct End<'k> {
    label: &'k str,
    protocol: Option<&'k str>,
    address: IpAddr,
    port: Option<u16>,
}

fn ends(key: &str) -> Vec<End<'_>> {
    let marks = |letter: char| letter.is_whitespace() || "(){},\"".contains(letter);
    let mut ends = Vec::new();
    let mut before = "";
    for word in key.split(marks).filter(|word| !word.is_empty()) {
        let (place, protocol) = match word.split_once('/') {
            Some((place, protocol)) => (place, Some(protocol)),
            None => (word, None),
        };
        let end = match place.parse::<SocketAddr>() {
            Ok(socket) => Some((socket.ip(), Some(socket.port()))),
            Err(_) => place.parse::<IpAddr>().ok().map(|address| (address, None)),
        };
        if let Some((address, port)) = end {
            ends.push(End {
                label: before,
                protocol,
                address,
                port,
            });
        }
        before = word;
    }
    ends
}

/// The protocol of a key: of its ends, or its first word that names one.
fn protocol<'k>(key: &'k str, ends: &[End<'k>]) -> Option<&'k str> {
    let named = [
        Protocol::TCP,
        Protocol::UDP,
        Protocol::ICMP,
        Protocol::ICMPV6,
    ];
    ends.iter().find_map(|end| end.protocol).or_else(|| {
        let mut words = key.split_whitespace();
        words.find(|word| named.iter().any(|one| one.to_string() == **word))
    })
}

impl End<'_> {
    fn text(&self) -> String {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).to_string(),
            None => self.address.to_string(),
        }
    }
}

impl FlowText {
    /// The flow that a key names; `None` if it has fewer than two endpoints.
    #[must_use]
    pub fn of(key: &str) -> Option<FlowText> {
        let ends = ends(key);
        let labelled = |label: &str| ends.iter().find(|end| end.label == label);
        let pair = |one: Option<&End<'_>>, other: Option<&End<'_>>| -> Option<String> {
            let protocol = protocol(key, &ends).unwrap_or("any");
            Some(format!("{protocol} {} {}", one?.text(), other?.text()))
        };
        let remote = labelled("remote");
        let (flow, translated) = if labelled("inside").is_some() {
            let inside = pair(labelled("inside"), remote);
            (inside, pair(labelled("outside"), remote))
        } else if labelled("client").is_some() {
            let client = labelled("client");
            let asked = pair(client, labelled("service"));
            (asked, pair(client, labelled("backend")))
        } else {
            (pair(ends.first(), ends.get(1)), None)
        };
        let flow = flow?;
        let translated = translated.filter(|translated| *translated != flow);
        Some(FlowText { flow, translated })
    }
}

impl FlowWanted {
    /// Whether a key is that of such a flow.
    #[must_use]
    pub fn is_in(&self, key: &str) -> bool {
        let ends = ends(key);
        let is_end = |end: &End<'_>| {
            self.address.is_none_or(|address| address == end.address)
                && self.port.is_none_or(|port| Some(port) == end.port)
        };
        let is_protocol = |wanted: &String| protocol(key, &ends) == Some(wanted.as_str());
        ends.len() >= 2 && ends.iter().any(is_end) && self.protocol.as_ref().is_none_or(is_protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAT: &str =
        "inside 10.0.0.1:4000/udp outside 203.0.113.1:1024/udp remote 198.51.100.1:53/udp";

    #[test]
    fn keys_of_all_functions_are_read_as_flows() {
        let of = |key: &str| {
            let flow = FlowText::of(key);
            flow.map(|flow| (flow.flow, flow.translated.unwrap_or_default()))
        };
        let text = |flow: &str, translated: &str| Some((flow.to_owned(), translated.to_owned()));
        for (key, expected) in [
            (
                NAT,
                text(
                    "udp 10.0.0.1:4000 198.51.100.1:53",
                    "udp 203.0.113.1:1024 198.51.100.1:53",
                ),
            ),
            (
                "client 198.51.100.9:5000/tcp service 203.0.113.5:80/tcp backend 10.0.0.7:8080/tcp nat",
                text(
                    "tcp 198.51.100.9:5000 203.0.113.5:80",
                    "tcp 198.51.100.9:5000 10.0.0.7:8080",
                ),
            ),
            (
                "tcp 10.0.0.7:4000 and 192.0.2.1:443 vlan 10",
                text("tcp 10.0.0.7:4000 192.0.2.1:443", ""),
            ),
            (
                "udp [2001:db8::7]:4000 and [2001:db8::1]:53",
                text("udp [2001:db8::7]:4000 [2001:db8::1]:53", ""),
            ),
            (
                "icmpv6 2001:db8::7 asks 2001:db8::1 identifier 7 type 128",
                text("icmpv6 2001:db8::7 2001:db8::1", ""),
            ),
            ("Single(10.0.0.1:4000/udp)", None),
            ("10.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(of(key), expected, "{key}");
        }
    }

    #[test]
    fn flows_are_found_by_an_end() {
        let wanted = |address: &str, port: u16, protocol: &str| FlowWanted {
            address: address.parse().ok(),
            port: (port > 0).then_some(port),
            protocol: (!protocol.is_empty()).then(|| protocol.to_owned()),
        };
        for found in [
            wanted("10.0.0.1", 0, ""),
            wanted("203.0.113.1", 1_024, "udp"),
            wanted("", 53, ""),
            wanted("", 0, "udp"),
            wanted("", 0, ""),
        ] {
            assert!(found.is_in(NAT), "{found:?}");
        }
        for absent in [
            wanted("10.0.0.2", 0, ""),
            wanted("10.0.0.1", 53, ""),
            wanted("10.0.0.1", 4_000, "tcp"),
            wanted("", 4, ""),
        ] {
            assert!(!absent.is_in(NAT), "{absent:?}");
        }
        assert!(!wanted("10.0.0.1", 0, "").is_in("Single(10.0.0.1:4000/udp)"));
        let v6 = "udp [2001:db8::7]:4000 and [2001:db8::1]:53";
        assert!(wanted("2001:db8::1", 53, "udp").is_in(v6));
    }
}
