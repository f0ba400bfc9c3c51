//! Objects that live in a store: what a function makes of them is what it makes of local ones, however bad the store.

use std::rc::Rc;

use asterism_function::testkit::hostile_everywhere;
use asterism_function::{
    Ask, BiMap, Builder, Counter, EndpointSpace, Late, Map, NetworkFunction, Pool, PortNumber,
    Protocol, Reason, Register, Set, Value, Verdict, Wire, build, state,
};
use asterism_packet::Endpoint;
use asterism_state::{
    Answered, Context, LANE_ROOM, ObjectSettings, REQUESTS_PER_PACKET_MAX, State, Ticket,
    Transaction, Wait,
};
use core::net::Ipv4Addr;

/// Gives each source a port of its own, and counts what it does.
struct Ports;

/// A number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Number(u32);

#[state]
struct PortState {
    known: Map<u32, Number>,
    bound: BiMap<u32, Endpoint>,
    ports: Pool<EndpointSpace>,
    packets: Counter,
    last: Register<Number>,
    blocked: Set<u32>,
}

impl NetworkFunction for Ports {
    type State = PortState;

    fn state(&self, builder: &Builder) -> PortState {
        let mut state = PortState {
            known: builder.table("known", 6, &[5]),
            bound: builder.table("bound", 64, &[5]),
            ports: builder.pool(
                "ports",
                EndpointSpace::new(
                    &[Ipv4Addr::new(192, 0, 2, 1)],
                    1_024..=65_535,
                    &[Protocol::UDP],
                ),
            ),
            packets: builder.counter("packets"),
            last: builder.register("last", Number(0)),
            blocked: builder.table("blocked", 2, &[5]),
        };
        let returns = state.ports.returns();
        state.bound.on_forget(1, move |pair, last| {
            if last {
                returns.item(&pair.1);
            }
        });
        state
    }

