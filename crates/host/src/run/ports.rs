//! From the configuration's ports to open ones.

use std::io;
use std::path::Path;

use asterism_config::files;
use asterism_config::{PortKind, PortMode, SPAN_PORT};
use asterism_io::frame::{FramePool, STRIDE_BYTES, STRIDE_BYTES_MAX};
use asterism_io::port::{
    AfPacketConfig, AfPacketMode, AfPacketPort, AfXdpConfig, AfXdpPort, Fanout, Offloads, Port,
    PortError, SendingPort, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole, TapConfig,
    TapPort, XdpMode,
};
use thiserror::Error;

/// Frames of each instance: what may be parked, and some bursts in every port.
const POOL_FRAMES: usize = 4_096;

/// Why an instance's ports are not opened.
#[derive(Debug, Error)]
pub enum PortsError {
    /// There is no memory for the frames.
    #[error("no memory for {POOL_FRAMES} frames of {stride} bytes: {error}")]
    NoFrames {
        /// Bytes of a frame.
        stride: usize,
        /// Why.
        error: io::Error,
    },
    /// A port is not opened.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Opens all ports for one instance of `instances`. Paths are from the folder of the configuration `file`. `salt` makes the
/// numbers of fanout groups this process's own.
///
/// # Errors
/// Frames or a port are missing; nothing stays open.
pub fn open(
    ports: &[asterism_config::Port],
    file: &Path,
    instances: usize,
    salt: u32,
) -> Result<(FramePool, Vec<Box<dyn Port>>), PortsError> {
    // What a port hands over in one piece must fit a frame.
    let is_bulk = ports.iter().any(|port| port.mode == PortMode::Bulk);
    let stride = if is_bulk {
        STRIDE_BYTES_MAX
    } else {
        STRIDE_BYTES
    };
    let pool = FramePool::with_stride(POOL_FRAMES, stride)
        .map_err(|error| PortsError::NoFrames { stride, error })?;
    let mut open = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        let group = (salt as u16).wrapping_mul(2).wrapping_add(number as u16);
        let opened = open_one(port, file, (instances > 1).then_some(group))?;
        open.push(if port.name == SPAN_PORT {
            Box::new(SendingPort::new(opened))
        } else {
            opened
        });
    }
    Ok((pool, open))
}

/// Opens one; `group` is the number of those that share the interface.
fn open_one(
    port: &asterism_config::Port,
    file: &Path,
    group: Option<u16>,
) -> Result<Box<dyn Port>, PortError> {
    let offloads = if port.offloads_off {
        Offloads::Off
    } else {
        Offloads::Keep
    };
    Ok(match port.kind {
        PortKind::AfPacket => Box::new(AfPacketPort::open(&AfPacketConfig {
            mode: match port.mode {
                PortMode::Bulk => AfPacketMode::Bulk,
                _ => AfPacketMode::Ring,
            },
            ring_slots: port.ring_frames as u32,
            promiscuous: port.promiscuous && port.name != SPAN_PORT,
            merges_segments: port.merges,
            exclusive: port.exclusive,
            fanout: group.map(|group| Fanout { group }),
            offloads,
            ..AfPacketConfig::new(port.name, &port.interface)
        })?),
        PortKind::AfXdp => Box::new(AfXdpPort::open(&AfXdpConfig {
            queue: port.queue,
            mode: match port.mode {
                PortMode::Generic => XdpMode::Generic,
                _ => XdpMode::Native,
            },
            chunks: port.ring_frames as u32,
            offloads,
            ..AfXdpConfig::new(port.name, &port.interface)
        })?),
        PortKind::Tap => Box::new(TapPort::open(&TapConfig {
            mtu: port.mtu,
            multi_queue: group.is_some(),
            persistent: port.persistent,
            ..TapConfig::new(port.name, &port.interface)
        })?),
        PortKind::SharedMemory => {
            let role = if port.listens {
                SharedMemoryRole::Listen
            } else {
                SharedMemoryRole::Connect
            };
            let path = files::key_path(file, &port.path);
            Box::new(SharedMemoryPort::open(&SharedMemoryConfig {
                slots: port.ring_frames as u32,
                ..SharedMemoryConfig::new(port.name, path, role)
            })?)
        }
    })
}
