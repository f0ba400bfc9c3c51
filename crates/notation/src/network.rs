//! Addresses, prefixes, Ethernet addresses and ports in the configuration.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use asterism_function::{IpPrefix, IpPrefixError};

use super::value::Mistake;

/// An IPv4 network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The network's first address.
    pub address: Ipv4Addr,
    /// How many leading bits count, 0 to 32.
    pub length: u8,
}

impl Prefix {
    /// Whether an address lies in the network.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & mask(self.length) == 0
    }

    /// Whether two networks share an address.
    #[must_use]
    pub fn overlaps(&self, other: &Prefix) -> bool {
        let common = mask(self.length.min(other.length));
        (self.address.to_bits() ^ other.address.to_bits()) & common == 0
    }
}

impl core::fmt::Display for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last; at least `first`.
    pub last: u16,
}

impl Ports {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Whether a port is one of them.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl core::fmt::Display for Ports {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// An IPv6 address where IPv4's are translated, balanced or answered for.
fn only_ipv4(address: Ipv6Addr, example: &str) -> Mistake {
    let instead = match address.to_ipv4_mapped() {
        Some(address) => format!("write \"{address}\""),
        None => format!(
            "only IPv4 is supported here: write one such as \"{example}\"; rules of a firewall and tenants of a limiter take IPv6, too"
        ),
    };
    Mistake::new("this is an IPv6 address", instead)
}

/// An IPv4 address.
///
/// # Errors
/// Anything else; a prefix, a port, a name and an IPv6 address are distinguished.
pub fn address(text: &str) -> Result<Ipv4Addr, Mistake> {
    text.parse().map_err(|_| {
        let instead = "write four numbers from 0 to 255, such as \"203.0.113.1\"";
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            only_ipv4(address, "203.0.113.1")
        } else if let Some((address, _)) = text
            .split_once('/')
            .filter(|(a, _)| a.parse::<Ipv4Addr>().is_ok())
        {
            Mistake::new(
                "this is a prefix, not an address",
                format!("write \"{address}\"; list each address"),
            )
        } else if let Some((address, _)) = text
            .split_once(':')
            .filter(|(a, _)| a.parse::<Ipv4Addr>().is_ok())
        {
            Mistake::new(
                "an address has no port here",
                format!("write \"{address}\""),
            )
        } else if text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            Mistake::new(
                "this is a name, not an address",
                format!("names are not looked up: {instead}"),
            )
        } else {
            Mistake::new("this is not an IPv4 address", instead)
        }
    })
}

/// An IPv4 address with a port.
///
/// # Errors
/// Anything else; a missing port is distinguished.
pub fn endpoint(text: &str) -> Result<SocketAddrV4, Mistake> {
    if let Ok(socket) = text.parse::<SocketAddrV6>() {
        return Err(only_ipv4(*socket.ip(), "203.0.113.1:80"));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Err(only_ipv4(address, "203.0.113.1:80"));
    }
    text.parse().map_err(|_| match text.split_once(':') {
        None => match address(text) {
            Ok(address) => Mistake::new("the port is missing", format!("write \"{address}:80\"")),
            Err(mistake) => mistake,
        },
        Some((host, port)) => match address(host) {
            Ok(host) => Mistake::new(
                format!("`{port}` is not a port"),
                format!("write a number from 0 to 65535, such as \"{host}:80\""),
            ),
            Err(mistake) => mistake,
        },
    })
}

/// An address of either family with a port: `192.0.2.1:7400`, `[2001:db8::1]:7400`.
///
/// # Errors
/// Anything else; a missing port, port 0, missing brackets and names are distinguished.
pub fn socket(text: &str) -> Result<SocketAddr, Mistake> {
    let parsed = text.parse::<SocketAddr>().map_err(|_| {
        if let Ok(address) = text.parse::<IpAddr>() {
            let with_port = SocketAddr::new(address, 7400);
            Mistake::new("the port is missing", format!("write \"{with_port}\""))
        } else if text.bytes().any(|byte| byte.is_ascii_alphabetic())
            && !text.contains("::")
            && !text.starts_with('[')
        {
            Mistake::new(
                "this is a name, not an address",
                "names are not looked up: write an address and a port, such as \"192.0.2.1:7400\"",
            )
        } else {
            Mistake::new(
                "this is not an address and a port",
                "write \"192.0.2.1:7400\", or \"[2001:db8::1]:7400\" for IPv6",
            )
        }
    })?;
    if parsed.ip().to_canonical() != parsed.ip() {
        let canonical = SocketAddr::new(parsed.ip().to_canonical(), parsed.port());
        return Err(Mistake::new(
            "this is an IPv4 address in its IPv6 form",
            format!("write \"{canonical}\""),
        ));
    }
    if parsed.port() == 0 {
        return Err(Mistake::new(
            "port 0 is no port",
            format!("write \"{}\"", SocketAddr::new(parsed.ip(), 7400)),
        ));
    }
    Ok(parsed)
}

