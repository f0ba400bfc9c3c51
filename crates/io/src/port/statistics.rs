//! Counters of ports: packets, and each drop under its reason.

/// Why a port dropped a packet. Each has a counter in [`PortStatistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortDrop {
    /// The packet was received while every buffer of the pool was in use.
    NoBuffer,
    /// The packet is longer than a buffer of the pool, or than the port's medium accepts.
    TooLong,
    /// A queue inside the port was full.
    QueueFull,
    /// The medium refused the packet: a full disk, a link that is down.
    WriteFailed,
    /// A lossy port dropped the packet on purpose.
    Lossy,
    /// The kernel received the packet, but the port's ring or socket buffer was full: the loop did not read fast
    /// enough. The kernel's own counter.
    KernelQueue,
    /// The packet is longer than the MTU of its outgoing interface.
    BeyondMtu,
    /// The packet is shorter than an Ethernet header, or than the medium accepts.
    TooShort,
    /// The driver or the socket was full at the moment (`ENOBUFS`, `EAGAIN`).
    BackPressure,
    /// The interface, or the peer of a link, is down or gone.
    LinkDown,
    /// The packet cannot be cut into segments: its headers are not TCP or UDP, or moved.
    NotSegmented,
    /// The other side described the packet wrongly: an offload header or a shared ring's descriptor is out of bounds.
    BadDescriptor,
    /// The packet was received by a port that only sends.
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
    /// Packets received from the port.
    pub received_packets: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of these packets.
    pub sent_bytes: u64,
    /// Packets dropped, indexed by [`PortDrop`].
    pub dropped: [u64; PortDrop::COUNT],
    /// Packets whose checksum the port completed, because the medium of their origin or destination does not.
    pub checksums_completed: u64,
    /// Segments cut from packets that were too long for the medium.
    pub segments_made: u64,
    /// Segments of TCP connections that the interface got merged with their neighbours, as one long packet that it
    /// cuts again.
    pub segments_merged: u64,
    /// Times that the link went down.
    pub link_downs: u64,
    /// Times that the port was reopened after its interface, or a peer, had gone and come back.
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
