//! The comparison: the packets of a recording through our NAT, and what leaves beside what Linux sent.
//!
//! Every packet of ours is paired with the packet of Linux's that differs least from it, on the same link, no earlier
//! than the packet that caused it; packets of one flow must pair in order. All fields are compared, the ports after
//! they were exchanged (`ports.rs`). What differs, and what only one of both sent, is explained by a rule or counts.

use std::collections::{BTreeMap, HashMap, HashSet};

use asterism_functions::nat::Side;

use crate::fields::{Field, Value, fields};
use crate::fragments::{self, Datagram};
use crate::ports::{Consistent, Ports, Session, named, rewrite_to};
use crate::recording::{Frame, Recording};
use crate::rules::Rule;
use crate::setup::Setup;
use crate::subject::Subject;
use crate::wire::{self, ICMP, Ip};

/// Microseconds within which Linux sends what a packet causes.
const CAUSED_WITHIN_US: u64 = 500_000;
/// Fields in which a packet of ours and one of Linux's may differ and still be the same packet.
const DIFFERING_FIELDS_MAX: usize = 4;

/// One thing that no rule explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Microseconds since the recording's first packet.
    pub time_us: u64,
    /// What differs, with both values.
    pub sentence: String,
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that reached the box.
    pub arrived: u64,
    /// Packets that Linux sent.
    pub linux_sent: u64,
    /// Packets that our NAT sent.
    pub ours_sent: u64,
    /// Packets of ours that were paired with one of Linux's.
    pub compared: u64,
    /// Fields that were compared.
    pub fields: u64,
    /// Packets that both swallowed: for which neither sent anything.
    pub swallowed: u64,
    /// Packets that our NAT dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// How often each rule explained a difference.
    pub explained: BTreeMap<Rule, u64>,
    /// What no rule explains.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Adds another report's figures.
    pub fn add(&mut self, other: &Report) {
        self.arrived += other.arrived;
        self.linux_sent += other.linux_sent;
        self.ours_sent += other.ours_sent;
        self.compared += other.compared;
        self.fields += other.fields;
        self.swallowed += other.swallowed;
        for (reason, count) in &other.drops {
            *self.drops.entry(reason).or_default() += count;
        }
        for (rule, count) in &other.explained {
            *self.explained.entry(*rule).or_default() += count;
        }
        self.differences.extend_from_slice(&other.differences);
    }
}

/// Sends what arrived through our NAT and compares what leaves with what Linux sent.
///
/// # Errors
/// With a sentence when the NAT cannot be made of the recording's settings, or did not take a packet.
pub fn compare(recording: &Recording) -> Result<Report, String> {
    let mut comparison = Comparison::new(recording)?;
    for (place, arrival) in recording.arrived.iter().enumerate() {
        comparison.arrives(place, arrival)?;
    }
    comparison.ends()
}

/// A packet that Linux sent.
struct Theirs<'a> {
    frame: &'a Frame,
    paired: bool,
}

/// A packet of ours without a partner.
struct Alone {
    time_us: u64,
    cause: usize,
    side: Side,
    frame: Vec<u8>,
    outlives: bool,
}

struct Comparison<'a> {
    recording: &'a Recording,
    subject: Subject,
    began_us: u64,
    ports: Ports,
    theirs: Vec<Theirs<'a>>,
    /// For each arrival, whether it caused something at ours.
    caused: Vec<bool>,
    alone: Vec<Alone>,
    /// Datagrams that left in fragments, ours and theirs.
    datagrams: HashMap<fragments::Name, (Datagram, Datagram)>,
    /// For each flow, the place of the last packet of Linux's that was paired.
    order: HashMap<Vec<u8>, usize>,
    report: Report,
}

