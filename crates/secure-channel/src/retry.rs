//! What a flood of handshakes cannot take from a member: budgets by source address, and the cookie that proves an address.
//!
//! ```text
//!  newcomer                                    receiver, whose budget for that source is spent
//!     | Hello  ---------------------------------> |
//!     | <------- Retry (tag of the Hello, cookie) |   stores nothing, decrypts nothing
//!     | Hello, then the cookie  ----------------> |   judged under the budget of proven addresses
//! ```
//!
//! A handshake of a session that is not admitted costs a key derivation, so each source has a budget for those. Sources at
//! configured addresses have one each; all others share one for each member. Once it is spent, a handshake is answered
//! by a Retry: a cookie, which is a keyed hash of the source, the session and the time, so that pending cookies take no
//! memory (as in RFC 6347 section 4.2.1 and RFC 9000 section 8.1). Who forges source addresses never sees the cookie; a
//! handshake with a valid cookie has a second budget, of its proven address alone.
//!
//! A Retry names the tag of the handshake that it answers and is authenticated under the cluster key, so a stranger can
//! neither forge one nor replay one of another handshake.

use core::time::Duration;

use super::channel::Destination;
use super::handshake::Challenger;
use super::handshake::{
    CHALLENGE_LIFETIME_MS, CHALLENGES_BURST_MAX, CHALLENGES_PER_SECOND_MAX, HANDSHAKE_BYTES,
    Message, STRANGER_HANDSHAKES_BURST_MAX, STRANGER_HANDSHAKES_PER_SECOND_MAX,
};
use super::header::{HEADER_BYTES, Header, TAG_BYTES};
use super::key::{ClusterKey, Session};
use crate::Time;
use crate::mutant::{self, Mutant};

/// Numbers of sources from here on, and below [`RELAYED_SOURCES_FROM`], are no configured addresses. Of these the 30 bits
/// above the lowest 32 tell networks apart: sources with the same 30 bits share a budget.
pub const STRANGER_SOURCES_FROM: u64 = 1 << 62;
/// Numbers of sources from here on are members whose handshakes a relay handed on: configured ones.
pub const RELAYED_SOURCES_FROM: u64 = 1 << 63;
/// Budgets of proven addresses that are not configured, shared by the hash of their network.
pub const PROVEN_BUDGETS: usize = 1_024;
/// Retries per second to configured addresses. One costs some 3 µs, so all together a sixth of a core.
pub const RETRIES_PER_SECOND_MAX: u64 = 50_000;
/// Retries per second to all other addresses.
pub const STRANGER_RETRIES_PER_SECOND_MAX: u64 = 5_000;
/// How many Retries may come at once, of either kind.
pub const RETRIES_BURST_MAX: u64 = 256;
/// Handshakes to one member that a Retry may still name.
pub const RETRIABLE_MAX: usize = 4;

/// Length of a cookie, at the very end of a handshake, in bytes.
pub(super) const COOKIE_BYTES: usize = 16;
/// The length of a handshake is a multiple of so many bytes, and [`COOKIE_BYTES`] more with a cookie.
const MULTIPLE_BYTES: usize = 2 * COOKIE_BYTES;
const _: () = assert!(HANDSHAKE_BYTES.is_multiple_of(MULTIPLE_BYTES));
/// Length of a Retry: a header, the tag that it answers, a cookie and its authentication, in bytes.
pub(super) const RETRY_BYTES: usize = HEADER_BYTES + TAG_BYTES + COOKIE_BYTES + TAG_BYTES;

pub(super) type Cookie = [u8; COOKIE_BYTES];
pub(super) type HandshakeTag = [u8; TAG_BYTES];

/// What a Retry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    pub(super) answers: HandshakeTag,
    pub(super) cookie: Cookie,
}

impl Retry {
    /// Whether the bytes have a Retry's form: that of a handshake too short to hold a message.
    pub(super) fn is_one(header: &Header, datagram: &[u8]) -> bool {
        header.handshake && datagram.len() == RETRY_BYTES
    }

