//! A repair from one host has the others hold what that host holds, and what was written since.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::audit::LeafSet;
use asterism_state::{
    Builder, Context, Identity, ObjectSettings, OriginName, Origins, Sequencer, Set, State, state,
};

#[state]
struct Blocked {
    sources: Set<u32>,
}

struct Host {
    context: Rc<Context>,
    state: Blocked,
    name: OriginName,
}

impl Host {
    fn new(member: u16) -> Host {
        let name = OriginName {
            member,
            incarnation: 1,
        };
        let identity = Identity {
            own: name,
            members: vec![1, 2],
            lane: (0, 1),
        };
        let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 7, vec![]);
        context.set_now(0, 10);
        let context = Rc::new(context);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let state = Blocked {
            sources: builder.table("sources", 4_096, &[300]),
        };
        Host {
            context,
            state,
            name,
        }
    }

    fn block(&mut self, source: u32) {
        self.context.begin(source.into());
        let room = self.state.sources.vacancy().expect("never late");
        let room = room.expect("there is room");
        self.state.act().sources.insert(room, source, ());
        self.context.end(|_, _| {});
    }

    fn written(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.state
            .object_mut(0)
            .expect("an object")
            .flush(&mut { usize::MAX });
        self.context.end(|_, _| {});
        let mut groups = Vec::new();
        self.context
            .take_groups(|sequence, group| groups.push((sequence, group.to_vec())));
        if let Some((last, _)) = groups.last() {
            self.context.set_applied(Origins::OWN, *last);
        }
        groups
    }

    fn apply(&mut self, from: OriginName, groups: &[(u64, Vec<u8>)]) {
        for (sequence, group) in groups {
            let applied = self.state.apply(&self.context, from, *sequence, group);
            applied.expect("what a host wrote decodes");
            let origin = self.context.origin(from).expect("room");
            self.context.set_applied(origin, *sequence);
        }
    }
}

#[test]
pub(crate) fn a_repair_removes_what_only_others_have_and_nothing_that_came_since() {
    let (mut right, mut odd) = (Host::new(1), Host::new(2));
    // The streams of more incarnations are named than operations of repairs are kept, and the odd host's among the first.
    right.context.origin(odd.name).expect("room");
    for incarnation in 2..1_000 {
        let member = odd.name.member;
        let incarnation = OriginName {
            member,
            incarnation,
        };
        for host in [&right, &odd] {
            let origin = host.context.origin(incarnation).expect("room");
            host.context.set_applied(origin, 1);
        }
    }
    (0..500).for_each(|source| right.block(source));
    let groups = right.written();
    odd.apply(right.name, &groups);
    // What the odd host writes arrives and leaves no trace.
    (1_000..1_100).for_each(|source| odd.block(source));
    let lost = odd.written();
    let origin = right.context.origin(odd.name).expect("room");
    right
        .context
        .set_applied(origin, lost.last().expect("100").0);
    assert_ne!(right.state.digests(), odd.state.digests());

    // Its sweep stands among what is to be removed, and the table grows behind it while it goes round.
    odd.state.object_mut(0).expect("an object").sweep(550);
    let through = right.context.applied_through();
    let half: LeafSet = (0..128).collect();
    for leaves in [&half, &LeafSet::ALL] {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let object = right.state.object_mut(0).expect("an object");
            cursor = object.write_again(leaves, from, 64).0;
            // Others write meanwhile, here and there, before and behind the cursor.
            let next = 2_000 + right.state.sources.len_now() as u32;
            odd.block(next);
            right.apply(odd.name, &odd.written());
        }
        let object = right.state.object_mut(0).expect("an object");
        assert!(object.remove_elsewhere(leaves, &through));
        odd.apply(right.name, &right.written());
        // More than there are free places for.
        let next = 5_000 + right.state.sources.len_now() as u32;
        (next..next + 200).for_each(|source| odd.block(source));
        right.apply(odd.name, &odd.written());
        odd.state.object_mut(0).expect("an object").sweep_share(1);
    }
    assert_eq!(right.state.digests(), odd.state.digests());
    let came = right.state.sources.len_now() - 500;
    assert!(came > 410, "{came}");
    assert_eq!(odd.state.sources.tally().removed_by_repair, 100);
}