impl<'a> Comparison<'a> {
    fn new(recording: &'a Recording) -> Result<Self, String> {
        let mut datagrams = HashMap::<_, (Datagram, Datagram)>::new();
        for frame in &recording.sent {
            if let Some(name) = fragments::name(frame.side == Side::Outside, &frame.bytes) {
                datagrams.entry(name).or_default().1.add(&frame.bytes);
            }
        }
        let first = recording.arrived.first();
        Ok(Self {
            subject: Subject::new(recording.setup.nat.clone())?,
            began_us: first.map_or(0, |frame| frame.time_us),
            ports: Ports::default(),
            theirs: recording
                .sent
                .iter()
                .map(|frame| Theirs {
                    frame,
                    paired: false,
                })
                .collect(),
            caused: vec![false; recording.arrived.len()],
            alone: Vec::new(),
            datagrams,
            order: HashMap::new(),
            report: Report {
                arrived: recording.arrived.len() as u64,
                linux_sent: recording.sent.len() as u64,
                ..Report::default()
            },
            recording,
        })
    }

    fn arrives(&mut self, place: usize, arrival: &Frame) -> Result<(), String> {
        let earlier = self.subject.run_until(arrival.time_us - self.began_us);
        for (side, frame) in earlier {
            self.sent(place.saturating_sub(1), side, frame);
        }
        let mut frame = arrival.bytes.clone();
        self.ports.to_ours(&mut frame, &self.recording.setup);
        let (taken, sent) = self.subject.packet(arrival.side, &frame);
        if !taken {
            return Err(format!("our NAT did not take packet {}", place + 1));
        }
        for (side, frame) in sent {
            self.sent(place, side, frame);
        }
        Ok(())
    }

    /// A packet of ours.
    fn sent(&mut self, cause: usize, side: Side, frame: Vec<u8>) {
        if wire::word(&frame, 12) != Some(0x0800) {
            return;
        }
        self.report.ours_sent += 1;
        self.caused[cause] = true;
        let now_us = self.recording.arrived[cause].time_us;
        let Some((place, translated, differing)) = self.partner(cause, side, &frame) else {
            let mut frame = frame;
            self.ports.to_theirs(&mut frame, &self.recording.setup);
            self.add_fragment(side, &frame);
            let outlives = self.outlives(cause);
            self.alone.push(Alone {
                time_us: now_us,
                cause,
                side,
                frame,
                outlives,
            });
            return;
        };
        self.add_fragment(side, &translated);
        let partner = self.theirs[place].frame;
        self.theirs[place].paired = true;
        self.report.compared += 1;
        self.report.fields += fields(&translated).len() as u64;
        self.keep_ports(side, &frame, &partner.bytes, now_us);
        self.check_order(place, side, &translated, now_us);
        if differing.is_empty() {
            return;
        }
        let names: HashSet<&str> = differing.iter().map(|(name, ..)| name.as_str()).collect();
        let identification = HashSet::from(["ip.identification", "ip.checksum"]);
        if names.is_subset(&identification) && self.is_own(cause, &translated) {
            self.explain(Rule::OwnIdentification);
            return;
        }
        for (name, ours, theirs) in differing {
            let show = |value: Option<Value>| value.map_or("nothing".to_owned(), |v| v.to_string());
            let packet = describe(side, &translated);
            let (ours, theirs) = (show(ours), show(theirs));
            self.differ(
                now_us,
                format!("{packet}: {name} is {ours}, Linux's {theirs}"),
            );
        }
    }

