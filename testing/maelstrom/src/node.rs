//! A node: lines in, lines out, and the time as an argument.
//!
//! The verbs are those of our protocol cores: [`Node::handle_line`] takes what came, [`Node::turn`] runs timers,
//! [`Node::poll_output`] gives what is to be written, [`Node::poll_timeout`] tells when the next turn is due.

use std::collections::VecDeque;

use asterism_placement::Time;
use asterism_placement::membership::MEMBERS_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::host::{Host, Outcome, Recipients, Start};
use crate::keeper::Command;
use crate::message::{Code, DATAGRAM, Fault, Message, line};
use crate::workload::Workload;

/// What a node writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A message, for standard output.
    Line(String),
    /// A sentence for people, for standard error.
    Log(String),
}

/// What a node counted of what came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that are no messages.
    pub unreadable: u64,
    /// Messages for somebody else.
    pub misdirected: u64,
    /// Requests that were answered with an error, or would have been had they asked for an answer.
    pub refused: u64,
    /// Datagrams that came before `init`; they will come again.
    pub early: u64,
    /// Messages with a datagram that are not from another node, or whose datagram is no base64.
    pub garbled: u64,
    /// Datagrams that the state channel took.
    pub datagrams: u64,
    /// Of those, refused: they do not open, or say nothing that can be.
    pub datagrams_refused: u64,
}

/// A node of Maelstrom. See the module.
#[derive(Debug)]
pub struct Node {
    start: Start,
    running: Option<RunningNode>,
    /// Emptied by anyone who drives the node: a line adds two at most, a datagram one for each other node.
    output: VecDeque<Output>,
    tally: Tally,
}

/// A node that knows who it is.
#[derive(Debug)]
struct RunningNode {
    names: Names,
    host: Host,
    datagram: Vec<u8>,
}

/// The nodes, in an order that all of them find alike; a node's place in it is its place among the members.
#[derive(Debug)]
struct Names {
    sorted: Vec<String>,
    own: usize,
}

impl Node {
    /// A node that waits for `init`.
    #[must_use]
    pub fn new(start: Start) -> Self {
        Self {
            start,
            running: None,
            output: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Takes a line of standard input. Whatever it says, it has an answer, a log line, or, if it is a datagram, the effect
    /// that the state channel gives it.
    pub fn handle_line(&mut self, now: Time, line: &str) {
        let message = match Message::read(line) {
            Ok(message) => message,
            Err(why) => {
                self.tally.unreadable += 1;
                return self.log(format!("a line was not read: {why}"));
            }
        };
        if let Some(running) = &self.running
            && message.to != *running.names.own()
        {
            self.tally.misdirected += 1;
            return self.log(format!("a message for {:?} came here", message.to));
        }
        if message.kind == DATAGRAM {
            return self.take_datagram(now, &message);
        }
        match self.obey(now, &message) {
            Ok(body) => self.answer(&message, body),
            Err(fault) => {
                self.tally.refused += 1;
                self.log(format!(
                    "{:?} of {} was refused: {}",
                    message.kind, message.from, fault.text
                ));
                self.answer(&message, fault.fields());
            }
        }
    }

    /// Applies what came, hands on what was written, and runs timers. Due after lines were handled, and at
    /// [`Node::poll_timeout`].
    pub fn turn(&mut self, now: Time) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.host.turn(now);
        while let Some(event) = running.host.poll_event() {
            self.output.push_back(Output::Log(format!("{event:?}")));
        }
    }

    /// The next that is to be written; `None` when there is nothing more until a line is handled or a turn is due.
    pub fn poll_output(&mut self, now: Time) -> Option<Output> {
        if self.output.is_empty() {
            self.write_datagram(now);
        }
        self.output.pop_front()
    }

    /// When a turn is due next, whatever arrives; `None` before `init`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.running.as_ref().map(|running| running.host.next_due())
    }

    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let channel = self.running.as_ref().map(|running| running.host.tally());
        let channel = channel.unwrap_or_default();
        Tally {
            datagrams: channel.datagrams_received,
            datagrams_refused: channel.refused_sealed
                + channel.refused_opened
                + channel.refused_backlog,
            ..self.tally
        }
    }

    // --- requests

    /// Does what a request says; the fields of the answer.
    fn obey(&mut self, now: Time, message: &Message) -> Result<Value, Fault> {
        if message.kind == "init" {
            return self.begin(now, message);
        }
        let Some(running) = &mut self.running else {
            return Err(Fault::new(
                Code::TemporarilyUnavailable,
                "this node has not heard `init` yet",
            ));
        };
        use Workload::{Broadcast, GCounter, GSet, PnCounter};
        match (self.start.workload, message.kind.as_str()) {
            // Nodes all speak to each other, no matter who their neighbours are said to be.
            (_, "topology") => Ok(json!({"type": "topology_ok"})),
            (Broadcast, "broadcast") => {
                running.perform(now, Command::Insert(element(message, "message")?))?;
                Ok(json!({"type": "broadcast_ok"}))
            }
            (Broadcast, "read") => {
                Ok(json!({"type": "read_ok", "messages": running.host.elements()}))
            }
            (GSet, "add") => {
                running.perform(now, Command::Insert(element(message, "element")?))?;
                Ok(json!({"type": "add_ok"}))
            }
            (GSet, "read") => Ok(json!({"type": "read_ok", "value": running.host.elements()})),
            (GCounter, "add") => {
                let delta = delta(message, 0)?.unsigned_abs();
                running.perform(now, Command::Add(delta))?;
                Ok(json!({"type": "add_ok"}))
            }
            (PnCounter, "add") => {
                running.perform(now, Command::Change(delta(message, i64::MIN)?))?;
                Ok(json!({"type": "add_ok"}))
            }
            (GCounter | PnCounter, "read") => match running.host.sum() {
                Ok(sum) => Ok(json!({"type": "read_ok", "value": sum})),
                Err(_) => Err(Fault::new(Code::TemporarilyUnavailable, "the sum is late")),
            },
            (workload, _) => Err(Fault::new(
                Code::NotSupported,
                format!("the workload {} has no such request", workload.name()),
            )),
        }
    }

    fn begin(&mut self, now: Time, message: &Message) -> Result<Value, Fault> {
        if self.running.is_some() {
            return Err(Fault::new(
                Code::PreconditionFailed,
                "this node has heard `init` before",
            ));
        }
        let names = Names::read(message)?;
        let (place, count) = (names.own as u16, names.sorted.len() as u16);
        let host = Host::new(&self.start, place, count, now)
            .map_err(|error| Fault::new(Code::Crash, error.to_string()))?;
        self.log(format!(
            "{} is member {} of {count}, for the workload {}",
            names.own(),
            place + 1,
            self.start.workload.name()
        ));
        self.running = Some(RunningNode {
            names,
            host,
            datagram: Vec::new(),
        });
        Ok(json!({"type": "init_ok"}))
    }

    /// Answers, if an answer is expected.
    fn answer(&mut self, message: &Message, mut body: Value) {
        let Some(id) = &message.id else {
            return;
        };
        body["in_reply_to"] = id.clone();
        let line = line(&message.to, &message.from, &body);
        self.output.push_back(Output::Line(line));
    }

    fn log(&mut self, sentence: String) {
        self.output.push_back(Output::Log(sentence));
    }

    // --- datagrams

    fn take_datagram(&mut self, now: Time, message: &Message) {
        let Some(running) = &mut self.running else {
            self.tally.early += 1;
            return;
        };
        let from = running.names.place(&message.from);
        let bytes = message
            .text("datagram")
            .ok()
            .and_then(|text| BASE64.decode(text).ok());
        match (from, bytes) {
            (Some(from), Some(mut bytes)) if from != running.names.own => {
                running.host.handle(now, from as u16, &mut bytes);
            }
            _ => {
                self.tally.garbled += 1;
                self.log(format!("no datagram of a node: from {:?}", message.from));
            }
        }
    }

    /// Takes the next datagram from the host and writes a line for each node that it is for.
    fn write_datagram(&mut self, now: Time) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(recipients) = running.host.poll_transmit(now, &mut running.datagram) else {
            return;
        };
        let body = json!({"type": DATAGRAM, "datagram": BASE64.encode(&running.datagram)});
        for (place, name) in running.names.sorted.iter().enumerate() {
            let is_meant = match recipients {
                Recipients::Others => place != running.names.own,
                Recipients::One(one) => place == one,
            };
            if is_meant {
                let line = line(running.names.own(), name, &body);
                self.output.push_back(Output::Line(line));
            }
        }
    }
}

