//! What is not shared is in no snapshot: a host that joins may keep an object of another size for itself.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Bloom, Builder, Context, CountMin, Counter, Counters, CountingBloom, Graph, Identity, Map,
    ObjectSettings, OriginName, Pool, Register, Sequencer, Space, Spending, State, TokenBucket,
    TokenRate, TopK, Vector, Window, WindowedCountMin, WindowedCounters, Wire, state,
};

use crate::manual::{groups, snapshot};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

/// An object of every kind.
#[state]
struct Kinds {
    words: Map<u32, Word>,
    talk: Graph<u32>,
    ports: Pool<Ports>,
    commands: Counter,
    tallies: Counters<u32>,
    recent: WindowedCounters<u32>,
    recent_volumes: WindowedCountMin<u32>,
    policed: TokenBucket<u32>,
    loads: Vector,
    volumes: CountMin<u32>,
    heavy: TopK<u32>,
    seen: Bloom<u32>,
    present: CountingBloom<u32>,
    leader: Register<Word>,
}

const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 4,
};
const RATE: TokenRate = TokenRate {
    tokens_per_second: 1_000,
    burst_tokens: 8_000,
};

#[derive(Debug)]
struct Ports;

impl Space for Ports {
    type Item = (u32, u32);
    fn ranges(&self) -> u32 {
        1
    }
    fn items(&self) -> u32 {
        640
    }
    fn item(&self, range: u32, place: u32) -> (u32, u32) {
        (range, place)
    }
    fn place(&self, item: &(u32, u32)) -> Option<(u32, u32)> {
        Some(*item)
    }
}

struct Host {
    context: Rc<Context>,
    state: Kinds,
}

fn host(settings: ObjectSettings) -> Host {
    let identity = Identity {
        own: OriginName {
            member: 0,
            incarnation: 1,
        },
        members: vec![0, 1],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    context.set_now(1_000_000_000, 1_000);
    context.arrive(1_000_000_000);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Kinds {
        words: builder.table("words", 64, &[8]),
        talk: builder.graph("talk", 64, 8),
        ports: builder.pool("ports", Ports),
        commands: builder.counter("commands"),
        tallies: builder.counters("tallies", 64),
        recent: builder.windowed_counters("recent", 64, WINDOW),
        recent_volumes: builder.windowed_count_min("recent_volumes", (0.2, 0.2), WINDOW),
        policed: builder.token_bucket("policed", 64, RATE, Spending::Approximate),
        loads: builder.vector("loads", 9),
        volumes: builder.count_min("volumes", 0.1, 0.1),
        heavy: builder.top_k("heavy", 4),
        seen: builder.bloom("seen", 200, 0.1),
        present: builder.counting_bloom("present", 32, 0.1),
        leader: builder.register("leader", Word(0)),
    };
    let state = builder.built(state);
    Host { context, state }
}

impl Host {
    /// Writes something to each object.
    fn write(&mut self) {
        self.context.begin(1);
        let vacancy = self.state.words.vacancy().expect("at once").expect("room");
        let link = self.state.talk.link(&1, &2).expect("at once");
        let port = self.state.ports.grant(0, 5).expect("at once");
        let tally = self.state.tallies.find(&7).expect("at once").expect("room");
        let recent = self.state.recent.find(&7).expect("at once").expect("room");
        let tokens = self.state.policed.tokens(&7, 50).expect("at once");
        let mut act = self.state.act();
        act.words.insert(vacancy, 7, Word(8));
        act.talk.add(link.expect("room"), 3);
        act.ports.take(port.expect("a free one"));
        act.commands.add(1);
        act.tallies.add(&tally, 9);
        act.recent.add(&recent, 9);
        act.recent_volumes.add(&7, 9);
        act.policed.spend(tokens.expect("a full bucket"));
        act.loads.add(3, 4);
        act.volumes.add(&7, 9);
        act.heavy.add(&7, 9);
        act.seen.add(&7);
        act.present.add(&7);
        act.leader.set(Word(5));
        self.context.end(|_, _| {});
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
    }

    /// The objects of which a snapshot of the whole state holds something.
    fn objects_in_snapshot(&self) -> Vec<&'static str> {
        let mut held = Vec::new();
        for (object, name) in (0u8..).zip(Kinds::OBJECTS) {
            let mut part = Vec::new();
            let next = self.state.snapshot((object, 0), usize::MAX, &mut part);
            assert_eq!(next, None, "one part is enough");
            // Of this one and all behind it: as much more than of those behind it alone.
            let mut behind = Vec::new();
            self.state
                .snapshot((object + 1, 0), usize::MAX, &mut behind);
            if part.len() > behind.len() {
                held.push(*name);
            }
        }
        held
    }
}

#[test]
fn what_is_not_shared_is_in_no_snapshot() {
    let builder = include_str!("../../src/builder.rs");
    let built = |by: &str| builder.matches(by).count();
    assert_eq!(
        // Sums get theirs by the former too, and so do those of both that may be shared later.
        built("self.object(name)")
            + built("self.sums(name)")
            + built("self.movable_object(name, ")
            + built("self.movable_sums(name)")
            - 2,
        // And a vector of an instance's own, which is in nothing at all.
        Kinds::OBJECTS.len() + 1,
        "a kind of object is built that is not tested here"
    );
    for audited in [false, true] {
        let mut host = host(ObjectSettings {
            audited,
            ..ObjectSettings::LOCAL
        });
        host.write();
        assert!(groups(&mut host.state, &host.context).is_empty());
        let held = host.objects_in_snapshot();
        assert!(held.is_empty(), "{held:?} are asked to others");
        assert_eq!(snapshot(&host.state, 1_000), [Vec::<u8>::new()]);
    }
}

/// So the other test would see what it is looking for.
#[test]
fn what_is_shared_is_in_the_snapshot() {
    let mut host = host(ObjectSettings::REPLICATED);
    host.write();
    assert!(!groups(&mut host.state, &host.context).is_empty());
    let held = host.objects_in_snapshot();
    let shared = Kinds::OBJECTS.iter().filter(|&&name| name != "ports");
    // Of a pool only what others said of their leases is reported on.
    assert_eq!(held, shared.copied().collect::<Vec<_>>());
}
