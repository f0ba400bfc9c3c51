//! Objects that live in a hostile store: packets of many flows wait for it at once, and what they do is what one box does with them, in the
//! order in which the store commits them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use asterism_engine::{Instance, InstanceParts, Store};
use asterism_function::testkit::{
    HostileStore, Recorded, RecordedCall, RecordedCalls, SEED, START_TICK, SequentialBox,
};
use asterism_function::{
    Ask, Bloom, Builder, CountMin, Counter, Counters, Flow4, Graph, Late, Map, NetworkFunction,
    Observable, PortNumber, Reason, Spending, TokenBucket, TokenRate, Value, Verdict, Window,
    WindowedCounters, Wire, build, state,
};
use asterism_io::frame::FramePool;
use asterism_placement::Time;
use asterism_state::{ObjectSettings, Transaction};

use crate::store_end::{Shared, end};
use asterism_lab::outside;

/// Where the payload begins, which is a packet's number.
const PAYLOAD: usize = 42;
/// Accounts, each of which the packets of several flows use.
const ACCOUNTS: u32 = 4;
/// What an emitted packet's payload has besides.
const RECEIPT: u32 = 1 << 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Number(u32);

/// Counts up an account by each packet, which takes the count with it.
#[derive(Debug)]
pub(crate) struct Tills;

#[state]
pub(crate) struct Accounts {
    accounts: Map<u32, Number>,
    seen: Map<u32, ()>,
    packets: Counter,
    by_account: Counters<u32>,
    recent: WindowedCounters<u32>,
    sizes: CountMin<u32>,
    numbers: Bloom<u32>,
    flows: Graph<u32>,
    budget: TokenBucket<u32>,
}

/// As many tokens as the packets take.
const BUDGET: TokenRate = TokenRate {
    tokens_per_second: 1,
    burst_tokens: 1 << 20,
};

impl NetworkFunction for Tills {
    type State = Accounts;
    fn state(&self, builder: &Builder) -> Accounts {
        Accounts {
            accounts: builder.table("accounts", ACCOUNTS, &[0]),
            seen: builder.table("seen", 4_096, &[0]),
            packets: builder.counter("packets"),
            by_account: builder.counters("by_account", ACCOUNTS + 1),
            recent: builder.windowed_counters(
                "recent",
                ACCOUNTS + 1,
                Window {
                    buckets: 6,
                    bucket_seconds: 10,
                },
            ),
            sizes: builder.count_min("sizes", 0.01, 0.01),
            numbers: builder.bloom("numbers", 4_096, 0.01),
            flows: builder.graph("flows", 64, 60),
            budget: builder.token_bucket("budget", 8, BUDGET, Spending::Approximate),
        }
    }
    fn packet(&self, ask: Ask<'_, Accounts>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let account = u32::from(flow.source_port) % (ACCOUNTS + 1);
        let known = (ask.seen.entry(number), ask.accounts.entry(account));
        let (seen, known) = ask.all(known)?;
        let count = known.value().map_or(0, |count| count.0) + 1;
        let (by_account, recent) = (ask.by_account.find(&account)?, ask.recent.find(&account)?);
        let flow = ask.flows.link(&account, &flow.source_port.into())?;
        let tokens = ask.budget.tokens(&account, 2)?;
        let (Some(by_account), Some(recent), Some(flow), Some(tokens)) =
            (by_account, recent, flow, tokens)
        else {
            return Ok(Verdict::Drop(Reason::RateLimited));
        };
        let mut act = ask.act()?;
        act.packets.add(1);
        act.by_account.add(&by_account, 1);
        act.recent.add(&recent, 1);
        act.sizes.add(&account, u64::from(number));
        act.numbers.add(&number);
        act.flows.add(flow, 1);
        act.budget.spend(tokens);
        act.seen.put(seen, ());
        if !act.accounts.put(known, Number(count)) {
            return Ok(Verdict::Drop(Reason::TableFull));
        }
        act.packet.set_source_port(count as u16);
        if count % 3 == 0 {
            act.emit(PortNumber(1), |packet, room| {
                let bytes = packet.bytes();
                room[..bytes.len()].copy_from_slice(bytes);
                room[PAYLOAD..PAYLOAD + 4].copy_from_slice(&(number | RECEIPT).to_be_bytes());
                Some(bytes.len())
            });
        }
        Ok(match count % 4 {
            0 => Verdict::Consumed,
            _ => Verdict::Forward(PortNumber(0)),
        })
    }
    fn observable(&self) -> Option<&dyn Observable<Accounts>> {
        Some(self)
    }
}

impl Observable<Accounts> for Tills {
    /// The count of an account, as far as it is known.
    fn report(
        &self,
        state: &Accounts,
        account: u32,
        _: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let count = state.accounts.get(&account).ok().flatten();
        out.push(count.map_or(0, |at| at.value.0 as u8));
        None
    }
}

