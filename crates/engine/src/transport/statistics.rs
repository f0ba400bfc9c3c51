//! Counters and events of a transport: for `status`, logs and metrics.

use std::net::SocketAddr;

use asterism_placement::MemberId;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the transport counted since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TransportStatistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl TransportStatistics {
            /// Each counter as a label and its value.
            pub fn each(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name);)*
            }
        }
    };
}

counters! {
    /// Datagrams passed to the kernel, including every copy; a multicast counts once.
    datagrams_sent,
    /// UDP payload bytes of these datagrams.
    bytes_sent,
    /// Messages passed to the kernel; a segmented message is many datagrams.
    messages_sent,
    /// System calls that sent.
    send_calls,
    /// Sent datagrams that went to the multicast group.
    multicast_sent,
    /// Sent datagrams that the kernel cut from a longer message.
    segmented_sent,
    /// Sent datagrams that the kernel fragmented because they exceeded the path's MTU.
    fragmented_sent,
    /// Datagrams received.
    datagrams_received,
    /// UDP payload bytes of these datagrams.
    bytes_received,
    /// Messages received; with receive offload a message is many datagrams.
    messages_received,
    /// System calls that received data.
    receive_calls,
    /// Received datagrams that the kernel had joined.
    joined_received,
    /// Datagrams received from addresses that belong to no member.
    strangers_received,
    /// Datagrams dropped by the kernel because a receiving socket's buffer was full. They are sent again; a larger
    /// `receive_buffer_bytes` keeps them.
    receive_buffer_drops,
    /// Own multicast datagrams that came back and were ignored.
    own_received,
    /// Received messages that were dropped because they were longer than any datagram of a member.
    cut_received,
    /// Times that datagrams waited because the send buffer was full.
    send_buffer_waits,
    /// Times that a datagram waited because the kernel had no memory or queue for it (`ENOBUFS`, `ENOMEM`).
    kernel_waits,
    /// Turns in which the bandwidth cap made datagrams wait.
    pace_waits,
    /// Times that the kernel refused a segmented message.
    segmentation_refused,
    /// Times that a datagram was longer than the path takes (`EMSGSIZE`).
    too_long,
    /// Times that a change of the path's MTU was detected.
    path_mtu_changes,
    /// Times that the multicast interface was replaced by another interface of the same name, and joined again.
    interface_changes,
    /// Datagrams returned because the member's port has no listener: its process is down.
    port_unreachable,
    /// Datagrams returned because no route or neighbour leads to the member.
    host_unreachable,
    /// Sends refused by a filter or missing permission on this machine.
    forbidden,
    /// Sends that failed for another reason.
    send_errors,
    /// Receives that failed for a reason other than a returned datagram.
    receive_errors,
    /// Datagrams given up after repeated failures, each counted above. The protocol sends their content again.
    given_up,
    /// Answers not sent because newer unknown senders displaced the address, or to members without an address.
    unaddressed,
    /// Events lost because the queue was full.
    events_lost,
}

/// An event of a transport, for the log. [`Display`](core::fmt::Display) gives the effect and a cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// A buffer is smaller than requested.
    BufferSmaller {
        /// Which: "receive" or "send".
        which: &'static str,
        /// Bytes asked for.
        asked: usize,
        /// Bytes given.
        given: usize,
    },
    /// The kernel refuses to cut messages: datagrams go one by one from now on.
    SegmentationRefused {
        /// Its error number; 0 if it does not know the option.
        errno: i32,
    },
    /// The kernel refuses to join datagrams: they are taken one by one.
    ReceiveOffloadRefused {
        /// Its error number.
        errno: i32,
    },
    /// Datagrams have another greatest length from now on.
    DatagramBytes {
        /// Bytes of UDP payload.
        bytes: usize,
        /// The narrowest path's MTU.
        mtu: usize,
    },
    /// A path is narrower than the shortest datagram bound: long datagrams are fragmented.
    Fragmenting {
        /// The narrowest path's MTU.
        mtu: usize,
    },
    /// Datagrams to a member come back. Reported once until the member is received again.
    Unreachable {
        /// The member.
        member: MemberId,
        /// Its address.
        address: SocketAddr,
        /// Error number.
        errno: i32,
    },
    /// Datagrams of an unreachable member arrive again.
    Heard {
        /// The member.
        member: MemberId,
    },
    /// A receiving socket's buffer was full. Reported at most once a second.
    ReceiveBufferFull {
        /// Datagrams dropped since the last time.
        datagrams: u64,
    },
    /// Datagrams to that address were given up.
    GivenUp {
        /// Where to.
        address: SocketAddr,
        /// Error number of the last try.
        errno: i32,
    },
}

