//! What waits to be sent: buffers, a lane for each address, and their packing into messages that the kernel
//! cuts again.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use super::kernel::{MESSAGE_BYTES_MAX, MESSAGES_MAX, Message, PARTS_MAX, SEGMENTS_MAX, Socket};

/// Datagrams that wait for the kernel at most; more are not asked of the state channel.
pub const SEND_QUEUE_DATAGRAMS_MAX: usize = 256;

/// Datagrams for one address.
#[derive(Debug)]
struct Destination {
    to: SocketAddr,
    waiting: VecDeque<u16>,
    /// So many of the next go one by one: the kernel refused them together.
    singly: usize,
}

/// The beginning of the queue as one call takes it. Kept between calls, so that packing allocates nothing and writes no more
/// than there is.
#[derive(Debug, Default)]
struct Packed {
    messages: Vec<Message>,
    /// The lane of each message.
    lanes: Vec<u16>,
    /// The buffer of each datagram.
    parts: Vec<u16>,
}

/// What left by one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) messages: u64,
    pub(super) segmented: u64,
    pub(super) fragmented: u64,
}

/// The first message of the queue, when the kernel refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) to: SocketAddr,
    pub(super) datagrams: usize,
    pub(super) is_segmented: bool,
    /// UDP payload of its longest datagram.
    pub(super) longest: usize,
    lane: usize,
}

#[derive(Debug)]
pub(super) struct Outbound {
    buffers: Vec<Vec<u8>>,
    /// How many lanes each buffer waits in.
    uses: Vec<u8>,
    free: Vec<u16>,
    lanes: Vec<Destination>,
    /// Answers to strangers.
    answers: VecDeque<(SocketAddr, u16)>,
    waiting: usize,
    packed: Packed,
}

/// The number of the lane of answers.
const ANSWERS: u16 = u16::MAX;

impl Outbound {
    pub(super) fn new(addresses: impl Iterator<Item = SocketAddr>, buffer_bytes: usize) -> Self {
        let count = SEND_QUEUE_DATAGRAMS_MAX;
        Self {
            buffers: (0..count)
                .map(|_| Vec::with_capacity(buffer_bytes))
                .collect(),
            uses: vec![0; count],
            free: (0..count as u16).rev().collect(),
            lanes: addresses
                .map(|to| Destination {
                    to,
                    waiting: VecDeque::with_capacity(count),
                    singly: 0,
                })
                .collect(),
            answers: VecDeque::with_capacity(count),
            waiting: 0,
            packed: Packed::new(),
        }
    }

    /// Another address of a lane, or a further lane, whose number is the next.
    pub(super) fn set_address(&mut self, lane: usize, to: SocketAddr) {
        match self.lanes.get_mut(lane) {
            Some(lane) => lane.to = to,
            None => self.lanes.push(Destination {
                to,
                waiting: VecDeque::with_capacity(SEND_QUEUE_DATAGRAMS_MAX),
                singly: 0,
            }),
        }
    }

