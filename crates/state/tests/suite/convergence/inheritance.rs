//! What a dead member held of a pool is granted by others once nobody else can use it, and comes back when it does.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    BlockAssignment, Builder, Context, Identity, ObjectSettings, OriginName, Pool, PoolUse,
    Sequencer, Set, State, state,
};

use crate::convergence::leases::BlockAllocator;

const MEMBERS: [u16; 3] = [3, 8, 13];
const SHELVES: u32 = 2;
const ITEMS: u32 = 64 * 40;
/// After so many seconds an entry ends that nobody uses.
const USERS_IDLE_S: u32 = 4;
/// Entries live this long unused at the most: a quarter more, and 1 s.
const QUARANTINE_US: u64 = 6_000_000;
/// A pool looks so often whether it may grant more.
const LOOK_US: u64 = 100_000;
const LEASE_US: u64 = 10_000_000;

#[state]
struct Estate {
    pool: Pool<BlockAllocator>,
    users: Set<u32>,
    /// Its entries have no items of the pool, so that how long they live delays nothing.
    neighbours: Set<u32>,
}

struct Host {
    context: Rc<Context>,
    estate: Estate,
}

fn incarnation(member: u16, incarnation: u64) -> OriginName {
    OriginName {
        member,
        incarnation,
    }
}

impl Host {
    fn new(own: OriginName, lease_us: u64) -> Host {
        let identity = Identity {
            own,
            members: MEMBERS.to_vec(),
            lane: (0, 1),
        };
        let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 7, vec![]);
        let context = Rc::new(context);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let estate = Estate {
            pool: builder.pool("pool", BlockAllocator(SHELVES, ITEMS)),
            users: builder.table("users", 100, &[USERS_IDLE_S]),
            neighbours: builder.table("neighbours", 100, &[1_200]),
        };
        estate.pool.held_for(&[USERS_IDLE_S]);
        context.set_port_lease(lease_us);
        Host { context, estate }
    }

    /// An epoch is put in force.
    fn install(&self, epoch: u32, incarnations: &[OriginName], assignment: &BlockAssignment) {
        self.context.set_dealing(epoch, assignment.clone());
        self.context.set_living(incarnations.iter().copied());
    }

    /// It is so late, and the pool is looked after.
    fn at(&mut self, now_us: u64) -> PoolUse {
        self.context
            .set_now(now_us, 10 + (now_us / 1_000_000) as u32);
        self.estate.object_mut(0).expect("an object").sweep_share(1);
        self.estate.pool.usage()
    }

    fn written(&self) -> Vec<(u64, Vec<u8>)> {
        self.context.end(|_, _| {});
        let mut groups = Vec::new();
        self.context
            .take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
        groups
    }

    fn grants(&self) -> bool {
        self.context.begin(1);
        let granted = self.estate.pool.grant(0, 1).expect("never late").is_some();
        self.context
            .end(|object, number| self.estate.give_back(object, number));
        granted
    }
}

/// How many of these hosts may grant each item: at least so many, and at most.
fn holders(hosts: &[&Host]) -> (usize, usize) {
    let items = (0..SHELVES).flat_map(|range| (0..ITEMS).step_by(64).map(move |at| (range, at)));
    let counts = items.map(|item| {
        let holds = hosts.iter().filter(|host| host.estate.pool.is_own(&item));
        holds.count()
    });
    let counts: Vec<usize> = counts.collect();
    let least = counts.iter().min().expect("there are blocks");
    (*least, *counts.iter().max().expect("there are blocks"))
}

/// Three hosts in their first epoch, of which the third leaves by the next.
fn without_the_third(lease_us: u64, fenced: bool) -> ([Host; 3], BlockAssignment) {
    let mut hosts = MEMBERS.map(|member| Host::new(incarnation(member, 1), lease_us));
    let all = MEMBERS.map(|member| incarnation(member, 1));
    for host in &mut hosts {
        host.install(2, &all, &BlockAssignment::default());
        let usage = host.at(1_000_000);
        assert_eq!((usage.quarantined, usage.reclaimed), (0, 0));
    }
    let mut assignment = BlockAssignment::default();
    assignment.leave(13, &[3, 8], 3);
    if fenced {
        assignment.fence(13, 1);
    }
    for host in &mut hosts[..2] {
        host.install(3, &all[..2], &assignment);
        let usage = host.at(2_000_000);
        assert!(usage.quarantined > 0 && usage.reclaimed == 0);
    }
    (hosts, assignment)
}

