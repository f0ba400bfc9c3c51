//! The public vectors of `docs/src/vectors/datagrams.txt`, both ways: what is sealed from the fields is the bytes, and what
//! opens from the bytes is what the fields say.

use super::super::handshake::{Addressee, ChallengeNonce, Kind, Message};
use super::super::key::expand;
use super::super::retry::{Retry, tag_of};
use super::*;
use crate::Epoch;
use crate::vectors::{self, Vector, hex, named, to_hex};

struct Golden {
    vectors: Vec<Vector>,
    messages: Vec<Vector>,
    key: ClusterKey,
}

impl Golden {
    fn read() -> Golden {
        let vectors = vectors::read("datagrams.txt");
        let key = ClusterKey::parse(named(&vectors, "key").text("text")).unwrap();
        Golden {
            key,
            messages: vectors::read("messages.txt"),
            vectors,
        }
    }

    fn session(&self, name: &str) -> (ClusterId, Session) {
        let vector = named(&self.vectors, &format!("session {name}"));
        let session = Session {
            member: MemberId(vector.number("member")),
            incarnation: Incarnation(vector.number("incarnation")),
            salt: Salt(hex(vector.text("salt")).try_into().unwrap()),
        };
        (ClusterId(vector.number("cluster")), session)
    }

    /// The vectors that are datagrams, and what is sealed in each.
    fn datagrams(&self) -> impl Iterator<Item = (&Vector, Vec<u8>)> {
        let datagrams = self.vectors.iter();
        datagrams.filter_map(|vector| match vector.kind() {
            "handshake" => Some((vector, handshake(vector).encode(ONE).to_vec())),
            "sealed" => {
                let name = format!("message {}", vector.text("message"));
                Some((vector, named(&self.messages, &name).bytes.clone()))
            }
            _ => None,
        })
    }

    /// A sealer whose next counter is the vector's.
    fn sealer(&self, vector: &Vector) -> Sealer {
        let (cluster, session) = self.session(vector.text("from"));
        let mut sealer = Sealer::new(&self.key, cluster, session, vector.number("version"));
        sealer.set_counter(vector.number::<u64>("counter") - 1);
        sealer
    }

    /// An opener that has admitted both sessions.
    fn opener(&self) -> Opener {
        let sessions = ["newcomer", "receiver"].map(|name| self.session(name));
        let mut opener = Opener::new(&OpenerConfig {
            cluster: sessions[0].0,
            wire_version: 1,
            wire_version_oldest: 1,
            members: sessions.iter().map(|(_, session)| session.member).collect(),
        });
        opener.add_key(self.key.clone()).unwrap();
        for (_, session) in sessions {
            assert!(opener.admit(session, 0));
        }
        opener
    }
}

fn handshake(vector: &Vector) -> Message {
    let nonce: ChallengeNonce = hex(vector.text("nonce")).try_into().unwrap();
    Message {
        kind: match vector.number("kind") {
            1u8 => Kind::Hello,
            2 => Kind::Challenge,
            3 => Kind::Echo,
            _ => Kind::Welcome,
        },
        to: Addressee {
            member: MemberId(vector.number("to-member")),
            session: vector.number("to-session"),
            incarnation: Incarnation(vector.number("to-incarnation")),
        },
        nonce,
    }
}

/// The derivation as the specification words it, not as the product has it.
#[test]
fn session_keys() {
    let golden = Golden::read();
    let text = named(&golden.vectors, "key").text("text");
    let digits = text.rsplit(':').next().unwrap();
    let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
    let secret = hex(&pairs.join(" "));
    for name in ["newcomer", "receiver"] {
        let (cluster, session) = golden.session(name);
        let mut info = b"asterism session key 1".to_vec();
        info.push(golden.key.id());
        info.extend(cluster.0.to_le_bytes());
        info.extend(session.member.0.to_le_bytes());
        info.extend(session.incarnation.0.to_le_bytes());
        let mut key = [0; 32];
        expand(&session.salt.0, &secret, &info, &mut key);
        let vector = named(&golden.vectors, &format!("session {name}"));
        assert_eq!(to_hex(&key), vector.text("session-key"), "{name}");
    }
}

