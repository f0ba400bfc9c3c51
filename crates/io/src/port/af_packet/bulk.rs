//! Packets with their offload headers through a packet socket: up to 64 KiB each, checksums incomplete, as the interfaces hand
//! them over.

use super::ring::{ADDRESS_BYTES, tag};
use super::{Failure, PortDrop, PortStatistics, header_of};
use crate::frame::{BURST, Burst, FramePool};
use crate::port::offload::Offload;
use crate::port::system::{self, Header, Received};
use std::io;
use std::os::fd::BorrowedFd;

/// Bytes of a burst that are still in a core's second-level cache when it is sent. A burst of 64 KiB packets is 2 MiB, of which
/// the first are gone from there by then, and copying them is most of the work.
const CACHED_BYTES: usize = 512 * 1024;

/// What one burst of messages is described in.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    received: Box<[Received; BURST]>,
    frames: Burst,
    /// Bytes of a packet of the last burst, on average.
    bytes_each: usize,
}

impl Bulk {
    /// Receives what waits, at most a burst, in one system call.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        pool: &mut FramePool,
        burst: &mut Burst,
        statistics: &mut PortStatistics,
        failure: &mut Failure,
    ) -> usize {
        let most = CACHED_BYTES / self.bytes_each.max(CACHED_BYTES / BURST);
        while self.frames.len() < burst.room().min(most)
            && let Some(frame) = pool.allocate()
        {
            if let Err(frame) = self.frames.push(frame) {
                pool.release(frame);
                break;
            }
        }
        if self.frames.is_empty() {
            return 0;
        }
        let received = system::receive_frames(
            socket,
            pool,
            self.frames.as_slice(),
            &mut self.received,
            true,
        );
        let received = match received {
            Ok(received) => received,
            Err(error) => {
                failure.link_down |= is_link_down(&error);
                0
            }
        };
        let bytes = self
            .received
            .iter()
            .take(received)
            .map(|reported| reported.bytes);
        self.bytes_each = bytes.sum::<usize>() / received.max(1);
        let before = burst.len();
        for (place, mut frame) in self.frames.drain().enumerate() {
            if place >= received {
                pool.release(frame);
                continue;
            }
            let reported = &self.received[place];
            let dropped = if !pool.set_length(&mut frame, reported.bytes) {
                failure.too_long(reported.bytes);
                Some(PortDrop::TooLong)
            } else {
                finish(pool, &mut frame, reported).err()
            };
            match dropped {
                None => {
                    statistics.count_received(frame.len());
                    if let Err(frame) = burst.push(frame) {
                        pool.release(frame);
                    }
                }
                Some(reason) => {
                    statistics.count_dropped(reason);
                    pool.release(frame);
                }
            }
        }
        burst.len() - before
    }
}

/// Notes what the packet lacks, and puts the VLAN tag back that the kernel took off.
fn finish(
    pool: &mut FramePool,
    frame: &mut crate::frame::Frame,
    reported: &Received,
) -> Result<(), PortDrop> {
    let mut offload =
        Offload::parse(&reported.header, pool.bytes(frame)).map_err(|_| PortDrop::BadDescriptor)?;
    if reported.auxiliary.status & libc::TP_STATUS_VLAN_VALID != 0
        && reported.bytes >= ADDRESS_BYTES
    {
        if !pool.extend_front(frame, 4) {
            return Err(PortDrop::TooLong);
        }
        let auxiliary = &reported.auxiliary;
        let bytes = pool.bytes_mut(frame);
        bytes.copy_within(4..4 + ADDRESS_BYTES, 0);
        let tag = tag(auxiliary.status, auxiliary.vlan_tag, auxiliary.vlan_type);
        bytes[ADDRESS_BYTES..ADDRESS_BYTES + 4].copy_from_slice(&tag);
        if let Some(offload) = &mut offload {
            offload.checksum_start += 4;
        }
    }
    if let Some(offload) = offload {
        offload.note(pool, frame);
    }
    Ok(())
}

/// Writes the header of each packet of a burst; those that none can describe are dropped.
pub(super) fn describe(
    pool: &mut FramePool,
    burst: &mut Burst,
    headers: &mut [Header; BURST],
    statistics: &mut PortStatistics,
) {
    let mut refused = [None; BURST];
    let mut kept = 0;
    for (frame, refused) in burst.as_mut_slice().iter_mut().zip(&mut refused) {
        match header_of(pool, frame, statistics) {
            Ok(header) => {
                headers[kept] = header;
                kept += 1;
            }
            Err(reason) => *refused = Some(reason),
        }
    }
    let mut place = 0;
    burst.extract(
        |_| {
            place += 1;
            refused[place - 1].is_some()
        },
        |frame| pool.release(frame),
    );
    for reason in refused.into_iter().flatten() {
        statistics.count_dropped(reason);
    }
}

/// Whether an error says that the interface is down or gone.
pub(super) fn is_link_down(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::ENETUNREACH)
    )
}
