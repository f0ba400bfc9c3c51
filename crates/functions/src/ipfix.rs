//! Messages of IPFIX (RFC 7011), or of NetFlow version 9 (RFC 3954), for whatever a function exports. For the control plane:
//! encodes, sends nothing.
//!
//! A message is one UDP datagram: the header, templates where they are due, and one data set. Both protocols have the same templates and
//! records; IPFIX took its elements from version 9, and collectors of version 9 read those that came after it. What the records are is
//! said by templates: `monitor/ipfix.rs` has those of flows, `nat/export.rs` those of ports.

/// Bytes of a message at most: fits into one packet of an Ethernet with tunnels.
pub const MESSAGE_BYTES_MAX: usize = 1_400;
/// Messages between two that carry templates, which a collector that starts later needs (RFC 7011 §8.4).
pub const TEMPLATE_EVERY: u32 = 16;
/// Seconds after which templates are sent again, by the first message from then on: as long as intervals may be, so that with few messages
/// each one carries them.
pub const TEMPLATE_EVERY_S: u64 = 20;
/// Bytes of a message's header of IPFIX (RFC 7011 §3.1), and of a set's.
pub const HEADER: usize = 16;
/// See [`HEADER`].
pub const SET_HEADER: usize = 4;
/// Bytes of a message's header of NetFlow version 9 (RFC 3954 §5.1).
pub const HEADER_9: usize = 20;
/// What a data set of NetFlow version 9 is filled up to (RFC 3954 §5.3).
const FILL: usize = 4;

/// The protocol of messages: their header, how they are numbered, and how a set ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Export {
    /// IPFIX: numbered by records.
    #[default]
    Ipfix,
    /// NetFlow version 9: numbered by messages, with a count of records in the header; sets end at whole words.
    NetFlow9,
}

impl Export {
    const fn version(self) -> u16 {
        match self {
            Self::Ipfix => 10,
            Self::NetFlow9 => 9,
        }
    }

    const fn header(self) -> usize {
        match self {
            Self::Ipfix => HEADER,
            Self::NetFlow9 => HEADER_9,
        }
    }

    /// The number of the set of templates (RFC 7011 §3.3.2, RFC 3954 §5.2).
    const fn templates(self) -> u16 {
        match self {
            Self::Ipfix => 2,
            Self::NetFlow9 => 0,
        }
    }
}

/// What records of a kind consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// The number of the template and of sets of its records, 256 at least.
    pub number: u16,
    /// Information elements (IANA), each with its length in bytes.
    pub elements: &'static [(u16, u16)],
}

impl Template {
    /// Bytes of a record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        let lengths = self.elements.iter().map(|(_, bytes)| usize::from(*bytes));
        lengths.sum()
    }
}

/// One exporting process: numbers its messages.
#[derive(Clone, Debug)]
pub struct Messages {
    export: Export,
    /// The observation domain (RFC 7011 §3.1), which tells the hosts of a cluster apart.
    domain: u32,
    templates: &'static [Template],
    /// Data records sent before.
    sequence: u32,
    messages: u32,
    /// When templates were sent last and how many messages were sent since; `None`: they are due.
    templates_sent: Option<(u64, u32)>,
    /// Whether the message that waits carries templates.
    has_templates: bool,
    waiting: Vec<u8>,
    set: u16,
    records: u32,
    /// When the first message was made, since 1970: uptime counts from here.
    begun_s: Option<u64>,
}

impl Messages {
    /// An exporting process of an observation domain (in NetFlow version 9 a source), for records of these templates, by IPFIX.
    #[must_use]
    pub fn new(domain: u32, templates: &'static [Template]) -> Self {
        Self {
            domain,
            templates,
            sequence: 0,
            messages: 0,
            templates_sent: None,
            has_templates: false,
            waiting: Vec::with_capacity(MESSAGE_BYTES_MAX),
            set: 0,
            records: 0,
            export: Export::Ipfix,
            begun_s: None,
        }
    }

    /// The same by another protocol.
    #[must_use]
    pub fn by(self, export: Export) -> Self {
        Self { export, ..self }
    }

    /// Data records sent so far, modulo 2³².
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Takes a record of a template, which `write` appends; `send` is given a message each time that one is full, and says whether it
    /// was sent: after one that was not the next carries templates, since the collector may have been started again. `now_s` is the time
    /// of the export since 1970.
    pub fn add(
        &mut self,
        template: &Template,
        now_s: u64,
        mut send: impl FnMut(&[u8]) -> bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let fill = FILL - 1;
        let is_full = self.waiting.len() + template.record_bytes() + fill > MESSAGE_BYTES_MAX;
        if self.records > 0 && (self.set != template.number || is_full) {
            self.finish(now_s, &mut send);
        }
        if self.records == 0 {
            self.begin(template.number, now_s);
        }
        let before = self.waiting.len();
        write(&mut self.waiting);
        debug_assert_eq!(
            self.waiting.len() - before,
            template.record_bytes(),
            "a record is as its template says"
        );
        self.records += 1;
    }

