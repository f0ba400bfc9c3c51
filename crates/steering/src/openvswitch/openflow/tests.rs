//! Tests of the codec: against bytes that another program made (`golden.py`), and against bytes that nobody meant.

use super::*;

/// Version, name and bytes of each golden message.
fn golden() -> Vec<(Version, &'static str, Vec<u8>)> {
    let line = |line: &'static str| {
        let [version, name, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let version = match version {
            "1.3" => Version::V13,
            _ => Version::V15,
        };
        let byte = |place: usize| u8::from_str_radix(&hex[place..place + 2], 16).unwrap();
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        (version, name, bytes)
    };
    include_str!("golden.txt").lines().map(line).collect()
}

const COOKIE: u64 = 0xa57e;
const GROUP: u32 = 0x4173_0000;

fn network(address: &str, prefix_bits: u8) -> Network {
    Network {
        address: address.parse().unwrap(),
        prefix_bits,
    }
}

fn matching(destination: Network) -> Match {
    Match {
        in_port: Some(9),
        destination: Some(destination),
        has_more: false,
    }
}

fn flow_mod(command: FlowCommand, destination: Network) -> Message {
    let to_group = vec![Instruction::Apply(vec![Action::Group(GROUP)])];
    let is_add = command == FlowCommand::Add;
    Message::FlowMod(FlowMod {
        command,
        cookie: COOKIE,
        table: 0,
        priority: 1_000,
        matching: matching(destination),
        instructions: if is_add { to_group } else { Vec::new() },
    })
}

fn group() -> Group {
    let bucket = |number: u32| Bucket {
        number,
        weight: 1,
        actions: vec![
            Action::SetDestination([2, 0, 0, 0, 0, number as u8 + 1]),
            Action::Output(number + 1),
        ],
    };
    Group {
        id: GROUP,
        selects: true,
        selection: Selection::Unnamed,
        buckets: (0..3).map(bucket).collect(),
    }
}

fn port(number: u32, name: &str, config: u32, state: u32) -> Port {
    Port {
        number,
        address: [2, 0, 0, 0, 10, number as u8],
        name: name.to_owned(),
        config,
        state,
    }
}

/// What a golden message says.
fn meaning(version: Version, name: &str) -> Message {
    let v4 = network("203.0.113.0", 29);
    let down = || port(2, "to-b", 1, 1);
    match name {
        "hello" => Message::Hello(Greeting {
            greatest: version as u8,
            bitmap: Some(0x50),
        }),
        "error" => Message::Error(SwitchError {
            class: 5,
            code: 1,
            data: b"abcdefgh".to_vec(),
        }),
        "echo-request" => Message::EchoRequest(b"xyz".to_vec()),
        "echo-reply" => Message::EchoReply(b"xyz".to_vec()),
        "features-request" => Message::FeaturesRequest,
        "features" => Message::Features(Features {
            datapath: 0x1122_3344_5566_7788,
            tables: 254,
        }),
        "config-request" => Message::ConfigRequest,
        "set-config" => Message::SetConfig {
            flags: 0,
            miss_bytes: 128,
        },
        "set-async" => Message::SetAsync,
        "port-status" => Message::PortStatus(PortReason::Modified, down()),
        "ports" => Message::Ports(vec![port(1, "to-a", 0, 4), down()], false),
        "ports-request" => Message::PortsRequest,
        "groups-request" => Message::GroupsRequest(match version {
            Version::V13 => ALL_GROUPS,
            Version::V15 => GROUP,
        }),
        "flow-add-v4" => flow_mod(FlowCommand::Add, v4),
        "flow-add-v6" => flow_mod(FlowCommand::Add, network("2001:db8::1", 128)),
        "flow-delete" => flow_mod(FlowCommand::DeleteStrict, v4),
        "flows-request" => Message::FlowsRequest(FlowFilter {
            table: 0,
            cookie: COOKIE,
            cookie_mask: u64::MAX,
            matching: Match::default(),
        }),
        "flows" => {
            let flow = Flow {
                table: 0,
                priority: 1_000,
                cookie: COOKIE,
                matching: matching(v4),
                instructions: vec![Instruction::Apply(vec![Action::Group(GROUP)])],
            };
            Message::Flows(vec![flow], true)
        }
        "group-add" => Message::GroupMod(GroupMod {
            command: GroupCommand::Add,
            group: group(),
        }),
        "groups" => Message::Groups(vec![group()], false),
        "barrier-request" => Message::BarrierRequest,
        "barrier-reply" => Message::BarrierReply,
        "bundle-open" => Message::Bundle(5, BundleStep::OPEN),
        "bundle-commit" => Message::Bundle(5, BundleStep::COMMIT),
        "bundle-discard" => Message::Bundle(5, BundleStep::DISCARD),
        "bundle-add" => Message::BundleAdd(5, 24, Box::new(flow_mod(FlowCommand::Add, v4))),
        other => panic!("{other} has no meaning"),
    }
}

