//! A burst sent through a socket, and what becomes of packets that it does not take.

use super::bulk::is_link_down;
use crate::frame::{Burst, Frame, FramePool};
use crate::port::offload::Runs;
use crate::port::statistics::{PortDrop, PortStatistics};
use crate::port::system::{self, Header};
use std::io;
use std::os::fd::BorrowedFd;

/// Bytes of an Ethernet header, the shortest frame that can be sent.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// What failed on the packet path, kept to be put into words by `flush`.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    too_long_bytes: usize,
    sending: Option<i32>,
    /// The interface is down or gone.
    pub(crate) link_down: bool,
    reported_too_long: bool,
}

impl Failure {
    /// A packet did not fit.
    pub(crate) fn too_long(&mut self, bytes: usize) {
        self.too_long_bytes = bytes;
    }

    /// The length of one that did not fit; reported once.
    pub(crate) fn take_too_long(&mut self) -> Option<usize> {
        let bytes = std::mem::take(&mut self.too_long_bytes);
        (bytes > 0 && !std::mem::replace(&mut self.reported_too_long, true)).then_some(bytes)
    }

    /// Sending failed in a way that no reason of its own is for.
    pub(crate) fn sending(&mut self, error: &io::Error) {
        self.sending = self.sending.or(error.raw_os_error());
    }

    /// The first such error since the last call.
    pub(crate) fn take_sending(&mut self) -> Option<io::Error> {
        self.sending.take().map(io::Error::from_raw_os_error)
    }
}

/// Sends every packet of `burst`, with `headers` in front of them if the socket speaks those; returns how many were taken.
/// What is refused is counted under its reason and released.
pub(crate) fn transmit(
    socket: BorrowedFd<'_>,
    pool: &mut FramePool,
    burst: &mut Burst,
    headers: Option<&[Header]>,
    statistics: &mut PortStatistics,
    failure: &mut Failure,
) -> usize {
    let send = |pool: &mut FramePool, frames: &[Frame], at: usize| {
        let headers = headers.and_then(|headers| headers.get(at..));
        system::send_frames(socket, pool, &frames[at..], headers)
    };
    transmit_by(pool, burst, statistics, failure, send, |_| 1)
}

/// The same through a socket that speaks offload headers, segments that follow each other as one packet of up to 64 KiB for an
/// interface of this MTU.
pub(super) fn transmit_merged(
    socket: BorrowedFd<'_>,
    pool: &mut FramePool,
    burst: &mut Burst,
    mtu: usize,
    statistics: &mut PortStatistics,
    failure: &mut Failure,
) -> usize {
    let (runs, merged) = Runs::find(pool, burst.as_mut_slice(), mtu);
    statistics.segments_merged += merged as u64;
    let send = |pool: &mut FramePool, frames: &[Frame], at: usize| {
        system::send_runs(socket, pool, frames, &runs, at)
    };
    transmit_by(pool, burst, statistics, failure, send, |at| runs.frames(at))
}

/// Sends by `send`, which takes the frames from a place on and says how many it took; its error is about as many as
/// `refused_at` says.
fn transmit_by(
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
    failure: &mut Failure,
    mut send: impl FnMut(&mut FramePool, &[Frame], usize) -> io::Result<usize>,
    refused_at: impl Fn(usize) -> usize,
) -> usize {
    let frames = burst.as_slice();
    let (mut at, mut sent, mut interrupted) = (0, 0, 0);
    while at < frames.len() {
        let rest = &frames[at..];
        match send(pool, frames, at) {
            Ok(taken @ 1..) => {
                for frame in rest.iter().take(taken) {
                    statistics.count_sent(frame.len());
                }
                sent += taken;
                at += taken;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted && interrupted < 8 => {
                interrupted += 1;
            }
            refused => {
                let length = rest.first().map_or(0, |frame| frame.len());
                let few = refused_at(at).clamp(1, rest.len());
                let (reason, count) = match refused {
                    Ok(_) => (PortDrop::BackPressure, rest.len()),
                    Err(error) if is_link_down(&error) => {
                        failure.link_down = true;
                        (PortDrop::LinkDown, rest.len())
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EMSGSIZE) => (PortDrop::BeyondMtu, few),
                        // The driver's queue; the next packet may find room.
                        Some(libc::ENOBUFS) => (PortDrop::BackPressure, few),
                        Some(libc::EAGAIN) => (PortDrop::BackPressure, rest.len()),
                        Some(libc::EINVAL) if length < ETHERNET_BYTES => (PortDrop::TooShort, few),
                        _ => {
                            failure.sending(&error);
                            (PortDrop::WriteFailed, few)
                        }
                    },
                };
                statistics.count_dropped_many(reason, count);
                at += count;
            }
        }
    }
    pool.release_all(burst);
    sent
}