    /// The packet of Linux's that differs least, with ours as if it had the same ports, and what differs.
    fn partner(&self, cause: usize, side: Side, frame: &[u8]) -> Option<Pairing> {
        let now_us = self.recording.arrived[cause].time_us;
        let is_own = self.is_own(cause, frame);
        let kind = kind(frame, is_own)?;
        let is_fragment = Ip::of(frame).is_some_and(|ip| ip.is_fragment());
        let setup = &self.recording.setup;
        let our_sessions = named(frame, setup);
        let mut best: Option<Pairing> = None;
        for (place, theirs) in self.theirs.iter().enumerate() {
            let candidate = theirs.frame;
            if candidate.time_us > now_us + CAUSED_WITHIN_US {
                break;
            }
            if theirs.paired
                || candidate.side != side
                || candidate.time_us < now_us
                || self::kind(&candidate.bytes, is_own) != Some(kind)
            {
                continue;
            }
            let their_sessions = named(&candidate.bytes, setup);
            let mut exchanged = Vec::new();
            for ((session, _), (_, our_place)) in their_sessions.iter().zip(&our_sessions) {
                let ours = our_place.port;
                let idle_us = setup.linux_idle_least * 1_000_000;
                if self.ports.consistent(session, ours, now_us, idle_us) != Consistent::No {
                    exchanged.push((our_place.at, session.2.1));
                }
            }
            let mut translated = frame.to_vec();
            rewrite_to(&mut translated, setup, &exchanged);
            let differing = differing(fields(&translated), fields(&candidate.bytes));
            // How a datagram is cut is free: a fragment pairs with its like, or is left to the whole datagram.
            let most = if is_fragment { 0 } else { DIFFERING_FIELDS_MAX };
            let fewer = best
                .as_ref()
                .is_none_or(|best| differing.len() < best.2.len());
            if fewer && differing.len() <= most {
                let perfect = differing.is_empty();
                best = Some((place, translated, differing));
                if perfect {
                    break;
                }
            }
        }
        best
    }

    /// Notes which port of ours stands for which of Linux's.
    fn keep_ports(&mut self, side: Side, ours: &[u8], theirs: &[u8], now_us: u64) {
        let setup = &self.recording.setup;
        let Some(ip) = Ip::of(theirs) else { return };
        if ip.is_icmp_error(theirs) {
            // An error neither opens nor ends a session.
            return;
        }
        let flags = ip.tcp_flags(theirs);
        let sessions: Vec<(Session, u16)> = named(theirs, setup)
            .iter()
            .zip(named(ours, setup))
            .map(|((session, _), (_, place))| (*session, place.port))
            .collect();
        for (session, port) in sessions {
            self.ports.seen(session, port, flags, false, now_us);
        }
        if side == Side::Inside {
            // Inwards the outside port stands in the packet that arrived.
            self.touch(ours, flags, now_us);
        }
    }

    /// The session of the arrival that led to an inward packet was used.
    fn touch(&mut self, inward: &[u8], flags: Option<u8>, now_us: u64) {
        let Some(ip) = Ip::of(inward) else { return };
        let setup = &self.recording.setup;
        let arrival = self.recording.arrived.iter().rev().find(|arrival| {
            arrival.time_us <= now_us
                && arrival.side == Side::Outside
                && Ip::of(&arrival.bytes).is_some_and(|other| {
                    (other.source, other.identification) == (ip.source, ip.identification)
                })
        });
        let Some(arrival) = arrival else { return };
        for (session, _) in named(&arrival.bytes, setup) {
            if let Some(known) = self.ports.get(&session) {
                let ours = known.ours;
                self.ports.seen(session, ours, flags, true, now_us);
            }
        }
    }

    /// Packets of one flow leave in Linux's order. Fragments may overtake one another.
    fn check_order(&mut self, place: usize, side: Side, frame: &[u8], now_us: u64) {
        let Some(ip) = Ip::of(frame).filter(|ip| !ip.is_fragment()) else {
            return;
        };
        let mut flow = vec![u8::from(side == Side::Outside), ip.protocol];
        let (source, destination) = ip.ends(frame);
        for end in [source, destination] {
            flow.extend(end.0.octets());
            flow.extend(end.1.to_be_bytes());
        }
        let last = self.order.insert(flow, place);
        if last.is_some_and(|last| last > place) {
            let packet = describe(side, frame);
            self.differ(now_us, format!("{packet}: out of order"));
        }
    }

    fn add_fragment(&mut self, side: Side, frame: &[u8]) {
        if let Some(name) = fragments::name(side == Side::Outside, frame) {
            self.datagrams.entry(name).or_default().0.add(frame);
        }
    }

