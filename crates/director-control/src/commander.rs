//! The orchestrator's end of one director.

use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::message::{Answer, Command, Reply, Request};
use crate::{COMMANDER, RECEIVER};

/// One start of an orchestrator, towards one director. One request is under way at a time: a later one takes its place.
#[derive(Debug)]
pub struct Commander {
    envelope: Envelope,
    /// What the director wants to be echoed; zeros until it said so.
    challenge: [u8; 16],
    waits: Option<Waiting>,
}

/// What became of a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Handled {
    /// It is the answer to the request that waited.
    Answer(Answer),
    /// The director did not know the challenge, and has done nothing: send [`Commander::waiting`], which has the right one now.
    SendAgain,
    /// It is not the answer to the request that waits. Nothing has changed.
    Ignored,
}

/// A request that has no answer yet.
#[derive(Debug)]
struct Waiting {
    request: Request,
    sequence: u64,
    datagram: Vec<u8>,
}

impl Commander {
    /// One that knows nothing of the director. `salt` is drawn at each start, and for each director.
    #[must_use]
    pub fn new(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Commander {
        Commander {
            envelope: Envelope::new(cluster, keys, (COMMANDER, &[RECEIVER]), salt),
            challenge: [0; 16],
            waits: None,
        }
    }

    /// Goes on under other keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.envelope.set_keys(keys);
    }

    /// The datagram of a request; answers to the one before no longer count.
    pub fn request(&mut self, request: Request) -> &[u8] {
        let command = Command {
            challenge: self.challenge,
            request,
        };
        let datagram = self.envelope.seal(|out| command.encode(out));
        let waiting = Waiting {
            request: command.request,
            sequence: self.envelope.last(),
            datagram,
        };
        &self.waits.insert(waiting).datagram
    }

    /// The datagram of the request that waits for its answer, to be sent again.
    #[must_use]
    pub fn waiting(&self) -> Option<&[u8]> {
        self.waits.as_ref().map(|waits| &waits.datagram[..])
    }

    /// Takes a datagram.
    pub fn handle(&mut self, datagram: &mut [u8]) -> Handled {
        let opened = self.envelope.open(datagram);
        let Some(reply) = opened.and_then(|opened| Reply::decode(opened.message)) else {
            return Handled::Ignored;
        };
        let salt = self.envelope.salt();
        let is_it = |waits: &mut Waiting| reply.salt == salt && reply.sequence == waits.sequence;
        let Some(waited) = self.waits.take_if(is_it) else {
            return Handled::Ignored;
        };
        self.challenge = reply.challenge;
        match reply.answer {
            Some(answer) => Handled::Answer(answer),
            None => {
                self.request(waited.request);
                Handled::SendAgain
            }
        }
    }
}
