//! Commands from the thread that decides to the packet loop, and the loop's answers.
//!
//! Two bounded channels; neither side waits for the other in a call. The loop takes at most one command a turn, between
//! bursts. A table is made by the sender and comes back with the answer, so that the loop neither allocates nor frees it.
//! A director whose [`Control`] is dropped goes on as it is.

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use asterism_io::seqlock::Seqlock;
use asterism_packet::FlowKey;

use crate::hosts::Host;
use crate::statistics::DirectorStatistics;
use crate::suspended::Suspend;
use crate::table::{Slot, Table};

/// Commands that may wait for the loop.
pub const COMMANDS_MAX: usize = 64;
/// Answers that may wait to be read; with as many the loop takes no command.
pub const ANSWERS_MAX: usize = 64;

/// What the loop is to do.
#[derive(Debug)]
pub enum Command {
    /// Publish the statistics, as after every command; nothing else.
    Publish,
    /// Steer by this table from the next packet on. Suspended buckets stay suspended.
    Table(Box<Table>),
    /// Put a host into a slot, or change it.
    SetHost {
        /// The slot.
        slot: Slot,
        /// The host.
        host: Host,
    },
    /// Empty a slot. Packets of buckets that still have it are dropped, and counted.
    RemoveHost(Slot),
    /// Give a bucket to another target. The next table must say so too.
    MoveBucket {
        /// The bucket.
        bucket: u32,
        /// Its target from now on.
        to: Slot,
    },
    /// Send both directions of a flow to a target, until they idle.
    Pin {
        /// The flow.
        flow: FlowKey,
        /// Its target.
        to: Slot,
        /// How long it may idle, at most [`IDLE_MAX`](crate::IDLE_MAX).
        idle: Duration,
    },
    /// Send a pinned flow by its bucket again.
    Unpin(FlowKey),
    /// Exchange the counts of packets by bucket: these, zeros, one for each bucket, against those that the director has.
    TakeCounts(Box<[u32]>),
    /// Let the packets of a bucket or a flow wait.
    Suspend(Suspend),
    /// Let them go on, in order, before newer ones.
    Resume {
        /// What is suspended.
        what: Suspend,
        /// The target; `None`, of a bucket alone: the one that the table says.
        to: Option<Slot>,
    },
}

/// What a command has brought about.
#[derive(Debug)]
pub enum Done {
    /// The table that was in force before.
    Replaced(Box<Table>),
    /// The packets of each bucket since the last exchange. Estimates: of each burst one packet is counted, for all of them.
    Counts(Box<[u32]>),
    /// It is so.
    Changed,
    /// It was so already.
    Unchanged,
}

/// Why the loop did not do what it was asked to. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The table has another number of buckets, or another seed, than the director.
    #[error("the table divides the flow space in another way than the director")]
    OtherSpace,
    /// There are not as many counts as buckets.
    #[error("there is to be one count for each bucket")]
    OtherCount,
    /// There is no such bucket, or no target has it.
    #[error("there is no such bucket, or no target has it yet")]
    NoBucket,
    /// The slot has no host.
    #[error("there is no host in this slot")]
    NoHost,
    /// There is no place for another exception.
    #[error("there are as many exceptions as may be")]
    ExceptionsFull,
    /// There is no place for another suspension.
    #[error("there are as many suspensions as may be")]
    SuspensionsFull,
    /// A flow is suspended: resume it.
    #[error("the flow is suspended: resume it first")]
    IsSuspended,
    /// What was to be resumed is not suspended, or its suspension ended by age.
    #[error("it is not suspended, or its suspension ended by age")]
    NotSuspended,
    /// A flow is resumed towards a target.
    #[error("a flow is resumed towards a target: name it")]
    TargetNeeded,
}

/// The answer to a command.
#[derive(Debug)]
pub struct Answer {
    /// The number of the command, as [`Control::send`] returned it.
    pub number: u64,
    /// What it has brought about.
    pub result: Result<Done, CommandError>,
}

/// Why a command was not sent, or no answer will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// As many commands wait as may: the loop has not turned for a while. This one was not sent.
    #[error("{COMMANDS_MAX} commands wait for the director, which takes none")]
    Full,
    /// The director is gone. What it had in force is gone with it.
    #[error("the director has ended")]
    Gone,
}

