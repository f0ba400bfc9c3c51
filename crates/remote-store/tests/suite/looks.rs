//! How often a store looks for replies: each look is a system call for each connection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use asterism_engine::Store;
use asterism_placement::Time;
use asterism_remote_store::{AwayReason, Greeting, Network, RemoteConfig, RemoteStore};
use asterism_state::{Query, Ticket};

use crate::kept::{Counting, client};

/// A connection that answers each `PING`, and the first `MGET`: there is nothing. It counts how often it is looked at.
#[derive(Default)]
struct Quiet {
    looks: Rc<Cell<u32>>,
    replies: VecDeque<u8>,
    has_answered: bool,
}

impl Read for Quiet {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.looks.set(self.looks.get() + 1);
        let count = room.len().min(self.replies.len());
        for (place, byte) in room.iter_mut().zip(self.replies.drain(..count)) {
            *place = byte;
        }
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Quiet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for word in bytes.windows(4) {
            if word == b"PING" {
                self.replies.extend(b"+PONG\r\n");
            } else if word == b"MGET" && !core::mem::replace(&mut self.has_answered, true) {
                self.replies.extend(b"*1\r\n$-1\r\n");
            }
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connections that are there at once; the first one is the one that reads.
#[derive(Default)]
struct AtOnce(Option<Rc<Cell<u32>>>);

impl Network for AtOnce {
    type Stream = Quiet;
    type Attempt = SocketAddr;

    fn begin(&mut self, candidates: Vec<SocketAddr>, _: &Arc<Greeting>) -> Option<SocketAddr> {
        candidates.first().copied()
    }
    fn made(
        &mut self,
        attempt: &mut SocketAddr,
    ) -> Option<Result<(Quiet, SocketAddr), AwayReason>> {
        let looks = self.0.take().unwrap_or_default();
        let quiet = Quiet {
            looks,
            ..Quiet::default()
        };
        Some(Ok((quiet, *attempt)))
    }
}

/// A turn at this time, whose packets were answered by what is kept, or not. Whether they could have been.
fn turn(store: &mut impl Store, us: u64, is_serving: bool) -> bool {
    let now = Time::from_micros(us);
    let keeps = is_serving && store.keeps(now);
    while store.next_event(now).is_some() {}
    store.send(now);
    keeps
}

fn ask(store: &mut impl Store, key: u8, us: u64) {
    let query = Query {
        object: 0,
        lane: 0,
        hash: key.into(),
        key: &[key, 0, 0, 0],
        conversation: 0,
    };
    store.ask(Ticket::from_bits(key.into()), query, Time::from_micros(us));
}

#[test]
fn packets_that_are_answered_at_once_do_not_pay_for_a_look_each_turn() {
    let looks = Rc::new(Cell::new(0));
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let config = RemoteConfig::new(address, client(0, 1));
    let network = AtOnce(Some(looks.clone()));
    let mut store = RemoteStore::over(network, &Counting, &config, Arc::default());
    let mut us = 1_000;
    // Something is kept, and then a read is not answered.
    while !turn(&mut store, us, true) {
        us += 1;
        // As an instance does, until it is answered: at first there is no connection.
        ask(&mut store, 1, us);
        assert!(us < 3_000, "it keeps nothing");
    }
    ask(&mut store, 2, us);
    let mut looks_of = |is_serving| {
        let before = looks.get();
        for _ in 0..200 {
            us += 1;
            assert_eq!(turn(&mut store, us, is_serving), is_serving);
        }
        looks.get() - before
    };
    // Once each 20 µs.
    let serving = looks_of(true);
    assert!((9..=11).contains(&serving), "{serving} looks");
    // Nothing else is to be done: each turn.
    let idle = looks_of(false);
    assert_eq!(idle, 200);
}