impl core::fmt::Display for TransportEvent {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let error = |errno: &i32| std::io::Error::from_raw_os_error(*errno);
        match self {
            Self::BufferSmaller {
                which,
                asked,
                given,
            } => {
                let limit = if *which == "receive" { "rmem" } else { "wmem" };
                write!(
                    formatter,
                    "the {which} buffer has {given} bytes, not {asked}: a burst may be dropped and sent again; raise net.core.{limit}_max or give the process CAP_NET_ADMIN"
                )
            }
            Self::SegmentationRefused { errno: 0 } => write!(
                formatter,
                "the kernel does not know UDP_SEGMENT: sending costs more; Linux 4.18 and later do"
            ),
            Self::SegmentationRefused { errno } => write!(
                formatter,
                "the kernel refuses segmented messages ({}): sending costs more; the interface may lack checksum offload",
                error(errno)
            ),
            Self::ReceiveOffloadRefused { errno } => write!(
                formatter,
                "the kernel refuses UDP_GRO ({}): receiving costs more; Linux 5.0 and later have it",
                error(errno)
            ),
            Self::DatagramBytes { bytes, mtu } => write!(
                formatter,
                "datagrams have at most {bytes} bytes now: the narrowest path has an MTU of {mtu}"
            ),
            Self::Fragmenting { mtu } => write!(
                formatter,
                "a path has an MTU of {mtu}, less than the longest group needs: datagrams are fragmented; one lost fragment loses a datagram, so raise that MTU"
            ),
            Self::Unreachable {
                member,
                address,
                errno,
            } => write!(
                formatter,
                "{member} at {address} is unreachable ({}): it is served again once it is heard; see whether it runs and what filters stand between",
                error(errno)
            ),
            Self::Heard { member } => write!(formatter, "{member} is heard again"),
            Self::ReceiveBufferFull { datagrams } => write!(
                formatter,
                "the kernel dropped {datagrams} datagrams because the receive buffer was full: they come again; raise receive_buffer_bytes"
            ),
            Self::GivenUp { address, errno } => write!(
                formatter,
                "a datagram to {address} was given up ({}): what it held is sent again; see routes and filters of this machine",
                error(errno)
            ),
        }
    }
}

/// What is fixed or changes rarely: what the kernel gave, and what is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportState {
    /// The address that datagrams are sent from and received at.
    pub local: SocketAddr,
    /// The group's address, with multicast.
    pub group: Option<SocketAddr>,
    /// Bytes of the receiving sockets' buffers, each, as the kernel gave them.
    pub receive_buffer_bytes: usize,
    /// Bytes of the sending socket's buffer, as the kernel gave it.
    pub send_buffer_bytes: usize,
    /// Whether messages are cut by the kernel.
    pub segmentation: bool,
    /// Whether arrivals are joined by the kernel.
    pub receive_offload: bool,
    /// The narrowest path's MTU; 0 while no path is known.
    pub path_mtu: usize,
    /// UDP payload bytes of a datagram at most, by configuration and path.
    pub datagram_bytes_max: usize,
    /// Whether long datagrams are fragmented, because a path is narrower than the shortest bound or what is
    /// sent again was cut for a wider one.
    pub is_fragmenting: bool,
    /// Datagrams that wait for the kernel now.
    pub waiting: usize,
}

/// A member as the transport sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Its name.
    pub member: MemberId,
    /// Its address.
    pub address: SocketAddr,
    /// Whether what is for all goes to it by the group.
    pub multicast: bool,
    /// Whether it is in this host's site.
    pub near: bool,
    /// Datagrams sent to its address; those to the group are not in it.
    pub datagrams_sent: u64,
    /// Datagrams received from its address.
    pub datagrams_received: u64,
    /// Datagrams to it that came back.
    pub returned: u64,
    /// Whether the last that is known of it is that a datagram came back.
    pub is_unreachable: bool,
}
