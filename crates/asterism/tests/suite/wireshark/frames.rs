//! Captures made for the tests: the sessions of the vectors, frames around datagrams, files.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use asterism::command_line;
use asterism_io::port::{CaptureReader, CaptureWriter};
use asterism_output::End;
use asterism_packet::build::{self, Header4};
use asterism_packet::checksum::Sum;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId};
use asterism_secure_channel::{ClusterKey, KeyRing, Salt, Sealer, Session};

use crate::wireshark::vectors::{self, Vector, hex, named};

/// The port that the dissector takes unless configured otherwise.
pub(crate) const PORT: u16 = 7400;

/// A datagram in UDP over IPv4 over Ethernet.
pub(crate) fn udp4(payload: &[u8], port: u16) -> Vec<u8> {
    let header = Header4::between(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let mut frame = vec![0; payload.len() + 42];
    assert_eq!(
        build::udp4(&header, port, port, payload, &mut frame),
        Some(frame.len())
    );
    frame
}

/// The same over IPv6, in a VLAN.
pub(crate) fn udp6(payload: &[u8], port: u16) -> Vec<u8> {
    let (source, destination) = (
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    );
    let length = (payload.len() + 8) as u16;
    let mut udp = [port.to_be_bytes(), port.to_be_bytes(), length.to_be_bytes()].concat();
    let sum = Sum::pseudo_header6(source, destination, 17, length.into());
    let checksum = sum.bytes(&udp).bytes(payload).finish_udp();
    udp.extend(checksum);
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 0x86, 0xdd,
    ];
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(udp);
    frame.extend(payload);
    frame
}

/// The public vectors, and what seals as they do.
pub(crate) struct Golden {
    pub(crate) frames: Vec<Vector>,
    pub(crate) messages: Vec<Vector>,
    pub(crate) datagrams: Vec<Vector>,
}

impl Golden {
    pub(crate) fn read() -> Golden {
        Golden {
            frames: vectors::read("frames.txt"),
            messages: vectors::read("messages.txt"),
            datagrams: vectors::read("datagrams.txt"),
        }
    }

    fn key_text(&self) -> &str {
        named(&self.datagrams, "key").text("text")
    }

    /// What seals in the newcomer's session, from its first counter on.
    pub(crate) fn sealer(&self) -> Sealer {
        let session = named(&self.datagrams, "session newcomer");
        Sealer::new(
            &ClusterKey::parse(self.key_text()).unwrap(),
            ClusterId(session.number("cluster")),
            Session {
                member: MemberId(session.number("member")),
                incarnation: Incarnation(session.number("incarnation")),
                salt: Salt(hex(session.text("salt")).try_into().unwrap()),
            },
            1,
        )
    }

    /// Bytes of the datagram of that name.
    pub(crate) fn datagram(&self, name: &str) -> Vec<u8> {
        named(&self.datagrams, name).bytes.clone()
    }

    /// Bytes of the message of that name.
    pub(crate) fn message(&self, name: &str) -> Vec<u8> {
        named(&self.messages, &format!("message {name}"))
            .bytes
            .clone()
    }
}

pub(crate) fn seal(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sealer.seal(Epoch(2), payload, &mut out).unwrap();
    out
}

/// A folder with the vectors' key and what is put into it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(golden: &Golden) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let key = folder.path("cluster.key");
        fs::write(&key, golden.key_text()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        folder
    }

    /// Has the key file hold another key besides the vectors', as a cluster's does while its key is changed.
    pub(crate) fn add_key(&self) -> ClusterKey {
        let path = self.path("cluster.key");
        let first = asterism_config::key_file::read(&path)
            .unwrap()
            .sending()
            .clone();
        let second =
            ClusterKey::from_random(8, core::array::from_fn(|place| place as u8)).with_hash_seed(1);
        let keys = vec![first.with_hash_seed(1), second.clone()];
        asterism_config::key_file::replace(&path, &KeyRing::new(keys, 8).unwrap()).unwrap();
        second
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a capture with a frame each millisecond.
    pub(crate) fn capture(&self, name: &str, frames: &[Vec<u8>]) -> String {
        let mut writer = CaptureWriter::create(self.path(name)).unwrap();
        for (place, frame) in frames.iter().enumerate() {
            assert!(writer.write(time_of(place), frame.len(), frame));
        }
        writer.flush().unwrap();
        self.text(name)
    }

    /// Runs `asterism decrypt` with the vectors' key.
    pub(crate) fn decrypt(&self, more: &[&str]) -> (End, String, String) {
        let key = self.text("cluster.key");
        let all = [&["decrypt", "--key", &key], more].concat();
        run(&all)
    }
}

pub(crate) fn time_of(place: usize) -> u64 {
    1_700_000_000_000_000_000 + place as u64 * 1_000_001
}

/// The frames of a capture with their times.
pub(crate) fn frames_of(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = CaptureReader::open(path).unwrap();
    let (mut found, mut bytes) = (Vec::new(), Vec::new());
    while let Some(packet) = reader.next(&mut bytes).unwrap() {
        found.push((packet.timestamp_ns, bytes.clone()));
    }
    found
}

/// Runs a command line: how it ended, and what it said on both streams.
pub(crate) fn run(arguments: &[&str]) -> (End, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["asterism"].into_iter().chain(arguments.iter().copied());
    let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    (
        end,
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}
