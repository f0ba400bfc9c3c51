//! Messages that no host would have written: the dissector survives any bytes, and takes for malformed what a host does.

use asterism_output::End;
use asterism_placement::envelope::Refused;
use asterism_placement::replicated::{Config, Deliver, Replicator};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

use crate::wireshark::dissector::{is_installed, shown, tshark};
use crate::wireshark::frames::{Folder, Golden, PORT, seal, udp4};
use crate::wireshark::vectors::named;

const MESSAGES: usize = 4_000;

struct Nowhere;

impl Deliver for Nowhere {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

/// What a host that has heard of nothing yet makes of a message.
fn judge(cluster: u32, epoch: u32, message: &[u8]) -> Result<(), Refused> {
    let (sender, reader) = (MemberId(1), MemberId(9));
    let mut config = Config::new(
        ClusterId(cluster),
        Epoch(epoch),
        reader,
        Incarnation(1),
        vec![sender, reader],
    );
    config.log_bytes_max = 8_192;
    config.log_groups_max = 16;
    config.reorder_groups_max = 64;
    config.unapplied_groups_max = 128;
    let mut host = Replicator::new(config, Time::ZERO).unwrap();
    host.handle(Time::ZERO, sender, Incarnation(1), message, &mut Nowhere)
}

/// The message with every kind of frame, cut or with some bytes changed.
fn damaged(every: &[u8], round: usize, state: &mut u64) -> Vec<u8> {
    let mut draw = |below: usize| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 16) as usize % below
    };
    let mut message = every.to_vec();
    if round.is_multiple_of(4) {
        message.truncate(1 + draw(every.len()));
        return message;
    }
    for _ in 0..=round % 3 {
        let at = draw(message.len());
        // Small changes turn one number into another, large ones break lengths.
        message[at] = match draw(3) {
            0 => draw(256) as u8,
            1 => message[at] ^ 1 << draw(8),
            _ => message[at].wrapping_add(1),
        };
    }
    message
}

#[test]
fn the_dissector_takes_for_malformed_what_a_host_does() {
    if !is_installed() {
        return;
    }
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let vector = named(&golden.messages, "message with-every-kind");
    let (cluster, epoch) = (vector.number("cluster"), vector.number("epoch"));
    let (mut sealer, mut state) = (golden.sealer(), 7);
    let messages: Vec<Vec<u8>> = (0..MESSAGES)
        .map(|round| damaged(&vector.bytes, round, &mut state))
        .collect();
    let hello = udp4(&golden.datagram("handshake hello"), PORT);
    let sealed = messages
        .iter()
        .map(|message| udp4(&seal(&mut sealer, message), PORT));
    let frames: Vec<Vec<u8>> = [hello].into_iter().chain(sealed).collect();
    let input = folder.capture("damaged.pcap", &frames);
    let output = folder.text("opened.pcap");
    assert_eq!(folder.decrypt(&[&input, &output]).0, End::Done);

    let experts = ["asterism.malformed", "asterism.future"].map(str::to_owned);
    let shown = shown(&folder, &output, &experts.clone().into(), &[]);
    assert_eq!(shown.len(), 1 + MESSAGES);
    let mut seen = [0; 3];
    for (message, shown) in messages.iter().zip(&shown[1..]) {
        let [malformed, future] = experts.each_ref().map(|expert| shown.contains_key(expert));
        let verdict = judge(cluster, epoch, message);
        let agrees = match verdict {
            Ok(()) => {
                seen[0] += 1;
                !malformed && !future
            }
            Err(Refused::Malformed) => {
                seen[1] += 1;
                malformed
            }
            Err(Refused::FutureFrame | Refused::FutureVersion) => {
                seen[2] += 1;
                future
            }
            // What only a host can judge: another cluster, groups beyond the head, what was never sent.
            Err(_) => true,
        };
        assert!(
            agrees,
            "a host says {verdict:?}, the dissector malformed: {malformed}, future: {future}: {message:02x?}"
        );
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");

    let text = tshark(&folder, &output, &["-V".to_owned()]);
    // Wireshark's own word for a dissector that read beyond the end.
    assert!(!text.contains("[Malformed Packet"));
}
