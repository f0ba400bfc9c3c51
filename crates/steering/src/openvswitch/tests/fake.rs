//! A switch in memory that speaks the codec, and fails as a test wants it to.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::channel::{Channel, Deadline, Dial};
use super::super::openflow::*;

/// How the switch fails at the next message of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It refuses it.
    Refuses,
    /// It closes the connection without handling it.
    ClosesBefore,
    /// It handles it and closes the connection without an answer.
    ClosesAfter,
    /// It does not answer.
    IsSilent,
    /// It answers with bytes that are no message.
    SendsNonsense,
    /// It answers with parts without an end.
    SendsTooMuch,
}

/// The kinds of messages that faults and counts know.
pub(super) fn kind(message: &Message) -> &'static str {
    match message {
        Message::Hello(_) => "hello",
        Message::FeaturesRequest => "features",
        Message::SetAsync => "async",
        Message::FlowMod(_) => "flow",
        Message::GroupMod(_) => "group",
        Message::FlowsRequest(_) => "flows",
        Message::GroupsRequest(_) => "groups",
        Message::PortsRequest => "ports",
        Message::BarrierRequest => "barrier",
        Message::Bundle(_, BundleStep::OPEN) => "open",
        Message::Bundle(_, BundleStep::COMMIT) => "commit",
        Message::BundleAdd(..) => "add",
        Message::EchoReply(_) => "echo",
        _ => "other",
    }
}

