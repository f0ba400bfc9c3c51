//! A frame as a list of fields with names, the packet inside an ICMP error included.

use crate::wire::{self, ICMP, IP, Ip, TCP, UDP};

/// What is in a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Bytes(bytes) => {
                write!(f, "{} bytes ", bytes.len())?;
                bytes
                    .iter()
                    .take(24)
                    .try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// A field's name and what is in it.
pub(crate) type Field = (String, Value);

/// All fields of a frame. Two frames are the same exactly if their fields are, but for the two ways to write a
/// checksum of zero, which one's complement does not distinguish.
pub(crate) fn fields(frame: &[u8]) -> Vec<Field> {
    let mut fields = Fields {
        bytes: frame,
        list: Vec::with_capacity(40),
        prefix: "",
    };
    fields.bytes_of("ethernet.destination", 0, 6);
    fields.bytes_of("ethernet.source", 6, 12);
    fields.number("ethernet.type", 12, 2);
    match Ip::of(frame) {
        Some(ip) => fields.ip(&ip, frame.len()),
        None => fields.bytes_of("payload", IP.min(frame.len()), frame.len()),
    }
    fields.list
}

struct Fields<'a> {
    bytes: &'a [u8],
    list: Vec<Field>,
    prefix: &'static str,
}

impl Fields<'_> {
    fn add(&mut self, name: &str, value: Value) {
        self.list.push((format!("{}{name}", self.prefix), value));
    }

    fn number(&mut self, name: &str, at: usize, length: usize) {
        let Some(bytes) = self.bytes.get(at..at + length) else {
            return;
        };
        let number = bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte));
        self.add(name, Value::Number(number));
    }

    fn bytes_of(&mut self, name: &str, from: usize, to: usize) {
        let bytes = self.bytes.get(from..to).unwrap_or(&[]).to_vec();
        self.add(name, Value::Bytes(bytes));
    }

    /// A checksum, both ways to write zero as one.
    fn checksum(&mut self, name: &str, at: usize) {
        if let Some(word) = wire::word(self.bytes, at) {
            let word = if word == 0xffff { 0 } else { word };
            self.add(name, Value::Number(word.into()));
        }
    }

    /// `limit` is where the bytes at hand end: a quotation may be shorter than its header says.
    fn ip(&mut self, ip: &Ip, limit: usize) {
        let at = ip.at;
        self.number("ip.version", at, 1);
        self.number("ip.service", at + 1, 1);
        self.number("ip.length", at + 2, 2);
        self.number("ip.identification", at + 4, 2);
        self.add(
            "ip.flags",
            Value::Number(u64::from(self.bytes[at + 6] >> 5)),
        );
        self.add("ip.offset", Value::Number(ip.offset as u64));
        self.number("ip.ttl", at + 8, 1);
        self.number("ip.protocol", at + 9, 1);
        self.checksum("ip.checksum", at + 10);
        let valid = wire::fold(wire::sum(&self.bytes[at..ip.transport])) == 0xffff;
        self.add("ip.checksum-valid", Value::Number(valid.into()));
        self.bytes_of("ip.source", at + 12, at + 16);
        self.bytes_of("ip.destination", at + 16, at + 20);
        self.bytes_of("ip.options", at + 20, ip.transport);
        let end = ip.end.min(limit);
        if self.prefix.is_empty()
            && let Some(right) = ip.checksum_is_right(self.bytes)
        {
            self.add("checksum-valid", Value::Number(right.into()));
        }
        let transport = ip.transport;
        let data = match (ip.offset, ip.protocol) {
            (0, TCP) => self.tcp(transport, end),
            (0, UDP) => self.udp(transport, end),
            (0, ICMP) => self.icmp(ip, end),
            _ => transport,
        };
        self.bytes_of("payload", data.min(end), end);
    }

    fn tcp(&mut self, at: usize, end: usize) -> usize {
        if at + 20 > end {
            // A quotation that was cut: the ports at least.
            return self.ports(at, end);
        }
        self.ports(at, end);
        self.number("tcp.sequence", at + 4, 4);
        self.number("tcp.acknowledgement", at + 8, 4);
        self.number("tcp.offset-flags", at + 12, 2);
        self.number("tcp.window", at + 14, 2);
        self.checksum("tcp.checksum", at + 16);
        self.number("tcp.urgent", at + 18, 2);
        let data = (at + usize::from(self.bytes[at + 12] >> 4) * 4).clamp(at + 20, end);
        self.bytes_of("tcp.options", at + 20, data);
        data
    }

    fn udp(&mut self, at: usize, end: usize) -> usize {
        if at + 8 > end {
            return self.ports(at, end);
        }
        self.ports(at, end);
        self.number("udp.length", at + 4, 2);
        // Zero is no checksum, so here the two are not the same.
        self.number("udp.checksum", at + 6, 2);
        at + 8
    }

    fn ports(&mut self, at: usize, end: usize) -> usize {
        if at + 4 > end {
            return at;
        }
        self.number("source-port", at, 2);
        self.number("destination-port", at + 2, 2);
        at + 4
    }

    fn icmp(&mut self, ip: &Ip, end: usize) -> usize {
        let at = ip.transport;
        if at + 8 > end {
            return at;
        }
        self.number("icmp.type", at, 1);
        self.number("icmp.code", at + 1, 1);
        self.checksum("icmp.checksum", at + 2);
        self.number("icmp.rest", at + 4, 4);
        if self.prefix.is_empty()
            && let Some(quoted) = ip.quoted(self.bytes)
        {
            self.prefix = "quoted.";
            self.ip(&quoted, end);
            self.prefix = "";
            return quoted.end.min(end);
        }
        at + 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::build;

    fn frame() -> Vec<u8> {
        let header = build::Header4::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut out = vec![0; 200];
        let length = build::udp4(&header, 1, 2, b"payload", &mut out).unwrap();
        out.truncate(length);
        out
    }

    /// Whatever bit changes, some field does.
    #[test]
    fn no_byte_escapes() {
        let plain = frame();
        let mut error = vec![0; 600];
        let length = build::icmp_time_exceeded(&plain, [10, 0, 0, 9].into(), &mut error).unwrap();
        error.truncate(length);
        for whole in [plain, error] {
            let fields_before = fields(&whole);
            for byte in 0..whole.len() {
                for bit in 0..8 {
                    let mut changed = whole.clone();
                    changed[byte] ^= 1 << bit;
                    assert_ne!(fields(&changed), fields_before, "byte {byte}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let whole = frame();
        let mut seed = 7_u64;
        for round in 0..50_000 {
            let mut bytes = whole.clone();
            bytes.truncate(round % (whole.len() + 1));
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if !bytes.is_empty() {
                    let place = (seed >> 33) as usize % bytes.len();
                    bytes[place] = (seed >> 25) as u8;
                }
            }
            fields(&bytes);
        }
    }
}
