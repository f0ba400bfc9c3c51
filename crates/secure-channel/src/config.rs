//! What a [`SecureChannel`](super::SecureChannel) is reported once.

use core::fmt;
use core::time::Duration;

use super::handshake::SILENCE_DEFAULT_MS;
use super::header::WIRE_VERSION_MAX;
use super::key_ring::KeyRing;
use super::terms::Terms;
use crate::{ClusterId, Epoch, Incarnation, MemberId};

/// What a [`SecureChannel`](super::SecureChannel) is reported once.
#[derive(Clone, Debug)]
pub struct SecureConfig {
    /// The keys that this host accepts, and which of them it seals under.
    pub keys: KeyRing,
    /// The cluster.
    pub cluster: ClusterId,
    /// This host.
    pub member: MemberId,
    /// This incarnation of this host.
    pub incarnation: Incarnation,
    /// The epoch in the header of what is sealed, until [`set_epoch`](super::SecureChannel::set_epoch).
    pub epoch: Epoch,
    /// The newest wire version that this host understands, 0 to [`WIRE_VERSION_MAX`]; later ones are refused. It is spoken
    /// once all who take part understand it.
    pub wire_version: u8,
    /// The oldest wire version that this host understands. Sane: the one before the newest.
    pub wire_version_oldest: u8,
    /// The other members. This host among them is passed over.
    pub peers: Vec<MemberId>,
    /// How long an admitted session must be silent before another of the same member takes its place. At least several
    /// keep-alive intervals; 3 s unless reported.
    pub silence: Duration,
    /// The settings that hosts must share; `None`: nothing is said of them, and nothing compared.
    pub terms: Option<Terms>,
}

impl SecureConfig {
    /// A configuration at epoch 0 that speaks and understands wire version 1, with the default silence.
    #[must_use]
    pub fn new(
        keys: impl Into<KeyRing>,
        cluster: ClusterId,
        member: MemberId,
        incarnation: Incarnation,
        peers: Vec<MemberId>,
    ) -> SecureConfig {
        SecureConfig {
            keys: keys.into(),
            cluster,
            member,
            incarnation,
            epoch: Epoch(0),
            wire_version: 1,
            wire_version_oldest: 1,
            peers,
            silence: Duration::from_millis(SILENCE_DEFAULT_MS),
            terms: None,
        }
    }
}

/// Why there is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureConfigError {
    /// The wire version exceeds [`WIRE_VERSION_MAX`], or is below the oldest understood.
    WireVersion,
}

impl fmt::Display for SecureConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecureConfigError::WireVersion => write!(
                f,
                "the wire version must be at least the oldest understood and at most {WIRE_VERSION_MAX}"
            ),
        }
    }
}

impl core::error::Error for SecureConfigError {}
