//! Words of other firewalls' languages, and what to write for them here.

/// What to write for a word at the beginning of a line.
pub(super) fn beginning(word: &str) -> Option<&'static str> {
    Some(match word {
        "accept" | "permit" | "pass" => "write `allow`",
        "deny" | "discard" | "ignore" => "write `drop`, or `reject` for an answer",
        "established" | "related" | "stateful" | "ct" | "state" => FLOWS,
        "policy" => "write `default drop`, `default reject` or `default allow`",
        "define" | "table" | "ipset" => "write `set NAME = ...`",
        "log" => "write `log` at the end of the rule",
        "include" => "one file has all rules: write them here",
        "nat" | "rdr" | "snat" | "dnat" | "masquerade" => {
            "a firewall does not translate: write a function `nat`, alone or as a stage of a chain"
        }
        _ => return invisible(word),
    })
}

const FLOWS: &str =
    "leave it out: what belongs to a known flow passes without a rule, which new flows alone need";

/// What to write for a word within a rule.
pub(super) fn part(word: &str) -> Option<&'static str> {
    Some(match word {
        "established" | "related" | "new" | "state" | "ct" | "ctstate" | "conntrack" | "keep"
        | "stateful" | "invalid" => FLOWS,
        "in" | "out" | "input" | "output" | "forward" | "iif" | "oif" | "iifname" | "oifname"
        | "via" => "write `on inside` or `on outside`: where the flow's first packet comes in",
        "src" | "saddr" | "source" => "write `from` and a network",
        "dst" | "daddr" | "dest" | "destination" => "write `to` and a network",
        "sport" | "sports" | "spt" => "write `from any port` and the ports",
        "dport" | "dports" | "dpt" => "write `to any port` and the ports",
        "ports" => "write `port`, with one comma between two",
        "proto" => "write the protocol alone, such as `tcp` or `protocol 47`",
        "ip" | "inet" | "all" | "*" => "write `any`, which is IPv4 and IPv6",
        "ip4" | "ipv4" => "write `from 0.0.0.0/0`, which is IPv4 alone",
        "ip6" | "ipv6" | "inet6" => "write `from ::/0`, which is IPv6 alone",
        "icmp6" | "icmp-v6" | "ipv6-icmp" => "write `icmpv6`",
        "icmp-type" | "icmpv6-type" => "write `icmp type 8` or `icmpv6 type 128`",
        "echo-request" | "echo" | "ping" => "write `icmp type 8` or `icmpv6 type 128`",
        "code" => "codes of ICMP are not looked at: write the type alone",
        "quick" => "leave it out: the first rule that matches decides",
        "not" | "!" => "write what is left out in a rule with the other action above",
        "accept" | "permit" | "pass" => "write `allow` at the beginning",
        "allow" | "drop" | "reject" | "block" | "deny" => "an action stands at the beginning",
        "with" => {
            "how `reject` answers is not chosen: TCP gets a reset, all else ICMP's \"prohibited\""
        }
        "flags" | "syn" | "ack" => "flags of TCP are not looked at: write `tcp` alone",
        "limit" | "rate" | "quota" | "burst" => {
            "rules have no rates: use a function `limiter`, as a stage of a chain"
        }
        "time" | "from-time" | "schedule" | "days" => "rules have no times: reload another file",
        "vlan" | "mac" | "ether" | "interface" | "user" | "uid" | "geoip" | "country"
        | "length" | "ttl" | "dscp" | "tos" | "string" => {
            "rules look at protocols, links, addresses and ports alone"
        }
        "comment" | "//" | ";" => "write comments behind `#`",
        "{" | "}" | "(" | ")" | "[" | "]" => "leave it out: a list has commas alone",
        _ => return protocol(word),
    })
}

