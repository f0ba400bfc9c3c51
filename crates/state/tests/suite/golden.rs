//! The public vectors of `docs/src/vectors/operations.txt`, both ways: what is written becomes the bytes, and the bytes say the
//! same to another member.

// What another crate has for its tests cannot be imported: the file is.
#[allow(dead_code, reason = "the placement's tests use the rest")]
#[path = "../../../placement/src/vectors.rs"]
mod vectors;

use core::net::Ipv4Addr;
use std::cell::Cell;
use std::rc::Rc;

use asterism_packet::Flow4;
use asterism_state::{
    BadBytes, Bloom, Builder, Context, CountMin, Counter, Counters, CountingBloom, Flow4Key,
    Identity, Map, ObjectSettings, OriginName, Reader, Register, Sequencer, State, Value, Vector,
    Wire, state,
};
use vectors::{named, to_hex};

use crate::manual::{groups, snapshot};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Word(u32);

/// One object of each kind, in the order of the page.
#[state]
struct Objects {
    words: Map<u32, Word>,
    flows: Map<Flow4Key, ()>,
    word: Register<Word>,
    sum: Counter,
    sums: Counters<u32>,
    places: Vector,
    sketch: CountMin<u32>,
    forgetting: CountingBloom<u32>,
    filter: Bloom<u32>,
}

const IDLE: u32 = 10;
const WRITER: u16 = 2;
/// The entry that the reader uses too.
const TWO_USERS: u32 = 0x0102_0304;

struct Member {
    context: Rc<Context>,
    state: Objects,
}

fn name(member: u16) -> OriginName {
    OriginName {
        member,
        incarnation: 1_230_066_625_199_609_624,
    }
}

fn member(place: u16) -> Member {
    let identity = Identity {
        own: name(place),
        members: vec![1, 2],
        lane: (3, 4),
    };
    let sequencer = Sequencer::Own(Cell::new(299));
    let addresses = vec![Ipv4Addr::new(203, 0, 113, 1).to_bits()];
    let context = Rc::new(Context::new(identity, sequencer, 5, addresses));
    context.set_now(0, 0x0102_0304);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let state = Objects {
        words: builder.table("words", 64, &[IDLE]),
        flows: builder.table("flows", 64, &[0]),
        word: builder.register("word", Word(0)),
        sum: builder.counter("sum"),
        sums: builder.counters("sums", 64),
        places: builder.vector("places", 4),
        // One row of one place, so that the vectors do not depend on a hash.
        sketch: builder.count_min("sketch", 0.99, 0.4),
        forgetting: builder.counting_bloom("forgetting", 1, 0.6),
        filter: builder.bloom("filter", 1, 0.6),
    };
    Member { context, state }
}

/// What each vector's group says was written.
fn write(member: &mut Member, vector: &str) {
    let context = member.context.clone();
    context.begin(1);
    let state = &mut member.state;
    let known = state.words.get(&0x0a0b_0c0d).expect("replicated");
    // Asked for only where it is spent: nobody here gives back what is not.
    let vacancy = match vector {
        "table-written" | "table-written-again" | "table-of-two-users" => state.words.vacancy(),
        "table-of-flows" => state.flows.vacancy(),
        _ => Ok(None),
    };
    let vacancy = vacancy.expect("replicated");
    let tally = state.sums.find(&7).expect("replicated");
    let mut act = state.act();
    match vector {
        "table-written" | "table-written-again" => {
            let value = if vector == "table-written" { 5 } else { 8 };
            act.words.insert(vacancy.unwrap(), 0x0a0b_0c0d, Word(value));
        }
        "table-of-two-users" => act.words.insert(vacancy.unwrap(), TWO_USERS, Word(9)),
        "table-changed" => act.words.update(&known.unwrap(), Word(6)),
        "table-expired" => {
            // Beyond the idle time and the grace for uses that were not heard of yet.
            context.set_now(0, context.tick() + 10 * IDLE);
            member
                .state
                .object_mut(0)
                .expect("an object")
                .sweep_share(1);
        }
        "table-removed" => act.words.remove(&known.unwrap()),
        "table-of-flows" => {
            let flow = Flow4 {
                source: Ipv4Addr::new(203, 0, 113, 1),
                destination: Ipv4Addr::new(192, 0, 2, 9),
                source_port: 443,
                destination_port: 50_000,
                protocol: 17,
            };
            act.flows.insert(vacancy.unwrap(), Flow4Key::from(flow), ());
        }
        "register" => act.word.set(Word(9)),
        "counter" => act.sum.add(300),
        "counters" => act.sums.add(&tally.unwrap(), 2),
        "vector" => act.places.add(1, -1),
        "count-min" => act.sketch.add(&7, 1_000),
        "counting-bloom" => act.forgetting.add(&7),
        "bloom" => act.filter.add(&7),
        "two-operations" => {
            act.word.set(Word(10));
            act.words.update(&known.unwrap(), Word(7));
        }
        other => panic!("nothing writes {other}"),
    }
}

