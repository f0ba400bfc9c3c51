//! The same commands to this store and to the real Redis: the replies are the same. Says `SKIPPED` where `redis-server` is not installed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use asterism_embedded_store::{Keyspace, Session};
use asterism_lab::redis::Redis;
use asterism_resp::{Scanner, Value};

use crate::replies::{Reply, ask, command};

/// `None` where there is no Redis.
fn redis() -> Option<Redis> {
    let redis = Redis::start();
    if redis.is_none() {
        println!("SKIPPED the same replies as Redis: redis-server is not installed");
    }
    redis
}

fn connect(redis: &Redis) -> Connection {
    let stream = TcpStream::connect(redis.address()).expect("it answers");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    Connection {
        stream,
        received: Vec::new(),
    }
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    fn ask(&mut self, words: &str) -> Reply {
        self.stream.write_all(&command(words)).expect("it is sent");
        self.next()
    }

    fn next(&mut self) -> Reply {
        let mut scanner = Scanner::new();
        loop {
            if let Some(length) = scanner.scan(&self.received).expect("a reply") {
                let (value, _) = Value::read(&self.received)
                    .expect("a reply")
                    .expect("whole");
                let reply = Reply::of(value);
                self.received.drain(..length);
                return reply;
            }
            let mut some = [0; 4_096];
            let count = self.stream.read(&mut some).expect("it answers");
            assert!(count > 0, "it closed the connection");
            self.received.extend(&some[..count]);
        }
    }
}

/// Two connections to each of the two stores.
struct Both {
    sessions: [Session; 2],
    keyspace: Keyspace,
    connections: [Connection; 2],
}

impl Both {
    fn new(redis: &Redis) -> Both {
        let mut both = Both {
            sessions: [Session::new(), Session::new()],
            keyspace: Keyspace::new(1 << 30),
            connections: [connect(redis), connect(redis)],
        };
        both.keyspace.advance(1_000_000_000_000);
        both.same(0, "flushall");
        both
    }

    /// Sends a command by one of the connections; what both reply.
    fn same(&mut self, by: usize, words: &str) -> Reply {
        let ours = ask(&mut self.sessions[by], &mut self.keyspace, words);
        let theirs = self.connections[by].ask(words);
        let (ours, theirs) = match words.split_whitespace().next() {
            // In no order.
            Some("hgetall") => (sorted_pairs(ours), sorted_pairs(theirs)),
            Some("hscan") => (sorted_scan(ours), sorted_scan(theirs)),
            // They say more.
            Some("hello") => (Reply::Null, Reply::Null),
            _ => (ours, theirs),
        };
        // They name the arguments too.
        let is_unknown = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("ERR unknown command"));
        if !(is_unknown(&ours) && is_unknown(&theirs)) {
            assert_eq!(ours, theirs, "`{words}`: ours, and theirs");
        }
        ours
    }
}

fn sorted_pairs(reply: Reply) -> Reply {
    let Reply::Array(values) = reply else {
        return reply;
    };
    let mut pairs: Vec<_> = values.chunks(2).map(<[Reply]>::to_vec).collect();
    pairs.sort();
    Reply::Array(pairs.concat())
}

/// The cursor, and the pairs in order.
fn sorted_scan(reply: Reply) -> Reply {
    let Reply::Array(mut values) = reply else {
        return reply;
    };
    if let Some(pairs) = values.pop() {
        values.push(sorted_pairs(pairs));
    }
    Reply::Array(values)
}

#[test]
fn commands_and_their_mistakes_have_the_same_replies() {
    let Some(redis) = redis() else {
        return;
    };
    for version in ["2", "3"] {
        let mut both = Both::new(&redis);
        both.same(0, &format!("hello {version}"));
        for words in COMMANDS
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            both.same(0, words);
        }
    }
}

