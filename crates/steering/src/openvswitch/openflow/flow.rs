//! Flows: changes, questions and answers.

use super::bytes::{Reader, Writer};
use super::{Instruction, Match, Version, WireError};

/// No port, no group: filters of deletions and questions that exclude nothing.
const ANY: u32 = 0xffff_ffff;
/// All tables, of a question or a deletion.
pub const ALL_TABLES: u8 = 0xff;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowCommand {
    /// Adds a flow, or replaces the one with the same match and priority.
    Add = 0,
    /// Deletes the flow with exactly this match and priority.
    DeleteStrict = 4,
}

/// A change of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// What it does.
    pub command: FlowCommand,
    /// The mark of its author. A deletion concerns flows with this cookie alone.
    pub cookie: u64,
    /// Its table.
    pub table: u8,
    /// Its priority: of several flows that match, the greatest wins.
    pub priority: u16,
    /// Which packets.
    pub matching: Match,
    /// What happens to them; none of a deletion.
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    pub(super) fn write(&self, to: &mut Writer) -> Result<(), WireError> {
        to.u64(self.cookie);
        to.u64(match self.command {
            FlowCommand::Add => 0,
            FlowCommand::DeleteStrict => u64::MAX,
        });
        to.u8(self.table);
        to.u8(self.command as u8);
        to.zeros(4); // No idle and no hard timeout: the flow stays.
        to.u16(self.priority);
        to.u32(u32::MAX); // No buffered packet.
        to.u32(ANY);
        to.u32(ANY);
        to.zeros(4); // Flags; then nothing, or the importance of 1.4.
        self.matching.write(to)?;
        Instruction::write_all(&self.instructions, to)
    }

    pub(super) fn read(mut from: Reader<'_>) -> Result<FlowMod, WireError> {
        let cookie = from.u64()?;
        from.skip(8)?;
        let table = from.u8()?;
        let command = match from.u8()? {
            0 => FlowCommand::Add,
            4 => FlowCommand::DeleteStrict,
            other => {
                return Err(WireError::Value {
                    what: "the command of a flow-mod",
                    value: other.into(),
                });
            }
        };
        from.skip(4)?;
        let priority = from.u16()?;
        from.skip(16)?;
        Ok(FlowMod {
            command,
            cookie,
            table,
            priority,
            matching: Match::read(&mut from)?,
            instructions: Instruction::read_all(from)?,
        })
    }
}

/// A question for flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// Their table, or [`ALL_TABLES`].
    pub table: u8,
    /// Their cookie, in the bits of the mask.
    pub cookie: u64,
    /// Which bits of the cookie count: 0 for any cookie.
    pub cookie_mask: u64,
    /// Flows that match these packets or fewer.
    pub matching: Match,
}

impl FlowFilter {
    pub(super) fn write(&self, to: &mut Writer) -> Result<(), WireError> {
        to.u8(self.table);
        to.zeros(3);
        to.u32(ANY);
        to.u32(ANY);
        to.zeros(4);
        to.u64(self.cookie);
        to.u64(self.cookie_mask);
        self.matching.write(to)
    }

    pub(super) fn read(mut from: Reader<'_>) -> Result<FlowFilter, WireError> {
        let table = from.u8()?;
        from.skip(15)?;
        Ok(FlowFilter {
            table,
            cookie: from.u64()?,
            cookie_mask: from.u64()?,
            matching: Match::read(&mut from)?,
        })
    }
}

/// A flow that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// The mark of its author.
    pub cookie: u64,
    /// Which packets.
    pub matching: Match,
    /// What happens to them.
    pub instructions: Vec<Instruction>,
}

impl Flow {
    pub(super) fn write(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        to.u16(0);
        match version {
            Version::V13 => {
                to.u8(self.table);
                to.zeros(9); // Duration.
                to.u16(self.priority);
                to.zeros(10); // Timeouts and flags.
                to.u64(self.cookie);
                to.zeros(16); // Packets and bytes.
                self.matching.write(to)?;
            }
            Version::V15 => {
                to.zeros(2);
                to.u8(self.table);
                to.zeros(1);
                to.u16(self.priority);
                to.zeros(8); // Timeouts, flags, importance.
                to.u64(self.cookie);
                self.matching.write(to)?;
                // No statistics.
                to.u16(0);
                to.u16(4);
                to.zeros(4);
            }
        }
        Instruction::write_all(&self.instructions, to)?;
        to.count(start, 0, "a flow")
    }

    pub(super) fn read(version: Version, from: &mut Reader<'_>) -> Result<Flow, WireError> {
        let mut flow = from.counted(0, 24, 1, "a flow")?;
        flow.skip(2)?;
        let (table, priority, cookie, matching);
        match version {
            Version::V13 => {
                table = flow.u8()?;
                flow.skip(9)?;
                priority = flow.u16()?;
                flow.skip(10)?;
                cookie = flow.u64()?;
                flow.skip(16)?;
                matching = Match::read(&mut flow)?;
            }
            Version::V15 => {
                flow.skip(2)?;
                table = flow.u8()?;
                flow.skip(1)?;
                priority = flow.u16()?;
                flow.skip(8)?;
                cookie = flow.u64()?;
                matching = Match::read(&mut flow)?;
                flow.counted(2, 4, 8, "a flow's statistics")?;
            }
        }
        Ok(Flow {
            table,
            priority,
            cookie,
            matching,
            instructions: Instruction::read_all(flow)?,
        })
    }
}
