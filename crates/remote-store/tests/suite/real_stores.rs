//! The same over TCP: the embedded store's server, and the real Redis, which says `SKIPPED` where it is not installed. Stores go away too.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use asterism_embedded_store::{Passwords, ServerConfig};
use asterism_engine::{Instance, InstanceParts, Store};
use asterism_function::{PortNumber, Reason};
use asterism_io::frame::FramePool;
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::{
    AwayReason, Login, Password, RemoteConfig, RemoteStore, StoreStatistics,
};

use crate::over_wires::config;
use crate::stores::{Embedded, Kind, LAYOUT, Stores, any_port, on};
use crate::tills::{Tills, judge, packet, settings};
use crate::world::SEED;
use asterism_lab::{KeptPort, outside, wait_until};

/// Packets are now and then in each other's way.
pub(crate) const TILLS: Tills = Tills(99);
const FLOWS: u32 = 300;
/// Packets of a test.
const PACKETS: u32 = 4_000;
/// How long that may take on a machine that has much else to do.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Instances that share the store, on a thread of their own each.
const INSTANCES: u32 = 3;

/// An instance, and what leaves it.
fn instance(number: u32, address: SocketAddr) -> (Instance<Tills>, Receiver<Vec<u8>>) {
    let remote = RemoteConfig::new(address, config(number as usize, 1));
    instance_with(remote, Arc::default())
}

/// The same with this configuration, shown by these statistics.
pub(crate) fn instance_with(
    remote: RemoteConfig,
    statistics: Arc<StoreStatistics>,
) -> (Instance<Tills>, Receiver<Vec<u8>>) {
    let make = move || Box::new(RemoteStore::new(&TILLS, &remote, statistics)) as Box<dyn Store>;
    let (to, left) = channel();
    let port = outside::port(move |bytes: &[u8]| to.send(bytes.to_vec()).expect("heard"));
    let pool = FramePool::new(2_048).expect("memory for frames");
    let parts = InstanceParts::alone(SEED).with_store(make);
    let instance = parts.start(Arc::new(TILLS), settings, pool, vec![port]);
    (instance, left)
}

