//! A connection to a switch: versions are negotiated, questions answered, changes made one after another or as a bundle.
//!
//! One request is under way at a time. What the switch sends unasked is handled on the way: its echoes are answered, its port
//! statuses noticed, the rest is passed over.

use std::io::ErrorKind;

use super::channel::{Channel, Deadline};
use super::openflow::{
    ALL_GROUPS, Flow, FlowFilter, Greeting, Group, Inbox, Message, Port, SwitchError, Version,
    WireError,
};
use super::openflow::{BundleStep, Features};

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 1 << 15;
/// Flows, ports or groups that one answer may have: no bridge of a cluster has a tenth of them.
pub(super) const ANSWER_ITEMS_MAX: usize = 1 << 14;
/// Bytes of a packet that the switch would send here. Open vSwitch sends no port status to a listener's connection for which
/// this is 0; no packet is sent, since none is asked for.
const MISS_BYTES: u16 = 128;

/// Why a connection did not do what it was asked to. Only after [`LinkError::Refused`] can it still be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The time is over.
    #[error("no answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// The connection has ended, or could not be made.
    #[error("{0}")]
    Ended(String),
    /// What came is not understood.
    #[error(transparent)]
    Unreadable(#[from] WireError),
    /// No version of OpenFlow is spoken by both ends.
    #[error("the switch speaks neither OpenFlow 1.3 nor 1.5: set the bridge's `protocols`")]
    NoVersion,
    /// An answer is longer than any that a bridge of a cluster gives.
    #[error("the answer has more than {ANSWER_ITEMS_MAX} parts")]
    TooMuch,
    /// The switch has refused it.
    #[error(transparent)]
    Refused(SwitchError),
}

impl LinkError {
    pub(super) fn of(error: &std::io::Error, deadline: Deadline) -> LinkError {
        match error.kind() {
            ErrorKind::TimedOut => LinkError::TimedOut(deadline.whole()),
            _ => LinkError::Ended(error.to_string()),
        }
    }
}

/// See the module.
pub(super) struct Connection {
    channel: Box<dyn Channel>,
    inbox: Inbox,
    version: Version,
    features: Features,
    /// The number of the last request.
    transaction: u32,
    bundle: u32,
    /// Whether a port has changed since this was asked last.
    port_changed: bool,
}

