//! Actions and instructions: those that a driver writes, others as a number.

use super::WireError;
use super::bytes::{Reader, Writer};
use super::matching::{ETH_DST, Field, field};

const OUTPUT: u16 = 0;
const GROUP: u16 = 22;
const SET_FIELD: u16 = 25;
const APPLY_ACTIONS: u16 = 4;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// An action on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends it out of a port.
    Output(u32),
    /// Hands it to a group.
    Group(u32),
    /// Writes its Ethernet destination.
    SetDestination(MacAddress),
    /// Another one, by its type; only received.
    Other(u16),
}

impl Action {
    pub(super) fn write(self, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        match self {
            Action::Output(port) => {
                to.u16(OUTPUT);
                to.u16(16);
                to.u32(port);
                to.zeros(8); // No packet goes to a controller: max_len means nothing.
            }
            Action::Group(group) => {
                to.u16(GROUP);
                to.u16(8);
                to.u32(group);
            }
            Action::SetDestination(address) => {
                to.u16(SET_FIELD);
                to.u16(0);
                field(to, ETH_DST, &address);
                to.align(start, 8);
                to.count(start, 2, "an action")?;
            }
            Action::Other(_) => return Err(WireError::NotInVersion("an action that was not read")),
        }
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Action, WireError> {
        let mut action = from.counted(2, 8, 8, "an action")?;
        let kind = action.u16()?;
        action.skip(2)?;
        Ok(match kind {
            OUTPUT => Action::Output(action.u32()?),
            GROUP => Action::Group(action.u32()?),
            SET_FIELD => {
                let set = Field::read(&mut action)?;
                match set.value.try_into() {
                    Ok(address) if set.is_basic(ETH_DST) => Action::SetDestination(address),
                    _ => Action::Other(kind),
                }
            }
            _ => Action::Other(kind),
        })
    }

    /// Reads to the end of the part.
    pub(super) fn read_all(mut from: Reader<'_>) -> Result<Vec<Action>, WireError> {
        let mut actions = Vec::new();
        while !from.is_empty() {
            actions.push(Action::read(&mut from)?);
        }
        Ok(actions)
    }
}

/// What a flow does with its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Applies actions at once.
    Apply(Vec<Action>),
    /// Another one, by its type; only received.
    Other(u16),
}

impl Instruction {
    pub(super) fn write_all(all: &[Instruction], to: &mut Writer) -> Result<(), WireError> {
        for one in all {
            let Instruction::Apply(actions) = one else {
                return Err(WireError::NotInVersion("an instruction that was not read"));
            };
            let start = to.len();
            to.u16(APPLY_ACTIONS);
            to.u16(0);
            to.zeros(4);
            for action in actions {
                action.write(to)?;
            }
            to.count(start, 2, "an instruction")?;
        }
        Ok(())
    }

    /// Reads to the end of the part.
    pub(super) fn read_all(mut from: Reader<'_>) -> Result<Vec<Instruction>, WireError> {
        let mut all = Vec::new();
        while !from.is_empty() {
            let mut one = from.counted(2, 8, 8, "an instruction")?;
            let kind = one.u16()?;
            one.skip(6)?;
            all.push(match kind {
                APPLY_ACTIONS => Instruction::Apply(Action::read_all(one)?),
                _ => Instruction::Other(kind),
            });
        }
        Ok(all)
    }
}