#[test]
fn headers() {
    let golden = Golden::read();
    for (vector, _) in golden.datagrams() {
        let header = Header {
            version: vector.number("version"),
            handshake: vector.text("handshake") == "1",
            key_id: vector.number("key"),
            member: MemberId(vector.number("member")),
            cluster: ClusterId(vector.number("cluster")),
            epoch: Epoch(vector.number("epoch")),
            session: vector.number("session"),
            incarnation: Incarnation(vector.number("incarnation")),
            counter: vector.number("counter"),
        };
        assert_eq!(Header::decode(&vector.bytes), Some(header));
        assert_eq!(header.encode(), vector.bytes[..HEADER_BYTES]);
    }
}

#[test]
fn fields_seal_to_the_bytes() {
    let golden = Golden::read();
    let mut count = 0;
    for (vector, inside) in golden.datagrams() {
        let (mut sealer, mut out) = (golden.sealer(vector), Vec::new());
        let epoch = Epoch(vector.number("epoch"));
        if vector.kind() == "handshake" {
            sealer.seal_handshake(epoch, 1, &inside, &mut out).unwrap();
        } else {
            sealer.seal(epoch, &inside, &mut out).unwrap();
        }
        assert_eq!(to_hex(&out), to_hex(&vector.bytes), "{}", vector.name);
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn bytes_open_to_the_fields() {
    let golden = Golden::read();
    let mut opener = golden.opener();
    for (vector, inside) in golden.datagrams() {
        let mut datagram = vector.bytes.clone();
        let (header, slot) = opener.check(&datagram).unwrap();
        let opened = opener.open_admitted(&header, slot, &mut datagram).unwrap();
        assert_eq!(opened.counter, vector.number::<u64>("counter"));
        assert_eq!(
            to_hex(&datagram[opened.payload]),
            to_hex(&inside),
            "{}",
            vector.name
        );
        if vector.kind() == "handshake" {
            assert_eq!(Message::decode(&inside), Some(handshake(vector)));
        }
    }
}

#[test]
fn a_turned_bit_is_forged() {
    let golden = Golden::read();
    for (vector, _) in golden.datagrams() {
        for bit in 0..vector.bytes.len() * 8 {
            let mut datagram = vector.bytes.clone();
            datagram[bit / 8] ^= 1 << (bit % 8);
            let mut opener = golden.opener();
            let refused = opener
                .check(&datagram)
                .and_then(|(header, slot)| opener.open_admitted(&header, slot, &mut datagram));
            assert!(refused.is_err(), "{} with bit {bit} turned", vector.name);
        }
    }
}

/// A Retry, both ways; its authentication as the specification words it, not as the product has it.
#[test]
fn a_retry_is_its_vector() {
    let golden = Golden::read();
    let vector = named(&golden.vectors, "retry of-the-hello");
    let retry = Retry::read(&vector.bytes).unwrap();
    let hello = named(&golden.vectors, "handshake hello");
    assert_eq!(tag_of(&hello.bytes), Some(retry.answers));
    assert_eq!(to_hex(&retry.answers), vector.text("answers"));
    assert_eq!(to_hex(&retry.cookie), vector.text("cookie"));
    let header = Header::decode(&vector.bytes).unwrap();
    assert_eq!(header.counter, vector.number("counter"));
    assert!(Retry::is_one(&header, &vector.bytes));
    assert!(Retry::is_authentic(&vector.bytes, &golden.key));
    let mut written = Vec::new();
    retry.write(&header, &golden.key, &mut written);
    assert_eq!(to_hex(&written), to_hex(&vector.bytes));
    let (body, tag) = vector.bytes.split_at(64);
    let digits = named(&golden.vectors, "key")
        .text("text")
        .rsplit(':')
        .next()
        .unwrap();
    let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
    let info = [b"asterism retry 1", body].concat();
    let mut computed = [0; 16];
    expand(
        &[golden.key.id()],
        &hex(&pairs.join(" ")),
        &info,
        &mut computed,
    );
    assert_eq!(computed, tag);
}
