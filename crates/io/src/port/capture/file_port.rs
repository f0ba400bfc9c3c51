//! A port that reads packets from a capture file and writes those sent to another.

use super::{CaptureError, CaptureReader, CaptureWriter, CapturedPacket};
use crate::frame::{Burst, FramePool};
use crate::port::{Port, PortDrop, PortError, PortStatistics};
use asterism_placement::Time;

/// A port whose medium is capture files.
///
/// Either side may be missing: without input it gives nothing and is exhausted at once, without output what is sent is
/// counted and released. As it is made, `receive` gives packets as fast as it is asked; [`CapturePort::paced`]
/// gives each when its time has come by [`Port::advance`]: with `advance(next_due())` the capture drives a virtual clock.
///
/// Times: [`Time::ZERO`] is 1970 unless [`CapturePort::starting_at`] said otherwise. What is sent is stamped with the time
/// last reported by `advance` (if none was reported, with that of the packet last received).
#[derive(Debug)]
pub struct CapturePort {
    name: String,
    reader: Option<CaptureReader>,
    writer: Option<CaptureWriter>,
    statistics: PortStatistics,
    /// The next packet, read ahead so that its time and the input's end are known.
    ahead: Option<CapturedPacket>,
    bytes: Vec<u8>,
    paced: bool,
    now: Option<Time>,
    arrival_ns: u64,
    /// The capture's time at `Time::ZERO`; negative when the first packet is put after its own time.
    zero_ns: i128,
    failure: Option<CaptureError>,
}

impl CapturePort {
    /// A port that reads from `reader`.
    pub fn reading(name: impl Into<String>, reader: CaptureReader) -> CapturePort {
        let mut port = CapturePort::with(name, Some(reader), None);
        port.read_ahead();
        port
    }

    /// A port that writes to `writer` and gives nothing.
    pub fn writing(name: impl Into<String>, writer: CaptureWriter) -> CapturePort {
        CapturePort::with(name, None, Some(writer))
    }

    /// Also writes what is sent to `writer`.
    #[must_use]
    pub fn with_output(mut self, writer: CaptureWriter) -> CapturePort {
        self.writer = Some(writer);
        self
    }

    /// Gives each packet when its time has come, not before.
    #[must_use]
    pub fn paced(mut self) -> CapturePort {
        self.paced = true;
        self
    }

    /// Counts time such that the first packet arrives at `time`.
    #[must_use]
    pub fn starting_at(mut self, time: Time) -> CapturePort {
        let first_ns = self.ahead.map_or(0, |packet| packet.timestamp_ns);
        self.zero_ns = i128::from(first_ns) - i128::from(time.as_micros()) * 1000;
        self
    }

    /// When the packet last received was captured, by the port's count of time.
    pub fn arrival(&self) -> Time {
        self.time_of(self.arrival_ns)
    }

    /// The writer, to ask it what it wrote.
    pub fn writer(&self) -> Option<&CaptureWriter> {
        self.writer.as_ref()
    }

    fn with(
        name: impl Into<String>,
        reader: Option<CaptureReader>,
        writer: Option<CaptureWriter>,
    ) -> CapturePort {
        CapturePort {
            name: name.into(),
            reader,
            writer,
            statistics: PortStatistics::default(),
            ahead: None,
            bytes: Vec::new(),
            paced: false,
            now: None,
            arrival_ns: 0,
            zero_ns: 0,
            failure: None,
        }
    }

    fn read_ahead(&mut self) {
        self.ahead = match self
            .reader
            .as_mut()
            .map(|reader| reader.next(&mut self.bytes))
        {
            Some(Ok(packet)) => packet,
            Some(Err(error)) => {
                self.failure = Some(error);
                None
            }
            None => None,
        };
    }

    fn time_of(&self, timestamp_ns: u64) -> Time {
        let micros = (i128::from(timestamp_ns) - self.zero_ns) / 1000;
        Time::from_micros(micros.clamp(0, i128::from(u64::MAX)) as u64)
    }

    fn timestamp_ns(&self) -> u64 {
        match self.now {
            Some(now) => {
                let nanoseconds = i128::from(now.as_micros()) * 1000 + self.zero_ns;
                nanoseconds.clamp(0, i128::from(u64::MAX)) as u64
            }
            None => self.arrival_ns,
        }
    }
}

impl Port for CapturePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let mut added = 0;
        while burst.room() > 0 && pool.available() > 0 {
            let Some(packet) = self.ahead else { break };
            if self.paced
                && self
                    .now
                    .is_none_or(|now| self.time_of(packet.timestamp_ns) > now)
            {
                break;
            }
            match pool.allocate_copy(&self.bytes) {
                Some(mut frame) => {
                    if packet.truncated {
                        frame.set_truncated();
                    }
                    self.arrival_ns = packet.timestamp_ns;
                    self.statistics.count_received(frame.len());
                    // The loop's condition says that there is room.
                    let _ = burst.push(frame);
                    added += 1;
                }
                None => self.statistics.count_dropped(PortDrop::TooLong),
            }
            self.read_ahead();
        }
        added
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let timestamp_ns = self.timestamp_ns();
        let mut sent = 0;
        for frame in burst.iter() {
            let bytes = pool.bytes(frame);
            // Counted as sent even when lost: `statistics` takes off what the writer lost, now or at a later write.
            self.statistics.count_sent(bytes.len());
            sent += usize::from(
                self.writer
                    .as_mut()
                    .is_none_or(|writer| writer.write(timestamp_ns, bytes.len(), bytes)),
            );
        }
        pool.release_all(burst);
        sent
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.statistics;
        if let Some(writer) = &self.writer {
            statistics.sent_packets -= writer.lost_packets();
            statistics.sent_bytes -= writer.lost_bytes();
            statistics.dropped[PortDrop::WriteFailed as usize] += writer.lost_packets();
        }
        statistics
    }

    fn advance(&mut self, now: Time) {
        self.now = Some(now);
    }

    fn next_due(&self) -> Option<Time> {
        self.ahead.map(|packet| self.time_of(packet.timestamp_ns))
    }

    fn exhausted(&self) -> bool {
        self.ahead.is_none()
    }

    fn flush(&mut self, _pool: &mut FramePool) -> Result<(), PortError> {
        let written = self.writer.as_mut().map_or(Ok(()), CaptureWriter::flush);
        match self.failure.take().or(written.err()) {
            Some(error) => Err(PortError::new(&self.name, error)),
            None => Ok(()),
        }
    }
}
