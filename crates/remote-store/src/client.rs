//! An instance's side of a store: which commands go by which connection, and what replies mean. Sans I/O.

use core::fmt::Debug;
use std::collections::VecDeque;

use asterism_engine::{Attempt, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_resp::Value;
use asterism_state::{Query, Tick, Ticket, Transaction};

use crate::commits::{CommitPipe, Named, Replied};
use crate::keys::Keys;
use crate::reads::Reads;
use crate::workbench::Workbench;

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The name of the function: that of its keys in the store.
    pub function: String,
    /// The name of this client, which no other has, nor has had.
    pub client: String,
    /// The seed by which the function's instances hash keys.
    pub seed: u64,
    /// The objects that are in the store, a bit for each by its number.
    pub objects: u64,
    /// Connections that commit: so many batches are under way at a time. One more reads.
    pub commit_pipes: usize,
}

/// What came from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<A> {
    /// The answer to a read.
    Answer {
        /// Of which one.
        ticket: Ticket,
        /// What was found.
        answer: Vec<u8>,
    },
    /// What became of a transaction.
    Decision {
        /// Of which one.
        name: A,
        /// Its writes are made; else it is refused whole.
        is_committed: bool,
    },
}

impl ClientEvent<Attempt> {
    /// The same as an instance takes it.
    #[must_use]
    pub fn for_instance(&self) -> StoreEvent<'_> {
        match self {
            Self::Answer { ticket, answer } => StoreEvent::Answer {
                ticket: *ticket,
                answer,
            },
            Self::Decision { name, is_committed } => StoreEvent::Decision {
                attempt: *name,
                is_committed: *is_committed,
            },
        }
    }
}

/// What a client has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTally {
    /// Keys that reads named.
    pub keys_read: u64,
    /// Transactions that were committed, or refused.
    pub decided: u64,
    /// Batches that another client crossed, and that began again.
    pub crossed: u64,
    /// Commands that the store refused for the time being.
    pub refused: u64,
    /// Connections that were given up, since a reply was none to what was sent.
    pub nonsense: u64,
}

/// The connection that reads.
const READS: usize = 0;

/// See the module. `A` names transactions.
pub struct Client<F: NetworkFunction, A> {
    keys: Keys,
    bench: Workbench<F>,
    reads: Reads,
    reads_connected: bool,
    commits: Vec<CommitPipe<A>>,
    waiting: VecDeque<Named<A>>,
    /// What replies have to be sent by each connection.
    to_send: Vec<Vec<u8>>,
    events: VecDeque<ClientEvent<A>>,
    tick: Tick,
    tally: ClientTally,
}

impl<F: NetworkFunction, A> Debug for Client<F, A> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Client({:?}, {:?})", self.keys, self.tally)
    }
}

impl<F: NetworkFunction, A: Copy + PartialEq> Client<F, A> {
    /// For the instances of a function.
    pub fn new(function: &F, config: &ClientConfig) -> Self {
        let keys = Keys::new(&config.function);
        let pipe = |number| CommitPipe::new(keys.of_pipe(&config.client, number));
        Self {
            bench: Workbench::new(function, config.seed, config.objects),
            reads: Reads::default(),
            reads_connected: false,
            commits: (0..config.commit_pipes.max(1)).map(pipe).collect(),
            waiting: VecDeque::new(),
            to_send: vec![Vec::new(); config.commit_pipes.max(1) + 1],
            events: VecDeque::new(),
            tick: 0,
            tally: ClientTally::default(),
            keys,
        }
    }

    /// How many connections it uses, numbered from 0 on.
    pub fn connections(&self) -> usize {
        self.to_send.len()
    }
    /// What it counted.
    pub fn tally(&self) -> ClientTally {
        self.tally
    }
    /// The second of the cluster's time.
    pub fn set_tick(&mut self, tick: Tick) {
        self.tick = tick;
        self.bench.set_tick(tick);
    }

