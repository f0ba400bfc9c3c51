//! Why the director did not hand a packet on: the one list of reasons.

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])* $name:ident $label:literal;)*) => {
        /// Why a packet was dropped. Each is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum DirectorDrop {
            $($(#[doc = $meaning])* $name,)*
        }

        impl DirectorDrop {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[DirectorDrop] = &[$(DirectorDrop::$name,)*];
            /// How many there are.
            pub const COUNT: usize = DirectorDrop::ALL.len();

            /// The reason as a metric's label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(DirectorDrop::$name => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// The frame is no well-formed packet.
    Malformed "malformed";
    /// The frame is addressed to another station, or to all.
    OtherStation "other-station";
    /// The frame holds neither IPv4 nor IPv6.
    NotIp "not-ip";
    /// Packets that arrive at this arm are not steered.
    ArmSteersNothing "arm-steers-nothing";
    /// No target has the packet's bucket: no desired state was applied yet.
    NoTarget "no-target";
    /// The Ethernet address of the target is not known on the arm that the packet would leave by.
    TargetUnresolved "target-unresolved";
    /// A later fragment whose first one was not seen.
    FragmentWithoutFirst "fragment-without-first";
    /// A first fragment for which the table of fragmented datagrams has no place.
    FragmentTableFull "fragment-table-full";
    /// Its bucket or flow is suspended, and as many packets wait as may.
    SuspendedPackets "suspended-packets";
    /// Its bucket or flow is suspended, and as many bytes wait as may.
    SuspendedBytes "suspended-bytes";
    /// It waited until its suspension ended by age.
    SuspendedTooLong "suspended-too-long";
    /// A heartbeat of a director that did not come from the other of this pair.
    HeartbeatRefused "heartbeat-refused";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reasons_are_in_the_order_of_their_numbers_and_have_a_label_each() {
        let mut labels = BTreeSet::new();
        for (number, reason) in DirectorDrop::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
            assert!(labels.insert(reason.label()), "{reason:?}");
        }
    }
}
