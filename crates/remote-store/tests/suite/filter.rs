//! Keys that are not there: reads of them do not go out, and none of a key that another client wrote is answered so for longer than it may be.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use asterism_engine::{Store, StoreEvent};
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::{
    CacheConfig, ClientConfig, ClientTally, RemoteConfig, RemoteStore, StoreStatistics,
};
use asterism_resp::{CommandWriter, Value};
use asterism_state::{LANE_ROOM, Query, Ticket};

use crate::kept::{COUNTS_MAX, Counting, Driven, READS, client, judge, run};
use crate::stores::{Kind, Stores, on};
use crate::wires::Faults;

/// The same as without a filter, but for that.
pub(crate) fn filtering_client(number: usize, commit_pipes: usize) -> ClientConfig {
    let client = client(number, commit_pipes);
    ClientConfig {
        cache: client.cache.map(|cache| CacheConfig {
            has_filter: true,
            ..cache
        }),
        ..client
    }
}

/// New keys all the time, each used for a while, and again now and then.
fn coming_keys(step: u64, drawn: u64) -> u64 {
    let newest = step / 10;
    match drawn % 8 {
        0 => drawn / 8 % (newest + 1),
        _ => newest + drawn / 8 % 4,
    }
}

#[test]
fn what_another_client_wrote_is_found_within_the_staleness() {
    let (mut answers, mut in_vain, mut scans) = (0, 0, 0);
    for seed in 0..6 {
        let faults = Faults {
            broken_of: if seed % 2 == 0 { 0 } else { 3_000 },
            delay_us: [40, 100, 200][seed as usize % 3],
            away_us: 20_000,
        };
        let (left, tallies) = run(filtering_client, coming_keys, (faults, seed));
        assert!(left.len() > 2_900, "{} packets left", left.len());
        judge(&left);
        let sum = |of: fn(&ClientTally) -> u64| tallies.iter().map(of).sum::<u64>();
        answers += sum(|tally| tally.filter_answers);
        in_vain += sum(|tally| tally.filter_in_vain);
        scans += sum(|tally| tally.filter_scans);
    }
    assert!(answers > 2_000, "{answers} reads were answered by filters");
    assert!(in_vain < answers / 10, "{in_vain} keys were read in vain");
    assert!(scans > 30, "{scans} scans");
}

const NOTHING: [u8; 2] = [0; 2];
const PONG: &[u8] = b"+PONG\r\n";

impl Driven {
    /// Whose filter is complete.
    fn filtering() -> Self {
        let mut driven = Self::new(&filtering_client(0, 1));
        driven.scans(&[]);
        driven
    }

    /// The store has these keys.
    fn scans(&mut self, keys: &[&[u8]]) {
        assert!(self.sent().starts_with(b"*6\r\n$4\r\nSCAN\r\n$1\r\n0\r\n"));
        let mut found = format!("*2\r\n$1\r\n0\r\n*{}\r\n", keys.len()).into_bytes();
        for key in keys {
            found.extend(format!("${}\r\n", key.len()).as_bytes());
            found.extend(*key);
            found.extend(b"\r\n");
        }
        assert!(self.receives(&found));
        assert!(self.sent().starts_with(b"*2\r\n$3\r\nGET\r\n"));
        assert!(self.receives(b"_\r\n"));
        assert!(self.client.tally().filter_is_complete);
    }
}

fn announced(key: u32) -> Vec<u8> {
    let mut bytes = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$18\r\n{counting}1:0:".to_vec();
    bytes.extend(key.to_le_bytes());
    bytes.extend(b"\r\n");
    bytes
}

#[test]
fn a_key_is_absent_until_it_is_announced() {
    let mut driven = Driven::filtering();
    assert_eq!(driven.ask(5), Ok(NOTHING.to_vec()));
    assert!(driven.receives(&announced(5)));
    assert_eq!(driven.ask(6), Ok(NOTHING.to_vec()));
    let asked = driven.ask(5).expect_err("it may be there");
    assert!(asked.starts_with(b"*2\r\n$4\r\nMGET\r\n"));
    let tally = driven.client.tally();
    assert_eq!((tally.filter_answers, tally.keys_read), (2, 1));
    // It was deleted.
    assert!(driven.receives(b"*1\r\n_\r\n"));
    assert_eq!(driven.client.tally().filter_in_vain, 1);
}