/// Handles its share of the packets: what left, and how many were given up. Others see how many of them came.
fn run(number: u32, remote: RemoteConfig, came: &AtomicU32) -> (Vec<Vec<u8>>, u64) {
    let (mut instance, left) = instance_with(remote, Arc::default());
    let begun = Instant::now();
    let now = || Time::from_micros(1 + begun.elapsed().as_micros() as u64);
    let mut next = number;
    while next < PACKETS || instance.tally().parked > 0 {
        assert!(begun.elapsed() < ENDS_WITHIN, "it does not end");
        instance.turn(now());
        if next < PACKETS && instance.tally().parked < 128 {
            let flow = (next / INSTANCES * 7 % FLOWS) as u16;
            assert!(instance.inject(now(), PortNumber(0), &packet(flow, next)));
            next += INSTANCES;
            came.fetch_add(1, Ordering::Relaxed);
        } else {
            // Others need the processor too: the store for one.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    instance.turn(now());
    let given_up = instance.tally().dropped(Reason::ParkedTooLong);
    (left.try_iter().collect(), given_up)
}

/// Once so many packets came, this is done to the store.
type Disturbance<'a> = (u32, &'a dyn Fn(&mut Stores));

/// What becomes of all packets, while this is done to the store.
fn run_all(stores: &mut Stores, meanwhile: &[Disturbance<'_>]) {
    let came = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..INSTANCES)
        .map(|number| {
            let (remote, came) = (stores.remote(number), came.clone());
            std::thread::spawn(move || run(number, remote, &came))
        })
        .collect();
    for (at, what) in meanwhile {
        let until = Instant::now() + ENDS_WITHIN;
        while came.load(Ordering::Relaxed) < *at {
            assert!(Instant::now() < until, "it does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
        what(stores);
    }
    let left = threads.into_iter().map(|thread| thread.join());
    let left: Result<Vec<_>, _> = left.collect();
    let (left, given_up): (Vec<_>, Vec<_>) = left.expect("no instance fails").into_iter().unzip();
    let given_up = given_up.iter().sum();
    let dropped = judge(TILLS, &left.concat(), PACKETS, given_up);
    let expected = PACKETS / 100;
    assert!(
        (expected / 2..expected * 3).contains(&dropped),
        "{dropped} were dropped, of one account in a hundred"
    );
    println!("{given_up} packets were given up");
}

fn each_packet_takes_effect_once(mut stores: Stores) {
    run_all(&mut stores, &[]);
    let Some((_, redis)) = stores.holder() else {
        return;
    };
    // The sum of what packets added is the number of entries that they wrote.
    let ask = |words: &[&str]| redis.command(words).expect("it answers");
    let entries = ask(&["ZCARD", "{tills}1:ends"]);
    assert_eq!(ask(&["HGET", "{tills}4:sums", "0"]), entries);
    assert!(entries.parse::<u32>().expect("a number") > PACKETS / 4);
}

#[test]
fn instances_share_the_embedded_store() {
    on(Kind::Embedded, each_packet_takes_effect_once);
}

#[test]
fn instances_share_a_redis() {
    on(Kind::Redis, each_packet_takes_effect_once);
}

#[test]
fn instances_share_a_redis_with_replicas() {
    on(Kind::Replicated, each_packet_takes_effect_once);
}

#[test]
fn instances_share_a_redis_cluster() {
    on(Kind::Cluster, each_packet_takes_effect_once);
}

#[test]
fn a_primary_is_killed_and_nothing_that_was_acknowledged_is_lost() {
    on(Kind::Replicated, |mut stores| {
        let fail_over = |stores: &mut Stores| {
            let Stores::Replicated(all) = stores else {
                return;
            };
            // What the primary takes from now on is lost with it.
            all[1..].iter().for_each(Redis::cut_off);
            std::thread::sleep(Duration::from_millis(300));
            all[0].kill();
            Redis::fail_over(all);
        };
        run_all(&mut stores, &[(PACKETS / 3, &fail_over)]);
    });
}

#[test]
fn a_primary_is_demoted_and_nothing_that_was_acknowledged_is_lost() {
    on(Kind::Replicated, |mut stores| {
        let change = |stores: &mut Stores| {
            let Stores::Replicated(all) = stores else {
                return;
            };
            // With a single replica all that was acknowledged is there, as soon as it has what the other one alone may have acknowledged; and
            // nothing of what the primary takes from then on.
            all[2].kill();
            let written = all[0].written();
            let has_it = || all[1].received() >= written;
            wait_until("the replica to have it", ENDS_WITHIN, has_it).unwrap();
            all[1].cut_off();
            std::thread::sleep(Duration::from_millis(300));
            all[1].promote();
            all[0].follow(all[1].address());
        };
        let third = PACKETS / 3;
        run_all(&mut stores, &[(third, &change)]);
    });
}

#[test]
fn the_keys_of_a_cluster_move_and_clients_follow() {
    on(Kind::Cluster, |mut stores| {
        let move_on = |stores: &mut Stores| {
            let Stores::Cluster(cluster) = stores else {
                return;
            };
            let from = cluster.holder(LAYOUT);
            cluster.move_slot(LAYOUT, (from + 1) % cluster.members.len());
            assert_ne!(cluster.holder(LAYOUT), from);
        };
        let third = PACKETS / 3;
        run_all(&mut stores, &[(third, &move_on), (2 * third, &move_on)]);
    });
}

#[test]
fn a_user_needs_no_more_commands_than_the_page_names() {
    on(Kind::Replicated, |stores| {
        let Stores::Replicated(all) = &stores else {
            return;
        };
        let page = include_str!("../../../../docs/src/stateless-functions.md");
        let line = page.lines().find(|line| line.starts_with("ACL SETUSER"));
        let line = line.expect("an example").replace("{edge}", "{tills}");
        let words: Vec<&str> = line.split(' ').collect();
        for redis in all {
            redis.command(&words).expect("the user is made");
        }
        // It keeps answers too, and knows which keys there are not.
        let mut remote = stores.remote(2);
        // Connections are not made again because the machine stands still.
        remote.timeout = ENDS_WITHIN;
        remote.login = Login {
            user: Some("edge".to_owned()),
            password: Some(Password::new("password".to_owned())),
        };
        let statistics = Arc::<StoreStatistics>::default();
        let (mut instance, left) = instance_with(remote, statistics.clone());
        let begun = Instant::now();
        let mut until = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(
                    begun.elapsed() < ENDS_WITHIN,
                    "{what}: {:?}",
                    statistics.snapshot()
                );
                let now = Time::from_micros(1 + begun.elapsed().as_micros() as u64);
                instance.turn(now);
                if instance.tally().parked == 0 {
                    assert!(instance.inject(now, PortNumber(0), &packet(0, 1)));
                }
            }
        };
        until("it leaves", &|| left.try_iter().count() > 0);
        // Long enough that it was asked whether it still is the primary.
        let asked = Instant::now() + Duration::from_millis(1_500);
        until("it goes on", &|| Instant::now() > asked);
        until("its filter is complete", &|| {
            let seen = statistics.snapshot();
            seen.is_connected && seen.tally.filter_is_complete
        });
        let seen = statistics.snapshot();
        assert_eq!((seen.connects, seen.tally.refused), (2, 0), "{seen:?}");
    });
}

#[test]
fn a_store_that_comes_late_is_waited_for() {
    let port = KeptPort::new().expect("a port is free");
    let address = port.address();
    let (mut instance, left) = instance(0, address);
    let begun = Instant::now();
    let now = || Time::from_micros(1 + begun.elapsed().as_micros() as u64);
    assert!(instance.inject(now(), PortNumber(0), &packet(0, 1)));
    let mut store = None;
    while left.try_iter().count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
        instance.turn(now());
        if store.is_none() && begun.elapsed() > Duration::from_millis(200) {
            store = Some(Embedded::start(address));
        }
        // The machine stood still for longer than a packet may wait.
        if instance.tally().parked == 0 {
            assert!(instance.inject(now(), PortNumber(0), &packet(0, 1)));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Turns, at times since then, until the statistics say so.
fn turn_until(
    begun: Instant,
    instance: &mut Instance<Tills>,
    statistics: &StoreStatistics,
    what: &str,
    is_so: impl Fn(&asterism_remote_store::StoreSnapshot) -> bool,
) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so(&statistics.snapshot()) {
        assert!(
            Instant::now() < until,
            "{what}: {:?}",
            statistics.snapshot()
        );
        instance.turn(Time::from_micros(1 + begun.elapsed().as_micros() as u64));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_store_is_away_for_a_reason_that_can_be_seen() {
    let password = Some("sesame".to_owned());
    let mut guarded = ServerConfig::new(any_port());
    guarded.passwords = password.clone().map(|password| Passwords::new([password]));
    let guarded = Embedded::start_with(guarded);
    let open = Embedded::start(any_port());
    let login = |user: Option<&str>, password: Option<&str>| Login {
        user: user.map(str::to_owned),
        password: password.map(|password| Password::new(password.to_owned())),
    };
    // It takes connections and says nothing.
    let silent = TcpListener::bind(any_port()).expect("a port is free");
    let silent = silent.local_addr().map(|address| (address, silent));
    let (silent, _listener) = silent.expect("it has an address");
    // It speaks another protocol.
    let other = TcpListener::bind(any_port()).expect("a port is free");
    let other_address = other.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for mut stream in other.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let kept = KeptPort::new().expect("a port is free");
    let nobody = kept.address();
    for (address, login, layout, expected) in [
        (
            guarded.address,
            login(None, None),
            0,
            Some(AwayReason::Login),
        ),
        (
            guarded.address,
            login(None, Some("x")),
            0,
            Some(AwayReason::Login),
        ),
        (
            guarded.address,
            login(Some("eve"), Some("sesame")),
            0,
            Some(AwayReason::Login),
        ),
        (guarded.address, login(None, Some("sesame")), 0, None),
        (
            guarded.address,
            login(Some("default"), Some("sesame")),
            0,
            None,
        ),
        (
            guarded.address,
            login(None, Some("sesame")),
            7,
            Some(AwayReason::Layout),
        ),
        (
            open.address,
            login(None, Some("x")),
            0,
            Some(AwayReason::Login),
        ),
        (open.address, login(None, None), 0, None),
        (silent, login(None, None), 0, Some(AwayReason::Silent)),
        (
            other_address,
            login(None, None),
            0,
            Some(AwayReason::NoStore),
        ),
        (nobody, login(None, None), 0, Some(AwayReason::Unreachable)),
    ] {
        let statistics = Arc::<StoreStatistics>::default();
        let remote = RemoteConfig {
            login,
            layout,
            ..RemoteConfig::new(address, config(0, 1))
        };
        let what = format!("{remote:?}");
        let (mut instance, _left) = instance_with(remote, statistics.clone());
        turn_until(
            Instant::now(),
            &mut instance,
            &statistics,
            &what,
            |seen| match expected {
                Some(why) => !seen.is_connected && seen.why == why,
                None => seen.is_connected && seen.connects >= 2,
            },
        );
    }
}

fn falls_silent_and_comes_back(mut stores: Stores) {
    let begun = Instant::now();
    let now = || Time::from_micros(1 + begun.elapsed().as_micros() as u64);
    let statistics = Arc::<StoreStatistics>::default();
    let remote = RemoteConfig {
        timeout: Duration::from_millis(100),
        ..stores.remote(0)
    };
    let (mut instance, left) = instance_with(remote, statistics.clone());
    turn_until(begun, &mut instance, &statistics, "connected", |seen| {
        seen.is_connected
    });
    let since_us = statistics.snapshot().since_us;
    let silent = stores.silence();
    turn_until(begun, &mut instance, &statistics, "away", |seen| {
        !seen.is_connected
    });
    assert!(statistics.snapshot().since_us >= since_us);
    assert!(instance.inject(now(), PortNumber(0), &packet(0, 1)));
    // Where there are replicas, they are asked, and say that they are none.
    turn_until(begun, &mut instance, &statistics, "silent", |seen| {
        matches!(seen.why, AwayReason::Silent | AwayReason::Replica)
    });
    stores.speak(silent);
    turn_until(begun, &mut instance, &statistics, "back", |seen| {
        seen.is_connected
    });
    let until = Instant::now() + Duration::from_secs(20);
    while left.try_iter().count() == 0 {
        assert!(Instant::now() < until, "nothing leaves");
        instance.inject(now(), PortNumber(0), &packet(1, 2));
        instance.turn(now());
    }
    let seen = statistics.snapshot();
    assert!(
        seen.tally.keys_read > 0 && seen.tally.decided > 0,
        "{seen:?}"
    );
    assert!(seen.round_trip_us > 0, "{seen:?}");
}

#[test]
fn the_embedded_store_falls_silent_and_comes_back() {
    on(Kind::Embedded, falls_silent_and_comes_back);
}

#[test]
fn a_redis_falls_silent_and_comes_back() {
    on(Kind::Redis, falls_silent_and_comes_back);
}

#[test]
fn the_primary_of_a_redis_falls_silent_and_comes_back() {
    on(Kind::Replicated, falls_silent_and_comes_back);
}

#[test]
fn the_member_of_a_redis_cluster_with_the_keys_falls_silent_and_comes_back() {
    on(Kind::Cluster, falls_silent_and_comes_back);
}