    /// Writes a Retry under the receiver's header. Its counter is zero: nothing is encrypted, so it is no nonce.
    pub(super) fn write(&self, header: &Header, key: &ClusterKey, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&self.answers);
        out.extend_from_slice(&self.cookie);
        let tag = key.retry_tag(out);
        out.extend_from_slice(&tag);
    }

    /// What the bytes say; [`Self::is_authentic`] tells whether to believe it.
    pub(super) fn read(datagram: &[u8]) -> Option<Retry> {
        let (answers, rest) = datagram.get(HEADER_BYTES..)?.split_first_chunk()?;
        let (cookie, _) = rest.split_first_chunk()?;
        Some(Retry {
            answers: *answers,
            cookie: *cookie,
        })
    }

    /// Whether a host that has the key wrote the Retry.
    pub(super) fn is_authentic(datagram: &[u8], key: &ClusterKey) -> bool {
        datagram
            .split_last_chunk()
            .is_some_and(|(before, tag)| same(&key.retry_tag(before), tag))
    }
}

/// Compared as a whole, so that the time taken tells nothing of where two differ.
fn same(one: &[u8; 16], other: &[u8; 16]) -> bool {
    u128::from_le_bytes(*one) == u128::from_le_bytes(*other)
}

/// The tag of a sealed handshake without its cookie, with which a Retry names it.
pub(super) fn tag_of(handshake: &[u8]) -> Option<HandshakeTag> {
    handshake.last_chunk().copied()
}

/// The bytes of a datagram without the cookie that may follow a handshake.
pub(super) fn sealed_bytes(header: &Header, datagram: &[u8]) -> usize {
    let bytes = datagram.len();
    if header.handshake && bytes > HANDSHAKE_BYTES && bytes % MULTIPLE_BYTES == COOKIE_BYTES {
        bytes - COOKIE_BYTES
    } else {
        bytes
    }
}

/// Cuts the cookie off a handshake, if it has one.
pub(super) fn split_cookie<'a>(
    header: &Header,
    datagram: &'a mut [u8],
) -> (&'a mut [u8], Option<Cookie>) {
    let (handshake, cookie) = datagram.split_at_mut(sealed_bytes(header, datagram));
    (handshake, (&*cookie).try_into().ok())
}

/// What one member's handshakes need of earlier ones: the cookie that it was given, and what a Retry may still name.
#[derive(Default)]
pub(super) struct Retriable {
    cookie: Option<(Cookie, Time)>,
    sent: [Option<(HandshakeTag, Destination, Message)>; RETRIABLE_MAX],
    next: usize,
}

impl Retriable {
    /// The cookie to send along, while the one who made it takes it.
    pub(super) fn cookie(&self, now: Time) -> Option<Cookie> {
        let lifetime = Duration::from_millis(CHALLENGE_LIFETIME_MS);
        self.cookie
            .filter(|(_, since)| now.since(*since) < lifetime)
            .map(|(cookie, _)| cookie)
    }

    /// Remembers a handshake that is on its way.
    pub(super) fn note_sent(&mut self, tag: HandshakeTag, to: Destination, message: Message) {
        self.sent[self.next] = Some((tag, to, message));
        self.next = (self.next + 1) % RETRIABLE_MAX;
    }

    /// Whether a Retry names a handshake that was sent and not answered so yet.
    pub(super) fn is_sent(&self, tag: &HandshakeTag) -> bool {
        self.sent.iter().flatten().any(|(sent, ..)| same(sent, tag))
    }

    /// Takes an authentic Retry: answers with what is to be sent again, once for each handshake.
    pub(super) fn take(&mut self, now: Time, retry: &Retry) -> Option<(Destination, Message)> {
        let named = |sent: &&mut Option<(HandshakeTag, Destination, Message)>| {
            sent.as_ref()
                .is_some_and(|(tag, ..)| same(tag, &retry.answers))
        };
        let (_, to, message) = self.sent.iter_mut().find(named)?.take()?;
        self.cookie = Some((retry.cookie, now));
        Some((to, message))
    }
}

/// What sources may still cost.
pub(super) struct SourceBudgets {
    configured: Vec<Configured>,
    /// By the hash of the network.
    proven: Box<[Budget]>,
    retries: Budget,
    stranger_retries: Budget,
}