pub(crate) fn number_of(bytes: &[u8]) -> u32 {
    let number = bytes[PAYLOAD..].first_chunk();
    number.map_or(0, |&number| u32::from_be_bytes(number))
}

pub(crate) fn packet(flow: u16, number: u32) -> Vec<u8> {
    let flow = Flow4 {
        source: [10, 0, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000 + flow,
        destination_port: 53,
        protocol: 17,
    };
    let mut payload = [0; 24];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &payload, &mut bytes).expect("room for a packet");
    bytes.truncate(length);
    bytes
}

/// The number of the packet whose transaction it is.
pub(crate) fn committed(transaction: &Transaction) -> u32 {
    let mut reads = transaction.reads();
    let seen = reads.find(|(query, _)| query.object == 1 && !query.key.is_empty());
    let (query, _) = seen.expect("each packet looks for its number");
    let mut input = asterism_state::Reader::new(query.key, &[]);
    let number = <u32 as asterism_state::Wire>::decode(&mut input);
    number.expect("a number")
}

/// Calls in the order in which the store committed them.
type Log = Rc<RefCell<Vec<RecordedCall>>>;

thread_local! {
    /// The store of the instance that was made last: an instance's end of it is made where the instance is.
    static STORE: RefCell<Option<(Shared<Tills>, Log)>> = const { RefCell::new(None) };
}

/// Makes a store, and an instance's end of it.
fn link(calls: RecordedCalls) -> Box<dyn Store> {
    let store: Shared<Tills> = Rc::new(RefCell::new(HostileStore::new(&Tills, lives_there)));
    store.borrow_mut().set_now(0, START_TICK);
    let log = Log::default();
    STORE.set(Some((store.clone(), log.clone())));
    // The call of each transaction.
    let mut called = HashMap::new();
    end(store, move |attempt, is_new| {
        let call = called.entry(attempt).or_insert_with(|| {
            let call = calls.take_last_staged();
            call.expect("a call is committed when it has ended")
        });
        if is_new {
            log.borrow_mut().push(call.clone());
        }
    })
}

pub(crate) fn lives_there(name: &str) -> bool {
    ["accounts", "seen", "packets"].contains(&name)
}

pub(crate) fn settings(name: &str) -> ObjectSettings {
    match lives_there(name) {
        true => ObjectSettings::REMOTE,
        false => ObjectSettings::LOCAL,
    }
}

/// Flows, of which a third share accounts.
const FLOWS: u32 = 12;
const PACKETS: u32 = 600;
/// Microseconds between two packets: some of each flow wait behind one another.
const BETWEEN_US: u64 = 400;

#[test]
fn packets_do_what_one_box_does_in_the_order_of_their_commits() {
    let [(to_forward, forwarded), (to_emit, emitted_by)] = [channel(), channel()];
    let ports = [to_forward, to_emit].map(|to: Sender<Vec<u8>>| {
        outside::port(move |bytes| to.send(bytes.to_vec()).expect("the test listens"))
    });
    let pool = FramePool::new(2_048).expect("memory for frames");
    let calls = RecordedCalls::default();
    let recorded = Arc::new(Recorded::new(Tills, calls.clone()));
    let parts = InstanceParts::alone(SEED)
        .with_tick_at_zero(START_TICK)
        .with_store(move || link(calls));
    let mut instance = parts.start(recorded, settings, pool, ports.into());
    let (store, log) = STORE.take().expect("it was made");
    let flow_of = |number: u32| (number * 7 % FLOWS) as u16;
    let mut now_us = 0;
    for number in 0..PACKETS {
        while now_us < u64::from(number) * BETWEEN_US {
            now_us = instance.next_due().as_micros().max(now_us + 1);
            instance.turn(Time::from_micros(now_us));
        }
        let now = Time::from_micros(now_us);
        assert!(instance.inject(now, PortNumber(0), &packet(flow_of(number), number)));
        instance.turn(now);
    }
    let handled = |instance: &Instance<Recorded<Tills>>| instance.tally().parked == 0;
    while !handled(&instance) {
        now_us = instance.next_due().as_micros().max(now_us + 1);
        assert!(now_us < 60_000_000, "it does not end");
        instance.turn(Time::from_micros(now_us));
    }
    instance.turn(Time::from_micros(now_us + 1));
    // What comes twice is heard, though no packet waits for it.
    for _ in 0..50 {
        now_us = instance.next_due().as_micros().max(now_us + 1);
        instance.turn(Time::from_micros(now_us));
    }
    assert_eq!(store.borrow().next_due_us(), None);

    // One box, in the order of the commits.
    let log = log.borrow();
    let mut alone = SequentialBox::new(Tills, SEED);
    alone.set_now(0, START_TICK);
    let (mut expected, mut emitted) = (BTreeMap::new(), BTreeMap::new());
    let (mut dropped, mut consumed) = (0, 0);
    let mut last = HashMap::new();
    for call in log.iter() {
        let number = number_of(&call.packet);
        let before = last.insert(flow_of(number), number);
        assert!(
            before < Some(number),
            "{number} overtook {before:?} of its flow"
        );
        assert_eq!(call.packet, packet(flow_of(number), number));
        let outcome = alone.packet(call.port, &call.packet, call.pinned);
        match outcome.verdict {
            Verdict::Forward(_) => _ = expected.insert(number, outcome.packet),
            Verdict::Drop(_) => dropped += 1,
            Verdict::Consumed => consumed += 1,
        }
        for (_, bytes) in outcome.emitted {
            emitted.insert(number_of(&bytes), bytes);
        }
    }
    let parked_most = instance.tally().parked_most;
    assert!(
        parked_most > 50,
        "{parked_most} packets at once show little"
    );
    assert_eq!(log.len(), PACKETS as usize, "each is committed once");
    let by_number = |left: &Receiver<Vec<u8>>| -> BTreeMap<u32, Vec<u8>> {
        let left: Vec<_> = left.try_iter().collect();
        let each = left.iter().map(|bytes| (number_of(bytes), bytes.clone()));
        let by_number: BTreeMap<_, _> = each.collect();
        assert_eq!(by_number.len(), left.len(), "none leaves twice");
        by_number
    };
    assert_eq!(by_number(&forwarded), expected);
    assert_eq!(by_number(&emitted_by), emitted);
    let tally = instance.tally();
    assert_eq!((tally.dropped_total(), tally.consumed), (dropped, consumed));
    let store = store.borrow();
    assert!(
        store.refusals() > 100,
        "{} refusals show little",
        store.refusals()
    );
    assert_eq!(tally.store_refusals, store.refusals());
    let home = |object| {
        Some(match store.has(object) {
            true => store.state(),
            false => instance.state(),
        })
    };
    assert_eq!(alone.difference(home), None);
    // Levels of buckets and weights of edges are in no digest.
    alone.set_now(now_us, START_TICK + (now_us / 1_000_000) as u32);
    let here = |object| (!store.has(object)).then_some(instance.state());
    assert_eq!(alone.difference_in_content(here), None);
    assert_eq!(instance.frames_in_use(), 0, "no frame is lost");
}