#[test]
fn golden_bytes_are_read_and_made() {
    let golden = golden();
    assert_eq!(golden.len(), 48);
    for (version, name, bytes) in golden {
        let (transaction, message) = Message::decode(&bytes).unwrap();
        assert_eq!(message, meaning(version, name), "{version} {name}");
        let made = message.encode(version, transaction).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (made, bytes): (String, String) = (hex(&made), hex(&bytes));
        // Fields that steering does not read are sent as zeros.
        let ignored = |hex: String| match name {
            "features" => hex.replace("0000004f", "00000000"),
            _ => hex,
        };
        assert_eq!(made, ignored(bytes), "{version} {name}");
    }
}

#[test]
fn methods_of_selection_are_read_as_they_are_written() {
    for selection in [
        Selection::Unnamed,
        Selection::Datapath,
        Selection::FiveTuple,
        Selection::Source,
        Selection::Destination,
    ] {
        let message = Message::Groups(
            vec![
                Group {
                    selection,
                    ..group()
                };
                2
            ],
            true,
        );
        let bytes = message.encode(Version::V15, 7).unwrap();
        assert_eq!(Message::decode(&bytes), Ok((7, message)));
    }
    let named = Message::Groups(
        vec![Group {
            selection: Selection::Source,
            ..group()
        }],
        false,
    );
    let bytes = named.encode(Version::V15, 7).unwrap();
    // Another name, another basis of the hash, another field, and a part of a field.
    let name = bytes.windows(4).position(|four| four == b"hash").unwrap();
    for (place, value) in [
        (name + 4, b'x'),
        (name + 23, 1),
        (name + 26, 99),
        (name + 28, 1),
    ] {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        let Ok((_, Message::Groups(groups, _))) = Message::decode(&bytes) else {
            panic!("{place}");
        };
        assert_eq!(groups[0].selection, Selection::Other, "{place}");
    }
}

#[test]
fn networks_are_what_they_say() {
    for bits in 0..=32 {
        let address = std::net::Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - bits).unwrap_or(0));
        let one = network(&address.to_string(), bits as u8);
        assert!(one.is_network(), "{one}");
        let message = flow_mod(FlowCommand::Add, one);
        let bytes = message.encode(Version::V13, 1).unwrap();
        assert_eq!(Message::decode(&bytes), Ok((1, message)), "{one}");
    }
    for one in [
        network("::", 0),
        network("2001:db8::", 33),
        network("2001:db8::1", 128),
    ] {
        let message = flow_mod(FlowCommand::Add, one);
        let bytes = message.encode(Version::V15, 1).unwrap();
        assert_eq!(Message::decode(&bytes), Ok((1, message)), "{one}");
        assert!(one.is_network());
    }
    for wrong in [
        network("203.0.113.1", 29),
        network("0.0.0.0", 33),
        network("128.0.0.0", 0),
        network("2001:db8::1", 127),
        network("::", 129),
    ] {
        assert!(!wrong.is_network(), "{wrong}");
    }
}

#[test]
fn matches_of_others_are_seen_to_have_more() {
    let bytes = flow_mod(FlowCommand::Add, network("203.0.113.0", 29));
    let bytes = bytes.encode(Version::V15, 1).unwrap();
    let mask = bytes
        .windows(4)
        .position(|four| four == [255, 255, 255, 248])
        .unwrap();
    let version = bytes.windows(2).position(|two| two == [8, 0]).unwrap();
    // A mask with a hole, and another Ethernet type than the address's.
    for (place, value) in [(mask + 1, 0x7f), (version, 0x86)] {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        let Ok((_, Message::FlowMod(change))) = Message::decode(&bytes) else {
            panic!("{place}");
        };
        assert!(change.matching.has_more, "{place}");
    }
}