/// Bytes of an interface's name at most (`IFNAMSIZ` less its end).
const DEVICE_BYTES_MAX: usize = 15;

/// A network interface of the operating system, by its name.
///
/// # Errors
/// What the kernel takes for no name: too long, empty, with a slash, a colon or white space (`dev_valid_name`).
pub fn device(text: &str) -> Result<String, Mistake> {
    let instead = "write the interface's name as `ip link` shows it, such as \"eth1\"";
    if text.len() > DEVICE_BYTES_MAX {
        return Err(Mistake::new(
            format!(
                "this name has {} bytes, more than {DEVICE_BYTES_MAX}",
                text.len()
            ),
            instead,
        ));
    }
    let bad = |letter: char| letter.is_whitespace() || letter.is_control() || "/:".contains(letter);
    if text.is_empty() || text == "." || text == ".." || text.contains(bad) {
        return Err(Mistake::new("this is no interface's name", instead));
    }
    Ok(text.to_owned())
}

/// An IPv4 prefix: `10.0.0.0/8`.
///
/// # Errors
/// Anything else; a missing length and bits beyond the length are distinguished.
pub fn prefix(text: &str) -> Result<Prefix, Mistake> {
    let Some((host, length)) = text.split_once('/') else {
        return Err(match address(text) {
            Ok(address) => Mistake::new(
                "the prefix length is missing",
                format!(
                    "write \"{address}/32\" for this one address, or a network such as \"10.0.0.0/8\""
                ),
            ),
            Err(mistake) if mistake.wrong.contains("IPv6") => mistake,
            Err(mistake) => Mistake::new(mistake.wrong, "write a network such as \"10.0.0.0/8\""),
        });
    };
    let address = address(host)?;
    let length: u8 = length
        .parse()
        .ok()
        .filter(|length| *length <= 32)
        .ok_or_else(|| {
            Mistake::new(
                format!("`{length}` is not a prefix length"),
                "write a number from 0 to 32 after the slash",
            )
        })?;
    let network = Ipv4Addr::from_bits(address.to_bits() & mask(length));
    if network != address {
        return Err(Mistake::new(
            "there are bits set beyond the prefix length",
            format!(
                "write \"{network}/{length}\" for the network, or \"{address}/32\" for the address"
            ),
        ));
    }
    Ok(Prefix { address, length })
}

/// A network of either IP version, or an address of one: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`. It holds no address of the other
/// version.
///
/// # Errors
/// Anything else; IPv4 addresses in their IPv6 form, bits beyond the length and addresses that look like networks are distinguished.
pub fn ip_prefix(text: &str) -> Result<IpPrefix, Mistake> {
    let read = text.parse().and_then(|prefix: IpPrefix| {
        let zeros = prefix.first().to_bits().trailing_zeros();
        let is_like_a_network = zeros >= if prefix.is_ipv4() { 8 } else { 64 };
        match is_like_a_network && !text.contains('/') {
            true => Err(IpPrefixError::Length { most: 0 }),
            false => Ok(prefix),
        }
    });
    read.map_err(|error| match error {
        IpPrefixError::Length { .. } if !text.contains('/') => {
            let most = if text.contains(':') { 128 } else { 32 };
            Mistake::new(
                "the prefix length is missing",
                format!(
                    "write \"{text}/{most}\" for this one address, or a network such as \"{text}/{}\"",
                    most / 2
                ),
            )
        }
        IpPrefixError::Address => {
            let host = text.split_once('/').map_or(text, |(host, _)| host);
            let wrong = match address(host) {
                Err(mistake) if mistake.wrong.contains("name") => mistake.wrong,
                _ => "this is no address and no network".to_owned(),
            };
            Mistake::new(
                wrong,
                "write one such as \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\"",
            )
        }
        IpPrefixError::Length { most } => Mistake::new(
            "this is not a prefix length",
            format!("write a number from 0 to {most} after the slash"),
        ),
        IpPrefixError::HostBits { network, host } => Mistake::new(
            "there are bits set beyond the prefix length",
            format!(
                "write \"{network}\" for the network, or \"{}\" for the address",
                host.address()
            ),
        ),
        IpPrefixError::Mapped { ipv4 } => Mistake::new(
            "no packet has an IPv4 address in this form",
            format!("write \"{ipv4}\""),
        ),
    })
}