/// What to write for a word in the place of a protocol.
pub(super) fn protocol(word: &str) -> Option<&'static str> {
    Some(match word {
        "icmp6" | "icmp-v6" | "ipv6-icmp" => "write `icmpv6`",
        "ipip" | "ipencap" => "write `protocol 4`",
        "ipv6" | "sit" | "6in4" => "write `protocol 41`",
        "ipsec" => "write `esp, ah` in one rule, and `udp` to port 500, 4500 in another",
        "dccp" => "write `protocol 33`",
        "udplite" => "write `protocol 136`",
        "any" | "all" | "ip" => "write `any` alone, or the protocols without it",
        "http" => "write `tcp` and `to any port 80`",
        "https" => "write `tcp` and `to any port 443`",
        "ssh" => "write `tcp` and `to any port 22`",
        "dns" => "write `udp, tcp` and `to any port 53`",
        _ => return invisible(word),
    })
}

/// What is wrong with a word in the place of a network, and what to write for it.
pub(super) fn network(word: &str) -> Option<(String, String)> {
    let instead = match word {
        "any" => {
            "write `any` alone, or networks without it: `any` is all addresses of both versions"
        }
        "all" | "*" | "everyone" | "anywhere" => "write `any` alone",
        "self" | "me" | "localhost" => {
            "write addresses: the firewall has none of its own, and judges what passes through it"
        }
        "not" | "!" => "write what is left out in a rule with the other action above",
        _ if word.starts_with('!') => {
            "write what is left out in a rule with the other action above, and `any` here"
        }
        _ if word.contains(['{', '}', '(', ')']) => {
            "write a list with commas alone, such as `from 10.0.0.0/8, 192.0.2.1`"
        }
        _ if is_range_of_addresses(word) => {
            "ranges of addresses are not offered: write prefixes, such as 10.0.0.0/30, 10.0.0.4"
        }
        _ if word.contains('.') && !word.contains(['/', ':', '@']) && is_name(word) => {
            "names are not looked up: write addresses or prefixes, such as 192.0.2.7"
        }
        _ => invisible(word)?,
    };
    Some((format!("`{word}` is no network"), instead.to_owned()))
}

fn is_range_of_addresses(word: &str) -> bool {
    let is_address = |text: &str| text.parse::<core::net::IpAddr>().is_ok();
    let ends = word.split_once('-');
    ends.is_some_and(|(first, last)| is_address(first) && !last.is_empty())
}

fn is_name(word: &str) -> bool {
    word.chars().any(|letter| letter.is_ascii_alphabetic())
}

/// What is wrong with a word in the place of a port, and what to write for it.
pub(super) fn port(word: &str) -> Option<(String, String)> {
    let plain: String = word.replace(['\u{2013}', '\u{2014}', ':'], "-");
    let instead = match word {
        "any" | "all" | "*" => "leave `port` out: without it all ports are meant".to_owned(),
        _ if plain != word && is_range_of_ports(&plain) => format!("write {plain}"),
        _ if word.contains(['{', '}', '(', ')']) => {
            "write a list with commas alone, such as `port 80, 443`".to_owned()
        }
        _ if word.starts_with(['<', '>', '!']) => "write a range, such as 1024-65535".to_owned(),
        _ if word.contains('/') => {
            "write the protocol in front, such as `tcp to any port 80`".to_owned()
        }
        _ => invisible(word)?.to_owned(),
    };
    Some((format!("`{word}` is no port"), instead))
}

fn is_range_of_ports(word: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let ends = word.split_once('-');
    ends.is_some_and(|(first, last)| is_port(first) && is_port(last))
}

/// Whether this is the name of an ICMP error.
pub(super) fn is_icmp_error(word: &str) -> bool {
    matches!(
        word,
        "destination-unreachable"
            | "unreachable"
            | "time-exceeded"
            | "parameter-problem"
            | "packet-too-big"
            | "redirect"
            | "source-quench"
    )
}

/// Letters that nobody sees, which copied text has.
fn invisible(word: &str) -> Option<&'static str> {
    let is_invisible = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}')
    };
    word.contains(is_invisible).then_some(
        "it has a letter that is not seen: type it again, or save the file as plain UTF-8",
    )
}
