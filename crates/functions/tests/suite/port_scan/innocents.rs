//! Traffic that is mostly silent, and no scan: streams, lost clients, searches for a path, tunnels. By default scanners are blocked, so an
//! alarm here cuts somebody off. The captures in `data` were blocked once.

use std::path::Path;

use asterism_functions::port_scan::{PortScanConfig, Shape, Thresholds};

use crate::port_scan::capture::{Step, detect, names, read, run};
use crate::port_scan::cluster::deal;
use crate::port_scan::ip::{icmp_error, ip, udp_ttl};
use crate::port_scan::packets::udp;

/// Demands that nobody is blocked: by one instance, and by three that share packets.
fn innocent(what: &str, steps: &[Step]) {
    let (alerts, dropped) = run(PortScanConfig::default(), steps);
    assert_eq!((names(&alerts), dropped), (vec![], 0), "{what}");
    for seed in [1, 7_919, 15_838] {
        assert_eq!(names(&deal(steps, 1, 1, seed)), [""; 0], "{what}: {seed}");
        assert_eq!(names(&deal(steps, 3, 2, seed)), [""; 0], "{what}: {seed}");
    }
}

#[test]
fn captures_of_innocents_that_were_blocked_once() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/port_scan/data");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        innocent(&path.to_string_lossy(), &read(&path));
        count += 1;
    }
    assert_eq!(count, 3);
}

/// Eight streams, each with RTP to an even port and RTCP between the next ones: of RTP nothing comes back.
#[test]
fn a_server_of_eight_streams_and_its_client() {
    for answers in [true, false] {
        let mut steps = Vec::new();
        for second in 0..150 {
            for stream in 0..8 {
                let (server, client) = (20_000 + 2 * stream, 50_000 + 2 * stream);
                for number in 0..5 {
                    let pause = u32::from(stream == 0 && number == 0 && second > 0);
                    steps.push((pause, udp((1, server), (2, client), b"rtp")));
                }
                steps.push((0, udp((1, server + 1), (2, client + 1), b"report")));
                if answers && second % 5 == 4 {
                    steps.push((0, udp((2, client + 1), (1, server + 1), b"report")));
                }
            }
        }
        innocent("eight streams", &steps);
    }
}

/// A player that changes its channel each few seconds: two more streams each time, which no one answers but by reports.
#[test]
fn a_player_that_changes_its_channel_often() {
    let mut steps = Vec::new();
    for channel in 0..40 {
        let (server, client) = (20_000 + 4 * channel, 50_000 + 4 * channel);
        for second in 0..8 {
            steps.push((u32::from(second > 0), udp((1, server), (2, client), b"rtp")));
            for port in 0..4 {
                steps.push((0, udp((1, server + port), (2, client + port), b"rtp")));
            }
            steps.push((0, udp((2, client + 1), (1, server + 1), b"report")));
        }
        steps.push((1, udp((1, server), (2, client), b"rtp")));
    }
    innocent("channels", &steps);
}

/// Clients behind one address fall silent one after the other, and their server goes on for long.
#[test]
fn a_server_whose_clients_fell_silent() {
    let mut steps = Vec::new();
    for client in 0..40 {
        steps.push((0, udp((2, 30_000 + client), (1, 27_015), b"play")));
        steps.push((0, udp((1, 27_015), (2, 30_000 + client), b"world")));
    }
    for _ in 0..60 {
        for client in 0..40 {
            let pause = if client == 0 { 10 } else { 0 };
            steps.push((pause, udp((1, 27_015), (2, 30_000 + client), b"world")));
        }
    }
    innocent("silent clients", &steps);
}

/// The player is closed, and its kernel refuses what still comes.
#[test]
fn a_server_of_four_streams_whose_client_is_gone() {
    let mut steps = Vec::new();
    for second in 0..20 {
        for port in 0..8 {
            let frame = udp((1, 20_000 + port), (2, 50_000 + port), b"rtp");
            let refusal = icmp_error(2, (3, 3), &frame);
            steps.push((u32::from(port == 0 && second > 0), frame));
            if second >= 10 {
                steps.push((0, refusal));
            }
        }
    }
    innocent("a closed player", &steps);
}

/// Of a stream that lasts each receiver is one that never answers.
#[test]
fn a_server_that_sends_streams_to_thirty_hosts() {
    let steps: Vec<_> = (0..200)
        .flat_map(|second| {
            (0..30).map(move |host| {
                let pause = u32::from(host == 0 && second > 0);
                (pause, udp((1, 20_000), (100 + host, 5_004), b"rtp"))
            })
        })
        .collect();
    innocent("thirty receivers", &steps);
}