    /// Whether a packet is the NAT's own: an ICMP error for which no error, or an echo reply for which no reply, came in.
    fn is_own(&self, cause: usize, frame: &[u8]) -> bool {
        let icmp_type = |frame: &[u8]| Ip::of(frame).and_then(|ip| ip.icmp_type(frame));
        let arrived = icmp_type(&self.recording.arrived[cause].bytes);
        match icmp_type(frame) {
            Some(0) => arrived == Some(8),
            Some(3 | 11) => !matches!(arrived, Some(3 | 4 | 5 | 11 | 12)),
            _ => false,
        }
    }

    /// Whether an arrival belongs to a session that both translated, that Linux may have forgotten, and that our NAT
    /// may not.
    fn outlives(&self, cause: usize) -> bool {
        let arrival = &self.recording.arrived[cause];
        let setup = &self.recording.setup;
        let sessions = named(&arrival.bytes, setup);
        arrival.side == Side::Outside
            && sessions.iter().any(|(session, _)| {
                let Some(known) = self.ports.get(session) else {
                    return false;
                };
                let idle_us = arrival.time_us - known.last_us;
                let forgotten = known.ended || idle_us >= setup.linux_idle_least * 1_000_000;
                forgotten && idle_us <= setup.our_idle_most_us(session.0)
            })
    }

    fn ends(mut self) -> Result<Report, String> {
        let last = self.recording.arrived.last().map_or(0, |last| last.time_us);
        let cause = self.recording.arrived.len().saturating_sub(1);
        for (side, frame) in self
            .subject
            .run_until(last - self.began_us + 2 * CAUSED_WITHIN_US)
        {
            self.sent(cause, side, frame);
        }
        let refused = self.explain_ours();
        self.explain_theirs(&refused);
        let swallowed = self.recording.arrived.iter().zip(&self.caused);
        self.report.swallowed = swallowed
            .filter(|(arrival, caused)| !**caused && !self.caused_at_linux(arrival))
            .count() as u64;
        for (reason, count) in self.subject.drops() {
            self.report.drops.insert(reason.label(), count);
        }
        Ok(self.report)
    }

    /// Whether Linux sent something that has the identification of an arrival, or quotes it.
    fn caused_at_linux(&self, arrival: &Frame) -> bool {
        self.theirs
            .iter()
            .filter(|theirs| is_caused(theirs.frame, arrival))
            .any(|theirs| {
                carries(&theirs.frame.bytes, &arrival.bytes)
                    || answers(theirs.frame, arrival, &self.recording.setup)
            })
    }

    /// Explains what our NAT alone sent, and tells which arrivals it refused a port.
    fn explain_ours(&mut self) -> HashSet<usize> {
        let mut refused = HashSet::new();
        let mut explained_datagrams = HashSet::new();
        for alone in std::mem::take(&mut self.alone) {
            let Alone {
                time_us,
                cause,
                side,
                frame,
                outlives,
            } = alone;
            if outlives && side == Side::Inside {
                self.explain(Rule::LivesLonger);
            } else if is_prohibited(&frame) && self.opens(cause) {
                refused.insert(cause);
                self.explain(Rule::NoPortLeft);
            } else if let Some(name) = self.free_geometry(side, &frame) {
                if explained_datagrams.insert(name) {
                    self.explain(Rule::FragmentByFragment);
                }
            } else {
                let packet = describe(side, &frame);
                self.differ(time_us, format!("{packet}: Linux did not send it"));
            }
        }
        refused
    }

    /// Explains what Linux alone sent.
    fn explain_theirs(&mut self, refused: &HashSet<usize>) {
        let mut opened: HashSet<Session> = HashSet::new();
        for place in 0..self.theirs.len() {
            if self.theirs[place].paired {
                continue;
            }
            let (side, time_us, bytes) = {
                let frame = self.theirs[place].frame;
                (frame.side, frame.time_us, frame.bytes.clone())
            };
            let refused_here = self.is_of_refused(place, refused, &mut opened);
            if refused_here {
                self.explain(Rule::NoPortLeft);
            } else if self.should_be_silent(place) {
                self.explain(Rule::SilentlyDropped);
            } else if self.free_geometry(side, &bytes).is_some() {
                // Counted once for each datagram, with ours.
            } else {
                let packet = describe(side, &bytes);
                self.differ(time_us, format!("{packet}: our NAT did not send it"));
            }
        }
    }