impl RunningNode {
    fn perform(&mut self, now: Time, command: Command) -> Result<(), Fault> {
        match self.host.perform(now, command) {
            Outcome::Done => Ok(()),
            Outcome::Refused => Err(Fault::new(
                Code::TemporarilyUnavailable,
                "there is no room for it, in the set or in the log",
            )),
            Outcome::Waits => Err(Fault::new(Code::Crash, "it waits for something")),
        }
    }
}

impl Names {
    /// What `init` says.
    fn read(message: &Message) -> Result<Self, Fault> {
        let malformed = |text: &str| Fault::new(Code::MalformedRequest, text);
        let own = message.text("node_id")?;
        let all = message
            .field("node_ids")?
            .as_array()
            .ok_or_else(|| malformed("`node_ids` is no list"))?;
        let names: Option<Vec<_>> = all
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect();
        let mut sorted = names.ok_or_else(|| malformed("`node_ids` are no strings"))?;
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != all.len() {
            return Err(malformed("`node_ids` names a node twice"));
        }
        if sorted.len() > MEMBERS_MAX {
            let text = format!("a cluster has at most {MEMBERS_MAX} members");
            return Err(Fault::new(Code::NotSupported, text));
        }
        let place = sorted.iter().position(|name| name == own);
        let own = place.ok_or_else(|| malformed("`node_id` is not among `node_ids`"))?;
        Ok(Self { sorted, own })
    }

    fn own(&self) -> &String {
        &self.sorted[self.own]
    }

    fn place(&self, name: &String) -> Option<usize> {
        self.sorted.binary_search(name).ok()
    }
}

/// An element of the set: Maelstrom's are whole numbers, though its documents allow anything.
fn element(message: &Message, name: &str) -> Result<i64, Fault> {
    let other = || {
        let text = format!("`{name}` is no whole number of 64 bits, and nothing else is kept");
        Fault::new(Code::NotSupported, text)
    };
    message.field(name)?.as_i64().ok_or_else(other)
}

/// By how much the sum changes.
fn delta(message: &Message, least: i64) -> Result<i64, Fault> {
    let delta = message.field("delta")?.as_i64();
    delta.filter(|&delta| delta >= least).ok_or_else(|| {
        let kind = match least {
            0 => "a whole number that is not negative",
            _ => "a whole number of 64 bits",
        };
        Fault::new(Code::MalformedRequest, format!("`delta` is not {kind}"))
    })
}