    /// Sends what waits for a full message.
    pub fn finish(&mut self, now_s: u64, mut send: impl FnMut(&[u8]) -> bool) {
        if self.records == 0 {
            return;
        }
        let set_at = self.set_at();
        if self.export == Export::NetFlow9 {
            let fill = self.waiting.len().wrapping_sub(set_at).wrapping_neg() % FILL;
            self.waiting.extend(&[0; FILL][..fill]);
        }
        let length = self.waiting.len();
        put(&mut self.waiting, set_at + 2, (length - set_at) as u16);
        let seconds = (now_s as u32).to_be_bytes();
        match self.export {
            Export::Ipfix => {
                put(&mut self.waiting, 2, length as u16);
                self.waiting[4..8].copy_from_slice(&seconds);
            }
            Export::NetFlow9 => {
                let templates = match self.has_templates {
                    true => self.templates.len() as u16,
                    false => 0,
                };
                put(&mut self.waiting, 2, self.records as u16 + templates);
                let begun_s = *self.begun_s.get_or_insert(now_s);
                let uptime_ms = now_s.saturating_sub(begun_s).wrapping_mul(1_000) as u32;
                self.waiting[4..8].copy_from_slice(&uptime_ms.to_be_bytes());
                self.waiting[8..12].copy_from_slice(&seconds);
            }
        }
        let is_sent = send(&self.waiting);
        self.templates_sent = match (is_sent, self.has_templates, self.templates_sent) {
            (false, _, _) => None,
            (true, true, _) => Some((now_s, 1)),
            (true, false, sent) => sent.map(|(at, messages)| (at, messages.saturating_add(1))),
        };
        self.sequence = self.sequence.wrapping_add(self.records);
        self.messages = self.messages.wrapping_add(1);
        self.records = 0;
        self.waiting.clear();
    }

    /// Whether templates are due, also where the host's date was changed.
    fn are_templates_due(&self, now_s: u64) -> bool {
        self.templates_sent.is_none_or(|(at, messages)| {
            messages >= TEMPLATE_EVERY || now_s.abs_diff(at) >= TEMPLATE_EVERY_S
        })
    }

    /// Where the data set begins.
    fn set_at(&self) -> usize {
        self.export.header()
            + if self.has_templates {
                self.template_set_bytes()
            } else {
                0
            }
    }

    /// Bytes of the set of all templates.
    fn template_set_bytes(&self) -> usize {
        let elements = self.templates.iter().map(|one| one.elements.len());
        SET_HEADER + 4 * self.templates.len() + 4 * elements.sum::<usize>()
    }

    fn begin(&mut self, set: u16, now_s: u64) {
        self.has_templates = self.are_templates_due(now_s);
        self.waiting.clear();
        self.set = set;
        self.waiting.extend(self.export.version().to_be_bytes());
        // Filled in once the message is whole.
        let (blank, number) = match self.export {
            Export::Ipfix => (6, self.sequence),
            Export::NetFlow9 => (10, self.messages),
        };
        self.waiting.resize(self.waiting.len() + blank, 0);
        self.waiting.extend(number.to_be_bytes());
        self.waiting.extend(self.domain.to_be_bytes());
        if self.has_templates {
            self.waiting.extend(self.export.templates().to_be_bytes());
            let bytes = self.template_set_bytes() as u16;
            self.waiting.extend(bytes.to_be_bytes());
            for template in self.templates {
                self.waiting.extend(template.number.to_be_bytes());
                let count = template.elements.len() as u16;
                self.waiting.extend(count.to_be_bytes());
                for (element, bytes) in template.elements {
                    self.waiting.extend(element.to_be_bytes());
                    self.waiting.extend(bytes.to_be_bytes());
                }
            }
        }
        self.waiting.extend(set.to_be_bytes());
        self.waiting.extend([0; 2]);
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATES: &[Template] = &[Template {
        number: 256,
        elements: &[(8, 4)],
    }];

    /// Whether the message of each of these times carries templates; those at `refused` are not sent.
    fn with_templates(times: &[u64], refused: &[usize]) -> Vec<bool> {
        let mut messages = Messages::new(1, TEMPLATES);
        let mut carried = Vec::new();
        for (place, &now_s) in times.iter().enumerate() {
            messages.add(
                &TEMPLATES[0],
                now_s,
                |_| panic!("it is not full"),
                |out| out.extend([0; 4]),
            );
            messages.finish(now_s, |message| {
                carried.push(message[HEADER..HEADER + 2] == [0, 2]);
                !refused.contains(&place)
            });
        }
        carried
    }

    #[test]
    fn templates_are_repeated_by_count_and_by_time() {
        let busy: Vec<u64> = vec![9; 40];
        let carried = with_templates(&busy, &[]);
        let places: Vec<usize> = (0..40).filter(|&place| carried[place]).collect();
        assert_eq!(places, [0, 16, 32]);
        // An export each minute: a collector that is started again needs no minute more.
        let slow: Vec<u64> = (0..10).map(|number| 1_000 + 60 * number).collect();
        assert_eq!(with_templates(&slow, &[]), [true; 10]);
        let steady: Vec<u64> = (0..10).map(|number| 1_000 + 5 * number).collect();
        let carried = with_templates(&steady, &[]);
        let places: Vec<usize> = (0..10).filter(|&place| carried[place]).collect();
        assert_eq!(places, [0, 4, 8]);
        // The date is set back by an hour.
        assert_eq!(
            with_templates(&[9_000, 9_001, 5_400, 5_401], &[]),
            [true, false, true, false]
        );
    }

    #[test]
    fn templates_follow_a_message_that_was_refused() {
        let carried = with_templates(&[9; 8], &[0, 3, 4]);
        assert_eq!(
            carried,
            [true, true, false, false, true, true, false, false]
        );
    }
}
