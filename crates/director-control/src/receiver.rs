//! The director's end.

use std::collections::BTreeMap;

use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::message::{Answer, Command, RefusedDatagrams, Reply, Request};
use crate::{COMMANDER, RECEIVER};

/// Starts of orchestrators that are known at most. With another one the challenge changes, and all are unknown again.
pub const SENDERS_MAX: usize = 64;

/// One start of a director.
#[derive(Debug)]
pub struct Receiver {
    envelope: Envelope,
    challenge: u128,
    senders: BTreeMap<[u8; 16], Sender>,
    refused: RefusedDatagrams,
}

/// What is known of one start of an orchestrator.
#[derive(Debug, Default)]
struct Sender {
    /// The number of its last command that counted.
    last: u64,
    /// The answer to it, once there is one.
    answer: Option<Vec<u8>>,
}

/// Whose command it is: for [`Receiver::answer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandId {
    salt: [u8; 16],
    sequence: u64,
}

/// What became of a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// A command that counts.
    Request(CommandId, Request),
    /// Nothing is to be done but to send this back: the challenge to an orchestrator that does not know it, or the last answer once more.
    Reply(Vec<u8>),
    /// Not sealed under a key of this cluster, no command of this version, or one that came before. Nothing is to be done; it is counted.
    Refused,
}

impl Receiver {
    /// One that has received nothing. `salt` and `challenge` are random bytes of this start.
    #[must_use]
    pub fn new(cluster: ClusterId, keys: KeyRing, salt: [u8; 16], challenge: [u8; 16]) -> Receiver {
        Receiver {
            envelope: Envelope::new(cluster, keys, (RECEIVER, &[COMMANDER]), salt),
            // Zeros mean that a commander knows none.
            challenge: u128::from_le_bytes(challenge).max(1),
            senders: BTreeMap::new(),
            refused: RefusedDatagrams::default(),
        }
    }

    /// Goes on under other keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.envelope.set_keys(keys);
    }

    /// Datagrams that were refused.
    #[must_use]
    pub fn refused(&self) -> RefusedDatagrams {
        self.refused
    }

    /// Takes a datagram.
    pub fn handle(&mut self, datagram: &mut [u8]) -> Received {
        let Some(opened) = self.envelope.open(datagram) else {
            self.refused.not_sealed += 1;
            return Received::Refused;
        };
        let from = CommandId {
            salt: opened.salt,
            sequence: opened.sequence,
        };
        let Some(command) = Command::decode(opened.message) else {
            self.refused.malformed += 1;
            return Received::Refused;
        };
        let is_known = self.senders.contains_key(&from.salt);
        if !is_known && self.senders.len() >= SENDERS_MAX {
            self.senders.clear();
            self.challenge = self.challenge.wrapping_add(1).max(1);
        }
        if command.challenge != self.challenge.to_le_bytes() {
            return Received::Reply(self.reply(from, None));
        }
        let sender = self.senders.entry(from.salt).or_default();
        match &sender.answer {
            _ if from.sequence > sender.last => {
                *sender = Sender {
                    last: from.sequence,
                    answer: None,
                };
                Received::Request(from, command.request)
            }
            Some(answer) if from.sequence == sender.last => Received::Reply(answer.clone()),
            _ => {
                self.refused.repeated += 1;
                Received::Refused
            }
        }
    }

    /// The datagram of the answer to a command.
    pub fn answer(&mut self, from: CommandId, answer: Answer) -> Vec<u8> {
        let datagram = self.reply(from, Some(answer));
        if let Some(sender) = self.senders.get_mut(&from.salt)
            && sender.last == from.sequence
        {
            sender.answer = Some(datagram.clone());
        }
        datagram
    }

    fn reply(&mut self, from: CommandId, answer: Option<Answer>) -> Vec<u8> {
        let reply = Reply {
            salt: from.salt,
            sequence: from.sequence,
            challenge: self.challenge.to_le_bytes(),
            answer,
        };
        self.envelope.seal(|out| reply.encode(out))
    }
}
