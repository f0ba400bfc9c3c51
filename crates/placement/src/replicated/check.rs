//! Whether a state message is to be taken: sender, header, frames and clocks are checked before anything of it is done.

use crate::envelope::{Header, Reader, Refused};
use crate::{Incarnation, MemberId, Time};

use super::replicator::Replicator;
use super::wire::{ClockFrame, Frame, Frames};
use crate::membership::PeerIndex;

/// A message that passed every check.
pub(super) struct Checked<'a> {
    pub(super) peer_index: PeerIndex,
    pub(super) incarnation: Incarnation,
    pub(super) header: Header<'a>,
    pub(super) frames: Frames<'a>,
    /// Protocols beside this one have frames in it.
    pub(super) has_beside: bool,
}

impl Replicator {
    /// Whether a message is to be taken. Of one that is not, nothing but the sender's clocks is noted.
    pub(super) fn check<'a>(
        &mut self,
        now: Time,
        (from, from_incarnation): (MemberId, Incarnation),
        message: &'a [u8],
    ) -> Result<Checked<'a>, Refused> {
        let peer_index = self.membership.check_sender(from, from_incarnation)?;
        let mut reader = Reader::new(message);
        let header = Header::read(&mut reader, self.config.wire_newest)?;
        self.check_header(&header)?;
        let frames = Frames::new(reader);
        let (clock, has_beside) = self.check_frames(frames, header.head)?;
        self.check_clock(now, peer_index, clock)?;
        Ok(Checked {
            peer_index,
            incarnation: from_incarnation,
            header,
            frames,
            has_beside,
        })
    }

    /// Whether the message is of this cluster and epoch, and echoes nothing that was not sent.
    fn check_header(&self, header: &Header<'_>) -> Result<(), Refused> {
        self.membership.check_header(header)?;
        let echo = header.echo_of(self.config.member);
        if echo.is_some_and(|echo| echo.timestamp > self.clock) {
            return Err(Refused::EchoFromFuture);
        }
        Ok(())
    }

    /// Whether all frames are well formed, and none says anything of groups that there are not. The clocks that the message has,
    /// and whether protocols beside this one have frames in it.
    fn check_frames(
        &self,
        frames: Frames<'_>,
        head: u64,
    ) -> Result<(Option<ClockFrame>, bool), Refused> {
        let (mut clock, mut has_beside) = (None, false);
        for frame in frames {
            match frame? {
                Frame::Clock(frame) => clock = Some(frame),
                Frame::Beside => has_beside = true,
                Frame::Records(groups) if groups.end - 1 > head => {
                    return Err(Refused::RecordsBeyondHead);
                }
                Frame::Acknowledge(entries) => {
                    let mut own = entries
                        .into_iter()
                        .filter(|entry| entry.origin == self.config.member);
                    if own.any(|entry| entry.highest > self.own.named_through()) {
                        return Err(Refused::AcknowledgesUnsent);
                    }
                }
                _ => {}
            }
        }
        Ok((clock, has_beside))
    }

    /// Whether the sender's cluster time is near. A message without clocks is judged by the last one that had them.
    fn check_clock(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        clock: Option<ClockFrame>,
    ) -> Result<(), Refused> {
        let known = self.progress.members[self.membership.index(peer_index)].clock;
        let is_apart = match &clock {
            Some(frame) => self.time.is_apart(now, frame, known),
            None => known.is_some_and(|clock| clock.is_apart),
        };
        if !is_apart {
            return Ok(());
        }
        if let Some(frame) = &clock {
            self.note_clock(now, peer_index, frame, true);
        }
        Err(Refused::TimeApart)
    }
}
