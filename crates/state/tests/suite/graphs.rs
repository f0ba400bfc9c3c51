//! A graph: weights and degrees over several members, edges that end, and what a packet pays. That replicas agree whatever the
//! order in which operations arrive is tested in `convergence/`.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Graph, Identity, ObjectSettings, OriginName, Origins, Sequencer, Since,
    State, state,
};

use crate::manual::{groups, snapshot};

#[state]
struct Talk {
    talk: Graph<u32>,
}

const IDLE: u32 = 8;
const CAPACITY: u32 = 64;

struct Member {
    context: Rc<Context>,
    state: Talk,
    serial: u64,
}

fn member(place: u16, incarnation: u64, settings: ObjectSettings) -> Member {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation,
        },
        members: vec![0, 1],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    context.set_now(0, 100);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Talk {
        talk: builder.graph("talk", CAPACITY, IDLE),
    };
    Member {
        context,
        state,
        serial: 0,
    }
}

impl Member {
    fn add(&mut self, source: u32, destination: u32, amount: u64) -> bool {
        self.serial += 1;
        self.context.begin(self.serial);
        let talk = &self.state.talk;
        let link = talk.link(&source, &destination).expect("local");
        let added = link.map(|link| self.state.act().talk.add(link, amount));
        self.context.end(|_, _| {});
        added.is_some()
    }

    fn reported(&mut self) -> Vec<(u64, Vec<u8>)> {
        groups(&mut self.state, &self.context)
    }

    fn hear(&mut self, from: OriginName, groups: &[(u64, Vec<u8>)]) {
        for (sequence, group) in groups {
            self.state
                .apply(&self.context, from, *sequence, group)
                .expect("well formed");
        }
    }

    fn name(&self) -> OriginName {
        self.context.identity().own
    }

    fn degrees(&self, node: u32) -> (u32, u32) {
        let talk = &self.state.talk;
        let out = talk.out_degree(&node).expect("local");
        (out, talk.in_degree(&node).expect("local"))
    }

    fn weight(&self, source: u32, destination: u32) -> Option<u64> {
        let weight = self.state.talk.weight(&source, &destination);
        weight.expect("local")
    }

    fn at(&mut self, tick: u32) {
        self.context.set_now(0, tick);
        self.state.object_mut(0).expect("an object").sweep_share(1);
    }
}

fn replicated(place: u16) -> Member {
    member(place, 1, ObjectSettings::REPLICATED)
}

fn exchange(left: &mut Member, right: &mut Member) {
    let (of_left, of_right) = (left.reported(), right.reported());
    left.hear(right.name(), &of_right);
    right.hear(left.name(), &of_left);
}

#[test]
fn weights_add_up_over_members_and_degrees_count_an_edge_once() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    assert!(left.add(1, 2, 10) && left.add(1, 3, 20) && left.add(1, 2, 5));
    assert!(right.add(1, 2, 100) && right.add(4, 1, 7) && right.add(2, 2, 1));
    exchange(&mut left, &mut right);
    for here in [&left, &right] {
        assert_eq!(here.weight(1, 2), Some(115));
        assert_eq!(here.weight(2, 1), None, "edges have a direction");
        assert_eq!(here.degrees(1), (2, 1));
        assert_eq!(here.degrees(2), (1, 2), "a node may talk to itself");
        assert_eq!(here.degrees(9), (0, 0));
        let talk = &here.state.talk;
        assert_eq!((talk.edges(), talk.nodes()), (4, 4));
        let mut all = Vec::new();
        talk.for_each(|&source, &destination, weight| all.push((source, destination, weight)));
        all.sort_unstable();
        assert_eq!(all, [(1, 2, 115), (1, 3, 20), (2, 2, 1), (4, 1, 7)]);
        let (mut to, mut from) = (Vec::new(), Vec::new());
        talk.for_each_destination(&1, |&node, weight| to.push((node, weight)));
        talk.for_each_source(&2, |&node, weight| from.push((node, weight)));
        to.sort_unstable();
        from.sort_unstable();
        assert_eq!(to, [(2, 115), (3, 20)]);
        assert_eq!(from, [(1, 115), (2, 1)]);
    }
    assert_eq!(left.state.digests(), right.state.digests());
}

#[test]
fn additions_travel_with_the_flush_and_not_with_every_packet() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    left.add(1, 2, 1);
    assert!(left.context.wrote(), "a new edge is reported at once");
    exchange(&mut left, &mut right);
    for _ in 0..1_000 {
        left.add(1, 2, 1);
        assert!(!left.context.wrote(), "a weight waits for the flush");
    }
    let reported = left.reported();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].1.len() < 40, "{} bytes", reported[0].1.len());
    right.hear(left.name(), &reported);
    assert_eq!(right.weight(1, 2), Some(1_001));
    assert!(left.reported().is_empty(), "nothing changed since");
    left.context.hold_accumulators(true);
    left.add(1, 2, 1);
    assert!(left.reported().is_empty(), "the log has no room");
    left.context.hold_accumulators(false);
    assert_eq!(left.reported().len(), 1);
}