    fn packet(&self, ask: Ask<'_, PortState>) -> Result<Verdict, Late> {
        let Some(source) = ask.packet().ipv4_source().map(Ipv4Addr::to_bits) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let (known, last) = ask.all((ask.known.get(&source), ask.last.get()))?;
        if !ask.blocked.is_empty()? && ask.blocked.contains(&last.0)? {
            let mut act = ask.act()?;
            act.packets.add(1);
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        let Some(known) = known else {
            let Some(room) = ask.known.vacancy()? else {
                // The table is full: the source of the last packet is blocked.
                let blocked = ask.blocked.entry(last.0)?;
                let mut act = ask.act()?;
                act.packets.add(1);
                act.blocked.put(blocked, ());
                return Ok(Verdict::Drop(Reason::TableFull));
            };
            let pair = ask.bound.vacancy()?;
            let (Some(pair), Some(port)) = (pair, ask.ports.grant(0, source)?) else {
                return Ok(Verdict::Drop(Reason::PortsExhausted));
            };
            let mut act = ask.act()?;
            let port = act.ports.take(port);
            act.known.insert(room, source, Number(port.port.into()));
            act.bound.insert(pair, (source, port), ());
            act.packets.add(1);
            act.last.set(Number(source));
            act.packet.set_source(port);
            return Ok(Verdict::Forward(PortNumber(1)));
        };
        let ends = ask.bound.by_left(&source)?;
        let mut act = ask.act()?;
        act.packets.add(1);
        if known.value.0 % 5 == 4 {
            act.known.remove(&known);
            ends.inspect(|ends| act.bound.remove(ends));
        } else {
            act.known.update(&known, Number(known.value.0 + 1));
            ends.inspect(|ends| act.bound.touch(ends));
        }
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

fn frame(source: u8) -> Vec<u8> {
    let inside = Ipv4Addr::new(10, 0, 0, source);
    let header = build::Header4::between(inside, Ipv4Addr::new(198, 51, 100, 7));
    let mut frame = vec![0; 100];
    let length = build::udp4(&header, 7, 53, b"?", &mut frame).expect("it fits");
    frame.truncate(length);
    frame
}

fn refusals() -> u64 {
    let step = |step: u32| {
        let pause = u32::from(step % 17 == 16) * 3;
        (pause, PortNumber(0), frame((step * 7 % 11) as u8))
    };
    let steps: Vec<_> = (0..400).map(step).collect();
    hostile_everywhere(|| Ports, &steps)
}

#[test]
fn a_hostile_store_changes_nothing() {
    let refusals = refusals();
    assert!(refusals > 100, "{refusals} refusals show little");
}

#[state]
struct Rows {
    rows: Map<u32, Number>,
}

/// A state with one map, here or in a store.
fn rows(settings: ObjectSettings) -> (Rc<Context>, Rows) {
    let context = Rc::new(Context::alone());
    let builder = Builder::new(context.clone(), move |_| settings);
    let rows = Rows {
        rows: builder.table("rows", 2, &[0]),
    };
    context.set_now(0, 1_000);
    context.expect_requests(2);
    (context, rows)
}

/// Takes the requests of the packet under way.
fn requests(context: &Context) -> Vec<(Ticket, u8, u64, Vec<u8>)> {
    let mut requests = Vec::new();
    context.take_requests(|ticket, query| {
        requests.push((ticket, query.lane, query.hash, query.key.to_vec()));
    });
    requests
}

/// Answers all that was asked for.
fn answer(context: &Context, store: &Rows) -> Vec<Answered> {
    let mut answers = Vec::new();
    context.take_requests(|ticket, query| {
        let mut answer = Vec::new();
        store.extract(&query, &mut answer);
        answers.push((ticket, answer));
    });
    let each = answers.into_iter();
    each.map(|(ticket, answer)| context.take_answer(ticket, &answer))
        .collect()
}

/// What a packet does that writes a row if there is none: its transaction.
fn first_writer(context: &Context, client: &mut Rows, store: &Rows, value: u32) -> Transaction {
    context.begin(u64::from(value));
    let reads = (client.rows.get(&5), client.rows.vacancy());
    assert!(reads.0.is_err() && reads.1.is_err(), "both are asked for");
    let (call, wait) = context.park();
    assert_eq!(wait, Wait::Answers);
    let answered = answer(context, store);
    assert_eq!(
        answered,
        [Answered::Waits, Answered::Complete(call.requests())]
    );
    context.resume(call);
    client.install(context).expect("they are answers");
    assert_eq!(client.rows.get(&5), Ok(None));
    let room = client
        .rows
        .vacancy()
        .expect("it was answered")
        .expect("there is room");
    assert!(context.is_staged());
    client.act().rows.insert(room, 5, Number(value));
    let mut transaction = Transaction::default();
    context.seal(&mut transaction);
    client.withdraw();
    context.end(|_, _| {});
    transaction
}

#[test]
fn of_two_that_saw_nothing_one_writes() {
    let (store_context, mut store) = rows(ObjectSettings::LOCAL);
    let (context, mut client) = rows(ObjectSettings::REMOTE);
    let first = first_writer(&context, &mut client, &store, 1);
    let second = first_writer(&context, &mut client, &store, 2);
    assert_eq!(
        store.rows.len_now(),
        0,
        "nothing is written before it is committed"
    );
    assert!(store.still_holds(&first));
    let made = store.commit(&store_context, first.writes(), |_| true);
    made.expect("they are writes");
    assert!(
        !store.still_holds(&second),
        "it was decided by what is not so any more"
    );
    assert_eq!(
        store.rows.get(&5).map(|at| at.map(|at| at.value.0)),
        Ok(Some(1))
    );
}

#[test]
fn an_answer_is_taken_once_and_by_the_packet_that_asked() {
    let (_, store) = rows(ObjectSettings::LOCAL);
    let (context, client) = rows(ObjectSettings::REMOTE);
    context.begin(1);
    assert!(client.rows.get(&5).is_err());
    let asked = requests(&context);
    let [(ticket, 0, ..)] = asked[..] else {
        panic!("{asked:?}");
    };
    let (call, _) = context.park();
    context.abandon(call, |_, _| {});
    // Another packet, in the place of the first.
    context.begin(2);
    assert!(client.rows.get(&6).is_err());
    assert_eq!(context.take_answer(ticket, &[0, 0]), Answered::Unasked);
    let (call, _) = context.park();
    let again = call.requests();
    assert_eq!(answer(&context, &store), [Answered::Complete(again)]);
    context.ask_again(again);
    assert_eq!(requests(&context).len(), 0, "it is answered");
}

#[test]
fn a_lost_answer_is_asked_for_again_under_its_ticket() {
    let (context, client) = rows(ObjectSettings::REMOTE);
    context.begin(1);
    assert!(client.rows.get(&5).is_err());
    let (call, _) = context.park();
    let asked = requests(&context);
    assert_eq!(requests(&context), []);
    context.ask_again(call.requests());
    assert_eq!(requests(&context), asked);
    assert_eq!(
        context.take_answer(asked[0].0, &[0, 0]),
        Answered::Complete(call.requests())
    );
    assert_eq!(context.take_answer(asked[0].0, &[0, 0]), Answered::Unasked);
}

#[test]
fn a_packet_asks_for_no_more_than_it_may() {
    let (context, client) = rows(ObjectSettings::REMOTE);
    context.begin(1);
    for key in 0..REQUESTS_PER_PACKET_MAX as u32 {
        assert!(client.rows.get(&key).is_err());
    }
    assert_eq!(requests(&context).len(), REQUESTS_PER_PACKET_MAX);
    assert!(client.rows.vacancy().is_err());
    let (call, wait) = context.park();
    assert_eq!(wait, Wait::TooMuch);
    context.abandon(call, |_, _| {});
    // An answer that is too long, and then one that is none.
    context.begin(2);
    assert!(client.rows.get(&5).is_err());
    let (ticket, ..) = requests(&context)[0];
    let (call, _) = context.park();
    let complete = Answered::Complete(call.requests());
    let long = vec![0; asterism_state::ANSWER_BYTES_MAX + 1];
    assert_eq!(context.take_answer(ticket, &long), complete);
    context.resume(call);
    assert!(client.rows.get(&5).is_err());
    let (call, wait) = context.park();
    assert_eq!(wait, Wait::TooMuch);
    context.abandon(call, |_, _| {});
}

#[test]
fn what_is_no_answer_and_what_is_no_write_is_refused() {
    let (context, mut client) = rows(ObjectSettings::REMOTE);
    for bytes in [
        &[][..],
        &[1],
        &[9, 0, 1],
        &[5, 0, 1, 2, 3, 4, 0],
        &[1, 0, 0],
    ] {
        context.begin(1);
        assert!(client.rows.get(&5).is_err());
        let (ticket, ..) = requests(&context)[0];
        let (call, _) = context.park();
        context.take_answer(ticket, bytes);
        context.resume(call);
        assert!(client.install(&context).is_err(), "{bytes:?}");
        client.withdraw();
        context.end(|_, _| {});
    }
    let (context, mut store) = rows(ObjectSettings::LOCAL);
    for bytes in [
        &[0x80][..],
        &[0, 9, 0, 1],
        &[7, 0, 0],
        &[0, 1, 0, 1],
        &[0x78, 0, 0],
    ] {
        let result = store.commit(&context, bytes, |_| true);
        assert!(result.is_err(), "{bytes:?}");
    }
    assert_eq!(LANE_ROOM, u8::MAX);
}

#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_stores_are_found() {
    use asterism_state::mutant::{Mutant, select};
    let tests: [(Mutant, fn()); 4] = [
        (
            Mutant::AnswerOfAnother,
            an_answer_is_taken_once_and_by_the_packet_that_asked,
        ),
        (Mutant::ReadsUnchecked, of_two_that_saw_nothing_one_writes),
        (Mutant::RefusedCallCounted, a_hostile_store_changes_nothing),
        (Mutant::RefusedGrantSpent, a_hostile_store_changes_nothing),
    ];
    for (mutant, test) in tests {
        select(Some(mutant));
        let result = std::panic::catch_unwind(test);
        select(None);
        assert!(result.is_err(), "{mutant:?} survived");
    }
}
