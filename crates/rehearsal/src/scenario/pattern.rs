//! A packet as a step describes it: exact or in a row to be sent, with gaps and names to be expected.

use core::net::IpAddr;

use asterism_config::diagnostic::Diagnostic;
use asterism_function::{MacAddress, TcpFlags};

use super::frame::{
    FLAG_LETTERS, Fields, MESSAGES, PAYLOAD_BYTES_MAX, Segment, TTL, flag_letters, has_identifier,
    message_word, protocol_word,
};
use super::part::{
    Difference, End, Names, Part, Unsendable, address, end, mac, match_address, match_port, port,
    same,
};
use super::words::{Word, show_bytes};

/// What a packet looks like, for anyone who wrote none.
pub(super) const EXAMPLE: &str = "a packet is written such as `udp 10.0.0.7:5000 > 192.0.2.1:53 \"hello\"` or `tcp 10.0.0.7:5000 > 192.0.2.1:80 S`";

/// A packet as a step describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// `udp`, `tcp`, `icmp` or `ip`.
    pub(super) word: &'static str,
    pub(super) source: End,
    pub(super) destination: End,
    flags: Option<TcpFlags>,
    message: Option<&'static str>,
    about: Option<Box<Pattern>>,
    protocol: Option<u8>,
    id: Option<u16>,
    sequence: Option<u32>,
    acknowledgement: Option<u32>,
    ttl: Option<u8>,
    station: Option<MacAddress>,
    payload: Option<Vec<u8>>,
}

