//! The kinds of datagrams of the link, as their [`Envelope`] names them.

use asterism_secure_channel::{ClusterId, Envelope, EnvelopeEnd, KeyRing, MESSAGE_BYTES_MAX};

/// A heartbeat of a host.
pub(crate) const HOST: EnvelopeEnd = EnvelopeEnd {
    code: 1,
    purpose: "heartbeat of a host",
};
/// The reply of an orchestrator.
pub(crate) const ORCHESTRATOR: EnvelopeEnd = EnvelopeEnd {
    code: 2,
    purpose: "reply of an orchestrator",
};
/// A part of a host's answer to a question.
pub(crate) const ANSWERING: EnvelopeEnd = EnvelopeEnd {
    code: 3,
    purpose: "answer of a host",
};
/// A question of an orchestrator.
pub(crate) const ASKING: EnvelopeEnd = EnvelopeEnd {
    code: 4,
    purpose: "question of an orchestrator",
};
const _: () = assert!(50 + 31 + crate::message::PART_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(crate::message::HOST_MESSAGE_BYTES_MAX <= MESSAGE_BYTES_MAX);

/// The envelope of a host's heartbeats, which opens what orchestrators send.
pub(crate) fn of_host(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Envelope {
    Envelope::new(cluster, keys, (HOST, &[ORCHESTRATOR, ASKING]), salt)
}

/// The envelope of an orchestrator's replies, which opens what hosts send.
pub(crate) fn of_orchestrator(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Envelope {
    Envelope::new(cluster, keys, (ORCHESTRATOR, &[HOST, ANSWERING]), salt)
}

/// The envelope of a host's answers. It opens nothing.
pub(crate) fn of_answers(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Envelope {
    Envelope::new(cluster, keys, (ANSWERING, &[]), salt)
}

/// The envelope of an orchestrator's questions. It opens nothing.
pub(crate) fn of_questions(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Envelope {
    Envelope::new(cluster, keys, (ASKING, &[]), salt)
}
