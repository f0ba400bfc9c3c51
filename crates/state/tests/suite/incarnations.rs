//! A host that is gone, and one that returns in a new incarnation: whose entries end, and whose share they count against.

mod forgotten;

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Identity, Map, ObjectSettings, OriginName, Sequencer, State, Wire, state,
};

use crate::manual::{groups, snapshot};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

const IDLE: u32 = 8;
/// Over the idle time, its quarter and the second of grace.
const LONG: u32 = 12;
/// Of two members.
const CAPACITY: u32 = 8;

#[state]
struct Held {
    words: Map<u32, Word>,
}

/// What a host does with an entry.
enum Deed {
    Uses,
    Removes,
    Writes(u32),
}

struct Host {
    context: Rc<Context>,
    state: Held,
}

fn name(member: u16, incarnation: u64) -> OriginName {
    OriginName {
        member,
        incarnation,
    }
}

fn host(own: OriginName) -> Host {
    let identity = Identity {
        own,
        members: vec![0, 1],
        lane: (0, 1),
    };
    let context = Rc::new(Context::new(
        identity,
        Sequencer::Own(Cell::new(0)),
        1,
        vec![],
    ));
    context.set_now(0, 100);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let state = Held {
        words: builder.table("words", CAPACITY, &[IDLE]),
    };
    Host { context, state }
}

impl Host {
    /// Writes an entry if there is a vacancy.
    fn put(&mut self, key: u32) -> bool {
        self.context.begin(u64::from(key));
        let vacancy = self.state.words.vacancy().expect("asked at once");
        let granted = vacancy.is_some();
        if let Some(vacancy) = vacancy {
            self.state.act().words.insert(vacancy, key, Word(key));
        }
        self.context.end(|_, _| {});
        granted
    }

    /// Does that with an entry that it has, so long after the start.
    fn does(&mut self, seconds: u32, key: u32, deed: Deed) {
        self.context.set_now(0, 100 + seconds);
        self.context.begin(u64::from(key));
        let found = self.state.words.get(&key).expect("at once").expect("there");
        let mut words = self.state.act().words;
        match deed {
            Deed::Uses => words.touch(&found),
            Deed::Removes => words.remove(&found),
            Deed::Writes(word) => words.update(&found, Word(word)),
        }
        self.context.end(|_, _| {});
    }

    fn hear(&mut self, from: &mut Host) {
        let origin = from.context.identity().own;
        for (sequence, bytes) in groups(&mut from.state, &from.context) {
            self.state
                .apply(&self.context, origin, sequence, &bytes)
                .expect("good bytes");
        }
    }

    fn join_snapshot(&mut self, from: &Host) {
        for part in snapshot(&from.state, 1_000) {
            self.state
                .apply_snapshot(&self.context, &part)
                .expect("good bytes");
        }
    }

    /// How many live after a sweep, that long after the start.
    fn live_after(&mut self, seconds: u32) -> usize {
        self.context.set_now(0, 100 + seconds);
        self.state.object_mut(0).expect("an object").sweep(100);
        self.state.words.len_now()
    }
}

#[test]
fn what_a_host_wrote_in_an_earlier_incarnation_counts_against_its_share() {
    let (mut before, mut other) = (host(name(1, 1)), host(name(0, 1)));
    assert!(
        (0..4).all(|key| before.put(key)) && !before.put(4),
        "half of eight"
    );
    other.hear(&mut before);

    let mut after = host(name(1, 2));
    after.join_snapshot(&other);
    assert_eq!(after.state.words.len_now(), 4);
    assert!(
        !after.put(4),
        "the earlier incarnation has used up the share"
    );
    // What the other member wrote counts against its own.
    assert!((10..14).all(|key| other.put(key)));
    after.hear(&mut other);
    assert_eq!(after.state.words.len_now(), 8);
}

#[test]
fn an_entry_whose_last_user_is_gone_is_ended_by_one_survivor() {
    let (mut gone, mut heir, mut third) = (host(name(1, 1)), host(name(0, 1)), host(name(0, 7)));
    assert!(gone.put(1));
    for (sequence, bytes) in groups(&mut gone.state, &gone.context) {
        for participant in [&mut heir, &mut third] {
            participant
                .state
                .apply(&participant.context, name(1, 1), sequence, &bytes)
                .expect("good bytes");
        }
    }
    assert_eq!(
        heir.live_after(LONG),
        1,
        "nobody knows that its user is gone"
    );
    let living = [name(0, 1)];
    heir.context.set_living(living.into_iter());
    third.context.set_living(living.into_iter());
    assert_eq!(third.live_after(LONG), 1, "it falls to another");
    assert_eq!(heir.live_after(IDLE), 1, "it is not idle long enough");
    assert_eq!(heir.live_after(LONG), 0);
    let ended = groups(&mut heir.state, &heir.context);
    assert_eq!(ended.len(), 1, "and all are reported");
}

