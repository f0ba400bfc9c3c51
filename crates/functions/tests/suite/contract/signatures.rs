//! The contract of the signature detector, without reassembly and with it.

use asterism_function::testkit::{Contract, Reached, Step};
use asterism_function::{PortNumber, Reason, TcpFlags};
use asterism_functions::signature::{self, Fragments, Response, SignatureConfig, Signatures};

use crate::signature::packets as signed;
use Reached::{ByPackets, Otherwise};

const IN: PortNumber = PortNumber(0);
const SUMS: &str = "sums of packets have no end";

fn now(port: PortNumber, packet: Vec<u8>) -> Step {
    (0, port, packet)
}

pub(crate) fn signature() -> Contract<Signatures> {
    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for number in 0..20u16 {
            let (client, server) = ((number, 1_025), (200, 80));
            steps.extend([
                now(IN, signed::tcp(client, server, 1, b"harmless EVIL-")),
                now(IN, signed::tcp(client, server, 15, b"stuf7+X and more")),
                now(IN, signed::tcp(client, server, 31, b"nothing")),
                now(
                    IN,
                    signed::udp((300 + number, 9), server, b"..abababababab.."),
                ),
                now(IN, signed::udp((300 + number, 9), server, b"..abab..")),
                now(
                    IN,
                    signed::first_fragment(signed::udp(client, server, &[0; 64])),
                ),
                now(IN, signed::tcp6(client, server, 1, b"EVIL-stuf7+X")),
            ]);
        }
        steps
    }
    Contract {
        make: || {
            signed::made(&SignatureConfig {
                response: Response::BlockConnection { block_s: 60 },
                fragments: Fragments::Drop,
                ..SignatureConfig::new(signed::list(&[b"EVIL-stuf7+X", b"abababababab"]))
            })
        },
        steps,
        reasons: &[
            (Reason::ConnectionBlocked, ByPackets),
            (Reason::FragmentNotInspected, ByPackets),
            (Reason::SignatureFound, ByPackets),
            (
                Reason::Blocked,
                Otherwise("the response blocks connections; tests/signature/splits.rs"),
            ),
        ],
        events: &[
            (
                signature::EVENTS[0],
                Otherwise("no stream is in so many pieces; tests/signature/hostile.rs"),
            ),
            (signature::EVENTS[1], ByPackets),
        ],
        keeps: &[
            ("short", SUMS),
            ("fragments", SUMS),
            ("unrecorded", SUMS),
            ("out_of_order", SUMS),
            ("gaps", SUMS),
        ],
        shares: None,
        page: concat!(
            include_str!("../../../../../docs/src/signature.md"),
            include_str!("../../../../../docs/src/idps.md")
        ),
    }
}

/// The same, with TCP reassembly.
pub(crate) fn reassembly() -> Contract<Signatures> {
    fn steps() -> Vec<Step> {
        let mut steps = (signature().steps)();
        for number in 0..12u16 {
            let (client, server) = ((400 + number, 1_025), (200, 80));
            let begin = |sequence| {
                let flags = TcpFlags::SYN;
                now(IN, signed::flagged(client, server, sequence, flags, b""))
            };
            let data =
                |sequence, payload: &[u8]| now(IN, signed::tcp(client, server, sequence, payload));
            // In the wrong order, with parts that are shorter than pieces.
            steps.extend([
                begin(99),
                data(107, b"uf7"),
                data(105, b"s"),
                data(100, b"EVIL-"),
                data(106, b"t"),
            ]);
            match number % 3 {
                0 => steps.push(data(110, b"+X")),
                // Another connection between the same ports.
                _ => steps.extend([begin(101), data(102, b"harmless")]),
            }
            // More gaps than are kept.
            steps.extend((0..9).map(|gap| data(5_000 + 100 * gap, b"........")));
        }
        steps
    }
    Contract {
        make: || {
            signed::made(&SignatureConfig {
                reassembly: true,
                strict: true,
                ..(signature().make)().config().clone()
            })
        },
        steps,
        reasons: &[
            (Reason::ConnectionBlocked, ByPackets),
            (Reason::FragmentNotInspected, ByPackets),
            (Reason::NotReassembled, ByPackets),
            (Reason::SignatureFound, ByPackets),
            (
                Reason::Blocked,
                Otherwise("the response blocks connections; tests/signature/splits.rs"),
            ),
        ],
        events: &[
            (
                signature::EVENTS[0],
                Otherwise("a reassembled stream needs no pieces"),
            ),
            (signature::EVENTS[1], ByPackets),
        ],
        ..signature()
    }
}