#[test]
fn a_filter_is_filled_again_when_it_may_lack_keys() {
    let flushed = |driven: &mut Driven| {
        assert!(driven.receives(b">2\r\n$10\r\ninvalidate\r\n_\r\n"));
    };
    let lost = |driven: &mut Driven| {
        driven.client.lost(READS);
        assert!(!driven.client.tally().filter_is_complete);
        driven.client.connected(READS);
    };
    for cut in [flushed as fn(&mut Driven), lost] {
        let mut driven = Driven::filtering();
        cut(&mut driven);
        assert!(!driven.client.tally().filter_is_complete);
        // In the midst of the next scan, too.
        assert!(driven.sent().starts_with(b"*6\r\n$4\r\nSCAN\r\n"));
        assert!(driven.receives(b"*2\r\n$1\r\n7\r\n*0\r\n"));
        cut(&mut driven);
        assert_eq!(driven.client.tally().filter_scans, 1);
        driven.scans(&[b"{counting}1:0:\x05\0\0\0"]);
        driven.now_us += 100;
        assert!(driven.ask(5).is_err());
        assert!(driven.receives(b"*1\r\n_\r\n"));
        assert_eq!(driven.ask(6), Ok(NOTHING.to_vec()));
        assert_eq!(driven.client.tally().filter_scans, 2);
    }
}

#[test]
fn a_reply_does_not_say_that_all_is_heard_from_before_its_command() {
    let mut driven = Driven::filtering();
    assert!(driven.ask(6).is_ok());
    driven.now_us += 900;
    assert_eq!(driven.sent(), b"*1\r\n$4\r\nPING\r\n");
    driven.now_us += 200;
    assert!(driven.ask(6).is_err(), "the staleness is over");
    // What was changed just before the PING the store tells behind the reply.
    assert!(driven.receives(PONG));
    assert!(driven.ask(6).is_err());
    // This one was sent before that reply came.
    assert!(driven.receives(b"*1\r\n_\r\n"));
    assert!(driven.ask(7).is_err());
    driven.now_us += 100;
    // This one was sent afterwards: all is heard from before the PING.
    assert!(driven.receives(b"*1\r\n_\r\n"));
    assert!(driven.ask(8).is_ok());
    driven.now_us += 700;
    assert!(driven.ask(8).is_ok());
    driven.now_us += 1;
    assert!(driven.ask(8).is_err());
}

#[test]
fn room_is_not_asked_for_while_there_is_plenty() {
    let room = |driven: &mut Driven| {
        let query = Query {
            object: 0,
            lane: LANE_ROOM,
            hash: 0,
            key: &[],
            conversation: 0,
        };
        let mut answer = Vec::new();
        let is_at_once = driven
            .client
            .answer_at_once(&query, driven.now_us, &mut answer);
        if !is_at_once {
            let ticket = Ticket::from_bits(1 << 40);
            driven.client.ask(ticket, &query, driven.now_us);
        }
        is_at_once.then_some(answer)
    };
    let answer = |entries: u32| {
        [
            NOTHING.to_vec(),
            (COUNTS_MAX - entries).to_le_bytes().into(),
        ]
        .concat()
    };
    let mut driven = Driven::filtering();
    assert_eq!(room(&mut driven), None);
    assert!(driven.sent().starts_with(b"*2\r\n$5\r\nZCARD\r\n"));
    assert!(driven.receives(b":100\r\n"));
    for (second, is_known) in [(1_000, true), (1_010, true), (1_011, false)] {
        driven.client.set_tick(second);
        assert_eq!(room(&mut driven), is_known.then(|| answer(100)), "{second}");
    }
    // The census of all objects says it too.
    let counted = String::from_utf8(driven.sent()).expect("text");
    assert_eq!(counted.matches("ZCARD").count(), 3, "{counted}");
    for _ in 0..3 {
        assert!(driven.receives(b":12288\r\n"));
    }
    assert_eq!(room(&mut driven), Some(answer(12_288)));
    // Without a filter it is asked for each time.
    let mut driven = Driven::new(&client(0, 1));
    for _ in 0..2 {
        assert_eq!(room(&mut driven), None);
        assert!(driven.sent().starts_with(b"*2\r\n$5\r\nZCARD\r\n"));
        assert!(driven.receives(b":100\r\n"));
    }
}

