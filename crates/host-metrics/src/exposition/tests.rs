//! The whole page of a host that has something of everything, compared with a page that was written once: a family whose name, help,
//! type, labels or place changes is a change for everyone who reads metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asterism_config::functions::Functions;
use asterism_config::{Config, Purpose};
use asterism_engine::transport::{self, ChannelSnapshot, PeerFault, RunConfig, UdpConfig};
use asterism_engine::{HostConfig, ObjectUse, host};
use asterism_function::{MetricKind, OwnMetric, Reason};
use asterism_io::clock::MonotonicClock;
use asterism_io::port::PortStatistics;
use asterism_placement::replicated::{MemberClock, SiteId, SiteState, Standing};
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectCounts;

use super::*;
use asterism_host_view::shared::Shared;
use asterism_host_view::statistics::StageSnapshot;
use asterism_host_view::store::StoreView;
use asterism_lines::{Sink, Writer};

/// The page, but for its clocks.
const PAGE: &str = include_str!("tests/page.txt");

const CONFIG: &str = "\
[cluster]
members = [\"a\", \"b\", \"c\"]
[function.cache-digests]
reports = \"192.0.2.9:5140\"
caches.b = { address = \"10.0.0.2\", reports = 1_000 }
";

/// What an instance shows, each number another one.
fn instance(first: u64) -> InstanceSnapshot {
    let mut number = first;
    let mut next = || {
        number += 1;
        number
    };
    let counts = ObjectCount::ALL.iter();
    InstanceSnapshot {
        at: Time::from_micros(1),
        turns: next(),
        sleeps: next(),
        counts: COUNTS.iter().map(|_| next()).collect(),
        dropped: Reason::ALL.iter().map(|_| next()).collect(),
        parked: next(),
        parked_most: next(),
        held: next(),
        held_bytes: next(),
        held_most: next(),
        incarnations: next(),
        frames_in_use: next(),
        ring_bytes: next(),
        ring_capacity: next(),
        ports: vec![PortSnapshot {
            statistics: PortStatistics {
                received_packets: next(),
                received_bytes: next(),
                sent_packets: next(),
                sent_bytes: next(),
                checksums_completed: next(),
                segments_made: next(),
                segments_merged: next(),
                link_downs: next(),
                reopened: next(),
                dropped: [next(); PortDrop::COUNT],
            },
            is_up: true,
        }],
        objects: vec![ObjectUse {
            name: "sessions",
            live: next() as usize,
            held: next() as usize,
            ended: next() as usize,
            capacity: next() as u32,
            quarantined: next() as u32,
            reclaimed: next() as u32,
            counts: counts.fold(ObjectCounts::default(), |counts, count| {
                counts.with(*count, next())
            }),
        }],
        stages: vec![StageSnapshot {
            acted: next(),
            late: next(),
            bypassed: next(),
            mirrored: next(),
            mirror_lost: next(),
            dropped: Reason::ALL.iter().map(|_| next()).collect(),
        }],
        own: vec![next(), next()],
    }
}

/// A view of two instances, and a snapshot of the state channel whose members and sites are all different.
fn view() -> (View, ChannelSnapshot, Writer) {
    let functions = Functions::default();
    let (config, report) = Config::read_as("test", CONFIG, Purpose::Scenario, None, functions);
    let mut config = config.unwrap_or_else(|| panic!("{}", report.render(false)));
    config.host.name = "a".to_owned();
    let clock = MonotonicClock::new();
    let key = ClusterKey::from_random(1, [7; 32]);
    let host_config = HostConfig {
        audited_objects: 1,
        ..config
            .cluster
            .host(MemberId(1), Incarnation(1), key, [3; 48], 9)
    };
    let (channel, _) = host(host_config, Time::ZERO).unwrap();
    let peer = |member| (MemberId(member), ([127, 0, 0, 1], 9 + member).into());
    let udp = UdpConfig::new(([127, 0, 0, 1], 0).into(), [peer(2), peer(3)]);
    let thread = transport::open(channel, &udp, RunConfig::default(), clock).unwrap();
    let shared: Vec<Arc<Shared>> = [1_000, 2_000]
        .into_iter()
        .map(|first| {
            let shared = Arc::new(Shared::new(false));
            let mut words = Vec::new();
            instance(first).write(&mut words);
            shared.statistics.publish(&words);
            shared
        })
        .collect();
    let metric = |name, kind| OwnMetric {
        name,
        kind,
        meaning: "A \"meaning\" with \\.",
    };
    let own = Own {
        reasons: Vec::new(),
        metrics: vec![
            metric("guard.flows", MetricKind::Counter),
            metric("shares", MetricKind::Gauge),
        ],
    };
    let mut view = View::new(
        &config,
        (&["sessions"], &["guard"], own),
        clock,
        (Incarnation(1), 9),
        shared,
        Vec::new(),
        thread.snapshots(),
    );
    view.names.ports = vec![("inside", "system", "eth1".to_owned())];
    view.names.sites = vec!["east".to_owned(), "west".to_owned()];
    view.exports.is_on.store(true, Ordering::Relaxed);
    view.exports.records.store(5, Ordering::Relaxed);
    view.nat_ports.is_on.store(true, Ordering::Relaxed);
    let store = asterism_config::Store {
        addresses: vec![([192, 0, 2, 7], 6_379).into()],
        shards: None,
        embedded: None,
        user: None,
        password: None,
        connections: 2,
        name: "test".to_owned(),
        ack: asterism_config::StoreAck::Primary,
        timeout: Duration::from_secs(1),
        cache: Some(asterism_config::StoreCache {
            entries: 64,
            staleness: std::time::Duration::ZERO,
            known_for: std::time::Duration::ZERO,
            filter: true,
        }),
    };
    let shown = StoreView::new(&store, &[], vec![vec![Arc::default()]]);
    view.store = shown.with_own(Some(Arc::default()));
    view.nat_ports.blocks_used.store(6, Ordering::Relaxed);
    let sink = Sink::open("/dev/null".as_ref(), u64::MAX).unwrap();
    let alerts = Writer::start("eve", sink, view.eve.clone()).unwrap();
    let mut snapshot = ChannelSnapshot::clone(&view.channel());
    fill(&mut snapshot);
    (view, snapshot, alerts)
}

fn fill(snapshot: &mut ChannelSnapshot) {
    snapshot.at = Time::from_micros(9_000_000);
    snapshot.head = 70;
    let channel = &mut snapshot.channel;
    channel.datagrams_sent = 101;
    channel.bytes_sent = 102;
    channel.datagrams_received = 103;
    channel.bytes_received = 104;
    channel.refused_sealed = 105;
    channel.refused_opened = 106;
    channel.refused_backlog = 107;
    channel.backlogged = 108;
    channel.held_by_log = 109;
    channel.events_lost = 110;
    snapshot.seal_dropped = (111, 112);
    snapshot.log_room.groups = 3;
    snapshot.log_room.bytes = 5;
    snapshot.backlog_bytes = 113;
    snapshot.window.length = Duration::from_micros(114);
    snapshot.state.path_mtu = 1_400;
    snapshot.sends_under = 115;
    snapshot.speaks = 116;
    snapshot.epoch = Epoch(117);
    snapshot.later_epoch = Some((MemberId(2), Epoch(118)));
    snapshot.thread.turns = 119;
    snapshot.thread.processor_time = Duration::from_micros(1_000_120);
    snapshot.is_quiet = true;
    snapshot.sites = vec![
        SiteState {
            site: SiteId(0),
            members: 2,
            relay: None,
            relayed: true,
            direct: 0,
        },
        SiteState {
            site: SiteId(1),
            members: 1,
            relay: Some(MemberId(3)),
            relayed: false,
            direct: 1,
        },
    ];
    snapshot.relay_keeps = (11, 12);
    snapshot.audit.objects = vec![(0, Some(Time::from_micros(2_500_000)))];
    let member = &mut snapshot.members[1];
    member.heard_under = Some(1);
    member.admitted = Some(Incarnation(5));
    member.has_welcomed = true;
    member.understands = Some(snapshot.understands);
    member.fault = Some((PeerFault::Deaf, Time::ZERO));
    member.without_key.datagrams = 4;
    member.lag.groups = 3;
    member.lag.age = Duration::from_micros(1_250);
    let progress = &mut member.progress;
    progress.acknowledged = 60;
    progress.heard = Some(Time::from_micros(8_999_000));
    progress.receives_until = Some(Time::from_micros(8_000_000));
    progress.lags_since = Some(Time::from_micros(7_000_000));
    progress.round_trip.samples = 3;
    progress.round_trip.average = Duration::from_micros(321);
    progress.round_trip.congested = true;
    progress.standing = Standing::Current;
    progress.clock = Some(MemberClock {
        cluster_ahead_us: -1_500_000,
        date_ahead_us: Some(2_000_001),
        within: Duration::ZERO,
        agrees: true,
        is_apart: false,
    });
}

#[test]
fn the_page_is_as_it_was() {
    let (view, snapshot, _alerts) = view();
    let clocks = ["asterism_uptime_seconds", "asterism_date_ahead_seconds"];
    let text = text_with(&view, &snapshot);
    let lines = text
        .lines()
        .filter(|line| !clocks.contains(&line.split(' ').next().unwrap_or(line)));
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    let page: Vec<String> = lines
        .map(|line| line.replace(version, "version=\"\""))
        .collect();
    if std::env::var_os("ASTERISM_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/exposition/tests/page.txt");
        std::fs::write(path, page.join("\n") + "\n").expect("the page is written");
        return;
    }
    let was: Vec<&str> = PAGE.lines().collect();
    for (line, was) in page.iter().zip(&was) {
        assert_eq!(line, was);
    }
    assert_eq!(page.len(), was.len());
    assert!(text.ends_with('\n'));
}
