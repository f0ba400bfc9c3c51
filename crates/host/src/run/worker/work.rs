//! Requests that take an instance several turns: each does a bounded part of its work between two bursts.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};

use asterism_engine::{Instance, Repair, Repaired, TracedPacket};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_state::{Shown, Since, State};

use asterism_host_view::phase::Phase;
use asterism_host_view::requests::{Found, RestoreError, Sought};

/// Records of a table that are looked at in one turn for a key.
const RECORDS_PER_TURN: u32 = 128;
/// Parts of a saved state written in one turn at most.
const PARTS_PER_TURN: usize = 64;

/// A request that takes several turns.
pub(super) enum Work {
    Trace(Trace),
    Find(Find),
    Repair(RepairWork),
    Report(Report),
    Save(Save),
    Restore(Restore),
}

/// What is left of a request after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It goes on in the next turn.
    More,
    /// It was answered, or nobody waits for it any more.
    Nothing,
}

impl Work {
    /// Does a little of it; gives back what is left to do.
    pub(super) fn go_on<F: NetworkFunction>(
        mut self,
        instance: &mut Instance<F>,
        phase: Phase,
        now: Time,
    ) -> Option<Work> {
        let left = match &mut self {
            Work::Trace(trace) => trace.go_on(phase, now),
            Work::Find(find) => find.go_on(instance),
            Work::Repair(repair) => repair.go_on(instance),
            Work::Report(report) => report.go_on(instance),
            Work::Save(save) => save.go_on(instance),
            Work::Restore(restore) => restore.go_on(instance),
        };
        (left == Left::More).then_some(self)
    }

    /// Whether its asker takes nothing meanwhile.
    pub(super) fn is_held_up(&self) -> bool {
        matches!(self, Work::Report(report) if report.waiting.is_some())
    }
}

/// Packets are traced as they come.
pub(super) struct Trace {
    pub(super) packets: usize,
    pub(super) until: Time,
    pub(super) traced: Vec<TracedPacket>,
    pub(super) reply: SyncSender<Vec<TracedPacket>>,
}

impl Trace {
    fn go_on(&mut self, phase: Phase, now: Time) -> Left {
        if self.traced.len() < self.packets && now < self.until && phase == Phase::Running {
            return Left::More;
        }
        let _ = self.reply.try_send(core::mem::take(&mut self.traced));
        Left::Nothing
    }
}

/// Entries with a key or a value are looked for, object by object.
pub(super) struct Find {
    sought: Sought,
    only: Option<u8>,
    object: u8,
    cursor: u32,
    found: Found,
    reply: SyncSender<Found>,
}

impl Find {
    /// Looks in one object, or in all.
    pub(super) fn new(sought: Sought, only: Option<u8>, reply: SyncSender<Found>) -> Find {
        Find {
            sought,
            only,
            object: only.unwrap_or(0),
            cursor: 0,
            found: Found::default(),
            reply,
        }
    }

    fn go_on<F: NetworkFunction>(&mut self, instance: &mut Instance<F>) -> Left {
        let names = instance.state().objects();
        let object = self.object;
        let name = names.get(usize::from(object)).copied().unwrap_or("?");
        let (found, sought) = (&mut self.found, &self.sought);
        let mut each = |entry: &Shown<'_>| found.look_at(sought, name, entry);
        match instance.show(object, self.cursor, RECORDS_PER_TURN, &mut each) {
            Some(next) => self.cursor = next,
            None => (self.object, self.cursor) = (object + 1, 0),
        }
        let is_over = usize::from(self.object) >= names.len()
            || self.only.is_some_and(|only| only != self.object)
            || self.found.more;
        if !is_over {
            return Left::More;
        }
        let _ = self.reply.try_send(core::mem::take(&mut self.found));
        Left::Nothing
    }
}

/// A table is written again.
pub(super) struct RepairWork {
    pub(super) repair: Repair,
    pub(super) reply: SyncSender<Repaired>,
}