/// An interface's address with the length of its link's prefix: `192.0.2.1/30`.
///
/// # Errors
/// Anything else; a missing length and the network's own address are distinguished.
pub fn interface(text: &str) -> Result<Prefix, Mistake> {
    let Some((host, length)) = text.split_once('/') else {
        return Err(match address(text) {
            Ok(address) => Mistake::new(
                "the length of the link's prefix is missing",
                format!("write \"{address}/24\", or whatever length the link has"),
            ),
            Err(mistake) if mistake.wrong.contains("IPv6") => mistake,
            Err(mistake) => Mistake::new(
                mistake.wrong,
                "write an address with the length of its link's prefix, such as \"192.0.2.1/30\"",
            ),
        });
    };
    let address = address(host)?;
    let length: u8 = length
        .parse()
        .ok()
        .filter(|length| *length <= 32)
        .ok_or_else(|| {
            Mistake::new(
                format!("`{length}` is not a prefix length"),
                "write a number from 0 to 32 after the slash",
            )
        })?;
    let link = Prefix { address, length };
    if length < 31
        && (address.to_bits() & !mask(length) == 0 || address.to_bits() | mask(length) == u32::MAX)
    {
        let first = Ipv4Addr::from_bits((address.to_bits() & mask(length)) + 1);
        return Err(Mistake::new(
            "this is the network's or its broadcast address, not a host's",
            format!("write a host's, such as \"{first}/{length}\""),
        ));
    }
    Ok(link)
}

/// An Ethernet address: `02:00:00:00:00:01`.
///
/// # Errors
/// Anything else; addresses of groups are distinguished.
pub fn mac(text: &str) -> Result<[u8; 6], Mistake> {
    let instead = "write six pairs of hexadecimal digits, such as \"02:00:00:00:00:01\"";
    let mut octets = [0; 6];
    let mut parts = text.split([':', '-']);
    for octet in &mut octets {
        *octet = parts
            .next()
            .filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or_else(|| Mistake::new("this is not an Ethernet address", instead))?;
    }
    if parts.next().is_some() {
        return Err(Mistake::new("this is not an Ethernet address", instead));
    }
    if octets[0] & 1 == 1 || octets == [0; 6] {
        return Err(Mistake::new(
            "this is no station's address",
            "write one whose first octet is even and that is not all zeros",
        ));
    }
    Ok(octets)
}

/// An Ethernet address in the words of the configuration.
#[must_use]
pub fn show_mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

