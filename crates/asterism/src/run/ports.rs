//! From the configuration's ports to open ones. Imports the engine's ports.

use asterism_engine::frame::FramePool;
use asterism_engine::port::{AfPacketConfig, AfPacketPort, Fanout, Port, PortError};

use crate::config::{self, PortKind};

/// Frames of each instance: what may be parked, and some bursts in every port.
const POOL_FRAMES: usize = 4_096;

/// Opens all ports for one instance of `instances`. `salt` makes the numbers of fanout groups this process's own.
///
/// # Errors
/// In words; nothing stays open.
pub fn open(
    ports: &[config::Port],
    instance: usize,
    instances: usize,
    salt: u32,
) -> Result<(FramePool, Vec<Box<dyn Port>>), String> {
    let pool = FramePool::new(POOL_FRAMES)
        .map_err(|error| format!("no memory for {POOL_FRAMES} frames: {error}"))?;
    let mut open = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        let opened = open_one(port, number, instance, instances, salt);
        open.push(opened.map_err(|error| error.to_string())?);
    }
    Ok((pool, open))
}

fn open_one(
    port: &config::Port,
    number: usize,
    instance: usize,
    instances: usize,
    salt: u32,
) -> Result<Box<dyn Port>, PortError> {
    let _ = instance;
    match port.kind {
        PortKind::AfPacket => {
            let config = AfPacketConfig {
                ring_slots: port.ring_frames as u32,
                promiscuous: port.promiscuous,
                fanout: (instances > 1).then_some(Fanout {
                    group: (salt as u16).wrapping_mul(2).wrapping_add(number as u16),
                }),
                ..AfPacketConfig::new(port.name, &port.interface)
            };
            Ok(Box::new(AfPacketPort::open(&config)?))
        }
        kind => Err(PortError {
            port: port.name.to_owned(),
            message: format!(
                "ports of kind \"{}\" are not built into this program: use \"af_packet\"",
                kind.word()
            ),
        }),
    }
}