/// The budgets of one configured address.
#[derive(Clone)]
struct Configured {
    unproven: Budget,
    proven: Budget,
    challenges: Budget,
}

impl SourceBudgets {
    /// For as many members: addresses are numbered from 0, and a relayed member has the place of its number.
    pub(super) fn new(members: usize) -> SourceBudgets {
        let handshakes = Budget::new(
            STRANGER_HANDSHAKES_PER_SECOND_MAX,
            STRANGER_HANDSHAKES_BURST_MAX,
        );
        let configured = Configured {
            unproven: handshakes,
            proven: handshakes,
            challenges: Budget::new(CHALLENGES_PER_SECOND_MAX, CHALLENGES_BURST_MAX),
        };
        SourceBudgets {
            configured: vec![configured; 2 * members.max(1)],
            proven: vec![handshakes; PROVEN_BUDGETS].into(),
            retries: Budget::new(RETRIES_PER_SECOND_MAX, RETRIES_BURST_MAX),
            stranger_retries: Budget::new(STRANGER_RETRIES_PER_SECOND_MAX, RETRIES_BURST_MAX),
        }
    }

    fn configured(&mut self, from: u64) -> Option<&mut Configured> {
        let half = self.configured.len() / 2;
        let place = match from {
            RELAYED_SOURCES_FROM.. => half + (from - RELAYED_SOURCES_FROM) as usize % half,
            STRANGER_SOURCES_FROM.. => return None,
            _ => from as usize % half,
        };
        self.configured.get_mut(place)
    }

    /// Spends one handshake without a cookie; `strangers` is the budget of all sources that are not configured.
    pub(super) fn spend_unproven(&mut self, now: Time, from: u64, strangers: &mut Budget) -> bool {
        match self.configured(from) {
            Some(own) if !mutant::active(Mutant::OneBudgetForAll) => own.unproven.spend(now),
            _ => strangers.spend(now),
        }
    }

    /// Spends one handshake of a source that a cookie has proven.
    pub(super) fn spend_proven(&mut self, now: Time, from: u64) -> bool {
        match self.configured(from) {
            Some(own) => own.proven.spend(now),
            None => {
                let network = (from >> 32) as usize % PROVEN_BUDGETS;
                self.proven[network].spend(now)
            }
        }
    }

    /// Spends one challenge to a datagram that is no handshake.
    pub(super) fn spend_challenge(&mut self, now: Time, from: u64, strangers: &mut Budget) -> bool {
        match self.configured(from) {
            Some(own) => own.challenges.spend(now),
            None => strangers.spend(now),
        }
    }

    /// Spends one Retry.
    pub(super) fn spend_retry(&mut self, now: Time, from: u64) -> bool {
        match self.configured(from) {
            Some(_) => self.retries.spend(now),
            None => self.stranger_retries.spend(now),
        }
    }
}

/// So many per second, so many at once (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    interval: Duration,
    burst: Duration,
    /// When the budget is whole again.
    whole_at: Time,
}

impl Budget {
    pub(super) fn new(per_second: u64, burst: u64) -> Budget {
        let interval_us = 1_000_000 / per_second.max(1);
        Budget {
            interval: Duration::from_micros(interval_us),
            burst: Duration::from_micros(interval_us * burst.saturating_sub(1)),
            whole_at: Time::ZERO,
        }
    }

    /// Spends one, if there is one.
    pub(super) fn spend(&mut self, now: Time) -> bool {
        if self.whole_at > now + self.burst {
            return false;
        }
        self.whole_at = self.whole_at.max(now) + self.interval;
        true
    }
}

impl Challenger {
    /// The cookie for a session's handshakes from a source at this time.
    pub(super) fn cookie(&self, now: Time, from: u64, session: &Session) -> Cookie {
        self.cookie_of(
            now.as_micros() / (CHALLENGE_LIFETIME_MS * 1_000),
            from,
            session,
        )
    }

