//! What came of a capture that was opened.

use std::collections::BTreeMap;
use std::fmt::Write;

use asterism_output::Schema;
use asterism_secure_channel::{Header, Recorded, Unopened};
use serde::Serialize;

/// Sessions without a handshake that are listed at most; the datagrams of further ones are only counted.
pub const SESSIONS_SHOWN_MAX: usize = 64;

/// The schema of [`DecryptReport`].
pub const DECRYPT: Schema = Schema {
    name: "asterism.decrypt",
    version: 1,
};

/// What `asterism decrypt` reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DecryptReport {
    /// The file that was written.
    pub output: String,
    /// Packets of the capture.
    pub packets_read: u64,
    /// Packets written: all that were read, unless writing failed.
    pub packets_written: u64,
    /// Packets of which the capture has only the beginning; written as they were.
    pub packets_cut: u64,
    /// Fragments of UDP datagrams; written as they were.
    pub fragments: u64,
    /// Packets that are not UDP; written as they were.
    pub packets_other: u64,
    /// Sessions whose salt was learnt from a handshake.
    pub sessions: u64,
    /// Datagrams that were opened, handshakes included.
    pub datagrams_opened: u64,
    /// Handshakes among them.
    pub handshakes_opened: u64,
    /// UDP datagrams that were not opened, by reason; written as they were.
    pub unopened: BTreeMap<&'static str, u64>,
    /// Sessions whose datagrams are still sealed, because no handshake of theirs was seen.
    pub sessions_without_handshake: Vec<SessionReport>,
}

/// A session, as its headers name it.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// The cluster's number.
    pub cluster: u32,
    /// The sender's number.
    pub member: u16,
    /// The sender's incarnation.
    pub incarnation: u64,
    /// The first four bytes of the sender's salt.
    pub session: u32,
    /// Its datagrams.
    pub datagrams: u64,
}

impl DecryptReport {
    pub(super) fn count_opened(&mut self, recorded: &Recorded) {
        self.datagrams_opened += 1;
        self.handshakes_opened += u64::from(recorded.header.handshake);
    }

    pub(super) fn count_unopened(&mut self, why: Unopened, datagram: &[u8]) {
        *self.unopened.entry(why.label()).or_default() += 1;
        let Some(header) = Header::decode(datagram).filter(|_| why == Unopened::NoSalt) else {
            return;
        };
        let name = (
            header.cluster.0,
            header.member.0,
            header.incarnation.0,
            header.session,
        );
        let sessions = &mut self.sessions_without_handshake;
        let known = sessions.iter_mut().find(|known| {
            (
                known.cluster,
                known.member,
                known.incarnation,
                known.session,
            ) == name
        });
        if let Some(known) = known {
            known.datagrams += 1;
        } else if sessions.len() < SESSIONS_SHOWN_MAX {
            sessions.push(SessionReport {
                cluster: name.0,
                member: name.1,
                incarnation: name.2,
                session: name.3,
                datagrams: 1,
            });
        }
    }

    /// The report in words.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "Read {} packets, wrote {} to {}.\n\
             Opened {} datagrams, {} of them handshakes; {} sessions known.\n",
            self.packets_read,
            self.packets_written,
            self.output,
            self.datagrams_opened,
            self.handshakes_opened,
            self.sessions,
        );
        let left = [
            (
                self.packets_cut,
                "packets that the capture cut short: capture without a snap length",
            ),
            (self.fragments, "fragments of UDP datagrams"),
            (self.packets_other, "packets that are not UDP"),
        ];
        let why = |label: &&str| match *label {
            "no_salt" => "datagrams of sessions of which no handshake was seen",
            "forged" => "datagrams that are damaged, or under another key of the same number",
            "too_many_sessions" => "handshakes of more sessions than are kept",
            _ => "UDP datagrams of something else, or under a key of another number",
        };
        let unopened = self
            .unopened
            .iter()
            .map(|(label, count)| (*count, why(label)));
        for (count, what) in left
            .into_iter()
            .chain(unopened)
            .filter(|(count, _)| *count > 0)
        {
            let _ = writeln!(out, "Left as they were: {count} {what}.");
        }
        if !self.sessions_without_handshake.is_empty() {
            out.push_str(
                "\nA session's key is derived from the salt in its handshakes, which hosts exchange when one of them starts. \
                 Name a capture that has them with --handshakes. Missing:\n",
            );
        }
        for session in &self.sessions_without_handshake {
            let _ = writeln!(
                out,
                "  cluster {} member {} incarnation {} session {:#010x}: {} datagrams",
                session.cluster,
                session.member,
                session.incarnation,
                session.session,
                session.datagrams
            );
        }
        out
    }
}