    /// Datagrams that wait, every copy counted.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The buffer for the next datagram; `None` while all wait.
    pub(super) fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        let number = *self.free.last()?;
        Some(&mut self.buffers[usize::from(number)])
    }

    /// Has the datagram in the buffer go to each of these lanes; returns how many bytes that is.
    pub(super) fn push(&mut self, lanes: impl Iterator<Item = usize>) -> usize {
        let Some(&number) = self.free.last() else {
            return 0;
        };
        let mut copies = 0;
        for lane in lanes {
            self.lanes[lane].waiting.push_back(number);
            copies += 1;
        }
        self.took(number, copies)
    }

    /// Has the datagram in the buffer go to that address; returns how many bytes it has.
    pub(super) fn push_answer(&mut self, to: SocketAddr) -> usize {
        let Some(&number) = self.free.last() else {
            return 0;
        };
        self.answers.push_back((to, number));
        self.took(number, 1)
    }

    fn took(&mut self, number: u16, copies: usize) -> usize {
        self.waiting += copies;
        if copies > 0 {
            self.free.pop();
            self.uses[usize::from(number)] = copies as u8;
        }
        copies
    }

    /// Packs the beginning of the queue and hands it to the kernel; what left is forgotten. On an error the
    /// first message is named. `sent` is called for every datagram that left: lane (`None` for an answer), bytes.
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        segmentation: bool,
        whole_bytes_max: usize,
        mut sent: impl FnMut(Option<usize>, usize),
    ) -> Result<Left, (io::Error, Refused)> {
        let mut packed = core::mem::take(&mut self.packed);
        self.pack(&mut packed, segmentation, whole_bytes_max);
        let part = |number: usize| self.buffer_of(packed.parts[number]);
        let result = match socket.send(&packed.messages, part) {
            Ok(count) => {
                let mut left = Left {
                    messages: count as u64,
                    ..Left::default()
                };
                for (message, &lane) in packed.messages.iter().zip(&packed.lanes).take(count) {
                    for _ in 0..message.count {
                        let Some(bytes) = self.pop(lane) else { break };
                        left.segmented += u64::from(message.segment_bytes != 0);
                        left.fragmented += u64::from(bytes > whole_bytes_max);
                        sent((lane != ANSWERS).then_some(usize::from(lane)), bytes);
                    }
                }
                Ok(left)
            }
            Err(error) => match packed.messages.first() {
                None => Ok(Left::default()),
                Some(message) => {
                    let lengths = (message.first..message.first + message.count)
                        .map(|number| part(number).len());
                    let refused = Refused {
                        to: message.to,
                        datagrams: message.count,
                        is_segmented: message.segment_bytes != 0,
                        longest: lengths.max().unwrap_or(0),
                        lane: usize::from(packed.lanes[0]),
                    };
                    Err((error, refused))
                }
            },
        };
        self.packed = packed;
        result
    }

    fn buffer_of(&self, number: u16) -> &[u8] {
        &self.buffers[usize::from(number)]
    }

    /// Has the refused message's datagrams go one by one.
    pub(super) fn separate(&mut self, refused: &Refused) {
        if let Some(lane) = self.lanes.get_mut(refused.lane) {
            lane.singly = lane.singly.max(refused.datagrams);
        }
    }

    /// Forgets the refused message's datagrams; how many.
    pub(super) fn give_up(&mut self, refused: &Refused) -> u64 {
        let lane = u16::try_from(refused.lane).unwrap_or(ANSWERS);
        (0..refused.datagrams).map_while(|_| self.pop(lane)).count() as u64
    }

    /// Forgets all that waits; how many datagrams.
    pub(super) fn clear(&mut self) -> u64 {
        let mut count = 0;
        for lane in 0..self.lanes.len() as u16 {
            while self.pop(lane).is_some() {
                count += 1;
            }
        }
        while self.pop(ANSWERS).is_some() {
            count += 1;
        }
        count
    }

    /// Takes the first datagram of a lane away; its length.
    fn pop(&mut self, lane: u16) -> Option<usize> {
        let number = if lane == ANSWERS {
            self.answers.pop_front()?.1
        } else {
            let lane = self.lanes.get_mut(usize::from(lane))?;
            lane.singly = lane.singly.saturating_sub(1);
            lane.waiting.pop_front()?
        };
        self.waiting -= 1;
        let place = usize::from(number);
        self.uses[place] -= 1;
        if self.uses[place] == 0 {
            self.free.push(number);
        }
        Some(self.buffers[place].len())
    }

    fn pack(&self, packed: &mut Packed, segmentation: bool, whole_bytes_max: usize) {
        packed.clear();
        for (number, lane) in self.lanes.iter().enumerate() {
            let mut place = 0;
            while place < lane.waiting.len() && packed.has_room() {
                let together = segmentation && place >= lane.singly;
                let run = if together {
                    self.run(&lane.waiting, place, whole_bytes_max)
                        .min(PARTS_MAX - packed.parts.len())
                } else {
                    1
                };
                let numbers = lane.waiting.iter().skip(place).take(run).copied();
                packed.push(number as u16, lane.to, numbers, |number| {
                    self.buffer_of(number).len()
                });
                place += run;
            }
        }
        for &(to, number) in &self.answers {
            if !packed.has_room() {
                break;
            }
            packed.push(ANSWERS, to, core::iter::once(number), |_| 0);
        }
    }

    /// How many datagrams from that place on can be one message: of one length, the last may be shorter.
    fn run(&self, waiting: &VecDeque<u16>, place: usize, whole_bytes_max: usize) -> usize {
        let length = |place: usize| {
            let number = *waiting.get(place)?;
            Some(self.buffers[usize::from(number)].len())
        };
        let Some(first) = length(place) else { return 1 };
        if first == 0 || first > whole_bytes_max {
            return 1;
        }
        let most = SEGMENTS_MAX.min(MESSAGE_BYTES_MAX / first);
        let mut count = 1;
        while count < most
            && let Some(next) = length(place + count)
            && next <= first
            && next > 0
        {
            count += 1;
            if next < first {
                break;
            }
        }
        count
    }
}

impl Packed {
    fn new() -> Self {
        Self {
            messages: Vec::with_capacity(MESSAGES_MAX),
            lanes: Vec::with_capacity(MESSAGES_MAX),
            parts: Vec::with_capacity(PARTS_MAX),
        }
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.lanes.clear();
        self.parts.clear();
    }