/// Ports: `1024-65535`, or one port.
///
/// # Errors
/// Not a range of ports, port 0, or a range the wrong way round.
pub fn ports(text: &str) -> Result<Ports, Mistake> {
    let instead = "write the first and the last port, such as \"1024-65535\"";
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| {
        part.trim().parse::<u16>().map_err(|_| {
            Mistake::new(
                format!("`{}` is not a port", part.trim()),
                format!("{instead}; ports go from 1 to 65535"),
            )
        })
    };
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 {
        return Err(Mistake::new("port 0 cannot be used", instead));
    }
    if last < first {
        return Err(Mistake::new(
            "the first port is above the last",
            format!("write \"{last}-{first}\""),
        ));
    }
    Ok(Ports { first, last })
}

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_prefixes_ports() {
        assert!(
            address("203.0.113.0/24")
                .unwrap_err()
                .wrong
                .contains("prefix")
        );
        assert!(
            address("203.0.113.1:80")
                .unwrap_err()
                .wrong
                .contains("port")
        );
        assert!(address("2001:db8::1").unwrap_err().wrong.contains("IPv6"));
        assert!(address("nat.example").unwrap_err().wrong.contains("name"));
        assert!(
            address("300.1.1.1")
                .unwrap_err()
                .wrong
                .contains("not an IPv4")
        );
        assert_eq!(prefix("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert!(
            prefix("10.1.2.3/8")
                .unwrap_err()
                .instead
                .contains("10.0.0.0/8")
        );
        assert!(prefix("10.0.0.0").unwrap_err().wrong.contains("missing"));
        assert!(prefix("10.0.0.0/33").unwrap_err().wrong.contains("33"));
        let inside = prefix("10.0.0.0/8").unwrap();
        assert!(
            inside.contains(Ipv4Addr::new(10, 255, 0, 1))
                && !inside.contains(Ipv4Addr::new(11, 0, 0, 1))
        );
        assert!(prefix("0.0.0.0/0").unwrap().contains(Ipv4Addr::BROADCAST));
        assert!(
            prefix("10.3.0.0/16").unwrap().overlaps(&inside)
                && !prefix("11.0.0.0/8").unwrap().overlaps(&inside)
        );
        assert_eq!(
            ports("80").unwrap(),
            Ports {
                first: 80,
                last: 80
            }
        );
        assert_eq!(ports("1024-65535").unwrap().count(), 64_512);
        assert!(
            ports("2000-1000")
                .unwrap_err()
                .instead
                .contains("1000-2000")
        );
        assert!(ports("0-9").is_err() && ports("1-65536").is_err() && ports("").is_err());
        assert!(endpoint("10.0.0.1").unwrap_err().wrong.contains("missing"));
        assert!(
            endpoint("10.0.0.1:http")
                .unwrap_err()
                .wrong
                .contains("`http`")
        );
        assert!(endpoint("10.0.0.1:80").is_ok());
        for mistake in [
            address("2001:db8::1").unwrap_err(),
            endpoint("[2001:db8::1]:80").unwrap_err(),
            endpoint("2001:db8::1").unwrap_err(),
            prefix("2001:db8::/32").unwrap_err(),
            prefix("2001:db8::1").unwrap_err(),
            interface("2001:db8::1/64").unwrap_err(),
            interface("2001:db8::1").unwrap_err(),
        ] {
            assert!(mistake.wrong.contains("IPv6"), "{mistake:?}");
            assert!(mistake.instead.contains("only IPv4"), "{mistake:?}");
        }
        let mapped = address("::ffff:192.0.2.1").unwrap_err();
        assert!(mapped.instead.contains("write \"192.0.2.1\""));
    }

    #[test]
    fn sockets_and_devices() {
        assert!(socket("192.0.2.1:7400").is_ok() && socket("[2001:db8::1]:7400").is_ok());
        for (bad, why) in [
            ("192.0.2.1", "port is missing"),
            ("2001:db8::1", "port is missing"),
            ("192.0.2.1:0", "port 0"),
            ("host-a:7400", "name"),
            ("192.0.2.1:70000", "not an address"),
            ("[::1]", "not an address"),
            ("[::ffff:192.0.2.1]:7400", "IPv6 form"),
        ] {
            let mistake = socket(bad).unwrap_err();
            assert!(mistake.wrong.contains(why), "{bad}: {mistake:?}");
        }
        assert!(device("eth1").is_ok() && device("br-lan.100").is_ok());
        for bad in ["", "..", "a/b", "a b", "eth0:1", "a-name-of-16-byte"] {
            assert!(device(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes_of_either_version() {
        for text in ["10.0.0.0/8", "2001:db8::/32", "::/0", "192.0.2.7", "::1"] {
            assert!(ip_prefix(text).unwrap().to_string().starts_with(text));
        }
        for (text, said) in [
            ("::ffff:10.0.0.0/104", "write \"10.0.0.0/8\""),
            (
                "10.0.0.1/8",
                "\"10.0.0.0/8\" for the network, or \"10.0.0.1\"",
            ),
            ("2001:db8::/129", "0 to 128"),
            ("10.0.0.0/33", "0 to 32"),
            ("resolver.example", "this is a name"),
            (
                "10.1.0.0",
                "write \"10.1.0.0/32\" for this one address, or a network such as \"10.1.0.0/16\"",
            ),
            ("2001:db8::", "such as \"2001:db8::/64\""),
            ("10.0.0", "no address"),
        ] {
            let Mistake { wrong, instead } = ip_prefix(text).unwrap_err();
            assert!(
                format!("{wrong}; {instead}").contains(said),
                "{text}: {wrong}; {instead}"
            );
        }
    }

    #[test]
    fn interfaces_and_stations() {
        assert_eq!(
            interface("192.0.2.1/30").unwrap().to_string(),
            "192.0.2.1/30"
        );
        assert!(
            interface("192.0.2.0/30")
                .unwrap_err()
                .instead
                .contains("192.0.2.1/30")
        );
        assert!(interface("192.0.2.3/30").is_err() && interface("192.0.2.3/31").is_ok());
        assert!(
            interface("192.0.2.1")
                .unwrap_err()
                .wrong
                .contains("missing")
        );
        assert!(interface("0.0.0.0/0").is_err() && interface("1.2.3.4/0").is_ok());
        assert_eq!(
            mac("02:00:00:00:00:fE").map(show_mac).as_deref(),
            Ok("02:00:00:00:00:fe")
        );
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "+2:00:00:00:00:01",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }
}
