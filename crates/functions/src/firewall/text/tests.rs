//! Rule files that are read, and every kind of mistake.

use super::*;
use crate::firewall::rules::Query;
use asterism_function::objects::hash;
use asterism_tracking::Link;
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
fn every_kind_of_mistake_is_reported_with_its_place_and_what_to_write() {
    let mut wrong = Vec::new();
    for (text, place, instead) in [
        ("alow tcp", "alow", "did you mean `allow`?"),
        ("Allow tcp", "Allow", "did you mean `allow`?"),
        ("permit tcp", "permit", "write `allow`"),
        (
            "hinder tcp",
            "hinder",
            "begin with `allow`, `drop`, `reject`",
        ),
        ("deny tcp", "deny", "or `reject` for an answer"),
        ("established tcp", "established", "without a rule"),
        ("allow established", "established", "without a rule"),
        ("allow tcp state", "state", "without a rule"),
        ("allow tcp in", "in", "`on inside` or `on outside`"),
        ("allow tcp dport 80", "dport", "`to any port`"),
        ("allow proto tcp", "proto", "such as `tcp`"),
        ("allow ipv6", "ipv6", "`from ::/0`"),
        ("allow tcp limit 10", "limit", "function `limiter`"),
        ("allow icmp echo-request", "echo-request", "`icmp type 8`"),
        ("allow ipsec", "ipsec", "`esp, ah`"),
        ("allow tcp, icmp6", "icmp6", "write `icmpv6`"),
        ("allow tpc", "tpc", "did you mean `tcp`?"),
        ("allow something", "something", "write what it is about"),
        ("allow tcp udp", "udp", "one list with commas"),
        ("allow tcp, dccp", "dccp", "write `protocol 33`"),
        ("allow tcp, ftp", "ftp", "such as `protocol 47`"),
        (
            "allow sctp to any port 80",
            "allow sctp",
            "ports of SCTP are not looked at",
        ),
        ("allow icmp type", "type", "`icmp type 8`"),
        (
            "allow icmp type 3",
            "3",
            "8 or `echo-request`, 13, 15 or 17",
        ),
        ("allow icmp type 0", "0", "leave it out"),
        ("allow icmp type echo-reply", "echo-reply", "leave it out"),
        ("allow icmp type 300", "300", "write 8"),
        ("allow icmpv6 type 8", "8", "write 128"),
        ("allow tcp type 8", "type", "`icmp type 8`"),
        ("allow icmp, icmpv6 type 8", "type", "alone in front"),
        ("allow type 8", "type", "`icmp type 8`"),
        ("allow icmp type 8 code 0", "code", "not looked at"),
        ("reject tcp with icmp", "with", "not chosen"),
        ("allow tcp from any, 10.0.0.0/8", "any", "`any` alone"),
        ("allow tcp from 10.0.0.0/8, any", "any", "`any` alone"),
        ("set x = 10.0.0.0/8, any", "any", "`any` alone"),
        (
            "allow tcp from !10.0.0.0/8",
            "!10.0.0.0/8",
            "the other action above",
        ),
        (
            "allow tcp from 10.0.0.1-10.0.0.9",
            "10.0.0.1-",
            "write prefixes",
        ),
        ("allow tcp from www.example.com", "www.", "not looked up"),
        (
            "allow tcp from 10.0.0.0/255.0.0.0",
            "10.0.0.0/255.0.0.0",
            "write 10.0.0.0/8",
        ),
        ("allow tcp to any port any", "any", "leave `port` out"),
        ("allow tcp to any port 80:90", "80:90", "write 80-90"),
        (
            "allow tcp to any port 80\u{2013}90",
            "80\u{2013}90",
            "write 80-90",
        ),
        ("allow tcp to any port >1023", ">1023", "such as 1024-65535"),
        ("al\u{200b}low tcp", "al\u{200b}low", "is not seen"),
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
        ("default", "default", "`default drop`, `default reject`"),
        ("default block", "block", "`default drop`"),
        ("default drop\ndefault allow", "default", "leave one"),
        ("allow tcp log log", "log", "two rules"),
        ("= 3", "=", "begin with"),
    ] {
        let mistakes = read(text).expect_err(text);
        let [mistake] = &mistakes[..] else {
            wrong.push(format!("{text}: {mistakes:?}"));
            continue;
        };
        let at = &text[mistake.span.clone()];
        let lines = text[..mistake.span.start].matches('\n').count() as u32;
        let is_right =
            at.starts_with(place) && mistake.instead.contains(instead) && mistake.line == lines + 1;
        if !is_right {
            wrong.push(format!("{text}: at {at:?}: {mistake}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_sets_stand_for_is_bounded_before_it_is_made() {
    let doubled = |last: u32, behind: &str| {
        let mut text = "set a0 = 10.0.0.0/9\n".to_owned();
        for number in 1..=last {
            let before = number - 1;
            text.push_str(&format!("set a{number} = @a{before}, @a{before}\n"));
        }
        text + behind
    };
    // Sets of 1, 2, 4 ... 2^14: together less than 2^15.
    let rules = read(&doubled(14, "drop tcp from @a14")).unwrap();
    assert_eq!(rules.rules()[0].sources.len(), 1 << 14);
    let mistakes = read(&doubled(26, "drop tcp from @a26")).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert_eq!(mistakes[0].line, 17, "2^0 + ... + 2^16 is more than 65,536");
    assert!(mistakes[0].wrong.contains("in all sets together"));
    assert!(mistakes[0].instead.contains("shorter prefixes"));
    // Rules that name a set count its items each time.
    let rules = "drop tcp from @a14\n".repeat(5);
    let mistakes = read(&doubled(14, &rules)).unwrap_err();
    assert_eq!((mistakes.len(), mistakes[0].line), (1, 20), "{mistakes:?}");
    assert!(mistakes[0].wrong.contains("in all rules together"));
    // The same of ports, and of a line that names a set often.
    let ports = "set p0 = 80\nset p = ".to_owned() + &["@p0"; 70_000].join(", ");
    assert_eq!(read(&ports).unwrap_err().len(), 1);
    let networks = "drop tcp from ".to_owned() + &["10.0.0.0/8"; 70_000].join(", ");
    assert_eq!(read(&networks).unwrap_err().len(), 1);
    let lists =
        "set s = 10.0.0.0/8\n".to_owned() + "drop tcp to @s from " + &["@s"; 70_000].join(", ");
    assert_eq!(read(&lists).unwrap_err().len(), 1);
}

#[test]
fn a_network_holds_addresses_of_its_own_version_alone() {
    let rules = read(
        "set six = ::/0\n\
         drop udp from @six\n\
         drop tcp from ::/64\n\
         allow tcp to 0.0.0.0/0 port 80\n\
         default drop",
    )
    .unwrap();
    let line = |protocol, from, to, port| {
        let (_, rule) = rules.decide(&query(Link::Inside, protocol, from, to, port));
        rule.map(|rule| rule.line)
    };
    assert_eq!(line(17, "10.0.0.7", "192.0.2.1", 53), None);
    assert_eq!(line(17, "2001:db8::1", "2001:db8::2", 53), Some(2));
    assert_eq!(line(17, "::1", "2001:db8::2", 53), Some(2));
    assert_eq!(line(6, "10.0.0.7", "192.0.2.1", 80), Some(4));
    assert_eq!(line(6, "::7", "2001:db8::2", 80), Some(3));
    assert_eq!(line(6, "2001:db8::7", "2001:db8::2", 80), None);
}

/// An IPv4-mapped network is no other word for IPv4's, and not everything either.
#[test]
fn a_mapped_network_holds_nothing() {
    for text in [
        "allow tcp from ::ffff:10.0.0.0/104",
        "set x = ::ffff:10.0.0.0/104\nallow tcp from @x",
        "allow tcp to ::ffff:0:0/96",
    ] {
        let rules = read(text).unwrap();
        assert!(rules.rules()[0].names_no_address());
        for (from, to) in [
            ("10.0.0.7", "10.0.0.9"),
            ("2001:db8::1", "::1"),
            ("::", "::"),
        ] {
            let (action, rule) = rules.decide(&query(Link::Outside, 6, from, to, 80));
            assert_eq!((action, rule), (Action::Drop, None), "{text}: {from} {to}");
        }
    }
    let rules = read("allow tcp from ::ffff:10.0.0.0/104, 10.9.0.0/16").unwrap();
    let of = |from| {
        rules
            .decide(&query(Link::Outside, 6, from, "10.0.0.9", 80))
            .0
    };
    assert_eq!(
        (of("10.9.0.1"), of("10.0.0.7")),
        (Action::Allow, Action::Drop)
    );
}

#[test]
fn types_of_icmp_queries_are_reported_apart() {
    let rules = read(
        "allow icmp on outside to 10.0.0.0/8 type 8\n\
         allow icmp type echo-request, 13, 13 to 192.0.2.0/24\n\
         allow icmpv6 type 128\n\
         allow sctp, gre\n\
         allow tcp to any port 8",
    )
    .unwrap();
    let line = |protocol, to, port| {
        let (_, rule) = rules.decide(&query(Link::Outside, protocol, "192.0.2.9", to, port));
        rule.map(|rule| rule.line)
    };
    assert_eq!(line(1, "10.0.0.7", 8), Some(1));
    assert_eq!(line(1, "10.0.0.7", 13), None);
    assert_eq!(line(1, "192.0.2.7", 13), Some(2));
    assert_eq!(line(1, "192.0.2.7", 17), None);
    assert_eq!(line(58, "192.0.2.7", 128), Some(3));
    assert_eq!(
        (line(132, "10.0.0.7", 0), line(47, "10.0.0.7", 0)),
        (Some(4), Some(4))
    );
    assert_eq!(
        (line(6, "10.0.0.7", 8), line(6, "10.0.0.7", 13)),
        (Some(5), None)
    );
    assert_eq!(rules.rules()[1].icmp_types, [8, 13]);
}

#[test]
fn a_byte_order_mark_says_nothing_and_places_stay_right() {
    let rules = read("\u{feff}allow tcp\r\n\u{feff}reject udp\r\ndefault reject").unwrap();
    let actions: Vec<Action> = rules.rules().iter().map(|rule| rule.action).collect();
    assert_eq!(actions, [Action::Allow, Action::Reject]);
    assert_eq!(rules.default_action(), Action::Reject);
    assert_eq!(rules.rules()[0].text, "allow tcp");
    let text = "\u{feff}alow tcp";
    let mistake = &read(text).unwrap_err()[0];
    assert_eq!(&text[mistake.span.clone()], "alow");
}

#[test]
fn all_mistakes_are_reported_at_once_within_a_bound() {
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
    // An unknown set is compared with few of those that are known, however many there are.
    let named: String = (0..60_000)
        .map(|number| format!("set a-name-of-many-letters-{number} = 80\n"))
        .collect();
    let unknown = named + &"drop tcp to any port @a-name-of-many-letters-x\n".repeat(200);
    assert_eq!(read(&unknown).unwrap_err().len(), MISTAKES_MAX);
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
        "icmp",
        "type",
        "8",
        "reject",
        "\u{feff}",
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
