//! The planted bugs of this layer; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Firewall: what comes from outside is asked by the rules for inside (anybody gets in).
    SidesMistaken,
    /// Balancer: a SYN that is sent again is dealt again (two servers have halves of one connection).
    DealtAgain,
    /// Balancer: the backend of a new flow is not written (each host deals by itself, and answers are of no flow).
    FlowNotKept,
    /// Limiter: of the buckets that a packet belongs to only the first is spent from (the others limit nothing).
    SecondBucketFree,
    /// Monitor: the first packet of a flow is counted twice at each instance (an exporter that counts when it makes a record and
    /// again when it updates it).
    FirstCountedTwice,
    /// Signature: the piece that begins a signature is not recorded (one that is split over two segments passes).
    BeginningForgotten,
    /// Signature: pieces are read by whatever list of signatures a host has (while hosts change theirs, what is not there is found).
    ListsMistaken,
    /// Cache digests: what a cache lets go is taken out of its filter whether it is in it or not (an object that is stored later is found
    /// nowhere).
    ReleasedUnasked,
    /// Cache digests: of the blocks of a fetched digest that come together only the first is written (queries go on to the cache
    /// though its digest was fetched).
    FirstBlockOnly,
    /// Pass-through: a packet that finds nothing counted yet is not counted (each host that joins loses one).
    FirstNotCounted,
}