impl Connection {
    /// Greets, agrees on a version, and asks for the status of ports. Five round trips.
    pub(super) fn open(
        channel: Box<dyn Channel>,
        versions: &[Version],
        deadline: Deadline,
    ) -> Result<Connection, LinkError> {
        let greeting = Greeting::new(versions);
        let mut connection = Connection {
            channel,
            inbox: Inbox::default(),
            version: Version::V13,
            features: Features {
                datapath: 0,
                tables: 0,
            },
            transaction: 0,
            bundle: 0,
            port_changed: false,
        };
        connection.send(&Message::Hello(greeting), deadline)?;
        let theirs = loop {
            match connection.receive(deadline)? {
                (_, Message::Hello(theirs)) => break theirs,
                (_, Message::Error(error)) => return Err(LinkError::Refused(error)),
                _ => {}
            }
        };
        connection.version = greeting.common(theirs).ok_or(LinkError::NoVersion)?;
        connection.features =
            connection.ask(&Message::FeaturesRequest, deadline, |it| match it {
                Message::Features(features) => Some(features),
                _ => None,
            })?;
        let flags = connection.ask(&Message::ConfigRequest, deadline, |answer| match answer {
            Message::Config { flags, .. } => Some(flags),
            _ => None,
        })?;
        // A switch that sends no port status is asked for its ports at each call all the same.
        let miss_bytes = MISS_BYTES;
        for wish in [Message::SetAsync, Message::SetConfig { flags, miss_bytes }] {
            match connection.change(&[wish], deadline) {
                Err(LinkError::Refused(_)) => break,
                done => done?,
            }
        }
        Ok(connection)
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn features(&self) -> Features {
        self.features
    }

    /// Whether a port has changed since this was asked last.
    pub(super) fn take_port_changed(&mut self) -> bool {
        std::mem::take(&mut self.port_changed)
    }

    /// Handles what has come unasked since the last call, without waiting.
    pub(super) fn catch_up(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        while deadline.left().is_ok() {
            while let Some(bytes) = self.inbox.next_message()? {
                let (transaction, message) = Message::decode(bytes)?;
                self.handle(transaction, message, deadline)?;
            }
            if !self.fill(None, deadline)? {
                break;
            }
        }
        Ok(())
    }

    /// Waits for one message and handles it if nobody asked for it.
    pub(super) fn wait(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        self.receive(deadline).map(|_| ())
    }

    /// The flows that the filter lets through.
    pub(super) fn flows(
        &mut self,
        filter: FlowFilter,
        deadline: Deadline,
    ) -> Result<Vec<Flow>, LinkError> {
        let question = Message::FlowsRequest(filter);
        let is_wanted = |_: &Flow| true;
        self.collect(&question, deadline, is_wanted, |answer| match answer {
            Message::Flows(flows, more) => Some((flows, more)),
            _ => None,
        })
    }

    /// Those of these groups that are there.
    pub(super) fn groups(
        &mut self,
        ids: &[u32],
        deadline: Deadline,
    ) -> Result<Vec<Group>, LinkError> {
        let questions = match self.version {
            Version::V13 => &[ALL_GROUPS],
            Version::V15 => ids,
        };
        let mut groups = Vec::new();
        for id in questions {
            let question = Message::GroupsRequest(*id);
            let is_wanted = |group: &Group| ids.contains(&group.id);
            let these = self.collect(&question, deadline, is_wanted, |answer| match answer {
                Message::Groups(groups, more) => Some((groups, more)),
                _ => None,
            });
            groups.extend(these?);
        }
        Ok(groups)
    }

    /// All ports.
    pub(super) fn ports(&mut self, deadline: Deadline) -> Result<Vec<Port>, LinkError> {
        let is_wanted = |_: &Port| true;
        self.collect(
            &Message::PortsRequest,
            deadline,
            is_wanted,
            |answer| match answer {
                Message::Ports(ports, more) => Some((ports, more)),
                _ => None,
            },
        )
    }

    /// Makes changes in their order, and returns once all are made. After a refusal the others of them may be made or not.
    pub(super) fn change(
        &mut self,
        changes: &[Message],
        deadline: Deadline,
    ) -> Result<(), LinkError> {
        let first = self.transaction.wrapping_add(1);
        for change in changes {
            self.send(change, deadline)?;
        }
        let last = self.send(&Message::BarrierRequest, deadline)?;
        let mut refusal = None;
        loop {
            match self.receive(deadline)? {
                (transaction, Message::BarrierReply) if transaction == last => break,
                (transaction, Message::Error(error))
                    if last.wrapping_sub(transaction) <= last.wrapping_sub(first) =>
                {
                    // The barrier's own refusal has no answer behind it.
                    if transaction == last {
                        return Err(LinkError::Refused(refusal.unwrap_or(error)));
                    }
                    refusal.get_or_insert(error);
                }
                _ => {}
            }
        }
        refusal.map_or(Ok(()), |error| Err(LinkError::Refused(error)))
    }

    /// Prepares changes as a bundle, none of which is made yet. After an error none of them will be, once the connection is dropped.
    pub(super) fn prepare(
        &mut self,
        changes: Vec<Message>,
        deadline: Deadline,
    ) -> Result<Prepared, LinkError> {
        self.bundle = self.bundle.wrapping_add(1);
        let bundle = self.bundle;
        self.step(bundle, BundleStep::OPEN, deadline)?;
        let add = |(change, transaction)| Message::BundleAdd(bundle, transaction, Box::new(change));
        // An added message has the number of the message that adds it.
        let before = self.transaction;
        let numbers = (1..).map(|number| before.wrapping_add(number));
        let adds: Vec<_> = changes.into_iter().zip(numbers).map(add).collect();
        // A switch may commit what is left of a bundle after it has refused a message of it: all must be in it first.
        self.change(&adds, deadline)?;
        Ok(Prepared(bundle))
    }

    /// Makes all changes of a bundle, or none.
    pub(super) fn commit(
        &mut self,
        Prepared(bundle): Prepared,
        deadline: Deadline,
    ) -> Result<(), LinkError> {
        self.step(bundle, BundleStep::COMMIT, deadline)
    }

    fn step(&mut self, bundle: u32, step: BundleStep, deadline: Deadline) -> Result<(), LinkError> {
        let answer = step.answer();
        self.ask(&Message::Bundle(bundle, step), deadline, |it| {
            (it == Message::Bundle(bundle, answer)).then_some(())
        })
    }

    /// Sends a question and waits for its answer.
    fn ask<Answer>(
        &mut self,
        question: &Message,
        deadline: Deadline,
        answer: impl Fn(Message) -> Option<Answer>,
    ) -> Result<Answer, LinkError> {
        let asked = self.send(question, deadline)?;
        loop {
            match self.receive(deadline)? {
                (transaction, _) if transaction != asked => {}
                (_, Message::Error(error)) => return Err(LinkError::Refused(error)),
                (_, message) => {
                    if let Some(answer) = answer(message) {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// Sends a question whose answer comes in parts.
    fn collect<Item>(
        &mut self,
        question: &Message,
        deadline: Deadline,
        is_wanted: impl Fn(&Item) -> bool,
        part: impl Fn(Message) -> Option<(Vec<Item>, bool)>,
    ) -> Result<Vec<Item>, LinkError> {
        let asked = self.send(question, deadline)?;
        let mut all = Vec::new();
        loop {
            match self.receive(deadline)? {
                (transaction, _) if transaction != asked => {}
                (_, Message::Error(error)) => return Err(LinkError::Refused(error)),
                (_, message) => {
                    let Some((items, more)) = part(message) else {
                        continue;
                    };
                    all.extend(items.into_iter().filter(&is_wanted));
                    if all.len() > ANSWER_ITEMS_MAX {
                        return Err(LinkError::TooMuch);
                    }
                    if !more {
                        return Ok(all);
                    }
                }
            }
        }
    }

    /// Sends a message and returns its number.
    fn send(&mut self, message: &Message, deadline: Deadline) -> Result<u32, LinkError> {
        self.transaction = self.transaction.wrapping_add(1);
        let bytes = message.encode(self.version, self.transaction)?;
        self.channel
            .send(&bytes, deadline)
            .map_err(|error| LinkError::of(&error, deadline))?;
        Ok(self.transaction)
    }

    /// The next message, after what there is to do for it.
    fn receive(&mut self, deadline: Deadline) -> Result<(u32, Message), LinkError> {
        loop {
            if let Some(bytes) = self.inbox.next_message()? {
                let (transaction, message) = Message::decode(bytes)?;
                return self.handle(transaction, message, deadline);
            }
            self.fill(Some(deadline), deadline)?;
        }
    }

    /// Answers an echo, and notices the status of a port.
    fn handle(
        &mut self,
        transaction: u32,
        message: Message,
        deadline: Deadline,
    ) -> Result<(u32, Message), LinkError> {
        match &message {
            Message::EchoRequest(bytes) => {
                let reply = Message::EchoReply(bytes.clone());
                let bytes = reply.encode(self.version, transaction)?;
                self.channel
                    .send(&bytes, deadline)
                    .map_err(|error| LinkError::of(&error, deadline))?;
            }
            Message::PortStatus(..) => self.port_changed = true,
            _ => {}
        }
        Ok((transaction, message))
    }

    /// Receives bytes; false if none are there and none are waited for.
    fn fill(&mut self, waits: Option<Deadline>, deadline: Deadline) -> Result<bool, LinkError> {
        let mut bytes = [0; RECEIVE_BYTES];
        match self.channel.receive(&mut bytes, waits) {
            Ok(0) => Err(LinkError::Ended("the switch closed the connection".into())),
            Ok(received) => {
                self.inbox.push(bytes.get(..received).unwrap_or_default())?;
                Ok(true)
            }
            Err(error) if waits.is_none() && error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(LinkError::of(&error, deadline)),
        }
    }
}

/// A bundle that has all of its messages.
#[derive(Debug)]
pub(super) struct Prepared(u32);