    /// Whether the cookie was made for that session and source lately.
    pub(super) fn made(&self, now: Time, from: u64, session: &Session, cookie: &Cookie) -> bool {
        let period = now.as_micros() / (CHALLENGE_LIFETIME_MS * 1_000);
        same(cookie, &self.cookie_of(period, from, session))
            || period > 0 && same(cookie, &self.cookie_of(period - 1, from, session))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{key, session};
    use super::*;
    use crate::{ClusterId, Epoch, Incarnation, MemberId};

    const FROM: u64 = 3;

    #[test]
    fn a_cookie_is_for_one_source_one_session_and_a_while() {
        let made_by = session(2, 2);
        let challenger = Challenger::new(&[1; 32], &made_by.salt);
        let at = Time::from_micros(10_500_000);
        let cookie = challenger.cookie(at, FROM, &session(1, 1));
        let later = |seconds: u64| Time::from_micros(10_500_000 + seconds * 1_000_000);
        assert!(challenger.made(later(0), FROM, &session(1, 1), &cookie));
        assert!(challenger.made(later(2), FROM, &session(1, 1), &cookie));
        assert!(
            !challenger.made(later(4), FROM, &session(1, 1), &cookie),
            "late"
        );
        assert!(
            !challenger.made(at, FROM + 1, &session(1, 1), &cookie),
            "source"
        );
        assert!(!challenger.made(at, FROM, &session(1, 3), &cookie), "salt");
        assert!(
            !challenger.made(at, FROM, &session(3, 1), &cookie),
            "member"
        );
        let other = Challenger::new(&[2; 32], &made_by.salt);
        assert!(!other.made(at, FROM, &session(1, 1), &cookie), "secret");
    }

    #[test]
    fn a_retry_is_believed_of_who_has_the_key() {
        let retry = Retry {
            answers: [7; 16],
            cookie: [8; 16],
        };
        let header = Header {
            version: 1,
            handshake: true,
            key_id: 1,
            member: MemberId(2),
            cluster: ClusterId(3),
            epoch: Epoch(4),
            session: 5,
            incarnation: Incarnation(6),
            counter: 0,
        };
        let mut written = Vec::new();
        retry.write(&header, &key(1), &mut written);
        assert_eq!(written.len(), RETRY_BYTES);
        assert!(Retry::is_one(&header, &written));
        assert_eq!(Retry::read(&written), Some(retry));
        assert!(Retry::is_authentic(&written, &key(1)));
        assert!(!Retry::is_authentic(&written, &key(2)));
        for at in 0..written.len() {
            written[at] ^= 1;
            assert!(!Retry::is_authentic(&written, &key(1)), "byte {at}");
            written[at] ^= 1;
        }
    }

    #[test]
    fn a_retry_serves_each_handshake_once() {
        let message = Message {
            kind: super::super::handshake::Kind::Hello,
            to: super::super::handshake::Addressee {
                member: MemberId(2),
                session: 0,
                incarnation: Incarnation(0),
            },
            nonce: [0; 16],
        };
        let to = Destination::Member(MemberId(2));
        let mut retriable = Retriable::default();
        for number in 0..=RETRIABLE_MAX as u8 {
            retriable.note_sent([number; 16], to, message);
        }
        let retry = |number| Retry {
            answers: [number; 16],
            cookie: [9; 16],
        };
        let now = Time::from_micros(1);
        assert_eq!(retriable.cookie(now), None);
        assert_eq!(
            retriable.take(now, &retry(0)),
            None,
            "too many came after it"
        );
        assert_eq!(retriable.take(now, &retry(1)), Some((to, message)));
        assert_eq!(retriable.take(now, &retry(1)), None);
        assert_eq!(retriable.cookie(now), Some([9; 16]));
        let late = now + Duration::from_millis(CHALLENGE_LIFETIME_MS);
        assert_eq!(retriable.cookie(late), None);
    }

    #[test]
    fn budget_holds_burst_and_rate() {
        let mut budget = Budget::new(10, 4);
        let spent_at = |budget: &mut Budget, now| {
            (0..100)
                .filter(|_| budget.spend(Time::from_micros(now)))
                .count()
        };
        assert_eq!(spent_at(&mut budget, 0), 4);
        assert_eq!(spent_at(&mut budget, 99_999), 0);
        assert_eq!(spent_at(&mut budget, 100_000), 1);
        assert_eq!(spent_at(&mut budget, 5_000_000), 4);
    }
}
