//! Hosts whose dates differ by hours or decades: sessions of a dead host live as long as they would, and replicas are equal.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, StateChannel, host};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason, Tick,
    Verdict, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::membership::Roster;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Seconds after which an unused session ends; a quarter of it and a second are the grace.
const IDLE_S: Tick = 8;
const SESSIONS: u16 = 100;
/// Seconds since 1970.
const DATE_S: Tick = 1_700_000_000;
const SIX_HOURS_S: Tick = 6 * 3_600;
/// 1 January 2000.
const YEAR_2000_S: Tick = 946_684_800;

/// Remembers who sent something.
struct Sessions;

#[state]
struct Known {
    sessions: Map<Endpoint, ()>,
}

impl NetworkFunction for Sessions {
    type State = Known;
    fn state(&self, builder: &Builder) -> Known {
        Known {
            sessions: builder.table("sessions", 4096, &[IDLE_S]),
        }
    }
    fn packet(&self, ask: Ask<'_, Known>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let source = flow.source();
        let known = ask.sessions.get(&source)?;
        let vacancy = match known {
            None => ask.sessions.vacancy()?,
            Some(_) => None,
        };
        let mut act = ask.act()?;
        match (known, vacancy) {
            (Some(known), _) => act.sessions.touch(&known),
            (None, Some(vacancy)) => act.sessions.insert(vacancy, source, ()),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(source: u16) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let flow = Flow4 {
        source: [10, 0, (source >> 8) as u8, source as u8].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000 + source,
        destination_port: 53,
        protocol: Protocol::UDP.0,
    };
    let length = build::flow4(&flow, b"payload", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

type Member = (MemberId, StateChannel, Vec<Instance<Sessions>>);

/// A host with two instances, in this incarnation, whose machine has this date.
fn start(place: u16, incarnation: u64, date_s: Tick, joins: bool) -> Member {
    let names: Vec<_> = (0..3).map(MemberId).collect();
    let mut secrets = [0; 48];
    secrets[0] = incarnation as u8;
    let mut config = HostConfig::new(
        ClusterId(9),
        MemberId(place),
        Incarnation(incarnation),
        names,
        ClusterKey::from_random(1, [7; 32]),
        secrets,
    );
    config.instances = 2;
    config.tick_at_zero = date_s;
    config.joins = joins;
    let (mut channel, parts) = host(config, Time::ZERO).unwrap();
    channel.set_date(i64::from(date_s) * 1_000_000);
    let instances = parts.into_iter().map(|parts| {
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::new("in")),
            Box::new(MemoryPort::sink("out")),
        ];
        let pool = FramePool::new(256).unwrap();
        parts.start(
            Arc::new(Sessions),
            |_| ObjectSettings::REPLICATED,
            pool,
            ports,
        )
    });
    (MemberId(place), channel, instances.collect())
}

fn roster(epoch: u32, members: &[(u16, u64)]) -> Roster {
    let named = |&(place, incarnation)| (MemberId(place), Some(Incarnation(incarnation)));
    Roster {
        epoch: Epoch(epoch),
        members: members.iter().map(named).collect(),
        assignment: Vec::new(),
    }
}

fn install(cluster: &mut Cluster<Sessions>, places: &[usize], roster: &Roster) {
    for &place in places {
        cluster.install(place, roster).unwrap();
    }
}

fn run(cluster: &mut Cluster<Sessions>, time: Duration) {
    cluster.run_until(cluster.now() + time);
}

/// Sessions that each instance of these hosts has; their digests and times are alike.
fn sessions(cluster: &Cluster<Sessions>, places: &[usize]) -> usize {
    let members = cluster.members();
    let all: Vec<_> = places
        .iter()
        .flat_map(|&place| &members[place].instances)
        .collect();
    for instance in &all {
        assert_eq!(instance.digests(), all[0].digests(), "replicas are equal");
        assert!(instance.tick().abs_diff(all[0].tick()) <= 1, "one time");
        assert_eq!(
            instance.state().sessions.len_now(),
            all[0].state().sessions.len_now()
        );
    }
    all[0].state().sessions.len_now()
}

/// Three hosts with these dates, of which the first has sessions that all know.
fn begin(dates_s: [Tick; 3]) -> Cluster<Sessions> {
    let hosts = (0..3u16).map(|place| {
        let date_s = dates_s[usize::from(place)];
        start(place, u64::from(place) + 100, date_s, false)
    });
    let mut network = Network::new(42);
    network.set_defaults(LinkConditions::with_delay(Duration::from_millis(1)));
    let mut cluster = Cluster::new(hosts.collect(), network);
    run(&mut cluster, Duration::from_millis(500));
    for source in 0..SESSIONS {
        assert!(cluster.inject(0, usize::from(source % 2), PortNumber(0), &packet(source)));
    }
    run(&mut cluster, Duration::from_millis(200));
    assert_eq!(sessions(&cluster, &[0, 1, 2]), usize::from(SESSIONS));
    let tick = cluster.members()[2].instances[0].tick();
    assert_eq!(tick, dates_s[0], "the first host's date");
    cluster
}

#[test]
fn sessions_of_a_dead_host_live_as_long_whatever_the_others_dates_are() {
    for dates_s in [
        [DATE_S, DATE_S + SIX_HOURS_S, YEAR_2000_S],
        [DATE_S, DATE_S - SIX_HOURS_S, DATE_S],
        [YEAR_2000_S, DATE_S, DATE_S],
    ] {
        let mut cluster = begin(dates_s);
        cluster.set_paused(0, true);
        install(&mut cluster, &[1, 2], &roster(2, &[(1, 101), (2, 102)]));
        // As long as they may be in use all the same.
        run(&mut cluster, Duration::from_secs(6));
        assert_eq!(
            sessions(&cluster, &[1, 2]),
            usize::from(SESSIONS),
            "{dates_s:?}"
        );
        // Idle since 6.2 s, and over after 8 + 2 + 1.
        run(&mut cluster, Duration::from_secs(9));
        assert_eq!(sessions(&cluster, &[1, 2]), 0, "{dates_s:?}");
    }
}

#[test]
fn a_newcomer_whose_date_is_wrong_ends_nothing_and_keeps_nothing() {
    for date_s in [DATE_S + SIX_HOURS_S, DATE_S - SIX_HOURS_S, YEAR_2000_S] {
        let mut cluster = begin([DATE_S; 3]);
        cluster.replace(0, start(0, 200, date_s, true));
        let all = [(0, 200), (1, 101), (2, 102)];
        install(&mut cluster, &[1, 2], &roster(2, &all[1..]));
        run(&mut cluster, Duration::from_millis(500));
        install(&mut cluster, &[0, 1, 2], &roster(3, &all));
        run(&mut cluster, Duration::from_secs(5));
        assert!(cluster.members()[0].channel.is_ready());
        assert_eq!(
            sessions(&cluster, &[0, 1, 2]),
            usize::from(SESSIONS),
            "{date_s}"
        );
        // What the newcomer uses is used for all: the last half lives on.
        for source in SESSIONS / 2..SESSIONS {
            assert!(cluster.inject(0, 0, PortNumber(0), &packet(source)));
        }
        run(&mut cluster, Duration::from_secs(8));
        assert_eq!(
            sessions(&cluster, &[0, 1, 2]),
            usize::from(SESSIONS / 2),
            "{date_s}"
        );
        run(&mut cluster, Duration::from_secs(8));
        assert_eq!(sessions(&cluster, &[0, 1, 2]), 0, "{date_s}");
    }
}

#[test]
fn a_date_that_is_corrected_while_running_ends_nothing() {
    let mut cluster = begin([YEAR_2000_S, DATE_S, DATE_S]);
    for date_s in [DATE_S, DATE_S + SIX_HOURS_S, YEAR_2000_S] {
        for member in cluster.members_mut() {
            member.channel.set_date(i64::from(date_s) * 1_000_000);
        }
        run(&mut cluster, Duration::from_secs(2));
        assert_eq!(sessions(&cluster, &[0, 1, 2]), usize::from(SESSIONS));
    }
    run(&mut cluster, Duration::from_secs(9));
    assert_eq!(sessions(&cluster, &[0, 1, 2]), 0);
}
