//! A connection to a store that never waits: what can be read and written at once is, and a lost connection is made again (`network.rs`).

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use asterism_resp::{Scanner, Value};

use crate::login::Greeting;
use crate::network::Network;
use crate::primary::Primary;
use crate::statistics::AwayReason;

/// Pauses between two attempts: the first, and the longest.
const PAUSE_FIRST_US: u64 = 10_000;
const PAUSE_MAX_US: u64 = 1_000_000;
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 16;
/// Room that is kept when all of it was taken.
const ROOM_KEPT: usize = 1 << 20;
/// Bytes of one reply at most.
const REPLY_BYTES_MAX: usize = 64 << 20;

enum Standing<N: Network> {
    /// The next attempt is due at this time.
    Away(u64),
    /// An attempt at all addresses, begun after this change of the primary.
    Begun(N::Attempt, u64),
    Open(N::Stream, SocketAddr),
}

/// A connection that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) address: SocketAddr,
    /// The change of the primary after which it was begun.
    pub(crate) since: u64,
}

/// A connection.
pub(crate) struct Connection<N: Network> {
    greeting: Arc<Greeting>,
    standing: Standing<N>,
    /// When a reply was last waited for that has not come, in microseconds.
    asked_us: Option<u64>,
    pause_us: u64,
    /// The same after a store that refused what was asked, though it had answered; and when the connection was made.
    refused_pause_us: u64,
    opened_us: u64,
    /// Differs from one connection to another, so that they do not all come at once.
    salt: u64,
    scanner: Scanner,
    /// Room for what comes: so many bytes of it have come, and so many of those were taken.
    received: Vec<u8>,
    filled: usize,
    taken: usize,
    pub(crate) to_send: Vec<u8>,
    sent: usize,
    is_answered: bool,
    /// When it was last looked at while no reply was waited for.
    looked_us: u64,
}

