//! Token buckets of which the spending is in a store: what is asked, what is added, and what an instance makes of the answers.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Addition, Builder, Context, Fetch, Identity, LANE_CELLS, ObjectSettings, Sequencer, Spending,
    State, SumsAsked, SumsRead, SumsShown, Sweep, TokenBucket, TokenRate, TokenTally, Tokens,
    Transaction, state, write_bucket_field, write_sums,
};

use crate::both::Both;

#[state]
struct Limits {
    budget: TokenBucket<u32>,
}

/// An empty bucket fills in ten seconds, so a bucket of time is three seconds.
const RATE: TokenRate = TokenRate {
    tokens_per_second: 10,
    burst_tokens: 100,
};
/// Keys that may have a bucket.
const KEYS: u32 = 3;
/// The first second of the bucket of time 101.
const BEGIN: u32 = 300;

fn build_with(settings: fn(&str) -> ObjectSettings, spending: Spending) -> (Rc<Context>, Limits) {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 5, vec![]));
    context.expect_requests(4);
    let builder = Builder::new(context.clone(), settings);
    let state = Limits {
        budget: builder.token_bucket("budget", KEYS, RATE, spending),
    };
    (context, builder.built(state))
}

fn build(settings: fn(&str) -> ObjectSettings) -> (Rc<Context>, Limits) {
    build_with(settings, Spending::Approximate)
}

fn both() -> Both<Limits> {
    let both = Both::of(build);
    both.at(BEGIN);
    both
}

impl Both<Limits> {
    fn at(&self, second: u32) {
        let now_us = u64::from(second) * 1_000_000;
        self.context.set_now(now_us, second);
        self.context.arrive(now_us);
        self.store_context.set_now(now_us, second);
    }

    /// The tokens that a packet finds.
    fn available(&mut self, key: u32) -> u64 {
        self.packet(|limits| limits.budget.available(&key), |_, _| {})
            .0
    }

    /// A packet spends tokens of a key: its transaction, which is not decided.
    fn spend(&mut self, key: u32, count: u64) -> Transaction {
        let (_, transaction) = self.packet(
            |limits| limits.budget.tokens(&key, count),
            |act, tokens: &mut Option<Tokens<u32>>| {
                act.budget
                    .spend(tokens.take().expect("the bucket has them"));
            },
        );
        self.note_undecided(&transaction, true);
        transaction
    }

    fn has(&mut self, key: u32, count: u64) -> bool {
        self.packet(|limits| limits.budget.tokens(&key, count), |_, _| {})
            .0
            .is_some()
    }

    fn note_undecided(&mut self, transaction: &Transaction, begins: bool) {
        let noted =
            self.instance
                .note_undecided(&self.context, transaction.writes(), |_| false, begins);
        noted.expect("recorded writes are writes");
    }

    /// The instance hears that the store has decided.
    fn decided(&mut self, transaction: &Transaction, is_committed: bool) {
        self.note_undecided(transaction, false);
        if is_committed {
            let made = self
                .instance
                .commit(&self.context, transaction.writes(), |_| false);
            made.expect("recorded writes are writes");
        }
    }

    /// A packet spends tokens that the store takes.
    fn spent(&mut self, key: u32, count: u64) {
        let transaction = self.spend(key, count);
        self.commit(&transaction);
        self.decided(&transaction, true);
    }

    /// Another instance, which knows nothing, spends tokens now, of a whole bucket.
    fn others_spend(&mut self, key: u32, count: u64) {
        let mut other = both();
        other.at(self.context.tick());
        let transaction = other.spend(key, count);
        self.commit(&transaction);
    }

    /// Has an answer installed as that of a store.
    fn answered(&mut self, sums: &[(u32, u32, i64)]) -> bool {
        let name = |&(bucket, key, sum): &(u32, u32, i64)| {
            let mut name = Vec::new();
            write_bucket_field(bucket, &key.to_le_bytes(), &mut name);
            (name, sum)
        };
        let sums: Vec<_> = sums.iter().map(name).collect();
        let mut answer = Vec::new();
        write_sums(sums.iter().map(|(name, sum)| (&**name, *sum)), &mut answer);
        self.instance.budget.install(LANE_CELLS, &answer).is_ok()
    }

    fn tally(&self) -> TokenTally {
        self.instance.budget.tally()
    }
}

