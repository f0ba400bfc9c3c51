//! Which server of a store the connections of an instance go to: all to the same one, its primary. It is looked for again when it is lost.
//!
//! A store has several addresses, in any order: a primary and its replicas, or members of a cluster. What each of them is, it says itself
//! when a connection is made (`login.rs`). Two of them may say for a while that they are the primary. An instance then stays with the
//! one that it has, and leaves it for another only when it has lost that one, with all its connections at once.

use std::net::{IpAddr, SocketAddr};

use asterism_resp::Value;

/// Times in a row that connections go to another server at once; then they pause.
const AT_ONCE_MAX: u32 = 4;
/// The first of these pauses in microseconds. Each is twice the one before, up to the last one.
const PAUSE_FIRST_US: u64 = 10_000;
const PAUSE_MAX_US: u64 = 1_000_000;
/// Microseconds without another change after which the next one is the first of a row.
const ROW_US: u64 = 3_000_000;
/// What begins an error of `EXEC`, before the error of the command that is the reason.
const EXEC_REFUSED: &[u8] = b"EXECABORT Transaction discarded because of: ";

/// What an error says about the server that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It is no primary, or no more.
    Replica,
    /// The keys are at this address.
    Moved(SocketAddr),
    /// The keys are somewhere, and it cannot be read where.
    MovedNowhere,
}

impl Notice {
    /// What a reply of the server at this address says about it, if it does.
    pub(crate) fn of(value: &Value<'_>, from: SocketAddr) -> Option<Notice> {
        let mut words = error_of(value)?.split(|byte| *byte == b' ');
        match words.next()? {
            b"READONLY" | b"MASTERDOWN" | b"UNBLOCKED" => Some(Notice::Replica),
            b"MOVED" => {
                let to = words.nth(1).and_then(|to| address(to, from));
                Some(to.map_or(Notice::MovedNowhere, Notice::Moved))
            }
            _ => None,
        }
    }
}

/// What an error says; of an error of `EXEC` that of the command that is the reason.
pub(crate) fn error_of<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    let Value::Error(text) = *value else {
        return None;
    };
    Some(text.strip_prefix(EXEC_REFUSED).unwrap_or(text))
}

/// An address as a member of a cluster writes it: without brackets, and without a host if that is the member's own.
fn address(text: &[u8], from: SocketAddr) -> Option<SocketAddr> {
    let (host, port) = core::str::from_utf8(text).ok()?.rsplit_once(':')?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host: IpAddr = match host.strip_suffix(']').unwrap_or(host) {
        "" | "?" => from.ip(),
        host => host.parse().ok()?,
    };
    let port: u16 = port.parse().ok()?;
    let is_one = port != 0 && !host.is_unspecified() && !host.is_multicast();
    is_one.then_some(SocketAddr::new(host, port))
}

/// What a connection that was made means to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It goes where the others go.
    Together,
    /// The others are to follow it.
    Elsewhere,
    /// Since it was begun it was learnt that the primary is elsewhere: it is to be made again.
    Outdated,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Primary {
    /// In the order in which they are tried.
    addresses: Vec<SocketAddr>,
    /// Where it was last, or where the store said that its keys are. It is tried first.
    known: Option<SocketAddr>,
    /// Grows with each change of where it is.
    change: u64,
    changes_in_a_row: u32,
    changed_us: u64,
}

impl Primary {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            known: None,
            change: 0,
            changes_in_a_row: 0,
            changed_us: 0,
        }
    }

    /// Where it is looked for, in this order.
    pub(crate) fn candidates(&self) -> Vec<SocketAddr> {
        let others = self.addresses.iter().copied();
        let others = others.filter(|address| Some(*address) != self.known);
        self.known.into_iter().chain(others).collect()
    }

    /// Whether it may be elsewhere.
    pub(crate) fn has_others(&self) -> bool {
        self.addresses.len() > 1
    }

    /// The number of the last change.
    pub(crate) fn change(&self) -> u64 {
        self.change
    }

    /// A connection is made to it here, begun after this change.
    pub(crate) fn found(&mut self, address: SocketAddr, since: u64) -> Found {
        if self.known == Some(address) {
            return Found::Together;
        }
        if since != self.change {
            return Found::Outdated;
        }
        self.moved(address);
        Found::Elsewhere
    }

    /// The server at this address is not, or no more: it is tried last.
    pub(crate) fn leave(&mut self, address: SocketAddr) {
        if self.known == Some(address) {
            self.known = None;
            self.change += 1;
        }
        if let Some(place) = self.addresses.iter().position(|one| *one == address) {
            self.addresses[place..].rotate_left(1);
        }
    }

    /// It is here.
    pub(crate) fn moved(&mut self, to: SocketAddr) {
        self.known = Some(to);
        self.change += 1;
    }

    /// For how long, in microseconds, connections pause that go to another server now: not at all, unless they do so again and again.
    pub(crate) fn pause_us(&mut self, now_us: u64) -> u64 {
        if now_us.saturating_sub(self.changed_us) > ROW_US {
            self.changes_in_a_row = 0;
        }
        self.changed_us = now_us;
        self.changes_in_a_row = self.changes_in_a_row.saturating_add(1);
        match self.changes_in_a_row.checked_sub(AT_ONCE_MAX + 1) {
            None => 0,
            Some(doublings) => (PAUSE_FIRST_US << doublings.min(16)).min(PAUSE_MAX_US),
        }
    }
}