    /// Whether an arrival from inside is to an end with which its sender had no session.
    fn opens(&self, cause: usize) -> bool {
        self.recording.arrived[cause].side == Side::Inside
            && self
                .subject
                .drops()
                .iter()
                .any(|(reason, _)| *reason == asterism_function::Reason::PortsExhausted)
    }

    /// Whether a packet that Linux alone sent belongs to a session that ours refused.
    fn is_of_refused(
        &self,
        place: usize,
        refused: &HashSet<usize>,
        opened: &mut HashSet<Session>,
    ) -> bool {
        let frame = self.theirs[place].frame;
        let setup = &self.recording.setup;
        let arrivals = self.recording.arrived.iter().enumerate();
        for (cause, arrival) in arrivals.filter(|(_, arrival)| is_caused(frame, arrival)) {
            if arrival.side == frame.side || !carries(&frame.bytes, &arrival.bytes) {
                continue;
            }
            if refused.contains(&cause) {
                opened.extend(
                    named(&frame.bytes, setup)
                        .iter()
                        .map(|(session, _)| *session),
                );
                return true;
            }
            let sessions = named(&arrival.bytes, setup);
            if sessions.iter().any(|(session, _)| opened.contains(session)) {
                return true;
            }
        }
        false
    }

    /// Whether Linux answers, as a host, a packet to itself, or passes an error that quotes a damaged header.
    fn should_be_silent(&self, place: usize) -> bool {
        let frame = self.theirs[place].frame;
        let arrivals = self.recording.arrived.iter();
        arrivals
            .filter(|arrival| is_caused(frame, arrival))
            .any(|arrival| {
                answers(frame, arrival, &self.recording.setup)
                    || quotes_damage(&arrival.bytes) && carries(&frame.bytes, &arrival.bytes)
            })
    }

    /// The datagram of a fragment that one of both sent alone, if the rule holds for it.
    fn free_geometry(&self, side: Side, frame: &[u8]) -> Option<fragments::Name> {
        let name = fragments::name(side == Side::Outside, frame).or_else(|| {
            // Linux sends a datagram whole that came in fragments.
            let ip = Ip::of(frame)?;
            let name = (
                side == Side::Outside,
                ip.source.to_bits(),
                ip.destination.to_bits(),
                ip.protocol,
                ip.identification,
            );
            Some(name)
        })?;
        let (ours, theirs) = self.datagrams.get(&name)?;
        let same = match (ours.whole(), theirs.whole()) {
            (Some(ours), Some(theirs)) => differing(ours, theirs).is_empty(),
            (Some(ours), None) if theirs.is_empty() => self.theirs.iter().any(|one| {
                one.frame.side == side
                    && differing(ours.clone(), fields(&one.frame.bytes)).is_empty()
            }),
            (None, None) => theirs.is_empty(),
            _ => false,
        };
        same.then_some(name)
    }

    fn explain(&mut self, rule: Rule) {
        *self.report.explained.entry(rule).or_default() += 1;
    }

    fn differ(&mut self, time_us: u64, sentence: String) {
        self.report.differences.push(Difference {
            time_us: time_us - self.began_us,
            sentence,
        });
    }
}

/// Where it stands among Linux's, ours as if it had the same ports, and the fields that differ.
type Pairing = (usize, Vec<u8>, Vec<Differing>);
/// A field's name, our value and Linux's.
type Differing = (String, Option<Value>, Option<Value>);

fn differing(ours: Vec<Field>, theirs: Vec<Field>) -> Vec<Differing> {
    let mut theirs: BTreeMap<String, Value> = theirs.into_iter().collect();
    let mut list = Vec::new();
    for (name, value) in ours {
        let other = theirs.remove(&name);
        if other.as_ref() != Some(&value) {
            list.push((name, Some(value), other));
        }
    }
    list.extend(
        theirs
            .into_iter()
            .map(|(name, value)| (name, None, Some(value))),
    );
    list
}

