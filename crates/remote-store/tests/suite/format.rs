//! The keys and values that one packet leaves in a store, as the page of formats shows them.

use asterism_function::{
    Ask, BiMap, Builder, CountMin, Counter, Counters, Late, Map, NetworkFunction, PortNumber,
    Reason, Register, Spending, TokenBucket, TokenRate, Value, Vector, Verdict, Window,
    WindowedCountMin, WindowedCounters, Wire, state,
};
use asterism_remote_store::ClientConfig;
use asterism_resp::Value as Reply;
use asterism_state::{ObjectSettings, Single};

use crate::tills::number_of;
use crate::wires::Faults;
use crate::world::{Setup, World, client_of};

/// Where the format is described. Its block with this fence is what the store has.
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/src/wire-formats.md"
);
const FENCE: &str = "```store\n";

/// Seconds after which the packet comes: an instance alone begins at tick 1000.
const AT_S: u64 = 1_000;
/// Seconds.
const IDLE: u32 = 60;
/// All but the vector that counts entries.
const IN_STORE: u64 = 0b11_1111_1011;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Number(u32);

/// One object of each kind that can be in a store.
#[derive(Clone, Copy, Debug)]
struct Example;

#[state]
struct Objects {
    flows: Map<u16, Number>,
    pairs: BiMap<u16, u32>,
    usage: Vector,
    last: Register<Number>,
    hits: Counter,
    by_port: Counters<u16>,
    about: CountMin<u16>,
    recent: WindowedCounters<u16>,
    bursts: WindowedCountMin<u16>,
    budget: TokenBucket<u16>,
}

impl NetworkFunction for Example {
    type State = Objects;
    fn state(&self, builder: &Builder) -> Objects {
        builder.writing(3, &[]);
        let window = Window {
            buckets: 6,
            bucket_seconds: 10,
        };
        let rate = TokenRate {
            tokens_per_second: 10,
            burst_tokens: 400,
        };
        let mut flows = builder.table("flows", 64, &[IDLE]);
        let pairs = builder.table("pairs", 64, &[0]);
        let mut usage = builder.own_vector("usage", 4);
        flows.counted_in(&mut usage, |flow: &Single<u16>| u32::from(flow.0) % 4);
        Objects {
            flows,
            pairs,
            usage,
            last: builder.register("last", Number(0)),
            hits: builder.counter("hits"),
            by_port: builder.counters("by_port", 64),
            about: builder.count_min("about", 0.5, 0.5),
            recent: builder.windowed_counters("recent", 64, window),
            bursts: builder.windowed_count_min("bursts", (0.5, 0.5), window),
            budget: builder.token_bucket("budget", 64, rate, Spending::Approximate),
        }
    }
    fn packet(&self, ask: Ask<'_, Objects>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let port = flow.source_port;
        let entries = ask.all((ask.flows.entry(port), ask.pairs.vacancy()));
        let sums = ask.all((ask.by_port.find(&port), ask.recent.find(&port)));
        let others = ask.all((ask.budget.tokens(&port, 3), ask.last.get()));
        let ((known, room), (by_port, recent), (tokens, last)) =
            ask.all((entries, sums, others))?;
        let all = room.zip(by_port).zip(recent).zip(tokens);
        let Some((((room, by_port), recent), tokens)) = all else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.flows.put(known, Number(number));
        act.pairs.insert(room, (port, number), ());
        act.last.set(Number(last.0 + number));
        act.hits.add(1);
        act.by_port.add(&by_port, 100);
        act.about.add(&port, 5);
        act.recent.add(&recent, 2);
        act.bursts.add(&port, 4);
        act.budget.spend(tokens);
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

fn settings(name: &str) -> ObjectSettings {
    match name {
        "usage" => ObjectSettings::LOCAL,
        _ => ObjectSettings::REMOTE,
    }
}

fn client(number: usize, commit_pipes: usize) -> ClientConfig {
    client_of(("example", IN_STORE), (number, commit_pipes))
}

/// Bytes as `redis-cli` shows them.
fn words(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Bytes in hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

impl World<Example> {
    /// A key's value, in words.
    fn shown(&self, key: &[u8]) -> String {
        let mut string = None;
        self.each_reply(&[b"GET", key], &mut |reply| {
            string = reply.bytes().map(<[u8]>::to_vec);
        });
        if let Some(string) = string {
            let is_text = string.iter().all(u8::is_ascii_graphic);
            return match is_text {
                true => format!("string, \"{}\"", words(&string)),
                false => format!("string, {}", digits(&string)),
            };
        }
        let mut is_hash = true;
        self.each_reply(&[b"HGETALL", key], &mut |reply| {
            is_hash &= !matches!(reply, Reply::Error(_));
        });
        if is_hash {
            let fields = self.hash_fields(key).into_iter();
            let fields: Vec<String> = fields
                .map(|(field, sum)| format!("{} = {sum}", words(&field)))
                .collect();
            return format!("hash, {}", fields.join(", "));
        }
        let members = self.strings(&[b"ZRANGEBYSCORE", key, b"-inf", b"+inf"]);
        let members: Vec<String> = members
            .iter()
            .map(|member| {
                let mut score = String::new();
                self.each_reply(&[b"ZSCORE", key, member], &mut |reply| {
                    score = words(reply.bytes().expect("a score"));
                });
                format!("{} at {score}", digits(member))
            })
            .collect();
        format!("sorted set, {}", members.join(", "))
    }

    /// All that the store has.
    fn dump(&self) -> String {
        let mut keys = self.strings(&[b"SCAN", b"0", b"COUNT", b"1000"]);
        // The cursor comes first.
        keys.remove(0);
        keys.sort();
        let mut dump = String::new();
        for key in keys {
            let value = self.shown(&key);
            // That much of it is left, rounded up.
            let expires = match self.integer(&[b"PTTL", &key]) {
                -1 => String::new(),
                left_ms => format!(", expires in {} s", (left_ms + 999) / 1_000),
            };
            dump.push_str(&format!("{}\n    {value}{expires}\n", words(&key)));
        }
        dump
    }
}

#[test]
fn keys_and_values_are_those_of_the_page() {
    let mut setup = Setup::of(Example, client, Faults::none(100));
    setup.settings = settings;
    let mut world = World::new(setup, 1);
    world.now_us = AT_S * 1_000_000;
    world.send_packet(1, 7, 0);
    world.end();
    assert_eq!(world.left_by(0).len(), 1, "it was committed");
    let dump = world.dump();
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let (_, block) = page.split_once(FENCE).expect("the page has the block");
    let (block, _) = block.split_once("```").expect("it ends");
    assert_eq!(
        block, dump,
        "the page is to show what the store has:\n{dump}"
    );
}
