//! Members whose dates differ, whose clocks drift, or whose machines stood still: they have one time in common, and no date changes it.

use std::time::Duration;

use asterism_placement::envelope::Refused;
use asterism_placement::replicated::{Config, Deliver, Destination, Replicator};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

use crate::replicated::scenarios::{A, B, C};

/// Seconds since 1970 at the start of a test.
const DATE_S: i64 = 1_700_000_000;
const HOUR_S: i64 = 3_600;
/// 1 January 2000.
const YEAR_2000_S: i64 = 946_684_800;
/// Every message takes so long.
const DELAY: Duration = Duration::from_millis(1);

/// What a host did with what it was given.
#[derive(Default)]
struct Record {
    /// Microseconds since 1970 of the cluster's time at zero of the host's clock; `None` until it was changed.
    at_zero_us: Option<i64>,
    changes: u64,
    groups: u64,
    /// Groups that came before the first change.
    groups_before: u64,
}

impl Deliver for Record {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {
        self.groups += 1;
        self.groups_before += u64::from(self.changes == 0);
    }
    fn cluster_time(&mut self, at_zero_us: i64) {
        self.at_zero_us = Some(at_zero_us);
        self.changes += 1;
    }
}

struct Host {
    replicator: Replicator,
    record: Record,
    /// When its machine was started: zero of its clock.
    zero: Time,
    /// Its clock is slow by so many parts of a million.
    slow_ppm: u64,
    /// How long its machine stood still.
    stood_still: Duration,
    refused: Vec<Refused>,
}

impl Host {
    fn local(&self, now: Time) -> Time {
        let us = now.since(self.zero).as_micros() as u64;
        let slow_us = us * self.slow_ppm / 1_000_000 + self.stood_still.as_micros() as u64;
        Time::from_micros(us - slow_us)
    }

    /// Microseconds since 1970 of its cluster time.
    fn time_us(&self, now: Time) -> i64 {
        let at_zero_us = self.replicator.cluster_time_at_zero_us().unwrap();
        if let Some(delivered) = self.record.at_zero_us {
            assert_eq!(delivered, at_zero_us, "the host has what was delivered");
        }
        at_zero_us + self.local(now).as_micros() as i64
    }
}

/// Hosts on a network that loses what `cut` says.
struct World {
    now: Time,
    hosts: Vec<Host>,
    members: Vec<MemberId>,
    flying: Vec<(Time, MemberId, MemberId, Vec<u8>)>,
    cut: bool,
}

impl World {
    fn new(members: &[MemberId]) -> World {
        World {
            now: Time::ZERO,
            hosts: Vec::new(),
            members: members.to_vec(),
            flying: Vec::new(),
            cut: false,
        }
    }

    /// Starts a host with this date.
    fn start(&mut self, member: MemberId, date_s: i64) {
        let mut config = Config::new(
            ClusterId(1),
            Epoch(1),
            member,
            Incarnation(u64::from(member.0)),
            self.members.clone(),
        );
        config.cluster_time_at_zero_us = Some(date_s as u64 * 1_000_000);
        let mut replicator = Replicator::new(config, Time::ZERO).unwrap();
        replicator.set_date(date_s * 1_000_000);
        self.hosts.push(Host {
            replicator,
            record: Record::default(),
            zero: self.now,
            slow_ppm: 0,
            stood_still: Duration::ZERO,
            refused: Vec::new(),
        });
    }

    fn host(&mut self, member: MemberId) -> &mut Host {
        let mut hosts = self.hosts.iter_mut();
        hosts
            .find(|host| host.replicator.config().member == member)
            .unwrap()
    }