impl Pattern {
    /// Reads one from the words at the begin of `words`, and takes these away. `sent`: without gaps.
    pub(super) fn read(
        words: &mut &[Word<'_>],
        after: &Word<'_>,
        sent: bool,
    ) -> Result<Pattern, Diagnostic> {
        let Some((first, rest)) = words.split_first() else {
            return Err(after.wrong("a packet is missing here").help(EXAMPLE));
        };
        *words = rest;
        let word = match first.text {
            "udp" => "udp",
            "tcp" => "tcp",
            "icmp" => "icmp",
            "ip" => "ip",
            other => {
                return Err(first
                    .wrong(format!("`{other}` is no protocol"))
                    .help("write udp, tcp, icmp or ip")
                    .help(EXAMPLE));
            }
        };
        let has_ports = matches!(word, "udp" | "tcp");
        let [source, arrow, destination, rest @ ..] = *words else {
            return Err(first.wrong("this packet has not both ends").help(EXAMPLE));
        };
        if arrow.text != ">" {
            return Err(arrow
                .wrong(format!("`{}` instead of `>`", arrow.text))
                .help("write the source, `>` and the destination, with blanks between"));
        }
        *words = rest;
        let mut pattern = Pattern {
            word,
            source: end(source, has_ports, sent)?,
            destination: end(destination, has_ports, sent)?,
            flags: None,
            message: None,
            about: None,
            protocol: None,
            id: None,
            sequence: None,
            acknowledgement: None,
            ttl: None,
            station: None,
            payload: None,
        };
        pattern.read_rest(words, sent)?;
        pattern.check(first, sent)?;
        Ok(pattern)
    }

    /// What stands behind the ends, as long as it belongs to the packet.
    fn read_rest(&mut self, words: &mut &[Word<'_>], sent: bool) -> Result<(), Diagnostic> {
        while let Some((word, rest)) = words.split_first() {
            let is_flags = self.word == "tcp"
                && word
                    .text
                    .chars()
                    .all(|letter| FLAG_LETTERS.contains(letter));
            let message = MESSAGES.iter().find(|message| message.0 == word.text);
            if word.quoted.is_some() {
                self.payload = Some(word.bytes());
            } else if is_flags || (self.word == "tcp" && word.text == "-") {
                let bits = word
                    .text
                    .chars()
                    .filter_map(|letter| FLAG_LETTERS.find(letter));
                self.flags = Some(TcpFlags(bits.fold(0, |flags, bit| flags | 1 << bit)));
            } else if let Some(message) = message.filter(|_| self.word == "icmp") {
                self.message = Some(message.0);
            } else if word.text == "about" && self.word == "icmp" {
                *words = rest;
                self.about = Some(Box::new(Pattern::read(words, word, sent)?));
                continue;
            } else if self.word == "tcp" && word.text.chars().all(|one| one.is_ascii_uppercase()) {
                return Err(word
                    .wrong(format!("`{}` are no TCP flags", word.text))
                    .help(format!(
                        "write their letters, out of {FLAG_LETTERS}: S, SA, PA, R; or - for none"
                    )));
            } else if let Some((name, value)) = word.text.split_once('=') {
                self.set(word, name, value)?;
            } else {
                return Ok(());
            }
            *words = rest;
        }
        Ok(())
    }

    fn set(&mut self, word: &Word<'_>, name: &str, value: &str) -> Result<(), Diagnostic> {
        let bad = || {
            word.wrong(format!("`{value}` is no value for `{name}`"))
                .help("these are whole numbers: id=7, seq=1, ack=1, ttl=64, protocol=47; and mac=02:00:00:00:01:01")
        };
        match name {
            "id" if self.word == "icmp" => self.id = Some(value.parse().map_err(|_| bad())?),
            "seq" if self.word == "tcp" => self.sequence = Some(value.parse().map_err(|_| bad())?),
            "ack" if self.word == "tcp" => {
                self.acknowledgement = Some(value.parse().map_err(|_| bad())?);
            }
            "ttl" => self.ttl = Some(value.parse().map_err(|_| bad())?),
            "protocol" if self.word == "ip" => {
                self.protocol = Some(value.parse().map_err(|_| bad())?);
            }
            "mac" => self.station = Some(mac(value).ok_or_else(bad)?),
            _ => {
                return Err(word
                    .wrong(format!("{} packets have no `{name}` here", self.word))
                    .help(
                        "there are id= (icmp), seq= and ack= (tcp), protocol= (ip), ttl= and mac=",
                    ));
            }
        }
        Ok(())
    }

    fn check(&self, first: &Word<'_>, sent: bool) -> Result<(), Diagnostic> {
        if let Some(payload) = &self.payload
            && payload.len() > PAYLOAD_BYTES_MAX
        {
            return Err(first
                .wrong(format!("this packet carries {} bytes", payload.len()))
                .help(format!("write at most {PAYLOAD_BYTES_MAX}")));
        }
        let is_error = |message: &str| !matches!(message, "echo" | "reply");
        if let (Some(message), None) = (self.message.filter(|one| is_error(one)), &self.about)
            && sent
        {
            return Err(first
                .wrong(format!("`{message}` is about a packet, and none is reported"))
                .help("write `about` and the packet that it is about, as that one was where it met the error"));
        }
        if let (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) =
            match (&self.source.address, &self.destination.address) {
                (Part::Is(source), Part::Is(destination)) => (*source, *destination),
                _ => return self.check_rows(first),
            }
        {
            return Err(first
                .wrong("one end has an IPv4 address, the other one an IPv6 address")
                .help("write both ends in one version"));
        }
        if self.word == "ip" && sent && self.protocol.is_none() {
            return Err(first
                .wrong("which protocol this packet carries is not reported")
                .help("write its number, such as protocol=47"));
        }
        self.check_rows(first)
    }

    fn check_rows(&self, first: &Word<'_>) -> Result<(), Diagnostic> {
        if self.rows() > 1 {
            return Err(first
                .wrong("more than one part of this packet goes in a row")
                .help("write one `..` in a packet, and a step for each value of the other part"));
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        let address = |part: &Part<IpAddr>| usize::from(matches!(part, Part::Row(..)));
        let port = |part: &Part<u16>| usize::from(matches!(part, Part::Row(..)));
        [&self.source, &self.destination]
            .iter()
            .map(|end| address(&end.address) + port(&end.port))
            .sum()
    }

    /// How many packets it is.
    pub(super) fn count(&self) -> u64 {
        let count = |end: &End| match (&end.address, &end.port) {
            (Part::Row(IpAddr::V4(first), IpAddr::V4(last)), _) => {
                u64::from(last.to_bits() - first.to_bits()) + 1
            }
            (_, Part::Row(first, last)) => u64::from(last - first) + 1,
            _ => 1,
        };
        count(&self.source) * count(&self.destination)
    }

    /// Names that it has.
    pub(super) fn names(&self) -> Vec<&str> {
        let ends = [&self.source, &self.destination];
        let mut names = Vec::new();
        for end in ends {
            if let Part::Name(name) = &end.address {
                names.push(name.as_str());
            }
            if let Part::Name(name) = &end.port {
                names.push(name.as_str());
            }
        }
        if let Some(about) = &self.about {
            names.extend(about.names());
        }
        names
    }

    /// The packet of this number, of those that it is.
    pub(super) fn packet(&self, number: u64, names: &Names) -> Result<Fields, Unsendable> {
        let source = address(&self.source.address, number, names)?;
        let destination = address(&self.destination.address, number, names)?;
        let is_v6 = source.is_ipv6();
        if is_v6 != destination.is_ipv6() {
            return Err(Unsendable::Versions {
                source_address: source,
                destination,
            });
        }
        let has_ports = matches!(self.word, "udp" | "tcp");
        let ports = match has_ports {
            true => Some((
                port(&self.source.port, number, names)?,
                port(&self.destination.port, number, names)?,
            )),
            false => None,
        };
        let message = self.message.unwrap_or("echo");
        let known = MESSAGES.iter().find(|one| one.0 == message);
        let icmp = known.map_or((8, 0), |one| if is_v6 { one.2 } else { one.1 });
        let is_icmp = self.word == "icmp";
        Ok(Fields {
            station: self.station.unwrap_or_default(),
            protocol: match self.word {
                "udp" => 17,
                "tcp" => 6,
                "icmp" if is_v6 => 58,
                "icmp" => 1,
                _ => self.protocol.unwrap_or(0),
            },
            source,
            destination,
            ports,
            ttl: self.ttl.unwrap_or(TTL),
            tcp: (self.word == "tcp").then(|| Segment {
                flags: self.flags.unwrap_or(TcpFlags::ACK),
                sequence: self.sequence.unwrap_or(1),
                acknowledgement: self.acknowledgement.unwrap_or(1),
            }),
            icmp: is_icmp.then_some(icmp),
            query: (is_icmp && has_identifier(is_v6, icmp)).then(|| (self.id.unwrap_or(1), 1)),
            about: match &self.about {
                Some(about) => Some(Box::new(about.packet(0, names)?)),
                None => None,
            },
            payload: self.payload.clone().unwrap_or_default(),
        })
    }

    /// Whether a packet is as this says: what names stand for then is noted in `names`; else the first thing in which it differs, and
    /// `names` are as they were.
    pub(super) fn matches(&self, packet: &Fields, names: &mut Names) -> Result<(), Difference> {
        let mut noted = names.clone();
        self.compare(packet, &mut noted)?;
        *names = noted;
        Ok(())
    }

    fn compare(&self, packet: &Fields, names: &mut Names) -> Result<(), Difference> {
        let word = protocol_word(packet.protocol);
        if self.word != word {
            return Err(Difference::Protocol {
                found: word,
                wanted: self.word,
            });
        }
        let (source_port, destination_port) = packet.ports.unwrap_or_default();
        match_address("source", &self.source.address, packet.source, names)?;
        match_port("source", &self.source.port, source_port, names)?;
        let destination = packet.destination;
        match_address("destination", &self.destination.address, destination, names)?;
        match_port(
            "destination",
            &self.destination.port,
            destination_port,
            names,
        )?;
        let is_v6 = packet.source.is_ipv6();
        let flags = packet.tcp.map(|tcp| flag_letters(tcp.flags));
        same("flags", self.flags.map(flag_letters), flags)?;
        let message = packet.icmp.and_then(|message| message_word(is_v6, message));
        same("message", self.message, message)?;
        same("id", self.id, packet.query.map(|query| query.0))?;
        same("seq", self.sequence, packet.tcp.map(|tcp| tcp.sequence))?;
        let acknowledgement = packet.tcp.map(|tcp| tcp.acknowledgement);
        same("ack", self.acknowledgement, acknowledgement)?;
        same("protocol", self.protocol, Some(packet.protocol))?;
        same("ttl", self.ttl, Some(packet.ttl))?;
        let station = self.station.map(|one| format!("{one:?}"));
        same("mac", station, Some(format!("{:?}", packet.station)))?;
        let payload = self.payload.as_deref().map(show_bytes);
        same("payload", payload, Some(show_bytes(&packet.payload)))?;
        match (&self.about, &packet.about) {
            (None, _) => Ok(()),
            (Some(about), Some(inner)) => about
                .compare(inner, names)
                .map_err(|why| Difference::InItsPacket(Box::new(why))),
            (Some(_), None) => Err(Difference::AboutNothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::part::Named;
    use crate::scenario::words::split;

    fn read(line: &str, sent: bool) -> Result<Pattern, Diagnostic> {
        let words = split(line, 0).unwrap();
        let mut rest = words.as_slice();
        let pattern = Pattern::read(&mut rest, &words[0], sent)?;
        assert!(rest.is_empty(), "{line}: {rest:?}");
        Ok(pattern)
    }

    #[test]
    fn what_is_sent_is_what_is_expected() {
        for line in [
            "udp 10.0.0.7:5000 > 192.0.2.1:53 \"hello\"",
            "tcp [2001:db8::1]:5000 > [2001:db8::2]:80 SA",
            "tcp 10.0.0.7:5000 > 192.0.2.1:80 -",
            "icmp 10.0.0.7 > 192.0.2.1 echo id=7",
            "icmp [2001:db8::1] > [2001:db8::2] reply id=7",
            "ip 10.0.0.7 > 192.0.2.1 protocol=47 \"x\"",
            "icmp 192.0.2.1 > 10.0.0.7 port-unreachable about udp 10.0.0.7:5000 > 192.0.2.1:53",
        ] {
            let pattern = read(line, true).unwrap();
            let packet = pattern.packet(0, &Names::new()).unwrap();
            assert_eq!(packet.to_string(), line);
            let read_back = Fields::read(&mut packet.frame()).unwrap();
            assert_eq!(pattern.matches(&read_back, &mut Names::new()), Ok(()));
            assert_eq!(pattern.count(), 1);
        }
    }

    #[test]
    fn gaps_and_names_fit_and_what_differs_is_said() {
        let sent = |line: &str| read(line, true).unwrap().packet(0, &Names::new()).unwrap();
        let packet = sent("tcp 203.0.113.1:1024 > 192.0.2.1:80 S seq=5 \"x\"");
        let mut names = Names::new();
        let expect =
            |line: &str, names: &mut Names| read(line, false).unwrap().matches(&packet, names);
        assert_eq!(expect("tcp *:$port > $to:*", &mut names), Ok(()));
        assert_eq!(names["port"], Named::Port(1024));
        assert_eq!(
            expect("tcp 203.0.113.1:$port > $to:80 S", &mut names),
            Ok(())
        );
        let back = read("tcp $to:80 > 203.0.113.1:$port SA", true).unwrap();
        let back = back.packet(0, &names).unwrap();
        assert_eq!(back.to_string(), "tcp 192.0.2.1:80 > 203.0.113.1:1024 SA");
        let before = names.clone();
        for (line, why) in [
            ("udp *:* > *:*", "it is tcp, not udp"),
            ("tcp *:$new > *:81", "its destination port is 80, not 81"),
            (
                "tcp 10.0.0.1:* > *:*",
                "its source address is 203.0.113.1, not 10.0.0.1",
            ),
            ("tcp *:* > *:$port", "its destination port is 80, not 1024"),
            ("tcp *:* > *:* SA", "its flags is S, not SA"),
            ("tcp *:* > *:* seq=6", "its seq is 5, not 6"),
            ("tcp *:* > *:* ttl=63", "its ttl is 64, not 63"),
            ("tcp *:* > *:* \"y\"", "its payload is \"x\", not \"y\""),
            ("tcp $port:* > *:*", "$port stands for a port"),
        ] {
            assert_eq!(expect(line, &mut names).unwrap_err().to_string(), why);
        }
        assert_eq!(names, before, "a packet that does not fit names nothing");
    }

    #[test]
    fn rows_are_many_packets() {
        let ports = read("udp 10.0.0.7:5000 > 192.0.2.1:1..20", true).unwrap();
        assert_eq!(ports.count(), 20);
        let last = ports.packet(19, &Names::new()).unwrap();
        assert_eq!(last.ports, Some((5000, 20)));
        let hosts = read("udp 10.0.0.7:5000 > 192.0.2.5..9:1", true).unwrap();
        assert_eq!(hosts.count(), 5);
        let third = hosts.packet(2, &Names::new()).unwrap();
        assert_eq!(third.destination.to_string(), "192.0.2.7");
    }

    #[test]
    fn mistakes_say_what_to_write_instead() {
        for (line, sent, title) in [
            ("upd 1.2.3.4:5 > 1.2.3.4:5", true, "`upd` is no protocol"),
            ("udp 1.2.3.4:5", true, "this packet has not both ends"),
            ("udp 1.2.3.4:5 to 1.2.3.4:5", true, "`to` instead of `>`"),
            ("udp 1.2.3.4 > 1.2.3.4:5", true, "`1.2.3.4` has no port"),
            ("udp 1.2.3:5 > 1.2.3.4:5", true, "`1.2.3:5` has no address"),
            (
                "udp 1.2.3.4:5 > 1.2.3.4:70000",
                true,
                "`1.2.3.4:70000` has no port",
            ),
            (
                "udp 1.2.3.4:9..5 > 1.2.3.4:5",
                true,
                "`1.2.3.4:9..5` has no port",
            ),
            ("udp 1.2.3.4:* > 1.2.3.4:5", true, "`*` cannot be sent"),
            (
                "udp [1.2.3.4]:5 > 1.2.3.4:5",
                true,
                "`[1.2.3.4]:5` is no IPv6 address in brackets",
            ),
            (
                "udp [::1]:5 > 1.2.3.4:5",
                true,
                "one end has an IPv4 address, the other one an IPv6 address",
            ),
            (
                "udp 1.2.3.4:1..2 > 1.2.3.4:1..2",
                true,
                "more than one part of this packet goes in a row",
            ),
            (
                "icmp 1.2.3.4 > 1.2.3.4 id=x",
                true,
                "`x` is no value for `id`",
            ),
            (
                "udp 1.2.3.4:1 > 1.2.3.4:1 id=7",
                true,
                "udp packets have no `id` here",
            ),
            (
                "icmp 1.2.3.4 > 1.2.3.4 prohibited",
                true,
                "`prohibited` is about a packet, and none is reported",
            ),
            (
                "ip 1.2.3.4 > 1.2.3.4",
                true,
                "which protocol this packet carries is not reported",
            ),
        ] {
            let wrong = read(line, sent).unwrap_err();
            assert_eq!(wrong.title, title, "{line}");
            assert!(!wrong.help.is_empty(), "{line}");
        }
    }
}
