//! The result of a host's health check. The host's control side sends it to the function as a frame on a port of its own
//! ([`CONTROL`](asterism_function::CONTROL)), which no outside port reaches, so that results enter the state on the packets'
//! path.

use asterism_function::{Endpoint, Protocol};

/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Frames whose byte 16 is greater are [`StationRequest`](asterism_forwarding::StationRequest)s.
const DOWN_MAX: u8 = 1;
const LENGTH: usize = 24;

/// What one host found of one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckResult {
    /// The host, by its number in the cluster.
    pub member: u16,
    /// The backend that was checked.
    pub backend: Endpoint,
    /// Whether it does not answer.
    pub is_down: bool,
}

impl CheckResult {
    /// The frame that tells the function of it.
    #[must_use]
    pub fn frame(&self) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&ETHERTYPE);
        frame[14..16].copy_from_slice(&self.member.to_be_bytes());
        frame[16] = self.is_down.into();
        frame[17] = self.backend.protocol.0;
        frame[18..20].copy_from_slice(&self.backend.port.to_be_bytes());
        frame[20..LENGTH].copy_from_slice(&self.backend.address.octets());
        frame
    }

    /// What a frame tells; `None` if it is no such frame.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let frame = frame.first_chunk::<LENGTH>()?;
        if frame[12..14] != ETHERTYPE || frame[16] > DOWN_MAX {
            return None;
        }
        let address = [frame[20], frame[21], frame[22], frame[23]];
        let port = u16::from_be_bytes([frame[18], frame[19]]);
        Some(Self {
            member: u16::from_be_bytes([frame[14], frame[15]]),
            is_down: frame[16] == 1,
            backend: Endpoint::new(address.into(), port, Protocol(frame[17])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_back_from_their_frames() {
        let finding = CheckResult {
            member: 513,
            backend: Endpoint::new([10, 0, 0, 7].into(), 8_080, Protocol::TCP),
            is_down: true,
        };
        let frame = finding.frame();
        assert_eq!(CheckResult::read(&frame), Some(finding));
        for length in 0..LENGTH {
            assert_eq!(CheckResult::read(&frame[..length]), None);
        }
    }
}