    fn submit(&mut self, member: MemberId, groups: u64) {
        let now = self.now;
        let host = self.host(member);
        let local = host.local(now);
        for _ in 0..groups {
            let sequence = host.replicator.head() + 1;
            host.replicator.submit(local, sequence, &[7; 40]).unwrap();
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_micros(500);
            let now = self.now;
            let (arrived, flying) = std::mem::take(&mut self.flying)
                .into_iter()
                .partition(|one| one.0 <= now);
            self.flying = flying;
            let arrived: Vec<(Time, MemberId, MemberId, Vec<u8>)> = arrived;
            for (_, from, to, bytes) in arrived {
                let Some(host) = self
                    .hosts
                    .iter_mut()
                    .find(|host| host.replicator.config().member == to)
                else {
                    continue;
                };
                let (local, incarnation) = (host.local(now), Incarnation(u64::from(from.0)));
                let Host {
                    replicator, record, ..
                } = host;
                let handled = replicator.handle(local, from, incarnation, &bytes, record);
                host.refused.extend(handled.err());
                let received = host.replicator.progress().member(from).unwrap().received;
                host.replicator.applied(local, from, received);
            }
            let mut buffer = Vec::new();
            for host in &mut self.hosts {
                let (local, from) = (host.local(now), host.replicator.config().member);
                host.replicator.handle_timeout(local);
                while let Some(destination) = host.replicator.poll_transmit(local, &mut buffer) {
                    let meant = |to: &&MemberId| {
                        **to != from
                            && (destination == Destination::All
                                || destination == Destination::One(**to))
                    };
                    for &to in self.members.iter().filter(meant).filter(|_| !self.cut) {
                        self.flying.push((now + DELAY, from, to, buffer.clone()));
                    }
                }
            }
        }
    }

    /// By how much the cluster times of any two hosts differ.
    fn apart_us(&self) -> i64 {
        let times = self.hosts.iter().map(|host| host.time_us(self.now));
        times.clone().max().unwrap() - times.min().unwrap()
    }

    /// Seconds since 1970 of a host's cluster time.
    fn time_s(&mut self, member: MemberId) -> i64 {
        let now = self.now;
        self.host(member).time_us(now) / 1_000_000
    }

    fn settle_all(&mut self) {
        for host in &mut self.hosts {
            host.replicator.settle_cluster_time();
        }
    }

    fn refused(&self) -> usize {
        self.hosts.iter().map(|host| host.refused.len()).sum()
    }
}

#[test]
fn hosts_that_start_together_have_the_time_of_the_first() {
    let mut world = World::new(&[A, B, C]);
    world.start(C, DATE_S + 6 * HOUR_S);
    world.start(B, YEAR_2000_S);
    world.start(A, DATE_S);
    world.run(Duration::from_millis(300));
    assert!(world.apart_us() < 20_000, "{}", world.apart_us());
    assert_eq!(world.time_s(C), DATE_S);
    world.settle_all();
    world.submit(B, 3);
    world.run(Duration::from_secs(3));
    assert!(world.apart_us() < 20_000, "{}", world.apart_us());
    assert_eq!(world.time_s(B), DATE_S + 3);
    assert_eq!(world.refused(), 0);
}

/// A member that starts later takes over the time before it is given anything, whatever its date. Also the test of the planted bug
/// `TimeNotTakenOver`.
pub(crate) fn newcomers_take_over_the_time() {
    for (newcomer, date_s) in [
        (C, DATE_S + 6 * HOUR_S),
        (C, DATE_S - 6 * HOUR_S),
        (C, YEAR_2000_S),
        (A, DATE_S + 6 * HOUR_S),
        (A, YEAR_2000_S),
    ] {
        let mut world = World::new(&[A, B, C]);
        for member in [A, B, C].into_iter().filter(|&one| one != newcomer) {
            world.start(member, DATE_S);
        }
        world.run(Duration::from_millis(300));
        world.settle_all();
        world.submit(B, 50);
        world.run(Duration::from_millis(700));
        world.start(newcomer, date_s);
        world.submit(B, 50);
        world.run(Duration::from_secs(1));
        assert!(world.apart_us() < 20_000, "{date_s}: {}", world.apart_us());
        let first = [A, B].into_iter().find(|&one| one != newcomer).unwrap();
        assert_eq!(world.time_s(first), DATE_S + 2, "nobody else moved");
        let record = &world.host(newcomer).record;
        assert_eq!((record.groups, record.groups_before), (100, 0));
        assert_eq!(world.refused(), 0);
    }
}

#[test]
fn a_newcomer_has_the_others_time_before_any_of_their_groups() {
    newcomers_take_over_the_time();
}

