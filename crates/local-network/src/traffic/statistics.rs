//! What clients and servers count, as they publish it for other threads.

use core::time::Duration;

use super::histogram::RoundTrips;

/// How often clients and servers publish their counts.
pub const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

macro_rules! counts {
    ($(#[doc = $about:literal])* $type:ident { $($(#[doc = $meaning:literal])* $name:ident,)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[doc = $meaning])* pub $name: u64,)*
        }

        impl $type {
            /// Words in which they are published.
            const WORDS: usize = [$(stringify!($name),)*].len();

            /// Each count as a label and its value.
            pub fn each(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name);)*
            }

            fn write(&self, words: &mut Vec<u64>) {
                words.extend([$(self.$name,)*]);
            }

            fn read(words: &[u64]) -> Option<$type> {
                let mut words = words.iter().copied();
                Some($type { $($name: words.next()?,)* })
            }
        }
    };
}

counts! {
    /// What the clients count. Counts only grow, but for those that end in `now`, and those that are cleared by
    /// [`Traffic::mark`](super::Traffic::mark), as their meaning says. Times are microseconds of the network's clock; 0: never.
    ClientCounts {
        /// When this was published.
        at_us,
        /// Frames sent.
        sent,
        /// Frames received.
        received,
        /// UDP flows that began.
        udp_begun,
        /// UDP flows that ended and whose last requests were answered.
        udp_ended,
        /// UDP flows that ended and none of whose last eight requests was answered.
        udp_failed,
        /// UDP requests sent.
        requests,
        /// Answers to them, each counted once.
        answers,
        /// Requests that were not answered within a second.
        lost,
        /// Of these, requests that were answered later.
        late,
        /// Answers that arrived again.
        duplicated,
        /// TCP connections that began.
        tcp_begun,
        /// TCP connections whose download is complete and right, and that closed.
        tcp_complete,
        /// TCP connections that failed: reset, or without an acknowledgement for eight time-outs in a row.
        tcp_failed,
        /// Of these, connections that were reset.
        tcp_reset,
        /// Bytes of downloads.
        downloaded_bytes,
        /// Segments that clients sent again.
        retransmissions,
        /// Packets with a wrong checksum.
        wrong_checksum,
        /// Packets whose bytes are not those that were sent.
        wrong_bytes,
        /// Packets of no flow that is known, or from an endpoint that is not its server's.
        wrong_flow,
        /// ICMP errors: a host refused a packet, of a flow for which it has no port, say. The packet counts as lost too.
        refusals,
        /// Frames that are neither ARP nor for a client: flooded ones.
        not_for_us,
        /// Requests sent before the first answer, which count nowhere else.
        probes,
        /// Flows that were due but did not begin, since as many as may be are under way.
        postponed,
        /// Frames that were not sent, since no frame was free or the queue to the segment was full.
        not_sent,
        /// When the first answer arrived.
        first_answer_us,
        /// When the first of the lost requests was sent. Cleared by a mark.
        first_lost_us,
        /// When the last of the lost requests was sent. Cleared by a mark.
        last_lost_us,
        /// When a segment was last sent again, by a client. Cleared by a mark.
        last_retransmission_us,
        /// The longest time for which a flow waited for a packet of its server that came at last, or for which a flow that failed
        /// had waited. Cleared by a mark.
        longest_silence_us,
        /// When that silence ended. Cleared by a mark.
        longest_silence_at_us,
        /// UDP flows now.
        udp_now,
        /// TCP connections now.
        tcp_now,
        /// Marks that were made.
        marks,
    }
}

