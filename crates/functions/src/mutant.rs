//! The planted bugs of this layer; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// NAT: a port that was granted to a session is not taken (two flows have one outside endpoint, and answers go astray).
    PortNotTaken,
    /// NAT: a new session gets an outside endpoint of its own though its inside endpoint has one (RFC 4787 REQ-1: applications
    /// that tell others their address are not reached).
    BindingNotReused,
    /// NAT: who asks to end a mapping need not know its number (a host on the link ends those of others).
    AnybodyEndsMappings,
    /// NAT: a port that a host asked for lets in nobody whom the filtering does not (who asked for visitors gets none).
    MappingFiltered,
    /// NAT: an instance counts the ports of a subscriber that it granted itself (who comes by all hosts has the quota of each).
    QuotaPerInstance,
    /// Firewall: what comes from outside is asked by the rules for inside (anybody gets in).
    SidesMistaken,
    /// Firewall: what the first answer adds to its flow is not written (what the client says then fits no connection).
    AnswerNotWritten,
    /// Balancer: a SYN that is sent again is dealt anew (two servers have halves of one connection).
    DealtAgain,
    /// Balancer: the backend of a new flow is not written (each host deals by itself, and answers are of no flow).
    FlowNotKept,
    /// Balancer: a SYN that is sent again counts against its backend at once (whoever sends SYNs twice takes living backends away).
    SilenceCountsAtOnce,
    /// Balancer: what a backend answers after flows failed is not written (one that came back stays away).
    RecoveryNotWritten,
    /// Limiter: of the buckets that a packet belongs to only the first is spent from (the others limit nothing).
    SecondBucketFree,
    /// Monitor: the first packet of a flow is counted twice at each instance (an exporter that counts when it makes a record and
    /// again when it updates it).
    FirstCountedTwice,
    /// Port scan: a probe is judged by itself, not with what all instances know of its source (a scan spread over hosts is none).
    ProbeJudgedAlone,
    /// Port scan: connections that were accepted clear nothing (who uses many services scans).
    AcceptedIgnored,
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
