//! Ports of a switch (OpenFlow 1.3.5, section 7.2.1; 1.5.1, section 7.2.1).

use super::bytes::{Reader, Writer};
use super::{MacAddress, Version, WireError};

/// All ports, of a request.
pub(super) const ANY_PORT: u32 = 0xffff_ffff;
/// The greatest number of a port that is one (`OFPP_MAX`); those above have meanings of their own.
pub const PORT_NUMBER_MAX: u32 = 0xffff_ff00;
/// Bytes of a port's name with the zero at its end.
const NAME_FIELD_BYTES: usize = 16;

/// `OFPPC_PORT_DOWN`: the operator has switched it off.
const CONFIG_DOWN: u32 = 1;
/// `OFPPS_LINK_DOWN`: no carrier.
const STATE_LINK_DOWN: u32 = 1;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Its Ethernet address.
    pub address: MacAddress,
    /// Its name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Its configuration bits (`OFPPC_`).
    pub config: u32,
    /// Its state bits (`OFPPS_`).
    pub state: u32,
}

impl Port {
    /// Whether it is switched off or has no carrier.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.config & CONFIG_DOWN != 0 || self.state & STATE_LINK_DOWN != 0
    }

    pub(super) fn write(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        to.u32(self.number);
        to.zeros(4);
        to.bytes(&self.address);
        to.zeros(2);
        to.text(&self.name, NAME_FIELD_BYTES)?;
        to.u32(self.config);
        to.u32(self.state);
        match version {
            // Features and speeds, none.
            Version::V13 => to.zeros(24),
            Version::V15 => to.count(start, 4, "a port")?,
        }
        Ok(())
    }

    pub(super) fn read(version: Version, from: &mut Reader<'_>) -> Result<Port, WireError> {
        let mut port = match version {
            Version::V13 => from.part(64, "a port")?,
            Version::V15 => from.counted(4, 40, 8, "a port")?,
        };
        let number = port.u32()?;
        port.skip(4)?;
        let address = port.array()?;
        port.skip(2)?;
        let name = port.bytes(NAME_FIELD_BYTES)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Port {
            number,
            address,
            name: String::from_utf8_lossy(name).into_owned(),
            config: port.u32()?,
            state: port.u32()?,
        })
    }
}

/// Why a port's status is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReason {
    /// The port is new.
    Added,
    /// The port is gone.
    Deleted,
    /// Its configuration or state has changed.
    Modified,
}

impl PortReason {
    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn of(number: u8) -> Result<PortReason, WireError> {
        Ok(match number {
            0 => PortReason::Added,
            1 => PortReason::Deleted,
            2 => PortReason::Modified,
            _ => {
                return Err(WireError::Value {
                    what: "the reason of a port's status",
                    value: number.into(),
                });
            }
        })
    }
}
