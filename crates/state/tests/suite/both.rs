//! An instance whose objects are in a store, and that store: calls as an engine makes them.

use std::rc::Rc;

use asterism_state::{
    Answered, Call, Context, LANE_CELLS, Late, ObjectSettings, State, Transaction, Wait,
};

/// Builds objects that are placed so.
type Build<S> = fn(fn(&str) -> ObjectSettings) -> (Rc<Context>, S);

/// The two sides.
pub(crate) struct Both<S: State> {
    pub(crate) context: Rc<Context>,
    pub(crate) instance: S,
    pub(crate) store_context: Rc<Context>,
    pub(crate) store: S,
    /// Requests for several sums that were made: of each its object, and what it names.
    pub(crate) asked: Vec<(u8, Vec<u8>)>,
}

impl<S: State> Both<S> {
    pub(crate) fn of(build: Build<S>) -> Self {
        let (context, instance) = build(|_| ObjectSettings::REMOTE);
        let (store_context, store) = build(|_| ObjectSettings::LOCAL);
        Self {
            context,
            instance,
            store_context,
            store,
            asked: Vec::new(),
        }
    }

    /// Has all that is asked for answered.
    fn answer(&mut self) {
        let (context, store, asked) = (&self.context, &self.store, &mut self.asked);
        let mut answers = Vec::new();
        context.take_requests(|ticket, query| {
            let mut answer = Vec::new();
            store.extract(&query, &mut answer);
            answers.push((ticket, answer));
            if query.lane == LANE_CELLS {
                asked.push((query.object, query.key.to_vec()));
            }
        });
        for (ticket, answer) in &answers {
            assert_ne!(context.take_answer(*ticket, answer), Answered::Unasked);
        }
    }

    /// Calls until the call is not late, which reads and then writes; what it read, and its transaction.
    pub(crate) fn packet<T>(
        &mut self,
        read: impl Fn(&S) -> Result<T, Late>,
        write: impl FnOnce(&mut S::Act<'_>, &mut T),
    ) -> (T, Transaction) {
        self.context.begin_next();
        let mut late = 0;
        loop {
            let found = read(&self.instance);
            let acts = found.and_then(|found| self.context.act_uncommonly().map(|()| found));
            if let Ok(mut found) = acts {
                assert!(self.context.is_staged());
                self.instance
                    .for_each_object(|object| object.begin_recording());
                write(&mut self.instance.act(), &mut found);
                self.instance
                    .for_each_object(|object| object.end_recording());
                let mut transaction = Transaction::default();
                self.context.seal(&mut transaction);
                self.instance.withdraw();
                let (call, _) = self.context.park();
                self.context.abandon(call, |_, _| {});
                return (found, transaction);
            }
            late += 1;
            assert!(late < 4, "it is late again and again");
            self.instance.withdraw();
            let (call, wait): (Call, Wait) = self.context.park();
            assert_eq!(wait, Wait::Answers);
            self.answer();
            assert!(self.context.has_all_answers(call.requests()));
            self.context.resume(call);
            self.instance
                .install(&self.context)
                .expect("these are answers");
        }
    }

    pub(crate) fn commit(&mut self, transaction: &Transaction) {
        assert!(self.store.still_holds(transaction));
        let made = self
            .store
            .commit(&self.store_context, transaction.writes(), |_| true);
        made.expect("recorded writes are writes");
        self.store_context.end(|_, _| {});
    }
}