/// What the switch holds.
pub(super) struct State {
    pub(super) versions: Vec<Version>,
    pub(super) ports: Vec<Port>,
    pub(super) flows: Vec<Flow>,
    pub(super) groups: Vec<Group>,
    pub(super) faults: Vec<(&'static str, Fault)>,
    /// Messages that were received, by kind.
    pub(super) received: BTreeMap<&'static str, usize>,
    /// Sent to all connections before anything else.
    pub(super) unasked: Vec<Message>,
    /// Whether it takes connections.
    pub(super) is_up: bool,
    /// Connections of earlier ones are closed.
    incarnation: u64,
    /// Whether each flow had a group with buckets, after each change and bundle, since this was set.
    pub(super) always_led: bool,
}

/// The switch, in the hands of the driver and the test.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(super) fn new(versions: &[Version], ports: &[&str]) -> Fake {
        let port = |(place, name): (usize, &&str)| Port {
            number: place as u32 + 1,
            address: [2, 0, 0, 0, 1, place as u8],
            name: (*name).to_owned(),
            config: 0,
            state: 0,
        };
        Fake(Arc::new(Mutex::new(State {
            versions: versions.to_vec(),
            ports: ports.iter().enumerate().map(port).collect(),
            flows: Vec::new(),
            groups: Vec::new(),
            faults: Vec::new(),
            received: BTreeMap::new(),
            unasked: Vec::new(),
            is_up: true,
            incarnation: 0,
            always_led: true,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Closes all connections.
    pub(super) fn drop_connections(&self) {
        self.state().incarnation += 1;
    }

    /// Loses all rules, as a switch that was killed.
    pub(super) fn restart(&self) {
        self.drop_connections();
        let mut state = self.state();
        state.flows.clear();
        state.groups.clear();
    }

    pub(super) fn received(&self, kind: &str) -> usize {
        self.state().received.get(kind).copied().unwrap_or(0)
    }
}

impl Dial for Fake {
    fn dial(&mut self, _: Deadline) -> io::Result<Box<dyn Channel>> {
        let state = self.state();
        if !state.is_up {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        Ok(Box::new(Line {
            incarnation: state.incarnation,
            switch: self.clone(),
            inbox: Inbox::default(),
            out: VecDeque::new(),
            version: Version::V13,
            bundles: BTreeMap::new(),
            is_closed: false,
        }))
    }
}

/// One connection.
struct Line {
    switch: Fake,
    incarnation: u64,
    inbox: Inbox,
    out: VecDeque<u8>,
    version: Version,
    bundles: BTreeMap<u32, Vec<Message>>,
    is_closed: bool,
}

impl Channel for Line {
    fn send(&mut self, bytes: &[u8], _: Deadline) -> io::Result<()> {
        if self.has_ended() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.inbox.push(bytes).unwrap();
        while let Some(bytes) = self.inbox.next_message().unwrap() {
            let (transaction, message) = Message::decode(bytes).unwrap();
            self.take(transaction, message);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8], deadline: Option<Deadline>) -> io::Result<usize> {
        let unasked = std::mem::take(&mut self.switch.state().unasked);
        for message in unasked {
            self.answer(0, &message);
        }
        if self.out.is_empty() {
            return match deadline {
                _ if self.has_ended() => Ok(0),
                Some(_) => Err(ErrorKind::TimedOut.into()),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
        // In pieces, as a stream comes.
        let count = self.out.len().min(into.len()).min(100);
        for (place, byte) in self.out.drain(..count).enumerate() {
            into[place] = byte;
        }
        Ok(count)
    }
}

impl Line {
    fn has_ended(&self) -> bool {
        self.is_closed || self.switch.state().incarnation != self.incarnation
    }

    fn answer(&mut self, transaction: u32, message: &Message) {
        let bytes = message.encode(self.version, transaction).unwrap();
        self.out.extend(bytes);
    }

    fn refuse(&mut self, transaction: u32, class: u16, code: u16) {
        let data = Vec::new();
        self.answer(
            transaction,
            &Message::Error(SwitchError { class, code, data }),
        );
    }

    fn take(&mut self, transaction: u32, message: Message) {
        let kind = kind(&message);
        let fault = {
            let mut state = self.switch.state();
            *state.received.entry(kind).or_default() += 1;
            let place = state.faults.iter().position(|(at, _)| *at == kind);
            place.map(|place| state.faults.remove(place).1)
        };
        match fault {
            None => self.handle(transaction, message),
            Some(Fault::Refuses) => self.refuse(transaction, 5, 1),
            Some(Fault::ClosesBefore) => self.is_closed = true,
            Some(Fault::ClosesAfter) => {
                self.handle(transaction, message);
                self.out.clear();
                self.is_closed = true;
            }
            Some(Fault::IsSilent) => {
                self.handle(transaction, message);
                self.out.clear();
            }
            Some(Fault::SendsNonsense) => self.out.extend([6, 19, 0, 9, 0, 0, 0, 0, 0]),
            Some(Fault::SendsTooMuch) => {
                let ports = self.switch.state().ports.clone();
                for _ in 0..10_000 {
                    self.answer(transaction, &Message::Ports(ports.clone(), true));
                }
            }
        }
    }

    fn handle(&mut self, transaction: u32, message: Message) {
        match message {
            Message::Hello(theirs) => {
                let ours = Greeting::new(&self.switch.state().versions);
                self.answer(transaction, &Message::Hello(ours));
                match ours.common(theirs) {
                    Some(version) => self.version = version,
                    None => self.refuse(transaction, 0, 0),
                }
            }
            Message::FeaturesRequest => {
                let (datapath, tables) = (7, 254);
                self.answer(
                    transaction,
                    &Message::Features(Features { datapath, tables }),
                );
            }
            Message::ConfigRequest => {
                let (flags, miss_bytes) = (0, 0);
                self.answer(transaction, &Message::Config { flags, miss_bytes });
            }
            Message::SetConfig { .. } | Message::SetAsync | Message::EchoReply(_) => {}
            Message::PortsRequest => {
                let ports = self.switch.state().ports.clone();
                self.answer(transaction, &Message::Ports(ports, false));
            }
            Message::FlowsRequest(filter) => {
                let passes = |flow: &Flow| {
                    (flow.cookie ^ filter.cookie) & filter.cookie_mask == 0
                        && (filter.matching == Match::default() || filter.matching == flow.matching)
                };
                let flows = self.switch.state().flows.clone();
                // One a part.
                for flow in flows.into_iter().filter(passes) {
                    self.answer(transaction, &Message::Flows(vec![flow], true));
                }
                self.answer(transaction, &Message::Flows(Vec::new(), false));
            }
            Message::GroupsRequest(id) => {
                let groups = self.switch.state().groups.clone();
                let is_it = |group: &Group| id == ALL_GROUPS || group.id == id;
                let groups = groups.into_iter().filter(is_it).collect();
                self.answer(transaction, &Message::Groups(groups, false));
            }
            Message::BarrierRequest => self.answer(transaction, &Message::BarrierReply),
            Message::FlowMod(_) | Message::GroupMod(_) => {
                let changed = self.switch.state().change(&message);
                if let Err((class, code)) = changed {
                    self.refuse(transaction, class, code);
                }
                self.switch.state().check();
            }
            Message::Bundle(id, step) => self.bundle(transaction, id, step),
            Message::BundleAdd(id, inner, message) => {
                assert_eq!(inner, transaction, "the specification wants it so");
                match self.bundles.get_mut(&id) {
                    Some(bundle) => bundle.push(*message),
                    None => self.refuse(transaction, 17, 2),
                }
            }
            other => panic!("a switch does not get {other:?}"),
        }
    }

    fn bundle(&mut self, transaction: u32, id: u32, step: BundleStep) {
        if step == BundleStep::OPEN {
            self.bundles.insert(id, Vec::new());
        } else if step == BundleStep::COMMIT {
            let Some(messages) = self.bundles.remove(&id) else {
                return self.refuse(transaction, 17, 2);
            };
            let mut state = self.switch.state();
            let before = (state.flows.clone(), state.groups.clone());
            if messages
                .iter()
                .try_for_each(|one| state.change(one))
                .is_err()
            {
                (state.flows, state.groups) = before;
                drop(state);
                return self.refuse(transaction, 17, 11);
            }
            state.check();
        }
        self.answer(transaction, &Message::Bundle(id, step.answer()));
    }
}

impl State {
    fn check(&mut self) {
        let is_led = |flow: &Flow| match flow.instructions[..] {
            [Instruction::Apply(ref actions)] => actions.iter().all(|action| match action {
                Action::Group(id) => {
                    let mut groups = self.groups.iter();
                    groups.any(|group| group.id == *id && !group.buckets.is_empty())
                }
                _ => true,
            }),
            _ => true,
        };
        let all = self.flows.iter().all(is_led);
        self.always_led &= all;
    }

    fn change(&mut self, message: &Message) -> Result<(), (u16, u16)> {
        match message {
            Message::FlowMod(change) => self.change_flow(change),
            Message::GroupMod(change) => self.change_group(change),
            _ => Err((1, 1)),
        }
    }

    fn change_flow(&mut self, change: &FlowMod) -> Result<(), (u16, u16)> {
        let is_it = |flow: &Flow| {
            (flow.table, flow.priority, flow.matching)
                == (change.table, change.priority, change.matching)
        };
        match change.command {
            FlowCommand::Add => {
                for instruction in &change.instructions {
                    let Instruction::Apply(actions) = instruction else {
                        return Err((3, 0));
                    };
                    for action in actions {
                        if let Action::Group(id) = action
                            && !self.groups.iter().any(|group| group.id == *id)
                        {
                            return Err((2, 9));
                        }
                    }
                }
                self.flows.retain(|flow| !is_it(flow));
                self.flows.push(Flow {
                    table: change.table,
                    priority: change.priority,
                    cookie: change.cookie,
                    matching: change.matching,
                    instructions: change.instructions.clone(),
                });
            }
            FlowCommand::DeleteStrict => self
                .flows
                .retain(|flow| !(is_it(flow) && flow.cookie == change.cookie)),
        }
        Ok(())
    }

    fn change_group(&mut self, change: &GroupMod) -> Result<(), (u16, u16)> {
        let id = change.group.id;
        let place = self.groups.iter().position(|group| group.id == id);
        match (change.command, place) {
            (GroupCommand::Add, None) => self.groups.push(change.group.clone()),
            (GroupCommand::Add, Some(_)) => return Err((6, 0)),
            (GroupCommand::Modify, Some(place)) => self.groups[place] = change.group.clone(),
            (GroupCommand::Modify, None) => return Err((6, 8)),
            (GroupCommand::Delete, _) => {
                self.groups.retain(|group| group.id != id);
                let leads = Instruction::Apply(vec![Action::Group(id)]);
                self.flows
                    .retain(|flow| !flow.instructions.contains(&leads));
            }
        }
        Ok(())
    }
}
