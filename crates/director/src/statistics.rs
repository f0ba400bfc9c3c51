//! What a director counts, as it publishes it for other threads.

use core::time::Duration;

use crate::drop::DirectorDrop;
use crate::table::TARGETS_MAX;

/// How often a director publishes its statistics while it turns; after each command too.
pub const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// What went to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCount {
    /// Packets sent to it.
    pub packets: u64,
    /// Buckets that its new flows have.
    pub buckets: u64,
    /// Whether there is a host, whose Ethernet address is known on each arm by which packets are sent to hosts.
    pub is_reachable: bool,
}

macro_rules! counts {
    ($($(#[doc = $meaning:literal])* $name:ident,)*) => {
        /// A director at one moment. Counts since it was made only grow; those that end in `now` are as they are.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct DirectorStatistics {
            $($(#[doc = $meaning])* pub $name: u64,)*
            /// Packets dropped, in the order of [`DirectorDrop::ALL`].
            pub dropped: [u64; DirectorDrop::COUNT],
            /// What went to each target, by its slot.
            pub targets: [TargetCount; TARGETS_MAX],
        }

        impl Default for DirectorStatistics {
            fn default() -> Self {
                DirectorStatistics {
                    $($name: 0,)*
                    dropped: [0; DirectorDrop::COUNT],
                    targets: [TargetCount::default(); TARGETS_MAX],
                }
            }
        }

        impl DirectorStatistics {
            /// Each count as a label and its value.
            pub fn each(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name);)*
            }

            /// From the words that a director published; `None` if they are of another version.
            #[must_use]
            pub fn read(words: &[u64]) -> Option<DirectorStatistics> {
                let mut words = words.iter().copied();
                let mut read = DirectorStatistics {
                    $($name: words.next()?,)*
                    ..DirectorStatistics::default()
                };
                for dropped in &mut read.dropped {
                    *dropped = words.next()?;
                }
                for target in &mut read.targets {
                    target.packets = words.next()?;
                    target.buckets = words.next()?;
                    target.is_reachable = words.next()? != 0;
                }
                words.next().is_none().then_some(read)
            }

            /// As words, appended to `words`.
            pub(crate) fn write(&self, words: &mut Vec<u64>) {
                words.extend([$(self.$name,)*]);
                words.extend(self.dropped);
                for target in &self.targets {
                    words.extend([
                        target.packets,
                        target.buckets,
                        u64::from(target.is_reachable),
                    ]);
                }
            }
        }
    };
}

counts! {
    /// When it was published, in microseconds of the loop's clock.
    at_us,
    /// Turns of the loop.
    turns,
    /// Frames received.
    received,
    /// Packets handed to hosts, those that had waited included.
    forwarded,
    /// Frames for the director itself: ARP, neighbour discovery, heartbeats.
    consumed,
    /// Questions for shared addresses that were answered.
    answered,
    /// Announcements of shared addresses.
    announced,
    /// Frames in which another station claimed a shared address.
    conflicts,
    /// Questions for hosts.
    probes,
    /// Answers of hosts.
    hosts_learnt,
    /// Packets that waited because their bucket or flow was suspended.
    suspended,
    /// Packets that went on after they had waited.
    resumed,
    /// Connections that began in a bucket whose target drains and got an exception.
    drain_exceptions,
    /// Such connections for which there was no exception: they stay with the target that drains.
    drain_refused,
    /// Exceptions that ended because their flows idled.
    exceptions_ended,
    /// Suspensions that ended by age.
    suspensions_ended,
    /// Frames of the director's own that were not sent because no buffer was free.
    own_frames_lost,
    /// Commands taken.
    commands,
    /// Tables taken.
    tables,
    /// Heartbeats sent.
    heartbeats_sent,
    /// Heartbeats of the other director taken.
    heartbeats_received,
    /// How often it became active.
    activations,
    /// The digest of the table in force.
    table_digest_now,
    /// 1 if it is active, else 0.
    active_now,
    /// Exceptions now.
    exceptions_now,
    /// Suspensions now.
    suspensions_now,
    /// Packets that wait now.
    waiting_packets_now,
    /// Bytes of these packets.
    waiting_bytes_now,
}

impl DirectorStatistics {
    /// Packets dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: DirectorDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_go_through_words() {
        let mut statistics = DirectorStatistics {
            at_us: 1,
            received: 2,
            waiting_bytes_now: 3,
            ..DirectorStatistics::default()
        };
        statistics.dropped[DirectorDrop::NoTarget as usize] = 4;
        statistics.targets[63] = TargetCount {
            packets: 5,
            buckets: 6,
            is_reachable: true,
        };
        let mut words = Vec::new();
        statistics.write(&mut words);
        assert!(words.len() < asterism_io::seqlock::WORDS_MAX);
        assert_eq!(DirectorStatistics::read(&words), Some(statistics.clone()));
        assert_eq!(DirectorStatistics::read(&words[1..]), None);
        words.push(0);
        assert_eq!(DirectorStatistics::read(&words), None);
        assert_eq!(statistics.dropped_total(), 4);
        let mut labels = 0;
        statistics.each(|_, _| labels += 1);
        assert_eq!(
            labels + DirectorDrop::COUNT + 3 * TARGETS_MAX + 1,
            words.len()
        );
    }
}