/// Of a place that the first epoch which this instance knows leaves out nothing can be on its way, so nothing waits for it; of one whose incarnation
/// has ended under its eyes something may be, until the incarnation is closed.
#[test]
fn nothing_waits_for_a_place_that_was_never_known() {
    let participant = host(name(0, 1));
    assert!(!participant.context.covers(None, 5));
    participant.context.set_living([name(0, 1)].into_iter());
    assert!(participant.context.covers(None, u64::MAX));
    // It comes, and what it writes may be on its way.
    participant
        .context
        .set_living([name(0, 1), name(1, 1)].into_iter());
    assert!(!participant.context.covers(None, 5));
    participant.context.set_living([name(0, 1)].into_iter());
    assert!(
        !participant.context.covers(None, 5),
        "its incarnation is not closed"
    );
    participant.context.set_closed(name(1, 1));
    assert!(participant.context.covers(None, u64::MAX));
    // The next epoch finds it closed.
    participant.context.set_living([name(0, 1)].into_iter());
    assert!(participant.context.covers(None, u64::MAX));
}

#[test]
fn a_snapshot_names_who_used_an_entry_last() {
    let (mut writer, mut user, mut newcomer) =
        (host(name(1, 1)), host(name(0, 1)), host(name(0, 2)));
    assert!((0..4).all(|key| writer.put(key)));
    user.hear(&mut writer);
    // The first member uses them later than the second wrote them; then a newcomer comes in its place.
    for key in 0..4 {
        user.does(5, key, Deed::Uses);
    }
    assert!(
        !groups(&mut user.state, &user.context).is_empty(),
        "uses were announced"
    );
    newcomer.join_snapshot(&user);
    let living = [name(0, 2), name(1, 1)];
    newcomer.context.set_living(living.into_iter());
    let left = newcomer.live_after(LONG + 10);
    let mut other = host(name(1, 1));
    other.join_snapshot(&user);
    other.context.set_living(living.into_iter());
    let ended = 4 - other.live_after(LONG + 10);
    assert_eq!(left, ended, "each falls to one of the two");
    assert!(
        left < 4 && left > 0,
        "{left} of four: keys that fall to both"
    );
}

/// One writes, two others remove: the writing stands, and anyone who removed it last has used it last. Where the same is known by an
/// snapshot in which it is still ended, with the other removal's stamp, that snapshot must name the user.
#[test]
fn a_snapshot_names_who_used_an_ended_entry_last() {
    let ended = (1..=8).map(|key| {
        let [mut writer, mut early, mut gone] = [name(0, 1), name(1, 2), name(1, 1)].map(host);
        assert!(writer.put(key));
        let written = groups(&mut writer.state, &writer.context);
        for other in [&mut early, &mut gone] {
            for (sequence, bytes) in &written {
                let known = other
                    .state
                    .apply(&other.context, name(0, 1), *sequence, bytes);
                known.expect("good bytes");
            }
        }
        // Its removal has the greater stamp, the other one is the later use.
        assert!((20..23).all(|other| early.put(other)));
        early.does(1, key, Deed::Removes);
        gone.does(5, key, Deed::Removes);
        gone.hear(&mut early);
        writer.does(1, key, Deed::Writes(77));
        early.hear(&mut writer);
        assert_eq!(early.state.words.len_now(), 4, "the writing stands");
        early.join_snapshot(&gone);
        writer.join_snapshot(&early);
        let living = [name(0, 1), name(1, 2)];
        let left = [&mut writer, &mut early].map(|host| {
            host.context.set_living(living.into_iter());
            host.live_after(LONG + 10)
        });
        // Its own three are ended by the host that uses them.
        assert_eq!(left[0] + left[1], 3 + 1, "ended by one: {left:?}");
        left[0] == 3
    });
    let by_writer = ended.filter(|by_writer| *by_writer).count();
    assert!(
        (1..8).contains(&by_writer),
        "{by_writer} of eight: it falls to one or the other"
    );
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn the_planted_bug_is_found() {
    use asterism_state::mutant::{self, Mutant};

    mutant::select(Some(Mutant::LastUserOfTheEndedUnnamed));
    let found = std::panic::catch_unwind(a_snapshot_names_who_used_an_ended_entry_last);
    mutant::select(None);
    assert!(found.is_err());
}