/// Peers of VXLAN send each other what nobody sends back to: the source port is a hash, the other port always the same.
#[test]
fn sixty_ends_of_tunnels_that_send_to_one_port() {
    let mut steps = Vec::new();
    for round in 0..20 {
        for peer in 0..60 {
            let pause = u32::from(peer == 0 && round > 0) * 9;
            let hash = 49_152 + (round * 61 + peer * 7) % 16_000;
            steps.push((pause, udp((1, hash), (100 + peer, 4_789), b"frame")));
            steps.push((0, udp((100 + peer, hash + 1), (1, 4_789), b"frame")));
        }
    }
    innocent("tunnels", &steps);
}

/// `traceroute`, `mtr --udp` and their like, whether routers answer, the target refuses, or nobody says anything.
#[test]
fn searches_for_a_path() {
    for (answers, base) in [
        (true, 33_434),
        (false, 33_434),
        (true, 33_000),
        (false, 33_000),
    ] {
        let mut steps = Vec::new();
        for round in 0..8 {
            for hop in 0..12u8 {
                let number = u16::from(round * 12 + hop);
                let left = hop.clamp(1, 10);
                let frame = udp_ttl((1, 40_000 + number), (2, base + number), left);
                let answer = match hop < 9 {
                    true => icmp_error(200 + u16::from(hop), (11, 0), &frame),
                    false => icmp_error(2, (3, 3), &frame),
                };
                steps.push((u32::from(hop == 0), frame));
                if answers {
                    steps.push((0, answer));
                }
            }
        }
        innocent("a path", &steps);
    }
}

/// A search by other ports than those of the usual tools is recognised by what routers say.
#[test]
fn a_search_by_unusual_ports_that_routers_answer() {
    let steps: Vec<_> = (0..60)
        .flat_map(|number| {
            let frame = udp_ttl((1, 40_000), (2, 5_000 + number), 20);
            let answer = icmp_error(200 + number % 7, (11, 0), &frame);
            [(0, frame), (0, answer)]
        })
        .collect();
    innocent("unusual ports", &steps);
}

/// A router speaks several protocols to its peers, and one of them is down for one.
#[test]
fn a_router_with_five_protocols() {
    let mut steps = Vec::new();
    for second in 0..200 {
        for (place, protocol) in [47, 50, 89, 4, 41].into_iter().enumerate() {
            let pause = u32::from(place == 0 && second > 0);
            let frame = ip((1, 2), (protocol, 64), (0, false), b"payload!");
            let refusal = icmp_error(2, (3, 2), &frame);
            steps.push((pause, frame));
            match protocol {
                41 => steps.push((0, refusal)),
                89 => {}
                _ => steps.push((0, ip((2, 1), (protocol, 64), (0, false), b"payload!"))),
            }
        }
    }
    innocent("a router", &steps);
}

#[test]
fn udp_has_its_own_thresholds_and_its_own_switch() {
    let steps: Vec<_> = (0..60)
        .flat_map(|port| {
            let frame = udp((1, 40_000), (2, 1_000 + port), b"x");
            let refusal = icmp_error(2, (3, 3), &frame);
            [(0, frame), (0, refusal)]
        })
        .collect();
    let (alerts, dropped) = run(PortScanConfig::default(), &steps);
    assert_eq!(names(&alerts), ["UDP port scan of 10.0.0.1 (udp)"]);
    assert!((40..=51).contains(&dropped), "{dropped}");
    let alone = |config: PortScanConfig| {
        let (alerts, dropped) = run(config, &steps);
        (alerts.len(), dropped)
    };
    let only_reported = PortScanConfig {
        udp_blocks: false,
        ..PortScanConfig::default()
    };
    assert_eq!(alone(only_reported), (1, 0));
    let off = PortScanConfig {
        udp: None,
        ..PortScanConfig::default()
    };
    assert_eq!(alone(off), (0, 0));
    let many = PortScanConfig {
        udp: Some(Thresholds {
            ports: 100,
            hosts: 5,
        }),
        ..PortScanConfig::default()
    };
    assert_eq!(alone(many), (0, 0));
}

#[test]
fn silence_of_many_ports_is_a_scan_and_of_fewer_or_of_a_host_that_sends_is_none() {
    let probes = |count: u16| (0..count).map(|port| (0, udp((1, 40_000), (2, 1_000 + port), b"x")));
    let silent = |count| names(&run(detect(), &probes(count).collect::<Vec<_>>()).0);
    assert_eq!(silent(30), ["UDP port scan of 10.0.0.1 (udp)"]);
    assert_eq!(silent(16), [""; 0]);
    let mut steps = vec![(0, udp((2, 9_000), (1, 9_000), b"hello"))];
    // Several, of which chance may take one for an answer.
    steps.extend(probes(4));
    steps.push((0, udp((2, 9_001), (1, 9_000), b"hello")));
    steps.extend(probes(26));
    assert_eq!(names(&run(detect(), &steps).0), [""; 0]);
    steps.extend((30..180).map(|port| (0, udp((1, 40_000), (2, 1_000 + port), b"x"))));
    let (alerts, _) = run(detect(), &steps);
    assert_eq!(alerts[0].0.shape, Shape::Ports, "still a scan");
}