#[test]
fn an_edge_stays_while_one_member_sees_it_and_ends_everywhere() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    left.add(1, 2, 10);
    right.add(1, 2, 100);
    exchange(&mut left, &mut right);
    for tick in 101..130 {
        right.context.set_now(0, tick);
        right.add(1, 2, 1);
        left.at(tick);
        right.at(tick);
        exchange(&mut left, &mut right);
    }
    assert_eq!(left.weight(1, 2), Some(129), "what one no longer sees goes");
    assert_eq!(left.degrees(1), (1, 0));
    for tick in 130..145 {
        left.at(tick);
        right.at(tick);
        exchange(&mut left, &mut right);
    }
    for here in [&left, &right] {
        assert_eq!(here.weight(1, 2), None);
        assert_eq!((here.degrees(1), here.degrees(2)), ((0, 0), (0, 0)));
        assert_eq!((here.state.talk.edges(), here.state.talk.nodes()), (0, 0));
    }
    // Both sightings of the edge ended; what two see is one edge, and none of it has.
    assert_eq!(
        left.state.object(0).map(|object| object.entries_ended()),
        Some(2)
    );
    // It begins again, with nothing of its earlier incarnation.
    left.add(1, 2, 3);
    right.add(1, 2, 0);
    exchange(&mut left, &mut right);
    assert_eq!(
        left.state
            .object(0)
            .map(|object| (object.entries(), object.entries_held())),
        Some((1, 2))
    );
    assert_eq!(
        left.state.object(0).map(|object| object.entries_ended()),
        Some(0)
    );
    assert_eq!(right.weight(1, 2), Some(3));
    assert_eq!(left.state.digests(), right.state.digests());
}

#[test]
fn shares_run_out_and_come_back() {
    let mut here = replicated(0);
    for node in 0..CAPACITY / 2 {
        assert!(here.add(1, node, 1));
    }
    assert!(!here.add(1, 1_000, 1), "half is the other member's");
    assert!(here.add(1, 5, 1), "an edge that is there needs no room");
    assert_eq!(here.degrees(1).0, CAPACITY / 2);
    here.reported();
    here.at(100 + 2 * IDLE);
    here.reported();
    here.context.set_stable(Origins::OWN, u64::MAX);
    here.at(100 + 2 * IDLE);
    assert!(here.add(1, 1_000, 1), "ended edges are forgotten");
    assert_eq!(here.degrees(1).0, 1);
}

#[test]
fn an_edge_asked_for_twice_by_one_call_begins_once() {
    let mut here = replicated(0);
    here.context.begin(1);
    let links = [(); 2].map(|()| here.state.talk.link(&1, &2).expect("local"));
    let mut act = here.state.act();
    for link in links.into_iter().flatten() {
        act.talk.add(link, 7);
    }
    assert_eq!(here.weight(1, 2), Some(14));
    assert_eq!(here.degrees(1), (1, 0));
}

#[test]
fn weights_stop_where_numbers_end() {
    let mut here = replicated(0);
    here.add(1, 2, u64::MAX - 1);
    here.add(1, 2, 5);
    here.add(1, 2, 5);
    assert_eq!(here.weight(1, 2), Some(u64::MAX));
}

#[test]
fn reads_are_late_where_they_are_to_be_and_prefetching_writes_nothing() {
    let late = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let here = member(0, 1, late);
    here.context.begin(1);
    let talk = &here.state.talk;
    assert!(talk.link(&1, &2).is_err());
    assert!(talk.weight(&1, &2).is_err());
    assert!(talk.out_degree(&1).is_err());
    assert!(talk.in_degree(&1).is_err());
    let (call, _) = here.context.park();
    here.context.set_now(20, 100);
    here.context.resume(call);
    assert!(talk.link(&1, &2).expect("fetched").is_some());
    assert_eq!(talk.weight(&1, &2), Ok(None));
    assert_eq!((talk.out_degree(&1), talk.in_degree(&1)), (Ok(0), Ok(0)));
    here.context.prefetch();
    assert!(talk.link(&1, &2).is_err());
    assert!(talk.out_degree(&1).is_err());
}

#[test]
fn a_newcomer_and_a_restart_get_the_whole_graph() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    for node in 0..20 {
        left.add(node, node % 3, 10);
        right.add(node % 5, node, 100);
    }
    exchange(&mut left, &mut right);
    let parts = snapshot(&left.state, 300);
    let mut fresh = replicated(1);
    for part in &parts {
        let applied = fresh.state.apply_snapshot(&fresh.context, part);
        applied.expect("a snapshot can be read");
    }
    assert_eq!(fresh.state.digests(), left.state.digests());
    let mut restored = member(0, 2, ObjectSettings::REPLICATED);
    let since = Since {
        saved: 100,
        away: 1,
    };
    for part in &parts {
        let taken = restored.state.restore(&restored.context, part, &since);
        taken.expect("what was saved can be read");
    }
    for here in [&fresh, &restored] {
        for node in 0..20 {
            assert_eq!(here.degrees(node), left.degrees(node), "node {node}");
            assert_eq!(here.weight(node, node % 3), left.weight(node, node % 3));
        }
    }
    restored.add(0, 0, 1);
    assert_eq!(restored.weight(0, 0), left.weight(0, 0).map(|sum| sum + 1));
    assert!(!restored.reported().is_empty(), "as writes of its own");
}