/// Whether a server says of itself, by the reply to `ROLE`, that it is a primary. One that does not know the command has no replicas.
pub(crate) fn is_primary(role: &Value<'_>) -> Option<bool> {
    match role {
        Value::Array(values) => {
            let mut values = *values;
            match values.next()?.bytes()? {
                b"master" => Some(true),
                b"slave" => Some(false),
                _ => None,
            }
        }
        Value::Error(error) => error.starts_with(b"ERR ").then_some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 6_379))
    }

    #[test]
    fn errors_say_where_the_keys_are_and_what_cannot_be_read_is_nowhere() {
        let notice = |text: &str| Notice::of(&Value::Error(text.as_bytes()), at(1));
        let moved = |to: &str| Some(Notice::Moved(to.parse().expect("an address")));
        assert_eq!(notice("MOVED 3999 192.0.2.7:6381"), moved("192.0.2.7:6381"));
        assert_eq!(
            notice("MOVED 1 2001:db8::7:6381"),
            moved("[2001:db8::7]:6381")
        );
        assert_eq!(notice("MOVED 1 [2001:db8::7]:1"), moved("[2001:db8::7]:1"));
        assert_eq!(notice("MOVED 1 :6381"), moved("192.0.2.1:6381"));
        assert_eq!(notice("MOVED 1 ?:6381"), moved("192.0.2.1:6381"));
        for bad in [
            "MOVED",
            "MOVED ",
            "MOVED 1",
            "MOVED 1 ",
            "MOVED 1 :",
            "MOVED 1 192.0.2.7",
            "MOVED 1 192.0.2.7:0",
            "MOVED 1 192.0.2.7:65536",
            "MOVED 1 0.0.0.0:6379",
            "MOVED 1 224.0.0.1:6379",
            "MOVED 1 store.example:6379",
        ] {
            assert_eq!(notice(bad), Some(Notice::MovedNowhere), "{bad}");
        }
        let bytes = Value::Error(b"MOVED 1 \xff\xfe:1");
        assert_eq!(Notice::of(&bytes, at(1)), Some(Notice::MovedNowhere));
        for replica in [
            "READONLY You can't write against a read only replica.",
            "EXECABORT Transaction discarded because of: READONLY You can't",
            "MASTERDOWN Link with MASTER is down",
            "UNBLOCKED force unblock from blocking operation",
        ] {
            assert_eq!(notice(replica), Some(Notice::Replica), "{replica}");
        }
        for other in ["", "ERR MOVED", "ASK 1 192.0.2.7:1", "TRYAGAIN", "OOM"] {
            assert_eq!(notice(other), None, "{other}");
        }
        assert_eq!(Notice::of(&Value::Status(b"MOVED 1 :1"), at(1)), None);
    }

    #[test]
    fn connections_stay_together_and_the_last_change_counts() {
        let mut primary = Primary::new(&[at(1), at(2), at(3)]);
        assert_eq!(primary.candidates(), [at(1), at(2), at(3)]);
        let begun = primary.change();
        assert_eq!(primary.found(at(2), begun), Found::Elsewhere);
        assert_eq!(primary.found(at(2), begun), Found::Together);
        assert_eq!(primary.candidates(), [at(2), at(1), at(3)]);
        // A search that was begun before found another one meanwhile.
        assert_eq!(primary.found(at(1), begun), Found::Outdated);
        let begun = primary.change();
        assert_eq!(primary.found(at(1), begun), Found::Elsewhere);
        primary.leave(at(1));
        assert_eq!(primary.candidates(), [at(2), at(3), at(1)]);
        primary.moved(at(9));
        assert_eq!(primary.candidates(), [at(9), at(2), at(3), at(1)]);
        primary.leave(at(9));
        primary.leave(at(9));
        assert_eq!(primary.candidates(), [at(2), at(3), at(1)]);
    }

    #[test]
    fn changes_in_a_row_pause() {
        let mut primary = Primary::new(&[at(1)]);
        let pauses: Vec<u64> = (0..14).map(|_| primary.pause_us(5)).collect();
        assert_eq!(pauses[..6], [0, 0, 0, 0, 10_000, 20_000]);
        assert_eq!(pauses[13], PAUSE_MAX_US);
        assert_eq!(primary.pause_us(5 + ROW_US), PAUSE_MAX_US);
        assert_eq!(primary.pause_us(6 + 2 * ROW_US), 0);
    }

    #[test]
    fn a_server_without_roles_is_a_primary() {
        let role = |bytes: &[u8]| {
            let (value, _) = Value::read(bytes).expect("a value").expect("whole");
            is_primary(&value)
        };
        assert_eq!(role(b"*1\r\n$6\r\nmaster\r\n"), Some(true));
        assert_eq!(role(b"*1\r\n$5\r\nslave\r\n"), Some(false));
        assert_eq!(role(b"-ERR unknown command 'ROLE'\r\n"), Some(true));
        for other in [
            &b"*1\r\n$8\r\nsentinel\r\n"[..],
            b"*0\r\n",
            b"+OK\r\n",
            b"*1\r\n:1\r\n",
            b"-NOPERM this user has no permissions\r\n",
        ] {
            assert_eq!(role(other), None);
        }
    }
}
