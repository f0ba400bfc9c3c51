//! Parts of a snapshot that look at few places: whatever is sparse or empty, none looks at more, and all together are the snapshot.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Bloom, Builder, Context, CountMin, Counters, Identity, Map, ObjectSettings, OriginName,
    Origins, Part, Sequencer, Single, State, TopK, Vector, Window, WindowedCountMin, state,
};

use crate::manual::{groups, snapshot};

#[state]
struct Sparse {
    loads: Vector,
    words: Map<u32, ()>,
    by_key: Counters<u32>,
    volumes: CountMin<u32>,
    seen: Bloom<u32>,
    recent: WindowedCountMin<u32>,
    heaviest: TopK<u32>,
}

const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 10,
};
/// More than the parts below look at, for every object.
const ENTRIES: u32 = 3_000;

fn member(place: u16) -> (Rc<Context>, Sparse) {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation: 1,
        },
        members: vec![0, 1],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    context.set_now(0, 1_000);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let state = Sparse {
        loads: builder.vector("loads", ENTRIES),
        words: builder.table("words", 2 * ENTRIES, &[]),
        by_key: builder.counters("by_key", ENTRIES),
        volumes: builder.count_min("volumes", 0.001, 0.01),
        seen: builder.bloom("seen", ENTRIES, 0.01),
        recent: builder.windowed_count_min("recent", (0.001, 0.01), WINDOW),
        heaviest: builder.top_k("heaviest", ENTRIES),
    };
    (context, state)
}

/// Fills the map, and forgets nearly all of it again: what is left lies at both ends of its records.
fn sparse() -> (Rc<Context>, Sparse) {
    let (context, mut state) = member(0);
    for key in 0..ENTRIES {
        let room = state.words.vacancy().expect("local").expect("room");
        state.act().words.insert(room, Single(key), ());
        context.end(|_, _| {});
    }
    for key in 1..ENTRIES - 1 {
        let at = state.words.get(&key).expect("local").expect("it is there");
        state.act().words.remove(&at);
        context.end(|_, _| {});
    }
    for key in [1, ENTRIES - 1] {
        let tally = state.by_key.find(&key).expect("local").expect("room");
        let mut act = state.act();
        act.loads.add(key, 5);
        act.by_key.add(&tally, 5);
        act.volumes.add(&key, 5);
        act.seen.add(&key);
        act.recent.add(&key, 5);
        act.heaviest.add(&key, 5);
        context.end(|_, _| {});
    }
    groups(&mut state, &context);
    context.set_stable(Origins::OWN, u64::MAX);
    state.object_mut(1).expect("an object").sweep_share(1);
    assert_eq!((state.words.len_now(), state.words.held()), (2, 2));
    (context, state)
}

#[test]
fn no_part_looks_at_more_places_than_it_may() {
    let (_, state) = sparse();
    let whole = snapshot(&state, 1_100).concat();
    for places_max in [1, 7, 1_000] {
        let mut bytes = Vec::new();
        let (mut cursor, mut parts, mut empty, mut looked) = (Some((0, 0)), 0, 0, 0);
        while let Some(from) = cursor {
            let mut out = Vec::new();
            let mut part = Part::new(&mut out, 1_100, places_max);
            cursor = state.snapshot_part(from, &mut part);
            assert!(part.looked() <= places_max, "{} places", part.looked());
            assert!(cursor.is_none_or(|next| next > from), "it gets further");
            looked += part.looked();
            (parts, empty) = (parts + 1, empty + u32::from(out.is_empty()));
            bytes.extend(out);
        }
        assert!(looked >= 6 * ENTRIES, "only {looked} places were looked at");
        assert!(parts >= looked / places_max && empty > 0, "{parts} parts");
        assert_eq!(bytes, whole, "{places_max} places a part");
    }
}

#[test]
fn parts_of_few_places_make_the_same_state() {
    let (_, state) = sparse();
    let (context, mut joined) = member(1);
    let mut cursor = Some((0, 0));
    while let Some(from) = cursor {
        let mut out = Vec::new();
        cursor = state.snapshot_part(from, &mut Part::new(&mut out, 600, 50));
        let applied = joined.apply_snapshot(&context, &out);
        applied.expect("good bytes");
    }
    assert_eq!(joined.digests(), state.digests());
}