/// What a report reads of a store is asked by nobody, and no packet waits for it.
#[test]
fn a_report_leaves_nothing_to_the_next_packet() {
    let pool = FramePool::new(64).expect("memory for frames");
    let parts = InstanceParts::alone(SEED).with_store(|| link(RecordedCalls::default()));
    let mut instance = parts.start(Arc::new(Tills), settings, pool, vec![outside::port(|_| {})]);
    let mut said = Vec::new();
    assert_eq!(instance.report(1, (0, 16), &mut said), None);
    assert_eq!(said, [0]);
    assert!(!instance.context().needs_attention());
    let mut asked = 0;
    instance.context().take_requests(|_, _| asked += 1);
    assert_eq!(asked, 0);
}

/// Why an instance is not made whose objects are placed so.
fn refusal(settings: fn(&str) -> ObjectSettings, has_store: bool) -> String {
    let made = std::panic::catch_unwind(|| {
        let parts = InstanceParts::alone(1);
        let parts = match has_store {
            true => parts.with_store(|| link(RecordedCalls::default())),
            false => parts,
        };
        let pool = FramePool::new(64).expect("memory for frames");
        drop(parts.start(Arc::new(Tills), settings, pool, Vec::new()));
    });
    let why = made.expect_err("it is refused");
    let text = why.downcast_ref::<String>();
    text.expect("a sentence").clone()
}

#[test]
fn what_cannot_live_in_a_store_is_refused_with_a_sentence() {
    assert_eq!(
        refusal(settings, false),
        "`accounts` lives in a store, and there is none"
    );
    assert_eq!(
        refusal(|_| ObjectSettings::REMOTE, true),
        "`numbers` cannot live in a store, since a read names a place of each of its rows, where a set answers by one key and without mistakes"
    );
}

#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_stores_are_found() {
    use asterism_engine::mutant::{Mutant, select};
    let test = packets_do_what_one_box_does_in_the_order_of_their_commits;
    for mutant in [
        Mutant::RefusedEmissionLeaves,
        Mutant::HeaderNotRestored,
        Mutant::LateAgainIsLast,
        Mutant::RetriedUnderNewName,
        Mutant::DecisionOfAnother,
    ] {
        select(Some(mutant));
        let result = std::panic::catch_unwind(test);
        select(None);
        assert!(result.is_err(), "{mutant:?} survived");
    }
    use asterism_state::mutant as of_state;
    for mutant in [
        of_state::Mutant::ReadsUnchecked,
        of_state::Mutant::RefusedCallCounted,
    ] {
        of_state::select(Some(mutant));
        let result = std::panic::catch_unwind(test);
        of_state::select(None);
        assert!(result.is_err(), "{mutant:?} survived");
    }
}
