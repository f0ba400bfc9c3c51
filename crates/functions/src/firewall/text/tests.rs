//! Rule files that are read, and every kind of mistake.

use super::*;
use crate::firewall::rules::Query;
use core::net::IpAddr;

fn query(link: Link, protocol: u8, from: &str, to: &str, port: u16) -> Query {
    Query {
        link,
        protocol,
        source: from.parse::<IpAddr>().unwrap().into(),
        destination: to.parse::<IpAddr>().unwrap().into(),
        source_port: 40_000,
        destination_port: port,
    }
}

#[test]
fn rules_are_read_and_the_first_that_matches_decides() {
    let rules = read(
        "set office = 10.0.0.0/8, 2001:db8::/32 # us\n\
         set web = 80, 443, 8000-8099\n\n\
         drop tcp from 10.9.0.0/16 log\n\
         allow tcp on inside from @office to any port @web, 22\n\
         allow udp, tcp on inside to 192.0.2.53 port 53\n\
         block 10m tcp on outside to any port 23 log\n\
         allow protocol 47, icmp\n\
         default drop\n",
    )
    .unwrap();
    let inside = |from, to, port| rules.decide(&query(Link::Inside, 6, from, to, port));
    assert_eq!(rules.rules().len(), 5);
    for (from, to, port, line) in [
        ("10.1.2.3", "198.51.100.1", 8_050, Some(5)),
        ("10.1.2.3", "198.51.100.1", 22, Some(5)),
        ("2001:db8:9::1", "2001:db9::1", 443, Some(5)),
        ("10.9.2.3", "198.51.100.1", 80, Some(4)),
        ("11.1.2.3", "198.51.100.1", 80, None),
        ("11.1.2.3", "192.0.2.53", 53, Some(6)),
    ] {
        let (action, rule) = inside(from, to, port);
        assert_eq!(rule.map(|rule| rule.line), line, "{from} {to} {port}");
        let allowed = matches!(line, Some(5 | 6));
        assert_eq!(action == Action::Allow, allowed);
    }
    let (action, rule) = rules.decide(&query(Link::Outside, 6, "11.0.0.1", "10.0.0.1", 23));
    assert_eq!(action, Action::Block(600));
    assert!(rule.unwrap().logs);
    let gre = query(Link::Outside, 47, "11.0.0.1", "10.0.0.1", 0);
    assert_eq!(rules.decide(&gre).0, Action::Allow);
}