    fn has_room(&self) -> bool {
        self.messages.len() < MESSAGES_MAX && self.parts.len() < PARTS_MAX
    }

    /// Adds a message of the datagrams in these buffers, whose length `bytes` tells.
    fn push(
        &mut self,
        lane: u16,
        to: SocketAddr,
        buffers: impl Iterator<Item = u16>,
        bytes: impl Fn(u16) -> usize,
    ) {
        let first = self.parts.len();
        self.parts.extend(buffers);
        let count = self.parts.len() - first;
        let segment_bytes = if count > 1 {
            bytes(self.parts[first]) as u16
        } else {
            0
        };
        self.lanes.push(lane);
        self.messages.push(Message {
            to,
            first,
            count,
            segment_bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn filled(lengths: &[usize]) -> Outbound {
        let mut outbound = Outbound::new([to(1), to(2)].into_iter(), 1_500);
        for &length in lengths {
            outbound.buffer().unwrap().resize(length, 7);
            assert_eq!(outbound.push(0..1), 1);
        }
        outbound
    }

    fn shape(outbound: &Outbound, segmentation: bool) -> Vec<(usize, u16)> {
        let mut packed = Packed::new();
        outbound.pack(&mut packed, segmentation, 1_472);
        packed
            .messages
            .iter()
            .map(|message| (message.count, message.segment_bytes))
            .collect()
    }

    #[test]
    fn equal_lengths_go_together_and_a_shorter_one_ends_them() {
        let outbound = filled(&[1_400, 1_400, 1_400, 900, 1_400, 1_472, 1_472]);
        let expected = [(4, 1_400), (1, 0), (2, 1_472)];
        assert_eq!(shape(&outbound, true), expected);
        assert_eq!(shape(&outbound, false), [(1, 0); 7]);
    }

    #[test]
    fn what_the_path_does_not_take_whole_goes_alone() {
        assert_eq!(
            shape(&filled(&[1_473, 1_473, 1_000]), true),
            [(1, 0), (1, 0), (1, 0)]
        );
    }

    #[test]
    fn no_message_is_longer_than_udp_allows_or_has_too_many_parts() {
        let outbound = filled(&[1_472; SEND_QUEUE_DATAGRAMS_MAX]);
        let most = MESSAGE_BYTES_MAX / 1_472;
        assert!(
            shape(&outbound, true)
                .iter()
                .all(|&(count, _)| count <= most)
        );
        let small = filled(&[10; SEND_QUEUE_DATAGRAMS_MAX]);
        assert_eq!(shape(&small, true), [(SEGMENTS_MAX, 10); 4]);
    }

    #[test]
    fn a_buffer_is_free_again_once_its_last_copy_left() {
        let mut outbound = Outbound::new([to(1), to(2)].into_iter(), 64);
        for _ in 0..SEND_QUEUE_DATAGRAMS_MAX {
            outbound.buffer().unwrap().resize(8, 1);
            assert_eq!(outbound.push(0..2), 2);
        }
        assert!(outbound.buffer().is_none(), "all wait");
        assert_eq!(outbound.waiting(), 2 * SEND_QUEUE_DATAGRAMS_MAX);
        assert_eq!(outbound.pop(0), Some(8));
        assert!(outbound.buffer().is_none(), "the other copy waits still");
        assert_eq!(outbound.pop(1), Some(8));
        assert!(outbound.buffer().is_some());
        assert_eq!(outbound.clear(), 2 * SEND_QUEUE_DATAGRAMS_MAX as u64 - 2);
        assert_eq!(
            (outbound.waiting(), outbound.free.len()),
            (0, SEND_QUEUE_DATAGRAMS_MAX)
        );
        // For nobody: the buffer is used again.
        outbound.buffer().unwrap().resize(8, 1);
        assert_eq!(outbound.push(0..0), 0);
        assert_eq!(outbound.free.len(), SEND_QUEUE_DATAGRAMS_MAX);
    }

    #[test]
    fn refused_messages_go_singly_or_are_given_up() {
        let mut outbound = filled(&[100, 100, 100, 100]);
        let refused = Refused {
            to: to(1),
            datagrams: 2,
            is_segmented: true,
            longest: 100,
            lane: 0,
        };
        outbound.separate(&refused);
        assert_eq!(shape(&outbound, true), [(1, 0), (1, 0), (2, 100)]);
        assert_eq!(outbound.give_up(&refused), 2);
        assert_eq!(shape(&outbound, true), [(2, 100)]);
    }
}