/// A client of a real store, driven by reads.
struct Asking {
    store: RemoteStore<Counting>,
    statistics: Arc<StoreStatistics>,
    begun: Instant,
    tickets: u64,
}

const STALENESS: Duration = Duration::from_millis(20);
/// The key that each client reads first.
const LAYOUT: &str = "{counting}layout";
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

impl Asking {
    fn new(stores: &Stores) -> Self {
        let mut client = filtering_client(0, 1);
        client.cache.iter_mut().for_each(|cache| {
            (cache.entries, cache.staleness) = (64, STALENESS);
        });
        let remote = RemoteConfig {
            client,
            ..stores.remote(0)
        };
        let statistics = Arc::<StoreStatistics>::default();
        let mut store = RemoteStore::new(&Counting, &remote, statistics.clone());
        store.set_tick(1_000);
        Self {
            store,
            statistics,
            begun: Instant::now(),
            tickets: 0,
        }
    }

    fn now(&self) -> Time {
        Time::from_micros(1 + self.begun.elapsed().as_micros() as u64)
    }

    /// Whether this turn had an answer that is something, or nothing.
    fn turn(&mut self) -> Option<bool> {
        let now = self.now();
        let mut found = None;
        while let Some(event) = self.store.next_event(now) {
            if let StoreEvent::Answer { answer, .. } = event {
                found = Some(answer != NOTHING);
            }
        }
        self.store.send(now);
        found
    }

    fn turn_until(&mut self, what: &str, is_so: impl Fn(&ClientTally) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.store.tally()) {
            let seen = self.statistics.snapshot();
            assert!(Instant::now() < until, "{what}: {seen:?}");
            self.turn();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether a key is there, as it is answered at once or after a while.
    fn finds(&mut self, key: u32) -> bool {
        let query = Query {
            object: 0,
            lane: 0,
            hash: u64::from(key),
            key: &key.to_le_bytes(),
            conversation: 0,
        };
        let mut answer = Vec::new();
        if self.store.answer_at_once(query, self.now(), &mut answer) {
            return answer != NOTHING;
        }
        self.tickets += 1;
        let until = Instant::now() + PATIENCE;
        loop {
            let (ticket, now) = (Ticket::from_bits(self.tickets), self.now());
            self.store.ask(ticket, query, now);
            if let Some(found) = self.turn() {
                return found;
            }
            let seen = self.statistics.snapshot();
            assert!(Instant::now() < until, "no answer: {seen:?}");
        }
    }

    /// Turns until what was so before that time is known, or is asked for.
    fn pass(&mut self, since: Instant) {
        while since.elapsed() <= STALENESS {
            self.turn();
        }
    }
}

/// A connection that writes.
struct Other(TcpStream);

impl Other {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it answers");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
        Self(stream)
    }

    fn say(&mut self, words: &[&[u8]]) {
        let mut command = Vec::new();
        CommandWriter::new(&mut command).command(words);
        self.0.write_all(&command).expect("it is sent");
        let (mut received, mut room) = (Vec::new(), [0; 4_096]);
        while !matches!(Value::read(&received), Ok(Some(_))) {
            let count = self.0.read(&mut room).expect("it answers");
            assert!(count > 0, "it closed the connection");
            received.extend(&room[..count]);
        }
        assert!(!received.starts_with(b"-"), "{received:?}");
    }

    /// Writes something under this key.
    fn write(&mut self, key: u32) {
        self.say(&[b"SET", &of(key), b"something"]);
    }
}

fn of(key: u32) -> Vec<u8> {
    [&b"{counting}0:0:"[..], &key.to_le_bytes()].concat()
}