/// What two packets must share to be the same one at all. `is_own`: the box made the packet, so that its
/// identification is its own, and what it quotes must be the same.
fn kind(frame: &[u8], is_own: bool) -> Option<Kind> {
    let ip = Ip::of(frame)?;
    let (source, destination) = (ip.source.to_bits(), ip.destination.to_bits());
    let identification = if is_own {
        ip.quoted(frame).map(|quoted| quoted.identification)
    } else {
        Some(ip.identification)
    };
    let icmp_type = ip.icmp_type(frame);
    Some((
        (ip.protocol, source, destination),
        (ip.offset, icmp_type, identification),
    ))
}

/// See [`kind`].
type Kind = ((u8, u32, u32), (usize, Option<u8>, Option<u16>));

fn is_caused(sent: &Frame, arrival: &Frame) -> bool {
    (arrival.time_us..=arrival.time_us + CAUSED_WITHIN_US).contains(&sent.time_us)
}

/// Whether a packet is another one translated, or quotes it.
fn carries(sent: &[u8], arrived: &[u8]) -> bool {
    let (Some(sent_ip), Some(arrived_ip)) = (Ip::of(sent), Ip::of(arrived)) else {
        return false;
    };
    let same = |ip: &Ip| {
        (ip.protocol, ip.identification) == (arrived_ip.protocol, arrived_ip.identification)
    };
    same(&sent_ip) || sent_ip.quoted(sent).is_some_and(|quoted| same(&quoted))
}

/// Whether a packet of the box is a host's answer, a reset or "port unreachable", to a packet to the box itself.
fn answers(sent: &Frame, arrival: &Frame, setup: &Setup) -> bool {
    let (Some(ip), Some(asked)) = (Ip::of(&sent.bytes), Ip::of(&arrival.bytes)) else {
        return false;
    };
    let (from, to) = asked.ends(&arrival.bytes);
    let flags = ip.tcp_flags(&sent.bytes).unwrap_or(0);
    let same = match ip.quoted(&sent.bytes) {
        Some(quoted) => {
            let unreachable = sent.bytes[ip.transport..].starts_with(&[3, 3]);
            unreachable && quoted.ends(&sent.bytes) == (from, to)
        }
        None => flags & wire::RST != 0 && ip.ends(&sent.bytes) == (to, from),
    };
    same && sent.side == arrival.side && setup.is_own(ip.source) && setup.is_own(asked.destination)
}

/// Whether a frame is an ICMP error in which the quoted IPv4 header's checksum is wrong.
fn quotes_damage(frame: &[u8]) -> bool {
    let quoted = Ip::of(frame).and_then(|ip| ip.quoted(frame));
    quoted.is_some_and(|quoted| {
        let header = &frame[quoted.at..quoted.transport];
        wire::fold(wire::sum(header)) != 0xffff
    })
}

/// "Administratively prohibited" (RFC 5508 REQ-8).
fn is_prohibited(frame: &[u8]) -> bool {
    Ip::of(frame)
        .is_some_and(|ip| ip.protocol == ICMP && frame[ip.transport..].starts_with(&[3, 13]))
}

fn describe(side: Side, frame: &[u8]) -> String {
    let Some(ip) = Ip::of(frame) else {
        return format!("{side:?} {} bytes", frame.len());
    };
    let (from, to) = ip.ends(frame);
    let flags = ip
        .tcp_flags(frame)
        .map(|flags| format!(" flags {flags:#04x}"));
    let icmp = ip
        .icmp_type(frame)
        .map(|kind| format!(" icmp {kind}/{}", frame.get(ip.transport + 1).unwrap_or(&0)));
    let fragment = ip
        .is_fragment()
        .then(|| format!(" fragment at {}", ip.offset));
    format!(
        "{side:?} protocol {} {}:{} > {}:{}{}{}{} id {} length {}",
        ip.protocol,
        from.0,
        from.1,
        to.0,
        to.1,
        flags.unwrap_or_default(),
        icmp.unwrap_or_default(),
        fragment.unwrap_or_default(),
        ip.identification,
        ip.length
    )
}
