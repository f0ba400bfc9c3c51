//! What ports count: packets, and each drop under its reason. Imports nothing.

/// Why a port dropped a packet. Each has a counter in [`PortStatistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortDrop {
    /// Received while every buffer of the pool was in use.
    NoBuffer,
    /// Longer than a buffer of the pool, or than the port's medium takes.
    TooLong,
    /// A queue inside the port was full.
    QueueFull,
    /// The medium refused it: a full disk, a link that is down.
    WriteFailed,
    /// Lost on purpose by a lossy port.
    Lossy,
    /// Received by the kernel, but the port's ring or socket buffer had no room: the loop did not read fast enough. The kernel's
    /// own counter.
    KernelQueue,
    /// Longer than the MTU of the interface that it was to leave by.
    BeyondMtu,
    /// Shorter than an Ethernet header, or than the medium takes.
    TooShort,
    /// The driver or the socket could take no more at the moment (`ENOBUFS`, `EAGAIN`).
    BackPressure,
    /// The interface is down or gone, or the peer of a link is.
    LinkDown,
    /// To be cut into segments, and that cannot be done: its headers are no TCP or UDP, or changed their places.
    NotSegmented,
    /// The other side described it wrongly: an offload header or a shared ring's descriptor out of its bounds.
    BadDescriptor,
    /// Received by a port that only sends.
    SendsOnly,
}

impl PortDrop {
    /// How many reasons there are.
    pub const COUNT: usize = 13;
    /// All reasons, in the order of their counters.
    pub const ALL: [PortDrop; PortDrop::COUNT] = [
        PortDrop::NoBuffer,
        PortDrop::TooLong,
        PortDrop::QueueFull,
        PortDrop::WriteFailed,
        PortDrop::Lossy,
        PortDrop::KernelQueue,
        PortDrop::BeyondMtu,
        PortDrop::TooShort,
        PortDrop::BackPressure,
        PortDrop::LinkDown,
        PortDrop::NotSegmented,
        PortDrop::BadDescriptor,
        PortDrop::SendsOnly,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            PortDrop::NoBuffer => "port-no-buffer",
            PortDrop::TooLong => "port-too-long",
            PortDrop::QueueFull => "port-queue-full",
            PortDrop::WriteFailed => "port-write-failed",
            PortDrop::Lossy => "port-lossy",
            PortDrop::KernelQueue => "port-kernel-queue",
            PortDrop::BeyondMtu => "port-beyond-mtu",
            PortDrop::TooShort => "port-too-short",
            PortDrop::BackPressure => "port-back-pressure",
            PortDrop::LinkDown => "port-link-down",
            PortDrop::NotSegmented => "port-not-segmented",
            PortDrop::BadDescriptor => "port-bad-descriptor",
            PortDrop::SendsOnly => "port-sends-only",
        }
    }
}

/// What a port counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets handed out by `receive`.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped, indexed by [`PortDrop`].
    pub dropped: [u64; PortDrop::COUNT],
    /// Packets whose checksum the port completed, because the medium they came from or went to does not.
    pub checksums_completed: u64,
    /// Segments that the port cut long packets into, because the medium takes none so long.
    pub segments_made: u64,
    /// Segments of one TCP connection that were handed to the interface merged with their neighbours, as one long packet that it
    /// cuts again.
    pub segments_merged: u64,
    /// How often the link went down.
    pub link_downs: u64,
    /// How often the port was opened again: its interface had gone and come back, or a peer had.
    pub reopened: u64,
}

impl PortStatistics {
    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: PortDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    #[inline]
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.received_packets += 1;
        self.received_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_dropped(&mut self, reason: PortDrop) {
        self.dropped[reason as usize] += 1;
    }

    #[inline]
    pub(crate) fn count_dropped_many(&mut self, reason: PortDrop, packets: usize) {
        self.dropped[reason as usize] += packets as u64;
    }
}