#[test]
fn writes_become_the_bytes_and_the_bytes_say_the_same_elsewhere() {
    let vectors = vectors::read("operations.txt");
    let (mut writer, mut reader) = (member(WRITER), member(1));
    let mut count = 0;
    for vector in vectors.iter().filter(|vector| vector.kind() == "group") {
        let name_of = vector.name.strip_prefix("group ").unwrap();
        write(&mut writer, name_of);
        let groups = groups(&mut writer.state, &writer.context);
        assert_eq!(groups.len(), 1, "{name_of}");
        let (sequence, bytes) = &groups[0];
        assert_eq!(*sequence, vector.number::<u64>("sequence"), "{name_of}");
        assert_eq!(to_hex(bytes), to_hex(&vector.bytes), "{name_of}");
        // The tag is what Wireshark shows of a group.
        let (object, flags) = Reader::new(bytes, &[]).tag().expect("a tag");
        assert_eq!(vector.number::<u8>("object"), object, "{name_of}");
        assert_eq!(vector.number::<u8>("flags"), flags, "{name_of}");

        reader.context.set_now(0, writer.context.tick());
        let (state, context) = (&mut reader.state, &reader.context);
        let applied = state.apply(context, name(WRITER), *sequence, &vector.bytes);
        assert_eq!(applied, Ok(()), "{name_of}");
        assert_eq!(
            writer.state.digests(),
            reader.state.digests(),
            "after {name_of}"
        );
        count += 1;
    }
    assert_eq!(count, 15);

    // A use that the reader announces. It numbers less than the writing: the entry stays as it was written.
    let used = named(&vectors, "use table-of-two-users");
    reader.context.set_now(0, reader.context.tick() + IDLE / 2);
    writer.context.set_now(0, reader.context.tick());
    reader.context.begin(1);
    let known = reader.state.words.get(&TWO_USERS).expect("replicated");
    reader.state.act().words.touch(&known.unwrap());
    let written = groups(&mut reader.state, &reader.context);
    let (sequence, bytes) = &written[0];
    assert_eq!(*sequence, used.number::<u64>("sequence"));
    assert_eq!(to_hex(bytes), to_hex(&used.bytes));
    let (state, context) = (&mut writer.state, &writer.context);
    assert_eq!(state.apply(context, name(1), *sequence, bytes), Ok(()));
    assert_eq!(writer.state.digests(), reader.state.digests());

    // The whole state, after all of that.
    let entries: Vec<u8> = vectors
        .iter()
        .filter(|vector| vector.kind() == "entry")
        .flat_map(|vector| vector.bytes.clone())
        .collect();
    assert_eq!(
        to_hex(&snapshot(&writer.state, 10_000).concat()),
        to_hex(&entries)
    );
    let mut newcomer = member(1);
    newcomer.context.set_now(0, writer.context.tick());
    let (state, context) = (&mut newcomer.state, &newcomer.context);
    assert_eq!(state.apply_snapshot(context, &entries), Ok(()));
    assert_eq!(writer.state.digests(), newcomer.state.digests());
    // And it says to others what it was reported.
    let said = snapshot(&newcomer.state, 10_000).concat();
    assert_eq!(to_hex(&said), to_hex(&entries));

    // As its own operations too, as when an object begins to be shared: what the writer wrote stays its writing.
    newcomer.context.begin(2);
    for object in [0, 2] {
        let object = newcomer.state.object_mut(object).expect("an object");
        assert_eq!(object.announce(0, 64), None);
    }
    let again = named(&vectors, "again table and register");
    let written = groups(&mut newcomer.state, &newcomer.context);
    let (sequence, bytes) = &written[0];
    assert_eq!(*sequence, again.number::<u64>("sequence"));
    assert_eq!(to_hex(bytes), to_hex(&again.bytes));
    let mut other = member(1);
    other.context.set_now(0, writer.context.tick());
    let (state, context) = (&mut other.state, &other.context);
    assert_eq!(state.apply(context, name(3), *sequence, bytes), Ok(()));
    for object in [0, 2] {
        assert_eq!(state.digest(object), writer.state.digest(object));
    }
    for cut in 1..bytes.len() {
        let mut other = member(1);
        let (state, context) = (&mut other.state, &other.context);
        let ends = again.number::<usize>("first-bytes") == cut
            || again.number::<usize>("second-bytes") == cut;
        let applied = state.apply(context, name(3), *sequence, &bytes[..cut]);
        assert_eq!(applied.is_ok(), ends, "cut at {cut}");
    }
}

#[test]
fn groups_cut_short_are_bad() {
    let vectors = vectors::read("operations.txt");
    let two = named(&vectors, "group two-operations");
    let first = two.number::<usize>("first-bytes");
    for vector in vectors.iter().filter(|vector| vector.kind() == "group") {
        for cut in 1..vector.bytes.len() {
            let mut member = member(1);
            let bytes = &vector.bytes[..cut];
            let (state, context) = (&mut member.state, &member.context);
            let applied = state.apply(context, name(WRITER), 300, bytes);
            let whole = vector.name == two.name && cut == first;
            assert_eq!(applied.is_ok(), whole, "{} cut at {cut}", vector.name);
        }
    }
    for bytes in [&[9 << 3][..], &[0xff; 20], &[4 << 3, 0x80, 2]] {
        let mut member = member(1);
        let (state, context) = (&mut member.state, &member.context);
        assert_eq!(
            state.apply(context, name(WRITER), 300, bytes),
            Err(BadBytes)
        );
    }
}