#[test]
fn both_ends_agree_on_a_version() {
    use Version::{V13, V15};
    let both = Greeting::new(&[V13, V15]);
    let old = Greeting {
        greatest: 4,
        bitmap: None,
    };
    let new = Greeting {
        greatest: 6,
        bitmap: None,
    };
    let between = Greeting {
        greatest: 5,
        bitmap: None,
    };
    assert_eq!(both.common(both), Some(V15));
    assert_eq!(both.common(Greeting::new(&[V13])), Some(V13));
    assert_eq!(
        both.common(Greeting {
            greatest: 6,
            bitmap: Some(1 << 5)
        }),
        None
    );
    assert_eq!((both.common(old), both.common(new)), (Some(V13), Some(V15)));
    assert_eq!(both.common(between), None);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let bundle = Message::Bundle(1, BundleStep::OPEN).encode(Version::V13, 1);
    assert_eq!(bundle, Err(WireError::NotInVersion("a bundle")));
    let inside = Message::BundleAdd(1, 1, Box::new(Message::BarrierRequest));
    assert!(inside.encode(Version::V15, 1).is_err());
    let many = Message::EchoRequest(vec![0; 1 << 16]);
    assert!(matches!(
        many.encode(Version::V15, 1),
        Err(WireError::Long { .. })
    ));
    let name = Message::Ports(vec![port(1, "sixteen-letters!", 0, 0)], false);
    assert!(matches!(
        name.encode(Version::V15, 1),
        Err(WireError::Text(_))
    ));
    assert!(Message::Other(99).encode(Version::V15, 1).is_err());
}

/// Numbers that are the same at each run.
fn draw(random: &mut u64, below: usize) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize % below
}

/// Any bytes give a message or an error; one that is read and can be made again is read again as the same.
fn holds(bytes: &[u8]) {
    let Ok((transaction, message)) = Message::decode(bytes) else {
        return;
    };
    for version in [Version::V13, Version::V15] {
        if let Ok(made) = message.encode(version, transaction) {
            let again = Message::decode(&made).map(|(_, message)| message);
            // Only OpenFlow 1.5 has all of it.
            if version == Version::V15 {
                assert_eq!(again.as_ref(), Ok(&message), "{bytes:?}");
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = 34;
    for _ in 0..50_000 {
        let length = draw(&mut random, 120);
        let mut bytes: Vec<u8> = (0..length).map(|_| draw(&mut random, 256) as u8).collect();
        // Half of them with a header that leads further.
        if draw(&mut random, 2) == 0 && length >= HEADER_BYTES {
            bytes[0] = [4, 6][draw(&mut random, 2)];
            bytes[1] = draw(&mut random, 36) as u8;
            bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        }
        holds(&bytes);
    }
}

#[test]
fn golden_bytes_that_were_changed_never_panic() {
    let golden = golden();
    let mut random = 43;
    for (_, _, bytes) in &golden {
        for end in 0..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            holds(&cut);
            if let Some(length) = cut.get_mut(2..4) {
                length.copy_from_slice(&(end as u16).to_be_bytes());
            }
            holds(&cut);
        }
        for _ in 0..2_000 {
            let mut bytes = bytes.clone();
            for _ in 0..=draw(&mut random, 3) {
                let place = draw(&mut random, bytes.len());
                bytes[place] = match draw(&mut random, 3) {
                    0 => [0, 1, 7, 8, 255][draw(&mut random, 5)],
                    1 => bytes[place] ^ (1 << draw(&mut random, 8)),
                    _ => draw(&mut random, 256) as u8,
                };
            }
            holds(&bytes);
            let mut inbox = Inbox::default();
            inbox.push(&bytes).unwrap();
            while let Ok(Some(message)) = inbox.next_message() {
                holds(message);
            }
        }
    }
}