fn what_is_spent_is_added_in_the_bucket_of_the_arrival() {
    let mut both = both();
    let transaction = both.spend(7, 30);
    let read = SumsRead::read(&both.asked[0].1).expect("a request");
    assert_eq!((both.asked.len(), read.asked), (1, SumsAsked::ByBucket));
    // Eight buckets, and those of clocks that are ahead by four seconds.
    assert!(read.each_bucket().eq(94..=104), "{read:?}");
    assert!(read.fields().eq([7u32.to_le_bytes()]));
    let mut added = Vec::new();
    let budget = &both.store.budget;
    let writes = both.store.each_write(transaction.writes(), |_, _, write| {
        let each =
            &mut |one: &Addition<'_>| added.push((one.bucket, one.field.to_vec(), one.amount));
        budget.each_addition(write, each).expect("a write");
        for length in 0..write.len() {
            assert!(budget.each_addition(&write[..length], &mut |_| {}).is_err());
        }
    });
    assert!(
        writes.is_ok() && added == [(101, 7u32.to_le_bytes().to_vec(), 30)],
        "{added:?}"
    );
    both.decided(&transaction, false);
    let transaction = both.spend(7, 0);
    assert!(transaction.writes().is_empty(), "nothing is no addition");
    assert_eq!(budget_facts(&both), (true, SumsShown::None, 3));
}

/// Whether it has sums, which of them people see, and the seconds of a bucket.
fn budget_facts(both: &Both<Limits>) -> (bool, SumsShown, u32) {
    let budget = &both.instance.budget;
    let ring = budget.buckets().expect("buckets of time");
    (budget.has_sums(), budget.shows_sums(), ring.end_of(1))
}

fn what_others_spent_is_taken_out_once() {
    let mut both = both();
    assert_eq!(both.available(7), 100);
    both.others_spend(7, 30);
    assert_eq!([both.available(7), both.available(7)], [70, 70]);
    both.spent(7, 20);
    assert_eq!([both.available(7), both.available(7)], [50, 50]);
    both.others_spend(7, 40);
    both.others_spend(8, 90);
    assert_eq!([both.available(7), both.available(8)], [10, 10]);
    assert!(both.has(7, 10) && !both.has(7, 11));
    // It refills, and what was spent is of the past.
    both.at(BEGIN + 5);
    assert_eq!([both.available(7), both.available(8)], [60, 60]);
    both.at(BEGIN + 20);
    assert_eq!(both.available(7), 100);
}

fn own_spending_is_nobody_else_s_while_it_is_undecided() {
    let mut both = both();
    let transaction = both.spend(7, 40);
    assert_eq!(both.available(7), 60);
    // The store has it, and the instance does not know yet.
    both.commit(&transaction);
    assert_eq!(both.available(7), 60);
    both.decided(&transaction, true);
    assert_eq!(both.available(7), 60);
    // One that is refused, and one of which the decision is never heard: it was spent, though not by a packet that left here.
    for (is_taken, left) in [(false, 60), (true, 35)] {
        let transaction = both.spend(7, 25);
        assert_eq!(both.available(7), 35);
        if is_taken {
            both.commit(&transaction);
        }
        both.decided(&transaction, false);
        assert_eq!(both.available(7), left);
    }
}

fn undecided_spending_hides_nothing_of_other_buckets_of_time() {
    let mut both = both();
    both.others_spend(7, 30);
    both.at(BEGIN + 3);
    let transaction = both.spend(7, 20);
    assert_eq!(both.available(7), 50);
    both.at(BEGIN);
    both.others_spend(7, 15);
    both.at(BEGIN + 3);
    assert_eq!(both.available(7), 35, "15 were reported late");
    both.decided(&transaction, true);
    assert_eq!(both.available(7), 35);
}

fn a_key_that_is_new_here_has_what_is_left_of_it() {
    let mut both = both();
    for _ in 0..5 {
        both.others_spend(7, 100);
    }
    both.others_spend(8, 60);
    // The bucket of time has ended two seconds ago.
    both.at(BEGIN + 5);
    assert_eq!([both.available(7), both.available(8)], [20, 60]);
    both.at(BEGIN + 12);
    assert_eq!([both.available(7), both.available(8)], [90, 100]);
    // One that is known pays back what was spent beyond the bucket.
    for _ in 0..3 {
        both.others_spend(7, 100);
    }
    assert_eq!(both.available(7), 0);
    both.at(BEGIN + 12 + 21);
    assert_eq!(both.available(7), 0);
    both.at(BEGIN + 12 + 22);
    assert_eq!(both.available(7), 10);
}

