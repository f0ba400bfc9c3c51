//! Random well-formed frames of every kind, with right checksums, made without the crate's own builders.

use proptest::collection::vec;
use proptest::prelude::*;

/// An IP version's header, tags and what follows, before they become bytes.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) tags: usize,
    pub(crate) is_ipv6: bool,
    pub(crate) options: usize,
    pub(crate) transport: u8,
    pub(crate) icmp_type: u8,
    pub(crate) without_checksum: bool,
    pub(crate) ttl: u8,
    pub(crate) addresses: [u8; 32],
    pub(crate) ports: [u8; 4],
    pub(crate) payload: Vec<u8>,
    pub(crate) padding: usize,
}

/// Frames of TCP, UDP and ICMP queries over both IP versions, with and without tags and options.
pub(crate) fn recipes() -> impl Strategy<Value = Recipe> {
    (
        (
            0usize..3,
            any::<bool>(),
            0usize..4,
            prop::sample::select(vec![6u8, 17, 1, 132]),
        ),
        (any::<bool>(), any::<bool>(), any::<u8>()),
        (
            any::<[u8; 32]>(),
            any::<[u8; 4]>(),
            vec(any::<u8>(), 0..200),
            0usize..20,
        ),
    )
        .prop_map(
            |((tags, is_ipv6, options, transport), (is_request, without_checksum, ttl), rest)| {
                Recipe {
                    tags,
                    is_ipv6,
                    options,
                    transport: if is_ipv6 && transport == 1 {
                        58
                    } else {
                        transport
                    },
                    icmp_type: match (is_ipv6, is_request) {
                        (false, true) => 8,
                        (false, false) => 0,
                        (true, true) => 128,
                        (true, false) => 129,
                    },
                    without_checksum: without_checksum && !is_ipv6,
                    ttl,
                    addresses: rest.0,
                    ports: rest.1,
                    payload: rest.2,
                    padding: rest.3,
                }
            },
        )
}

impl Recipe {
    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            frame.extend(if tag == 0 && self.tags == 2 {
                [0x88, 0xa8]
            } else {
                [0x81, 0x00]
            });
            frame.extend([0x20, 10 + tag as u8]);
        }
        frame.extend(if self.is_ipv6 {
            [0x86, 0xdd]
        } else {
            [0x08, 0x00]
        });
        frame.extend(self.ip());
        frame.extend(vec![0xaa; self.padding]);
        frame
    }

    /// The IP packet.
    pub(crate) fn ip(&self) -> Vec<u8> {
        let upper = self.upper();
        if self.is_ipv6 {
            // Destination options, each of eight bytes of padding.
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(((upper.len() + 8 * self.options) as u16).to_be_bytes());
            packet.extend([if self.options > 0 { 60 } else { self.transport }, self.ttl]);
            packet.extend(self.addresses);
            for option in 1..=self.options {
                let next = if option < self.options {
                    60
                } else {
                    self.transport
                };
                packet.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            }
            return [packet, upper].concat();
        }
        let header_length = 20 + 4 * self.options;
        let mut packet = vec![0x40 | (header_length / 4) as u8, 0];
        packet.extend(((header_length + upper.len()) as u16).to_be_bytes());
        packet.extend([
            self.ports[0],
            self.ports[3],
            0x40,
            0,
            self.ttl,
            self.transport,
            0,
            0,
        ]);
        packet.extend(&self.addresses[..8]);
        packet.extend(vec![1; 4 * self.options]);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        [packet, upper].concat()
    }

    fn upper(&self) -> Vec<u8> {
        let (mut bytes, checksum_at) = match self.transport {
            6 => {
                let words = 5 + self.options as u8;
                let mut header = [
                    &self.ports[..],
                    &[1, 2, 3, 4, 5, 6, 7, 8, words << 4, 0x12, 9, 9, 0, 0, 0, 0],
                ]
                .concat();
                header.extend(vec![1; 4 * self.options]);
                (header, 16)
            }
            17 => {
                let length = (8 + self.payload.len()) as u16;
                (
                    [&self.ports[..], &length.to_be_bytes(), &[0, 0]].concat(),
                    6,
                )
            }
            1 | 58 => ([&[self.icmp_type, 0, 0, 0], &self.ports[..]].concat(), 2),
            _ => return self.payload.clone(),
        };
        bytes.extend(&self.payload);
        if self.transport == 17 && self.without_checksum {
            return bytes;
        }
        let mut sum = full_checksum(&self.pseudo_header(bytes.len()), &bytes);
        if self.transport == 17 && sum == 0 {
            sum = 0xffff;
        }
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn pseudo_header(&self, length: usize) -> Vec<u8> {
        let length = (length as u32).to_be_bytes();
        match (self.is_ipv6, self.transport) {
            (false, 1) => Vec::new(),
            (false, _) => [&self.addresses[..8], &[0, self.transport], &length[2..]].concat(),
            (true, _) => [&self.addresses[..], &length, &[0, 0, 0, self.transport]].concat(),
        }
    }
}

/// The Internet checksum, word by word as RFC 1071 has it.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn full_checksum(pseudo_header: &[u8], bytes: &[u8]) -> u16 {
    checksum(&[pseudo_header, bytes].concat())
}