/// The dead is known to be dead.
pub fn the_fenced_are_inherited_from_after_an_idle_time() {
    let ([mut a, mut b, _], mut assignment) = without_the_third(0, true);
    let usage = a.at(100_000_000);
    assert_eq!(usage.reclaimed, 0, "its incarnation is not closed");
    for host in [&mut a, &mut b] {
        host.at(101_000_000);
        host.context.set_closed(incarnation(13, 1));
        assert_eq!(host.at(101_000_000 + QUARANTINE_US - 1).reclaimed, 0);
    }
    let usages = [&mut a, &mut b].map(|host| host.at(101_000_000 + QUARANTINE_US + LOOK_US));
    for usage in usages {
        assert!(usage.reclaimed > 0 && usage.quarantined == 0, "{usage:?}");
        assert!(
            usage.leased * 5 > SHELVES * ITEMS * 2,
            "some half: {usage:?}"
        );
    }
    assert_eq!(usages[0].leased + usages[1].leased, SHELVES * ITEMS);
    assert_eq!(holders(&[&a, &b]), (1, 1), "each block is one's");
    // Another leaves: what is granted from already stays so.
    let leased = usages[0].leased;
    assignment.leave(8, &[3], 4);
    a.install(4, &[incarnation(3, 1)], &assignment);
    let usage = a.at(200_000_000);
    assert_eq!(usage.leased, leased);
    assert_eq!(usage.leased + usage.quarantined, SHELVES * ITEMS);
}

/// Nobody knows that it is dead, and it is not.
pub fn leases_run_out_before_others_inherit() {
    let ([mut a, mut b, mut cut_off], _) = without_the_third(LEASE_US, false);
    let closed = 2_000_000;
    for host in [&mut a, &mut b] {
        host.at(closed);
        host.context.set_closed(incarnation(13, 1));
    }
    // The third was answered last at 2 s; the others answer each other.
    cut_off.context.set_covered(1, closed);
    let drift = (LEASE_US + QUARANTINE_US) / 64 + 1_000_000;
    let until = closed + LEASE_US + 2 * QUARANTINE_US + drift;
    for now in (closed..until + 500_000).step_by(250_000) {
        for (host, other) in [(&mut a, 1), (&mut b, 0)] {
            host.context.set_covered(other, now);
            let usage = host.at(now);
            assert_eq!(usage.reclaimed > 0, now >= until, "{now}");
            assert!(host.grants());
        }
        cut_off.at(now);
        let (grants, serves) = (cut_off.grants(), cut_off.context.may_serve());
        assert_eq!(grants, now < closed + LEASE_US, "{now}");
        assert_eq!(serves, now < closed + LEASE_US + QUARANTINE_US, "{now}");
        assert!(!serves || a.estate.pool.usage().reclaimed == 0);
    }
}

/// Between its first packets and the first look at its blocks, milliseconds later, it has them all by place.
pub fn who_returns_grants_nothing_before_it_judged() {
    let mut assignment = BlockAssignment::default();
    assignment.leave(13, &[3, 8], 3);
    assignment.come_back(13, 4);
    let mut back = Host::new(incarnation(13, 2), 0);
    assert!(
        back.grants(),
        "before the first epoch all is dealt by place"
    );
    back.install(
        4,
        &[incarnation(3, 1), incarnation(8, 1), incarnation(13, 2)],
        &assignment,
    );
    back.context.set_joined();
    assert_eq!(holders(&[&back]), (0, 0));
    assert!(!back.grants(), "others have not released");
    back.at(1_000_000);
    assert_eq!(holders(&[&back]), (0, 0));
    assert!(!back.grants());
    // Nothing was dealt away: its place's are its own at once.
    let plain = Host::new(incarnation(13, 2), 0);
    plain.install(4, &[incarnation(13, 2)], &BlockAssignment::default());
    assert!(plain.grants());
}

/// It comes back while one of the others has not heard of it.
pub fn who_returns_waits_until_the_others_released() {
    let ([mut a, mut b, _], mut assignment) = without_the_third(0, true);
    for host in [&mut a, &mut b] {
        host.context.set_closed(incarnation(13, 1));
        assert!(host.at(100_000_000).reclaimed > 0);
        host.written();
    }
    assignment.come_back(13, 4);
    let incarnations = [incarnation(3, 1), incarnation(8, 1), incarnation(13, 2)];
    let mut back = Host::new(incarnation(13, 2), 0);
    back.install(4, &incarnations, &assignment);
    back.at(100_000_000);
    back.context.set_joined();
    let released = |back: &mut Host, host: &mut Host| {
        host.install(4, &incarnations, &assignment);
        assert_eq!(host.at(200_000_000).reclaimed, 0);
        let own = host.context.identity().own;
        for (sequence, group) in host.written() {
            let applied = back.estate.apply(&back.context, own, sequence, &group);
            applied.expect("good bytes");
            assert_eq!(
                back.at(200_200_000).leased,
                0,
                "what came before is not here"
            );
            let origin = back.context.origin(own).expect("known");
            back.context.set_applied(origin, sequence);
        }
    };
    released(&mut back, &mut a);
    let usage = back.at(200_400_000);
    assert_eq!(usage.leased, 0, "the other may still grant: {usage:?}");
    assert_eq!(holders(&[&b, &back]).1, 1);
    released(&mut back, &mut b);
    let usage = back.at(200_600_000);
    assert!(usage.leased > 0 && usage.quarantined == 0, "{usage:?}");
    assert_eq!(holders(&[&a, &b, &back]), (1, 1));
    // Another that joins learns of the releases by the snapshot.
    let mut snapshot = Vec::new();
    assert_eq!(back.estate.snapshot((0, 0), 60_000, &mut snapshot), None);
    let mut other = Host::new(incarnation(13, 3), 0);
    other.install(
        4,
        &[incarnation(3, 1), incarnation(8, 1), incarnation(13, 3)],
        &assignment,
    );
    other
        .estate
        .apply_snapshot(&other.context, &snapshot)
        .expect("a snapshot");
    for host in [&a, &b] {
        let origin = other.context.origin(host.context.identity().own);
        other.context.set_applied(origin.expect("known"), 100);
    }
    assert!(other.at(300_000_000).leased > 0);
}

