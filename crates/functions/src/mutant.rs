//! The planted bugs of this layer; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Firewall: packets from outside are judged by the rules for inside (anybody gets in).
    SidesMistaken,
    /// Balancer: a backend is chosen again for a retransmitted SYN (two servers have halves of a connection).
    DealtAgain,
    /// Balancer: the backend of a new flow is not written (each host chooses by itself, and answers match no flow).
    FlowNotKept,
    /// Limiter: only the first bucket of a packet is charged (the others limit nothing).
    SecondBucketFree,
    /// Monitor: the first packet of a flow is counted twice at each instance (an exporter that counts when it makes a record and
    /// again when it updates it).
    FirstCountedTwice,
    /// Signature: the first piece of a signature is not recorded (a signature split over two segments passes).
    BeginningForgotten,
    /// Signature: pieces are read by a host's current list of signatures, not the list that they were written by (while lists
    /// change, absent signatures are found).
    ListsMistaken,
    /// Cache digests: an object that a cache releases is removed from its filter even if it is not in it (an object stored later
    /// is found nowhere).
    ReleasedUnasked,
    /// Cache digests: only the first of several blocks of a fetched digest is written (queries still go to the cache although its
    /// digest was fetched).
    FirstBlockOnly,
    /// Pass-through: a packet that finds no count yet is not counted (each joining host loses one).
    FirstNotCounted,
}