fn what_is_written_is_found(stores: Stores) {
    let mut other = Other::new(stores.address_of(LAYOUT));
    // Some pieces of a scan, among keys of others.
    for key in 0..1_000 {
        other.write(key);
        if !matches!(stores, Stores::Cluster(_)) {
            other.say(&[b"SET", format!("{{other}}0:0:{key}").as_bytes(), b"1"]);
        }
    }
    let mut asking = Asking::new(&stores);
    asking.turn_until("complete", |tally| tally.filter_is_complete);
    let read = |asking: &Asking| asking.store.tally().keys_read;
    let before = read(&asking);
    let absent = (1_000_000..1_001_000).filter(|key| !asking.finds(*key));
    assert_eq!(absent.count(), 1_000);
    let asked = read(&asking) - before;
    println!("{asked} of 1,000 reads of absent keys went out");
    assert!((0..1_000).all(|key| asking.finds(key)));
    assert!(read(&asking) >= before + 900);
    for key in 2_000..2_050 {
        // It is not there, and that may be kept.
        assert!(!asking.finds(key));
        other.write(key);
        let since = Instant::now();
        asking.pass(since);
        assert!(asking.finds(key), "{key}");
    }
    other.say(&[b"FLUSHALL"]);
    let since = Instant::now();
    asking.pass(since);
    assert!(!asking.finds(5) && !asking.finds(2_000));
    asking.turn_until("complete again", |tally| {
        tally.filter_is_complete && tally.filter_scans >= 2
    });
    other.write(5);
    let since = Instant::now();
    asking.pass(since);
    assert!(asking.finds(5) && !asking.finds(6));
    let tally = asking.store.tally();
    assert_eq!((tally.nonsense, tally.refused), (0, 0), "{tally:?}");
    // So many as may be are answered by the filter on a machine that has nothing else to do.
    assert!(tally.filter_answers > 0, "{tally:?}");
}

#[test]
fn what_is_written_to_the_embedded_store_is_found() {
    on(Kind::Embedded, what_is_written_is_found);
}

#[test]
fn what_is_written_to_a_redis_is_found() {
    on(Kind::Redis, what_is_written_is_found);
}

#[test]
fn what_is_written_to_a_redis_cluster_is_found() {
    on(Kind::Cluster, what_is_written_is_found);
}

/// Ends what looks at it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the connections to which changes are announced.
fn kill_readers(redis: &Redis) {
    let list = redis.command(&["CLIENT", "LIST"]).expect("it answers");
    for line in list.lines() {
        let field = |name: &str| {
            let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
            fields.find(|(of, _)| of.ends_with(name)).map(|(_, is)| is)
        };
        if let (Some(id), Some(flags)) = (field("id"), field("flags"))
            && flags.contains('B')
        {
            let killed = redis.command(&["CLIENT", "KILL", "ID", id]);
            killed.expect("it answers");
        }
    }
}

#[test]
fn what_is_written_while_connections_are_made_is_found() {
    on(Kind::Redis, |stores| {
        let Stores::Redis(redis) = &stores else {
            return;
        };
        let (written, ends) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Other::new(redis.address());
                for key in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    writer.write(key);
                    written.store(key + 1, Ordering::Release);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            // The thread ends also if this fails.
            let _ends = Ends(&ends);
            find_all_the_while(&stores, redis, &written);
        });
    });
}

fn find_all_the_while(stores: &Stores, redis: &Redis, written: &AtomicU32) {
    let mut asking = Asking::new(stores);
    for round in 1..=8_u64 {
        asking.turn_until("complete", |tally| tally.filter_is_complete);
        for draw in 0..5_u32 {
            let (settled, since) = (written.load(Ordering::Acquire), Instant::now());
            asking.pass(since);
            for number in 0..40_u32 {
                let any = number.wrapping_mul(0x9E37_79B9) ^ draw;
                let recent = settled.saturating_sub(1 + number);
                for key in [any % settled.max(1), recent] {
                    let is_found = settled == 0 || asking.finds(key);
                    assert!(is_found, "{key} of {settled}, round {round}");
                }
                assert!(!asking.finds(u32::MAX - number));
            }
        }
        let connects = asking.statistics.snapshot().connects;
        kill_readers(redis);
        let until = Instant::now() + PATIENCE;
        while asking.statistics.snapshot().connects == connects {
            assert!(Instant::now() < until, "it is not killed");
            asking.turn();
        }
    }
    let tally = asking.store.tally();
    assert_eq!(tally.nonsense, 0, "{tally:?}");
    assert!(tally.filter_scans >= 7, "{tally:?}");
    assert!(tally.filter_answers > 100, "{tally:?}");
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
pub(crate) const TESTS: [fn(); 3] = [
    a_key_is_absent_until_it_is_announced,
    a_filter_is_filled_again_when_it_may_lack_keys,
    what_another_client_wrote_is_found_within_the_staleness,
];