#[test]
fn fenced() {
    the_fenced_are_inherited_from_after_an_idle_time();
}

#[test]
fn cut_off() {
    leases_run_out_before_others_inherit();
}

#[test]
fn returning() {
    who_returns_waits_until_the_others_released();
}

#[test]
fn without_evidence_and_without_leases_nobody_inherits() {
    let ([mut a, ..], mut assignment) = without_the_third(0, false);
    a.context.set_closed(incarnation(13, 1));
    let late = u64::MAX / 2;
    assert_eq!(a.at(late).reclaimed, 0);
    // The evidence may come later. Until then the process may have run, and its flows talked.
    assignment.fence(13, 1);
    a.install(4, &[incarnation(3, 1), incarnation(8, 1)], &assignment);
    assert_eq!(a.at(late + QUARANTINE_US - 1).reclaimed, 0);
    assert!(a.at(late + QUARANTINE_US + LOOK_US).reclaimed > 0);
}

/// A packet was granted an item and waits; meanwhile the item's block is another's again.
#[test]
fn grants_that_wait_are_void_and_leave_nothing() {
    let ([mut a, ..], mut assignment) = without_the_third(0, true);
    a.context.set_closed(incarnation(13, 1));
    assert!(a.at(100_000_000).reclaimed > 0);
    let inherited = |a: &Host| {
        let mut items = (0..ITEMS).map(|at| (0, at));
        let home = |item: &(u32, u32)| (item.1 / 64 % 3) == 2;
        items.find(|item| home(item) && a.estate.pool.is_own(item) && !a.estate.pool.is_used(item))
    };
    for put_to_use_by_the_other in [false, true] {
        let next = 2 + u64::from(put_to_use_by_the_other);
        let item = inherited(&a).expect("one that was the third's");
        a.context.begin(1);
        let granted = a.estate.pool.grant(0, item.1).expect("never late");
        assert_eq!(granted.map(|grant| grant.item()), Some(item));
        let (call, _) = a.context.park();
        let before = assignment.clone();
        assignment.come_back(13, 4);
        a.install(
            4,
            &[incarnation(3, 1), incarnation(8, 1), incarnation(13, next)],
            &assignment,
        );
        a.at(next * 200_000_000);
        assert!(!a.estate.pool.is_own(&item));
        if put_to_use_by_the_other {
            a.estate.pool.returns().hold(&item);
        }
        a.context.resume(call);
        let again = a.estate.pool.grant(0, item.1).expect("never late");
        assert!(again.is_some_and(|grant| a.estate.pool.is_own(&grant.item())));
        a.context
            .end(|object, number| a.estate.give_back(object, number));
        assert_eq!(a.estate.pool.is_used(&item), put_to_use_by_the_other);
        // Back to where it was, for the other case.
        assignment = before;
        assignment.fence(13, next);
        a.install(4, &[incarnation(3, 1), incarnation(8, 1)], &assignment);
        a.at(next * 200_000_000 + 500_000);
        a.context.set_closed(incarnation(13, next));
        a.at(next * 200_000_000 + 100_000_000);
        a.written();
    }
    let usage = a.at(900_000_000);
    assert_eq!(
        usage.in_use, 1,
        "the one that the other has in use: {usage:?}"
    );
}

/// A host that leases nothing has nothing that others could be given.
#[test]
fn a_lease_binds_only_who_leases() {
    let context = Context::alone();
    context.set_port_lease(1);
    context.set_now(u64::MAX - 1, 0);
    assert!(context.may_serve());
    let mut host = Host::new(incarnation(3, 1), LEASE_US);
    assert!(host.context.may_serve());
    host.at(LEASE_US + QUARANTINE_US);
    assert!(!host.context.may_serve(), "nobody answers");
}

#[test]
fn unjudged() {
    who_returns_grants_nothing_before_it_judged();
}