/// One after the other on one connection.
const COMMANDS: &str = "
    ping
    ping hello
    ping a b
    echo hello
    echo
    select 0
    nonsense
    get
    get a b
    get a
    set a 1
    set a
    set a 1 2
    set a 1 nx
    set b 1 nx
    set b 2 xx
    set c 2 xx
    set b 3 nx xx
    set b 3 nx get
    set d 3 nx get
    set b 4 get
    set b 5 px
    set b 5 px 0
    set b 5 px -1
    set b 5 px x
    set b 5 px 100000 ex 100
    set b 5 px 100000 keepttl
    set b 5 keepttl px 100000
    set b 5 px 9223372036854775807
    set b 5 ex 9223372036854775807
    persist b
    SET b 6 Px 100000
    persist b
    persist b
    pexpire nothing 10
    pexpire b x
    pexpire b 9223372036854775807
    pexpire b 100000
    exists a a b nothing
    set empty
    set short ab
    mset a 3 twice 1 twice 2
    mset
    mset a
    mset a 1 b
    mget a twice
    del twice
    mget a b nothing a
    incr a
    incrby a 10
    incrby a -20
    incrby a 1.5
    incrby a 01
    incrby new 5
    incrby short 1
    set most 9223372036854775807
    incr most
    incrby most -1
    set space \0\x31
    incr space
    del
    del a a nothing
    del b short
    dbsize
    hset h
    hset h f
    hset h f 1
    hset h f 2 g 3
    hset h f 2 g
    hset h f 2 i 1 i 2
    hget h f
    hget h nothing
    hget nothing f
    hgetall h
    hgetall nothing
    hmget h
    hmget h f nothing g
    hmget nothing f g
    hscan h
    hscan h x
    hscan h 0
    hscan h 0 match f*
    hscan h 0 count 100
    hscan h 0 count 0
    hscan h 0 count x
    hscan h 0 nonsense 1
    hscan nothing 0
    hscan nothing x
    hscan nothing 0 count 0
    hlen h
    hlen nothing
    hincrby h f 3
    hincrby h n -7
    hincrby h n 9223372036854775807
    hincrby h n 9223372036854775807
    hincrby h n x
    hincrby h n
    hset h t text
    hincrby h t 1
    hget h n
    hdel h t n
    hdel h f nothing
    hdel nothing f
    get h
    set x 1 get
    hmget x f
    hscan x 0
    expire x
    expire x x
    expire x 9223372036854775807
    expire nothing 10
    expire x 100
    persist x
    set h 1 get
    incr h
    hget x f
    hset x f 1
    hincrby x f 1
    zadd x 1 a
    mget x h
    hdel h g i
    exists h
    zadd z 1 a
    zadd z 2 a
    zadd z 2 a 3 b
    zadd z x a
    zadd z nan a
    zadd z 1
    zadd z 1 a 2
    zadd z nx 9 a 9 c
    zadd z xx 8 a 8 nothing
    zadd z xx nx 1 a
    zadd z ch 7 a 7 c 1 d
    zadd z inf top -inf bottom
    zadd z 1.5 half -0.25 below
    zadd z 1e3 thousand
    zscore z half
    zscore z thousand
    zscore z top
    zscore z nothing
    zscore nothing a
    zcard z
    zcard nothing
    zrangebyscore z -inf +inf
    zrangebyscore z -inf +inf withscores
    zrangebyscore z (1 7
    zrangebyscore z 1 (7
    zrangebyscore z 7 7
    zrangebyscore z 8 1
    zrangebyscore z -inf +inf limit 1 2
    zrangebyscore z -inf +inf limit 0 -1
    zrangebyscore z -inf +inf limit -1 2
    zrangebyscore z -inf +inf limit 1
    zrangebyscore z -inf +inf limit 1 x
    zrangebyscore z -inf +inf limit 20 2 withscores
    zrangebyscore z a b
    zrangebyscore nothing 0 1
    zcount z -inf +inf
    zcount z (1 7
    zcount z 1 (7
    zcount z (1 +inf
    zcount z 7 +inf
    zcount z 1 (+inf
    zcount z 8 1
    zcount z 8 -inf
    zcount z a b
    zcount z 1
    zcount nothing 0 1
    zremrangebyscore z 100 200
    zremrangebyscore z 500 (+inf
    zremrangebyscore z (1 1
    zremrangebyscore z a b
    zremrangebyscore z 1
    zremrangebyscore nothing 0 1
    zrem z a nothing
    zrem nothing a
    zrem z b c d top bottom half below thousand
    exists z
    exec
    discard
    multi
    multi
    exec
    multi
    set t 1
    incr t
    get t
    hget t f
    exec
    multi
    nonsense
    set t 9
    exec
    get t
    multi
    get
    exec
    multi
    set t 7
    discard
    get t
    multi
    watch t
    set t 8
    exec
    watch
    watch t
    unwatch
    multi
    exec
    scan x
    scan 0 count 0
    scan 0 match
    scan 0 type
    scan 0 match * type
    flushall nonsense
    flushall sync
    dbsize
    pttl nothing
    set e 1
    pttl e
    hset h f 1
    pexpire h 0
    exists h
    pexpireat e 1
    exists e
    wait 0 1
";

/// Draws by a seed: what the numbers are does not matter, so long as they are the same each time.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
    fn of<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.below(words.len())]
    }
}

fn drawn(draws: &mut Draws) -> String {
    let key = draws.of(&["a", "b", "c", "d"]).to_owned();
    let other = draws.of(&["a", "b", "c", "d"]);
    let value = draws.below(20);
    let field = draws.of(&["f", "g", "h"]);
    match draws.below(27) {
        0 | 1 => format!("get {key}"),
        2 | 3 => format!("set {key} {value}"),
        4 => format!("set {key} {value} nx get"),
        5 => format!("set {key} {value} nx"),
        6 => format!("set {key} {value} xx"),
        7 => format!("mget {key} {other}"),
        8 => format!("incrby {key} {value}"),
        9 => format!("mset {key} {value} {other} 1"),
        10 => format!("del {key} {other}"),
        11 => format!("exists {key} {other}"),
        12 | 13 => format!("hset {key} {field} {value}"),
        14 => format!("hget {key} {field}"),
        15 => format!("hdel {key} {field}"),
        16 => format!("hlen {key}"),
        17 | 18 => format!("zadd {key} {value} {field}"),
        19 => format!("zrem {key} {field}"),
        20 => format!("zrangebyscore {key} {value} +inf withscores"),
        21 => match value % 3 {
            0 => format!("zcard {key}"),
            1 => format!("zcount {key} {value} +inf"),
            _ => format!("zremrangebyscore {key} -inf ({value}"),
        },
        22 => format!("watch {key}"),
        23 => "multi".into(),
        24 | 25 => "exec".into(),
        _ => draws
            .of(&["discard", "unwatch", "dbsize", "flushall"])
            .into(),
    }
}

#[test]
fn drawn_commands_of_two_connections_have_the_same_replies() {
    let Some(redis) = redis() else {
        return;
    };
    let (mut made, mut refused) = (0, 0);
    for seed in 0..40 {
        let mut both = Both::new(&redis);
        let version = if seed % 2 == 0 { "hello 2" } else { "hello 3" };
        both.same(0, version);
        both.same(1, version);
        let mut draws = Draws(seed);
        for _ in 0..400 {
            let by = draws.below(2);
            let words = drawn(&mut draws);
            let reply = both.same(by, &words);
            if words == "exec" {
                made += u32::from(matches!(reply, Reply::Array(_)));
                refused += u32::from(reply == Reply::Null);
            }
        }
    }
    assert!(
        made > 100 && refused > 20,
        "{made} transactions made and {refused} refused show little"
    );
}

/// Keys of which a connection heard that they have changed.
fn keys_of(heard: &[Reply]) -> Vec<Reply> {
    let keys = heard.iter().flat_map(|reply| match reply {
        Reply::Array(values) => match values.as_slice() {
            [Reply::Text(what), Reply::Array(keys)] if what == b"invalidate" => keys.clone(),
            [Reply::Text(what), Reply::Null] if what == b"invalidate" => vec![Reply::Null],
            _ => panic!("{values:?}"),
        },
        reply => panic!("{reply:?}"),
    });
    let mut keys: Vec<Reply> = keys.collect();
    keys.sort();
    keys
}

/// What both stores tell the first connection until they have answered a `PING`: the keys, which are the same.
fn heard_alike(both: &mut Both, after: &str) -> usize {
    let sent = command("ping");
    let (value, _) = Value::read(&sent).expect("a command").expect("whole");
    let mut out = Vec::new();
    both.sessions[0].tell(&mut both.keyspace, &mut out);
    both.sessions[0].call(&mut both.keyspace, value, &mut out, None);
    let mut ours = Vec::new();
    let mut rest = out.as_slice();
    while let Some((value, length)) = Value::read(rest).expect("a reply") {
        ours.push(Reply::of(value));
        rest = &rest[length..];
    }
    let mut theirs = vec![both.connections[0].ask("ping")];
    while theirs.last() != Some(&Reply::Status("PONG".into())) {
        theirs.push(both.connections[0].next());
    }
    assert_eq!(ours.pop(), theirs.pop());
    let (ours, theirs) = (keys_of(&ours), keys_of(&theirs));
    assert_eq!(ours, theirs, "after `{after}`");
    ours.len()
}

#[test]
fn a_connection_that_tracks_hears_the_same() {
    let Some(redis) = redis() else {
        return;
    };
    for (how, least) in [
        ("client tracking on", 300),
        ("client tracking on bcast", 900),
        ("client tracking on bcast prefix k1 prefix z", 600),
    ] {
        let mut both = Both::new(&redis);
        both.same(0, "hello 3");
        both.same(0, how);
        let heard_of = heard_of_draws(&mut both);
        assert!(heard_of > least, "{how}: {heard_of}");
        both.same(1, "flushall");
        assert_eq!(heard_alike(&mut both, "flushall"), 1);
        both.same(0, "client tracking off");
    }
}

/// Draws what the first connection reads, and what either changes; of how many keys it hears.
fn heard_of_draws(both: &mut Both) -> usize {
    let mut draws = Draws(7);
    let mut heard_of = 0;
    for _ in 0..2_000 {
        let words = draws.of(&[
            "get K",
            "mget K L",
            "exists K",
            "zcount Z 0 +inf",
            "zrangebyscore Z 0 5",
        ]);
        let change = draws.of(&[
            "set K 1",
            "set K 2 nx",
            "del K",
            "del K L",
            "incr K",
            "zadd Z 1 K",
            "zadd Z 2 L",
            "zrem Z K",
            "zremrangebyscore Z 0 1",
            "pexpire K 100000",
            "get K",
            "mget K L",
        ]);
        for (by, words) in [(0, words), (1, change)] {
            let of = ["k1", "k2", "k3"];
            let words = words.replace('K', draws.of(&of));
            let words = words.replace('L', draws.of(&of));
            both.same(by, &words.replace('Z', draws.of(&["z1", "z2"])));
        }
        heard_of += heard_alike(both, change);
    }
    heard_of
}

/// The whole of a scan, sorted: stores may find keys in another order, and twice.
fn scanned(both: &mut Both, words: &str) -> [Vec<Reply>; 2] {
    let of = |ask: &mut dyn FnMut(&str) -> Reply| {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let Reply::Array(parts) = ask(&format!("scan {cursor} {words}")) else {
                panic!("a cursor and keys");
            };
            let [Reply::Text(next), Reply::Array(keys)] = parts.as_slice() else {
                panic!("a cursor and keys");
            };
            found.extend(keys.clone());
            cursor = String::from_utf8(next.clone()).expect("a number");
            if cursor == "0" {
                found.sort();
                found.dedup();
                return found;
            }
        }
    };
    let (session, keyspace) = (&mut both.sessions[0], &mut both.keyspace);
    let ours = of(&mut |words| ask(session, keyspace, words));
    let theirs = of(&mut |words| both.connections[0].ask(words));
    [ours, theirs]
}

#[test]
fn a_scan_finds_the_same_keys_by_any_pattern() {
    let Some(redis) = redis() else {
        return;
    };
    let mut both = Both::new(&redis);
    let mut draws = Draws(11);
    let characters = ["a", "b", "c", "*", "?", "[", "]", "^", "-", "\\", "{", "}"];
    let drawn = |draws: &mut Draws, most: usize| -> String {
        let length = 1 + draws.below(most);
        (0..length).map(|_| draws.of(&characters)).collect()
    };
    for number in 0..300 {
        let key = drawn(&mut draws, 4);
        let words = match number % 5 {
            0 => format!("zadd {key} 1 a"),
            1 => format!("hset {key} f 1"),
            _ => format!("set {key} 1"),
        };
        both.same(0, &words);
    }
    let mut found = 0;
    for number in 0..1_500 {
        let pattern = drawn(&mut draws, 7);
        let kind = draws.of(&["", "type string", "type ZSET", "type hash", "type nonsense"]);
        let count = [1, 7, 100, 10_000][number % 4];
        let words = format!("match {pattern} count {count} {kind}");
        let [ours, theirs] = scanned(&mut both, &words);
        assert_eq!(ours, theirs, "`scan {words}`: ours, and theirs");
        found += ours.len();
    }
    assert!(found > 2_000, "{found}");
}

#[test]
fn what_may_be_tracked_is_refused_alike() {
    let Some(redis) = redis() else {
        return;
    };
    let mut both = Both::new(&redis);
    both.same(0, "hello 3");
    for words in TRACKING
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        both.same(0, words);
    }
}

const TRACKING: &str = "
    client tracking on nonsense
    client tracking nonsense
    client tracking on prefix a
    client tracking on prefix
    client tracking on bcast prefix
    client tracking on
    client tracking on bcast
    client tracking on bcast prefix a
    client tracking on
    client tracking off
    client tracking off bcast
    client tracking on bcast prefix ab prefix ac
    client tracking on bcast prefix a
    client tracking on bcast prefix abc
    client tracking on bcast prefix ab
    client tracking on bcast prefix b
    client tracking on
    client tracking on BCAST Prefix c PREFIX d
    client tracking off
    client tracking on bcast prefix a prefix ab
    client tracking on bcast prefix ab prefix a
    client tracking on bcast
    client tracking on bcast prefix a
    client tracking off
    client tracking on
";