impl<N: Network> Connection<N> {
    pub(crate) fn new(greeting: Arc<Greeting>, salt: u64) -> Self {
        Self {
            greeting,
            asked_us: None,
            standing: Standing::Away(0),
            pause_us: PAUSE_FIRST_US,
            refused_pause_us: PAUSE_FIRST_US,
            opened_us: 0,
            salt,
            scanner: Scanner::new(),
            received: Vec::new(),
            filled: 0,
            taken: 0,
            to_send: Vec::new(),
            sent: 0,
            is_answered: false,
            looked_us: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.address().is_some()
    }

    /// Where it leads, if it is open.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.standing {
            Standing::Open(_, address) => Some(*address),
            _ => None,
        }
    }

    /// Goes on with an attempt to connect, and begins one that is due. `Some`: there is a connection from now on, or why there is none.
    pub(crate) fn connect(
        &mut self,
        network: &mut N,
        now_us: u64,
        primary: &Primary,
    ) -> Option<Result<Made, AwayReason>> {
        match &mut self.standing {
            Standing::Away(at) if *at <= now_us => {
                match network.begin(primary.candidates(), &self.greeting) {
                    Some(attempt) => self.standing = Standing::Begun(attempt, primary.change()),
                    None => self.close(now_us),
                }
                None
            }
            Standing::Begun(attempt, since) => {
                let (made, since) = (network.made(attempt)?, *since);
                Some(match made {
                    Ok((stream, address)) => {
                        self.standing = Standing::Open(stream, address);
                        self.scanner = Scanner::new();
                        self.to_send.clear();
                        (self.filled, self.taken, self.sent) = (0, 0, 0);
                        self.is_answered = false;
                        self.asked_us = None;
                        self.opened_us = now_us;
                        Ok(Made { address, since })
                    }
                    Err(why) => {
                        self.close(now_us);
                        Err(why)
                    }
                })
            }
            _ => None,
        }
    }

    /// Gives the connection up, and waits for the next attempt, longer each time until a store answers.
    pub(crate) fn close(&mut self, now_us: u64) {
        let pause_us = match self.is_answered {
            true => PAUSE_FIRST_US,
            false => self.pause_us,
        };
        self.close_for(now_us, pause_us);
        self.pause_us = (pause_us * 2).min(PAUSE_MAX_US);
    }

    /// The same, longer each time until one has lasted: the store answers, and refuses what it is asked.
    pub(crate) fn close_refused(&mut self, now_us: u64) {
        if now_us.saturating_sub(self.opened_us) > PAUSE_MAX_US {
            self.refused_pause_us = PAUSE_FIRST_US;
        }
        self.close_for(now_us, self.refused_pause_us);
        self.refused_pause_us = (self.refused_pause_us * 2).min(PAUSE_MAX_US);
    }

    /// Gives the connection up, and makes it again after about so long.
    pub(crate) fn close_for(&mut self, now_us: u64, pause_us: u64) {
        self.salt = self
            .salt
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        let jitter_us = (self.salt >> 33) % (pause_us / 2 + 1);
        self.standing = Standing::Away(now_us + pause_us / 2 + jitter_us);
        self.is_answered = false;
    }

    /// Makes the next attempt now, if it is away: there is a primary again.
    pub(crate) fn hurry(&mut self, now_us: u64) {
        if let Standing::Away(at) = &mut self.standing {
            *at = now_us;
        }
    }

    /// Whether it was not looked at for so long; then it is now.
    pub(crate) fn is_look_due(&mut self, now_us: u64, each_us: u64) -> bool {
        let is_due = now_us >= self.looked_us + each_us;
        if is_due {
            self.looked_us = now_us;
        }
        is_due
    }

    /// Whether a reply is waited for from now on.
    pub(crate) fn note_asked(&mut self, awaits: bool, now_us: u64) {
        if self.asked_us.is_none() && awaits {
            self.asked_us = Some(now_us);
        }
    }

    /// A reply came, and others are waited for, or not: how long it took.
    pub(crate) fn note_answered(&mut self, awaits: bool, now_us: u64) -> Option<u64> {
        let asked_us = self.asked_us.take();
        self.asked_us = awaits.then_some(now_us);
        asked_us.map(|asked_us| now_us.saturating_sub(asked_us))
    }

    /// Whether a reply is waited for longer than this.
    pub(crate) fn is_silent(&self, now_us: u64, timeout_us: u64) -> bool {
        self.asked_us
            .is_some_and(|asked_us| now_us.saturating_sub(asked_us) > timeout_us)
    }

    /// Sends what can be sent at once. False: the connection is lost.
    #[must_use]
    pub(crate) fn send(&mut self) -> bool {
        let Standing::Open(stream, _) = &mut self.standing else {
            return true;
        };
        while self.sent < self.to_send.len() {
            match stream.write(&self.to_send[self.sent..]) {
                Ok(0) => return false,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.to_send.clear();
        self.sent = 0;
        true
    }

    /// Reads what came. False: the connection is lost.
    #[must_use]
    pub(crate) fn receive(&mut self) -> bool {
        let Standing::Open(stream, _) = &mut self.standing else {
            return true;
        };
        // What is left of a reply is small next to what comes; room is cleared once, not each time that there is nothing to read.
        if self.taken > 0 {
            self.received.copy_within(self.taken..self.filled, 0);
            (self.filled, self.taken) = (self.filled - self.taken, 0);
        }
        if self.filled <= READ_BYTES && self.received.len() > ROOM_KEPT {
            self.received.truncate(ROOM_KEPT);
            self.received.shrink_to_fit();
        }
        loop {
            if self.filled > REPLY_BYTES_MAX {
                return false;
            }
            if self.received.len() < self.filled + READ_BYTES {
                self.received.resize(self.filled + READ_BYTES, 0);
            }
            let room = &mut self.received[self.filled..];
            match stream.read(room) {
                Ok(0) => return false,
                Ok(count) => {
                    let was_all = count < room.len();
                    self.filled += count;
                    if was_all {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// The next reply, if it is whole. `Err`: what came is none.
    pub(crate) fn next_reply(&mut self) -> Result<Option<Value<'_>>, ()> {
        let length = match self.scanner.scan(&self.received[self.taken..self.filled]) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(None),
            Err(_) => return Err(()),
        };
        let from = self.taken;
        self.taken += length;
        self.is_answered = true;
        self.pause_us = PAUSE_FIRST_US;
        match Value::read(&self.received[from..self.taken]) {
            Ok(Some((value, _))) => Ok(Some(value)),
            _ => Err(()),
        }
    }
}