/// Each kind of mistake: where it is, and what to write instead.
#[test]
fn every_kind_of_mistake_is_told_with_its_place_and_what_to_write() {
    for (text, place, instead) in [
        ("alow tcp", "alow", "did you mean `allow`?"),
        ("Allow tcp", "Allow", "did you mean `allow`?"),
        ("permit tcp", "permit", "begin with `allow`, `drop`"),
        ("allow tpc", "tpc", "did you mean `tcp`?"),
        ("allow something", "something", "write what it is about"),
        ("allow tcp udp", "udp", "one list with commas"),
        ("allow tcp, sctp", "sctp", "such as `protocol 47`"),
        ("allow tcp, udpp", "udpp", "did you mean `udp`?"),
        ("allow tcp, 300", "300", "such as `protocol 47`"),
        ("allow protocol", "protocol", "such as"),
        ("allow tcp on insde", "insde", "did you mean `on inside`?"),
        (
            "allow tcp on eth0",
            "eth0",
            "write `on inside` or `on outside`",
        ),
        ("allow tcp on", "on", "write `on inside`"),
        ("allow tcp from", "from", "such as `from 10.0.0.0/8`"),
        ("allow tcp to any port", "port", "such as `port 80"),
        ("allow tcp port 80", "port", "write `to any port 80`"),
        ("allow tcp to any port 80 port 81", "port", "one list"),
        ("allow tcp to any port http", "http", "write 80"),
        ("allow tcp to any port 70000", "70000", "0 to 65535"),
        ("allow tcp to any port 90-80", "90-80", "write 80-90"),
        ("allow tcp to any port 80,", ",", "one comma between"),
        ("allow tcp to any port ,80", ",", "one comma between"),
        ("allow to any port 80", "allow to any port 80", "in front"),
        (
            "allow icmp to any port 80",
            "allow icmp to any port 80",
            "in front",
        ),
        (
            "allow tcp from 10.0.0.1/8",
            "10.0.0.1/8",
            "write 10.0.0.0/8",
        ),
        ("allow tcp from 10.0.0.0/33", "10.0.0.0/33", "0 to 32"),
        (
            "allow tcp from 2001:db8::/129",
            "2001:db8::/129",
            "0 to 128",
        ),
        (
            "allow tcp from 10.0.0.256",
            "10.0.0.256",
            "write an address",
        ),
        ("allow tcp from office", "office", "`@office`"),
        (
            "set office = 10.0.0.0/8\nallow tcp from office",
            "office",
            "write `@office`",
        ),
        (
            "set office = 10.0.0.0/8\nallow tcp from @ofice",
            "@ofice",
            "did you mean `@office`?",
        ),
        ("allow tcp from @nobody", "@nobody", "on a line above"),
        (
            "set web = 80\nallow tcp from @web",
            "@web",
            "`to any port @web`",
        ),
        (
            "set a = 10.0.0.0/8\nallow tcp to any port @a",
            "@a",
            "behind `from` or `to`",
        ),
        ("set web = 80\nset web = 81", "web", "another name"),
        ("set web 80", "80", "`set web = "),
        ("set", "set", "write it like"),
        ("set web =", "=", "write it like"),
        ("set w@b = 80", "w@b", "letters, digits"),
        ("set web = 80 443", "443", "`, 443`"),
        ("set web = 80, x", "x", "0 to 65535"),
        (
            "allow tcp from 10.0.0.0/8 to 2001:db8::/32",
            "allow",
            "one rule for IPv4",
        ),
        ("allow icmp to 2001:db8::/32", "allow", "write `icmpv6`"),
        ("allow icmpv6 from 10.0.0.0/8", "allow", "write `icmp`"),
        ("block tcp", "tcp", "such as 30s"),
        ("block", "block", "block 10m"),
        ("block 10 tcp", "10", "its unit, such as 10s"),
        ("block 8d tcp", "8d", "1s to 7d"),
        (
            "block 99999999999999999999h tcp",
            "99999999999999999999h",
            "1s to 7d",
        ),
        ("default", "default", "`default drop`"),
        ("default block", "block", "`default drop`"),
        ("default drop\ndefault allow", "default", "leave one"),
        ("allow tcp log log", "log", "two rules"),
        ("= 3", "=", "begin with"),
    ] {
        let mistakes = read(text).expect_err(text);
        assert_eq!(mistakes.len(), 1, "{text}: {mistakes:?}");
        let mistake = &mistakes[0];
        assert!(
            text[mistake.span.clone()].starts_with(place),
            "{text}: points at {:?}",
            &text[mistake.span.clone()]
        );
        assert!(
            mistake.instead.contains(instead),
            "{text}: {}",
            mistake.instead
        );
        let lines = text[..mistake.span.start].matches('\n').count() as u32;
        assert_eq!(mistake.line, lines + 1, "{text}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_within_a_bound() {
    let mistakes = read("alow tcp\nallow tcp\ndrop udp to any port x\nset a = ,").unwrap_err();
    assert_eq!(
        mistakes
            .iter()
            .map(|mistake| mistake.line)
            .collect::<Vec<_>>(),
        [1, 3, 4]
    );
    assert_eq!(read(&"x\n".repeat(500)).unwrap_err().len(), MISTAKES_MAX);
    let long = " ".repeat(RULE_FILE_BYTES_MAX + 1);
    assert!(read(&long).unwrap_err()[0].wrong.contains("bytes"));
    let many = "allow tcp\n".repeat(5_000);
    assert!(read(&many).unwrap_err()[0].wrong.contains("4096 rules"));
}

/// Nothing that is written makes the reader panic, or points outside the file.
#[test]
fn any_text_is_read_or_refused() {
    let pieces = [
        "allow",
        "drop",
        "block",
        "set",
        "default",
        "tcp",
        "on",
        "inside",
        "from",
        "to",
        "port",
        "any",
        "@a",
        "a",
        "=",
        ",",
        "80",
        "1-2",
        "10.0.0.0/8",
        "::/0",
        "10m",
        "log",
        "\n",
        "#",
        "é",
        "\u{2028}",
        "protocol",
        "47",
        "\t",
        "\r\n",
    ];
    for draw in 0..20_000u64 {
        let mut text = String::new();
        for place in 0..hash::words(draw, 0, 3) % 14 {
            let piece = hash::words(draw, place, 4) % pieces.len() as u64;
            text.push_str(pieces[piece as usize]);
            if !hash::words(draw, place, 5).is_multiple_of(4) {
                text.push(' ');
            }
        }
        if let Err(mistakes) = read(&text) {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                assert!(
                    text.get(mistake.span.clone()).is_some(),
                    "{text:?} {mistake:?}"
                );
                assert!(!mistake.instead.is_empty() && !mistake.wrong.is_empty());
            }
        }
    }
}