counts! {
    /// What the servers count. See [`ClientCounts`].
    ServerCounts {
        /// When this was published.
        at_us,
        /// Frames sent.
        sent,
        /// Frames received.
        received,
        /// UDP requests, each counted once.
        requests,
        /// Requests that arrived again.
        duplicated,
        /// Flows whose outside endpoint changed after their first answer: they are broken for real clients.
        moved,
        /// Flows whose outside endpoint changed before that: their first packets went through a host that then ended.
        moved_while_opening,
        /// Flows whose outside endpoint another flow used at that time.
        shared,
        /// TCP connections that were opened.
        tcp_opened,
        /// TCP connections that closed after a right upload.
        tcp_complete,
        /// TCP connections that were reset, or got no acknowledgement for eight time-outs in a row.
        tcp_failed,
        /// Bytes of uploads.
        uploaded_bytes,
        /// Segments that servers sent again.
        retransmissions,
        /// Packets with a wrong checksum.
        wrong_checksum,
        /// Packets whose bytes are not those that were sent.
        wrong_bytes,
        /// Packets of no flow that is known.
        wrong_flow,
        /// Packets whose source is none of the NAT's outside addresses.
        wrong_source,
        /// ICMP errors: a host refused a packet.
        refusals,
        /// Frames that are neither ARP nor for a server: flooded ones.
        not_for_us,
        /// Frames that were not sent, since no frame was free or the queue to the segment was full.
        not_sent,
        /// When the first translated packet arrived.
        first_translated_us,
        /// When a segment was last sent again, by a server. Cleared by a mark.
        last_retransmission_us,
    }
}

/// The traffic at one moment. Clients' and servers' counts may be 20 ms apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficSnapshot {
    /// What the clients count.
    pub client: ClientCounts,
    /// What the servers count.
    pub server: ServerCounts,
    /// Round trips of UDP requests since the last mark.
    pub round_trips: RoundTrips,
}

impl TrafficSnapshot {
    /// Flows that began.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.client.udp_begun + self.client.tcp_begun
    }

    /// Flows that ended well.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.client.udp_ended + self.client.tcp_complete
    }

    /// Flows that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.client.udp_failed + self.client.tcp_failed
    }

    /// Flows whose translation broke: their outside endpoint changed or was another flow's too. They may have ended or failed.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.server.moved + self.server.shared
    }

    /// Packets that no right network delivers.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        let (client, server) = (&self.client, &self.server);
        client.wrong_checksum
            + client.wrong_bytes
            + client.wrong_flow
            + server.wrong_checksum
            + server.wrong_bytes
            + server.wrong_flow
            + server.wrong_source
    }

    /// Flows under way.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.client.udp_now + self.client.tcp_now
    }
}

pub(super) fn write_client(counts: &ClientCounts, trips: &RoundTrips, words: &mut Vec<u64>) {
    words.clear();
    counts.write(words);
    trips.write(words);
}

pub(super) fn read_client(words: &[u64]) -> Option<(ClientCounts, RoundTrips)> {
    let (counts, trips) = words.split_at_checked(ClientCounts::WORDS)?;
    Some((ClientCounts::read(counts)?, RoundTrips::read(trips)?))
}

pub(super) fn write_server(counts: &ServerCounts, words: &mut Vec<u64>) {
    words.clear();
    counts.write(words);
}

pub(super) fn read_server(words: &[u64]) -> Option<ServerCounts> {
    (words.len() == ServerCounts::WORDS).then(|| ServerCounts::read(words))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_through_words() {
        let client = ClientCounts {
            at_us: 1,
            marks: 9,
            ..ClientCounts::default()
        };
        let mut trips = RoundTrips::default();
        trips.count(77);
        let mut words = Vec::new();
        write_client(&client, &trips, &mut words);
        assert!(words.len() < asterism_io::seqlock::WORDS_MAX);
        assert_eq!(read_client(&words), Some((client, trips)));
        assert_eq!(read_client(&words[1..]), None);
        let server = ServerCounts {
            at_us: 3,
            last_retransmission_us: 8,
            ..ServerCounts::default()
        };
        write_server(&server, &mut words);
        assert_eq!(read_server(&words), Some(server));
        assert_eq!(read_server(&words[1..]), None);
    }
}