impl RepairWork {
    fn go_on<F: NetworkFunction>(&mut self, instance: &mut Instance<F>) -> Left {
        match instance.go_on_with_repair(&mut self.repair) {
            None => Left::More,
            Some(done) => {
                let _ = self.reply.try_send(done);
                Left::Nothing
            }
        }
    }
}

/// The function reports on its state.
pub(super) struct Report {
    question: u32,
    cursor: Option<u32>,
    /// A part that the asker had no room for.
    waiting: Option<Vec<u8>>,
    parts: SyncSender<Vec<u8>>,
}

impl Report {
    pub(super) fn new(question: u32, parts: SyncSender<Vec<u8>>) -> Report {
        Report {
            question,
            cursor: Some(0),
            waiting: None,
            parts,
        }
    }

    fn go_on<F: NetworkFunction>(&mut self, instance: &mut Instance<F>) -> Left {
        let part = match (self.waiting.take(), self.cursor) {
            (Some(part), _) => part,
            (None, Some(from)) => {
                let mut part = Vec::new();
                let range = (from, RECORDS_PER_TURN);
                self.cursor = instance.report(self.question, range, &mut part);
                part
            }
            (None, None) => return Left::Nothing,
        };
        match self.parts.try_send(part) {
            Ok(()) => Left::More,
            Err(TrySendError::Full(part)) => {
                self.waiting = Some(part);
                Left::More
            }
            Err(TrySendError::Disconnected(_)) => Left::Nothing,
        }
    }
}

/// The shared state is written out.
pub(super) struct Save {
    cursor: Option<(u8, u32)>,
    /// A part that the writer had no room for.
    waiting: Option<Vec<u8>>,
    parts: SyncSender<Vec<u8>>,
}

impl Save {
    pub(super) fn new(parts: SyncSender<Vec<u8>>) -> Save {
        Save {
            cursor: Some((0, 0)),
            waiting: None,
            parts,
        }
    }

    fn go_on<F: NetworkFunction>(&mut self, instance: &mut Instance<F>) -> Left {
        for _ in 0..PARTS_PER_TURN {
            let part = match (self.waiting.take(), self.cursor) {
                (Some(part), _) => part,
                (None, Some(from)) => {
                    let mut part = Vec::new();
                    self.cursor = instance.save(from, &mut part);
                    if part.is_empty() {
                        continue;
                    }
                    part
                }
                // The end: a channel that closes without it reported a part of the state.
                (None, None) => Vec::new(),
            };
            let is_end = part.is_empty();
            match self.parts.try_send(part) {
                Ok(()) if is_end => return Left::Nothing,
                Ok(()) => {}
                Err(TrySendError::Full(part)) => {
                    self.waiting = Some(part);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return Left::Nothing,
            }
        }
        Left::More
    }
}

/// A saved state is taken up.
pub(super) struct Restore {
    parts: Receiver<Vec<u8>>,
    /// A part that the instance had no room for.
    waiting: Option<Vec<u8>>,
    taken: u64,
    since: Since,
    reply: SyncSender<Result<u64, RestoreError>>,
}

impl Restore {
    pub(super) fn new(
        parts: Receiver<Vec<u8>>,
        since: Since,
        reply: SyncSender<Result<u64, RestoreError>>,
    ) -> Restore {
        Restore {
            parts,
            waiting: None,
            taken: 0,
            since,
            reply,
        }
    }

    fn go_on<F: NetworkFunction>(&mut self, instance: &mut Instance<F>) -> Left {
        loop {
            let part = match self.waiting.take() {
                Some(part) => part,
                None => match self.parts.try_recv() {
                    Ok(part) => part,
                    Err(TryRecvError::Empty) => return Left::More,
                    Err(TryRecvError::Disconnected) => {
                        let _ = self.reply.try_send(Ok(self.taken));
                        return Left::Nothing;
                    }
                },
            };
            match instance.restore(&part, &self.since) {
                None => {
                    self.waiting = Some(part);
                    return Left::More;
                }
                Some(Ok(entries)) => self.taken += u64::from(entries),
                Some(Err(_)) => {
                    let taken = self.taken;
                    let _ = self.reply.try_send(Err(RestoreError { taken }));
                    return Left::Nothing;
                }
            }
        }
    }
}