fn what_a_store_lies_takes_tokens_and_gives_none() {
    let mut both = both();
    both.spent(7, 100);
    for sums in [
        &[(101, 7, 0)][..],
        &[(0, 7, 5)],
        &[(90, 7, 5)],
        &[(105, 7, 5), (u32::MAX, 7, i64::MAX)],
        &[(101, 7, 99)],
    ] {
        assert!(both.answered(sums), "{sums:?}");
        assert_eq!(both.available(7), 0, "{sums:?}");
    }
    assert_eq!(both.instance.budget.in_use(), 1, "none began another key");
    both.at(BEGIN + 1);
    assert_eq!(both.available(7), 10);
    // Keys that nobody asked for have no more room than there is.
    let sums: Vec<_> = (0..1_000).map(|key| (101, key, 1)).collect();
    assert!(both.answered(&sums));
    assert_eq!(both.instance.budget.in_use(), KEYS);
    assert_eq!(both.tally().refused_full, 997);
    assert!(!both.answered(&[(101, 7, -1)]) && !both.answered(&[(101, 8, i64::MIN)]));
    for answer in [
        &[][..],
        &[0],
        &[0, 0, 9],
        &[0, 0, 3, 1, 2, 3, 8],
        &[0, 0, 9, 1, 0, 0, 0, 7, 0, 0, 0, 9, 2],
    ] {
        assert!(
            both.instance.budget.install(LANE_CELLS, answer).is_err(),
            "{answer:?}"
        );
    }
    assert!(
        both.store.budget.install(LANE_CELLS, &[0, 0]).is_err(),
        "it asks none"
    );
    // Sums beyond all bounds are owed as far as others can have spent.
    assert!(both.answered(&[(101, 7, i64::MAX), (102, 7, i64::MAX), (101, 7, 1)]));
    assert_eq!(both.available(7), 0);
    assert!(both.tally().written_off > 1 << 40);
    both.at(BEGIN + 1 + 1_024 * 11 + 10);
    assert!(
        both.available(7) > 90,
        "1,024 times the bucket and a second"
    );
}

fn keys_go_away_when_they_are_full_and_no_sum_is_of_them() {
    let mut both = both();
    both.spent(7, 50);
    both.others_spend(8, 50);
    assert_eq!(both.available(8), 50);
    let sweep = |both: &mut Both<Limits>, second| {
        both.at(second);
        both.instance.budget.sweep(100);
        both.instance.budget.in_use()
    };
    assert_eq!(
        sweep(&mut both, BEGIN + 10),
        2,
        "a store may report them again"
    );
    assert_eq!([both.available(7), both.available(8)], [100, 100]);
    let transaction = both.spend(7, 60);
    let kept = (BEGIN..).find(|second| sweep(&mut both, *second) < 2);
    // Ten seconds after the bucket of time was over.
    assert_eq!(kept, Some(BEGIN + 13));
    assert_eq!(both.available(8), 100, "it begins again as it would go on");
    assert_eq!(sweep(&mut both, BEGIN + 60), 1, "some of it is undecided");
    both.decided(&transaction, true);
    assert_eq!(sweep(&mut both, BEGIN + 60), 0, "it was spent long ago");
}

fn a_key_that_an_undecided_packet_begins_has_its_room() {
    let mut both = both();
    let transaction = both.spend(7, 60);
    for key in [1, 2, 3, 4] {
        both.others_spend(key, 10);
        assert_eq!(both.available(key), if key > 2 { 100 } else { 90 });
    }
    assert_eq!(both.instance.budget.in_use(), 2);
    both.commit(&transaction);
    both.decided(&transaction, true);
    assert_eq!((both.available(7), both.instance.budget.in_use()), (40, 3));
    assert!(!both.has(3, 1), "there is no room for what it spends");
}

/// Those that planted bugs are tried with.
const TESTS: [fn(); 8] = [
    what_is_spent_is_added_in_the_bucket_of_the_arrival,
    what_others_spent_is_taken_out_once,
    own_spending_is_nobody_else_s_while_it_is_undecided,
    undecided_spending_hides_nothing_of_other_buckets_of_time,
    a_key_that_is_new_here_has_what_is_left_of_it,
    what_a_store_lies_takes_tokens_and_gives_none,
    keys_go_away_when_they_are_full_and_no_sum_is_of_them,
    a_key_that_an_undecided_packet_begins_has_its_room,
];

#[test]
fn buckets_in_a_store_are_spent_from_as_stated() {
    TESTS.iter().for_each(|test| test());
}

#[test]
fn shares_of_instances_stay_here() {
    let spending = [Spending::Approximate, Spending::Escrow];
    let why = spending.map(|spending| {
        let (_, limits) = build_with(|_| ObjectSettings::LOCAL, spending);
        limits.budget.stays_because()
    });
    assert_eq!(why[0], None);
    assert!(why[1].expect("a sentence").contains("a share of its own"));
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_buckets_in_a_store_are_found() {
    use asterism_state::mutant::{Mutant, select};
    for mutant in [
        Mutant::DecidedStaysUndecided,
        Mutant::OwnTakenForOthers,
        Mutant::OthersNotOwed,
    ] {
        select(Some(mutant));
        let survives = TESTS
            .iter()
            .all(|test| std::panic::catch_unwind(test).is_ok());
        select(None);
        assert!(!survives, "{mutant:?} survived");
    }
}