    /// Asks for a read; one that is asked for already is not asked for twice.
    pub fn ask(&mut self, ticket: Ticket, query: &Query<'_>) {
        if self.reads_connected {
            self.reads.ask(ticket, query, &self.keys);
        }
    }
    /// Has a transaction committed; one that waits for that already is not committed twice.
    pub fn commit(&mut self, name: A, transaction: &Transaction) {
        let is_known = self.waiting.iter().any(|(known, _)| *known == name)
            || self.commits.iter().any(|pipe| pipe.has(name));
        if !is_known {
            self.waiting.push_back((name, transaction.clone()));
        }
    }
    /// Nobody waits for the decision on a transaction any more. If it was not sent yet, it is not made.
    pub fn forget(&mut self, name: A) {
        self.waiting.retain(|(known, _)| *known != name);
    }

    /// A connection is there.
    pub fn connected(&mut self, connection: usize) {
        self.to_send[connection].clear();
        match connection {
            READS => self.reads_connected = true,
            pipe => self.commits[pipe - 1].connected(),
        }
    }
    /// A connection is lost, or could not be made. What waits for replies by it waits for another connection.
    pub fn lost(&mut self, connection: usize) {
        self.to_send[connection].clear();
        match connection {
            READS => {
                self.reads_connected = false;
                self.reads.lost();
            }
            pipe => self.commits[pipe - 1].lost(),
        }
    }
    /// Appends what is to be sent by a connection now.
    pub fn write(&mut self, connection: usize, now_us: u64, out: &mut Vec<u8>) {
        out.append(&mut self.to_send[connection]);
        match connection {
            READS if self.reads_connected => {
                self.tally.keys_read += self.reads.write(self.tick, &self.keys, out);
            }
            READS => {}
            pipe => {
                let pipe = &mut self.commits[pipe - 1];
                if pipe.is_free() && !self.waiting.is_empty() {
                    pipe.begin(&mut self.waiting);
                }
                pipe.write((now_us, self.tick), &self.keys, &self.bench, out);
            }
        }
    }
    /// The next reply of a connection. False: it is none to what was sent, and the connection is to be closed.
    #[must_use]
    pub fn reply(&mut self, connection: usize, value: &Value<'_>, now_us: u64) -> bool {
        let (events, bench) = (&mut self.events, &mut self.bench);
        let replied = match connection {
            READS => {
                let capacity = |object| bench.capacity(object);
                let is_well = self.reads.reply(value, capacity, |ticket, answer| {
                    let answer = answer.to_vec();
                    events.push_back(ClientEvent::Answer { ticket, answer });
                });
                match (is_well, value) {
                    (true, _) => Replied::Well,
                    (false, Value::Error(_)) => Replied::Refused,
                    (false, _) => Replied::Nonsense,
                }
            }
            pipe => {
                let out = &mut self.to_send[connection];
                let tally = &mut self.tally;
                let mut decided = |name, is_committed| {
                    tally.decided += 1;
                    events.push_back(ClientEvent::Decision { name, is_committed });
                };
                let now = (now_us, self.tick);
                self.commits[pipe - 1].reply(value, now, (&self.keys, bench), out, &mut decided)
            }
        };
        match replied {
            Replied::Well => {}
            Replied::Refused => self.tally.refused += 1,
            Replied::Crossed => self.tally.crossed += 1,
            Replied::Nonsense => self.tally.nonsense += 1,
        }
        let is_lost = connection != READS && self.commits[connection - 1].needs_connection();
        replied != Replied::Nonsense && !is_lost
    }
    /// Whether a reply is to come by a connection.
    pub fn awaits_reply(&self, connection: usize) -> bool {
        match connection {
            READS => self.reads.awaits_reply(),
            pipe => self.commits[pipe - 1].awaits_reply(),
        }
    }
    /// What came next.
    pub fn next_event(&mut self) -> Option<ClientEvent<A>> {
        self.events.pop_front()
    }
    /// Whether anything is waited for.
    pub fn is_waiting(&self) -> bool {
        let commits = self.commits.iter().any(CommitPipe::is_waiting);
        commits || !self.waiting.is_empty() || self.reads.is_waiting()
    }
}