/// The end of the thread that decides.
#[derive(Debug)]
pub struct Control {
    commands: SyncSender<(u64, Command)>,
    answers: Receiver<Answer>,
    statistics: Arc<Seqlock>,
    number: u64,
}

impl Control {
    /// Sends a command to the loop and returns its number, with which its answer comes. Does not wait.
    ///
    /// # Errors
    /// It was not sent.
    pub fn send(&mut self, command: Command) -> Result<u64, ControlError> {
        let number = self.number + 1;
        match self.commands.try_send((number, command)) {
            Ok(()) => {
                self.number = number;
                Ok(number)
            }
            Err(TrySendError::Full(_)) => Err(ControlError::Full),
            Err(TrySendError::Disconnected(_)) => Err(ControlError::Gone),
        }
    }

    /// The next answer, in the order of the commands; `None` if there is none yet. Does not wait.
    ///
    /// # Errors
    /// The director is gone, and no answer will come.
    pub fn poll(&mut self) -> Result<Option<Answer>, ControlError> {
        match self.answers.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ControlError::Gone),
        }
    }

    /// What the director published last; `None` before the first time.
    #[must_use]
    pub fn statistics(&self) -> Option<DirectorStatistics> {
        DirectorStatistics::read(&self.statistics.read()?)
    }

    /// A place from which other threads read the same: see [`DirectorStatistics::read`].
    #[must_use]
    pub fn shared_statistics(&self) -> Arc<Seqlock> {
        Arc::clone(&self.statistics)
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Commands {
    commands: Receiver<(u64, Command)>,
    answers: SyncSender<Answer>,
    pub(crate) statistics: Arc<Seqlock>,
    /// The answer for which there was no room.
    unsent: Option<Answer>,
}

impl Commands {
    /// The next command; none while an answer finds no room.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, Command)> {
        if let Some(answer) = self.unsent.take() {
            self.answer(answer);
            if self.unsent.is_some() {
                return None;
            }
        }
        self.commands.try_recv().ok()
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        // A sender that is gone reads no answer, and sends no command either.
        if let Err(TrySendError::Full(answer)) = self.answers.try_send(answer) {
            self.unsent = Some(answer);
        }
    }
}

/// Both ends.
pub(crate) fn ends() -> (Control, Commands) {
    let (commands, taken) = sync_channel(COMMANDS_MAX);
    let (answers, read) = sync_channel(ANSWERS_MAX);
    let statistics = Arc::new(Seqlock::default());
    let control = Control {
        commands,
        answers: read,
        statistics: Arc::clone(&statistics),
        number: 0,
    };
    let commands = Commands {
        commands: taken,
        answers,
        statistics,
        unsent: None,
    };
    (control, commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::RemoveHost(Slot::new(1).unwrap())
    }

    #[test]
    fn neither_side_waits_and_no_answer_is_lost() {
        let (mut control, mut commands) = ends();
        for round in 0..3 {
            for _ in 0..COMMANDS_MAX {
                control.send(command()).unwrap();
            }
            assert_eq!(control.send(command()), Err(ControlError::Full));
            while let Some((number, _)) = commands.next() {
                let result = Ok(Done::Changed);
                commands.answer(Answer { number, result });
            }
            let first = control.poll().unwrap().unwrap();
            assert_eq!(first.number, 1 + round * COMMANDS_MAX as u64);
            for _ in 1..COMMANDS_MAX {
                // One may wait for room.
                let _ = commands.next();
                assert!(control.poll().unwrap().is_some());
            }
            assert!(control.poll().unwrap().is_none());
        }
        // Without room for an answer no command is taken.
        for _ in 0..COMMANDS_MAX {
            control.send(command()).unwrap();
        }
        let mut taken = 0;
        while let Some((number, _)) = commands.next() {
            let result = Ok(Done::Unchanged);
            commands.answer(Answer { number, result });
            taken += 1;
            if taken <= 3 {
                control.send(command()).unwrap();
            }
        }
        assert_eq!(taken, ANSWERS_MAX + 1);
        drop(commands);
        for _ in 0..ANSWERS_MAX {
            assert!(control.poll().is_ok());
        }
        assert_eq!(control.poll().unwrap_err(), ControlError::Gone);
        assert_eq!(control.send(command()), Err(ControlError::Gone));
    }
}