/// Two members that cannot reach each other begin to serve under dates six hours apart. Also the test of the planted bug
/// `TimesApartAccepted`.
pub(crate) fn times_apart_are_refused() {
    let mut world = World::new(&[A, B]);
    world.cut = true;
    world.start(A, DATE_S);
    world.start(B, DATE_S + 6 * HOUR_S);
    world.run(Duration::from_millis(100));
    world.settle_all();
    world.submit(A, 2);
    world.submit(B, 2);
    world.cut = false;
    world.run(Duration::from_secs(5));
    for (here, there, ahead_s) in [(A, B, 6 * HOUR_S), (B, A, -6 * HOUR_S)] {
        let host = world.host(here);
        assert_eq!(host.record.groups, 0, "nothing of it is taken");
        assert!(host.refused.len() > 3);
        assert!(host.refused.iter().all(|why| *why == Refused::TimeApart));
        let clock = host.replicator.progress().member(there).unwrap().clock;
        let clock = clock.expect("it is known");
        assert!(clock.is_apart && !clock.agrees);
        let off_us = clock.cluster_ahead_us - ahead_s * 1_000_000;
        assert!(off_us.abs() < 20_000, "{clock:?}");
    }
    assert_eq!(world.time_s(A), DATE_S + 5, "neither moves");
}

#[test]
fn parts_that_began_hours_apart_refuse_each_other() {
    times_apart_are_refused();
}

/// Clocks drift by seconds a day, and a machine stands still for ten minutes: who is behind goes forward, nobody goes back, and nobody
/// is refused. Also the test of the planted bug `TimeNeverForward`.
pub(crate) fn who_is_behind_goes_forward() {
    let mut world = World::new(&[A, B]);
    world.start(A, DATE_S);
    world.start(B, DATE_S);
    world.run(Duration::from_millis(300));
    world.settle_all();
    // A hundred times what a bad crystal does.
    world.host(A).slow_ppm = 10_000;
    let mut last_us = [0; 2];
    for _ in 0..40 {
        world.run(Duration::from_millis(500));
        let now = world.now;
        for (host, last_us) in world.hosts.iter().zip(&mut last_us) {
            assert!(host.time_us(now) > *last_us, "time goes on");
            *last_us = host.time_us(now);
        }
        assert!(world.apart_us() < 40_000, "{}", world.apart_us());
    }
    world.host(A).slow_ppm = 0;
    world.run(Duration::from_secs(1));
    world.now = world.now + Duration::from_secs(600);
    world.host(A).stood_still += Duration::from_secs(600);
    world.run(Duration::from_secs(3));
    assert!(world.apart_us() < 20_000, "{}", world.apart_us());
    assert_eq!(world.refused(), 0);
}

#[test]
fn a_clock_that_is_slow_or_stood_still_goes_forward_to_the_others() {
    who_is_behind_goes_forward();
}

#[test]
fn a_date_that_is_corrected_is_reported_and_changes_no_time() {
    let mut world = World::new(&[A, B]);
    world.start(A, DATE_S);
    world.start(B, DATE_S + 6 * HOUR_S);
    world.run(Duration::from_millis(300));
    world.settle_all();
    let ahead_s = |world: &mut World| {
        let host = world.host(A);
        let clock = host.replicator.progress().member(B).unwrap().clock.unwrap();
        assert!(clock.agrees && clock.cluster_ahead_us.abs() < 20_000);
        (clock.date_ahead_us.unwrap() as f64 / 1e6).round() as i64
    };
    world.run(Duration::from_secs(2));
    assert_eq!(ahead_s(&mut world), 6 * HOUR_S);
    let changes = world.host(A).record.changes;
    for date_s in [DATE_S, YEAR_2000_S, DATE_S + 1] {
        world.host(B).replicator.set_date(date_s * 1_000_000);
        world.run(Duration::from_secs(2));
        assert_eq!(ahead_s(&mut world), date_s - DATE_S);
        assert!(world.apart_us() < 20_000);
    }
    assert_eq!(world.host(A).record.changes, changes, "no time was changed");
    assert_eq!(world.time_s(B), DATE_S + 8);
}
