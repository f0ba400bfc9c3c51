//! Any bytes give a refusal or an effect that the protocol allows: never a panic, a hang, or growth without bound.

use asterism_placement::replicated::fuzz_handle;

use crate::replicated::network::Random;

fn number(random: &mut Random, out: &mut Vec<u8>) {
    let bits = [1, 3, 7, 8, 14, 30, 56, 63][random.below(8) as usize];
    let mut value = random.below(1 << bits);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A message with a good header and frames that are good up to a point.
fn message(random: &mut Random, out: &mut Vec<u8>) {
    out.clear();
    out.extend([1, 1, 1]);
    out.extend(random.below(1 << 20).to_le_bytes());
    number(random, out);
    let echoes = random.below(2);
    out.push(echoes as u8);
    for _ in 0..echoes {
        out.push(random.range(1, 3) as u8);
        out.extend(random.below(100).to_le_bytes());
        number(random, out);
    }
    for _ in 0..random.below(4) {
        let mut body = Vec::new();
        match random.below(3) {
            0 => (0..random.below(12)).for_each(|_| number(random, &mut body)),
            1 => {
                number(random, &mut body);
                for _ in 0..random.below(8) {
                    let length = random.range(1, 5);
                    body.push(length as u8);
                    body.extend(std::iter::repeat_n(7, length as usize));
                }
            }
            _ => body.extend((0..random.below(30)).map(|_| random.next() as u8)),
        }
        out.push(if random.chance(95) {
            random.below(14) as u8
        } else {
            random.next() as u8
        });
        out.push(body.len() as u8);
        out.extend(body);
    }
    if random.chance(20) {
        let at = random.below(out.len() as u64) as usize;
        out[at] = random.next() as u8;
    }
    out.truncate(255);
}

#[test]
fn any_bytes_are_handled() {
    let mut random = Random(2);
    let mut data = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..3_000 {
        data.clear();
        for _ in 0..random.below(12) {
            if random.chance(80) {
                message(&mut random, &mut bytes);
            } else {
                bytes.clear();
                bytes.extend((0..random.below(60)).map(|_| random.next() as u8));
            }
            // Mostly from a member, in its one incarnation.
            data.push((random.next() as u8 & 0x7c) | random.range(1, 2) as u8);
            data.push(bytes.len() as u8);
            data.extend(&bytes);
        }
        fuzz_handle(&data);
    }
}
