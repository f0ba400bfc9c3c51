//! An instance's end of a hostile store that a test has too.

use std::cell::RefCell;
use std::rc::Rc;

use asterism_engine::{Attempt, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_function::testkit::{FromStore, HostileStore};
use asterism_placement::Time;
use asterism_state::{Query, Ticket, Transaction};

pub(crate) type Shared<F> = Rc<RefCell<HostileStore<F, Attempt>>>;

struct End<F: NetworkFunction, S> {
    store: Shared<F>,
    sees: S,
    answer: Vec<u8>,
}

/// The end. `sees` is called with each transaction that is to be committed, and whether it was not known before and is committed now.
pub(crate) fn end<F: NetworkFunction>(
    store: Shared<F>,
    sees: impl FnMut(Attempt, bool) + 'static,
) -> Box<dyn Store> {
    Box::new(End {
        store,
        sees,
        answer: Vec::new(),
    })
}

impl<F: NetworkFunction, S: FnMut(Attempt, bool)> Store for End<F, S> {
    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.store.borrow_mut().ask(ticket, &query, now.as_micros());
    }
    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        let mut store = self.store.borrow_mut();
        let is_new = store.ask_to_commit(attempt, transaction, now.as_micros());
        (self.sees)(attempt, is_new);
    }
    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        let mut store = self.store.borrow_mut();
        store
            .next_due_us()
            .filter(|&due_us| due_us <= now.as_micros())?;
        Some(match store.next_event()?.1 {
            FromStore::Answer(ticket, answer) => {
                self.answer = answer;
                StoreEvent::Answer {
                    ticket,
                    answer: &self.answer,
                }
            }
            FromStore::Decision(attempt, is_committed) => StoreEvent::Decision {
                attempt,
                is_committed,
            },
        })
    }
    fn next_due(&self) -> Option<Time> {
        self.store.borrow().next_due_us().map(Time::from_micros)
    }
}
