//! Rules, compiled so that a new flow costs the same however many there are.
//!
//! Every rule is a range or several in each of five dimensions: source and destination address, source and destination
//! port, and protocol with link. Along a dimension the ends of all ranges cut the line into intervals; each interval has the
//! set of rules that it is inside of, as bits in the order of the rules. A lookup finds one interval in each dimension by
//! halving and intersects the five sets, a word at a time: the first bit is the first rule that matches (Lakshman and
//! Stiliadis, SIGCOMM 1998). Equal sets are kept once.

use asterism_function::{Host, IpPrefix, Protocol};
use asterism_tracking::{Direction, Flow, Link};
use std::collections::BTreeMap;

/// Rules at most.
pub const RULES_MAX: usize = 4_096;
/// Ranges of all rules together at most, sets counted once for each rule that uses them.
pub const RANGES_MAX: usize = 65_536;

/// What a rule does with a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// It is let through, and so is all that belongs to it.
    Allow,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender gets an answer: a reset for TCP, an ICMP error for all else.
    Reject,
    /// It is dropped, and so is everything from its source for so many seconds.
    Block(u32),
}

/// A rule: it matches a new flow that is within one range of each list. An empty list is everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// What is done.
    pub action: Action,
    /// Where the flow's first packet comes in; `None`: anywhere.
    pub link: Option<Link>,
    /// Protocol numbers.
    pub protocols: Vec<u8>,
    /// Source addresses, first and last.
    pub sources: Vec<(Host, Host)>,
    /// Source ports, first and last.
    pub source_ports: Vec<(u16, u16)>,
    /// Destination addresses, first and last.
    pub destinations: Vec<(Host, Host)>,
    /// Destination ports, first and last.
    pub destination_ports: Vec<(u16, u16)>,
    /// Types of ICMP queries, of a rule about ICMP or ICMPv6 alone.
    pub icmp_types: Vec<u8>,
    /// Whether what it decides is noted, once a source and minute.
    pub logs: bool,
    /// What hits are counted under: rules that say the same have the same number, also after a reload.
    pub number: u32,
    /// Its line in the file, from 1.
    pub line: u32,
    /// What it says, a space between two words.
    pub text: String,
}

/// What is asked of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Where the packet came in.
    pub link: Link,
    /// Its protocol.
    pub protocol: u8,
    /// Its source.
    pub source: Host,
    /// Its destination.
    pub destination: Host,
    /// Its source port; 0 without ports.
    pub source_port: u16,
    /// Its destination port; of an ICMP query its type, 0 of other protocols.
    pub destination_port: u16,
}

/// Address and port of the end that packets of a direction go to, as rules look at it: of an ICMP query its type stands in the
/// place of the port.
pub(super) fn destination_of(flow: &Flow, direction: Direction) -> (Host, u16) {
    match flow.protocol() {
        Protocol::ICMP | Protocol::ICMPV6 => flow.end(direction.reversed()),
        _ => flow.endpoint(direction.reversed()),
    }
}

/// Why rules cannot be compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooMany {
    /// More than [`RULES_MAX`].
    Rules,
    /// More than [`RANGES_MAX`].
    Ranges,
}

impl core::fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Rules => write!(formatter, "more than {RULES_MAX} rules"),
            Self::Ranges => write!(
                formatter,
                "more than {RANGES_MAX} prefixes and port ranges in all rules together"
            ),
        }
    }
}

/// Compiled rules.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// What the rules do, by their numbers, in order.
    actions: Vec<(u32, Action)>,
    default: Action,
    words: usize,
    addresses: [Dimension<u128>; 2],
    ports: [Dimension<u16>; 2],
    kinds: Dimension<u16>,
}

/// One dimension: where intervals begin, and the set of each.
#[derive(Clone, Debug)]
struct Dimension<T> {
    starts: Vec<T>,
    /// By interval: where its set begins in `sets`.
    places: Vec<u32>,
    sets: Vec<u64>,
}

impl<T: Copy + Ord> Dimension<T> {
    /// `ranges` has those of each rule; `next` is the value behind one, if there is any.
    fn new(ranges: &[Vec<(T, T)>], least: T, words: usize, next: impl Fn(T) -> Option<T>) -> Self {
        // Where rules begin (true) and end to hold, by value.
        let mut turns: BTreeMap<T, Vec<(usize, bool)>> = BTreeMap::new();
        turns.entry(least).or_default();
        for (rule, ranges) in ranges.iter().enumerate() {
            if ranges.is_empty() {
                turns.entry(least).or_default().push((rule, true));
            }
            // A range whose end lies before its beginning holds nothing.
            for &(first, last) in ranges.iter().filter(|(first, last)| first <= last) {
                turns.entry(first).or_default().push((rule, true));
                if let Some(behind) = next(last) {
                    turns.entry(behind).or_default().push((rule, false));
                }
            }
        }
        let mut depth = vec![0u32; ranges.len()];
        let mut set = vec![0u64; words];
        let mut known: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
        let mut made = Self {
            starts: Vec::new(),
            places: Vec::new(),
            sets: Vec::new(),
        };
        for (start, turns) in turns {
            for (rule, begins) in turns {
                // Ranges of one rule may overlap.
                depth[rule] = if begins {
                    depth[rule] + 1
                } else {
                    depth[rule] - 1
                };
                let bit = 1 << (rule % 64);
                if depth[rule] > 0 {
                    set[rule / 64] |= bit;
                } else {
                    set[rule / 64] &= !bit;
                }
            }
            let place = *known.entry(set.clone()).or_insert_with(|| {
                let place = made.sets.len() as u32;
                made.sets.extend_from_slice(&set);
                place
            });
            if made.places.last() != Some(&place) {
                made.starts.push(start);
                made.places.push(place);
            }
        }
        made
    }

    /// The set of the interval that holds a value.
    #[inline]
    fn set(&self, value: T, words: usize) -> &[u64] {
        let behind = self.starts.partition_point(|start| *start <= value);
        let place = self.places[behind.saturating_sub(1)] as usize;
        &self.sets[place..place + words]
    }

    fn bytes(&self) -> usize {
        self.starts.len() * size_of::<T>() + self.places.len() * 4 + self.sets.len() * 8
    }
}

/// Protocol and link as one number.
const fn kind(protocol: u8, link: Link) -> u16 {
    (protocol as u16) << 1 | matches!(link, Link::Outside) as u16
}

/// A range that holds nothing: of IPv4-mapped networks, as no packet has their addresses. Other empty lists are everything.
pub(super) const NO_ADDRESS: (Host, Host) = (IpPrefix::IPV6_LAST.first(), IpPrefix::IPV6.first());

impl Rule {
    /// Whether one of its networks holds no address that a packet has: it is written in IPv4-mapped form.
    #[must_use]
    pub fn names_no_address(&self) -> bool {
        self.sources.contains(&NO_ADDRESS) || self.destinations.contains(&NO_ADDRESS)
    }
}

impl Rules {
    /// Compiles rules, of which the first that matches decides; `default` is what none does.
    ///
    /// Takes memory in proportion to intervals times rules at worst, but intervals of which the same rules hold share it:
    /// see [`Rules::bytes`].
    ///
    /// # Errors
    /// When there are too many; nothing was made.
    pub fn new(rules: Vec<Rule>, default: Action) -> Result<Self, TooMany> {
        if rules.len() > RULES_MAX {
            return Err(TooMany::Rules);
        }
        let count: usize = rules
            .iter()
            .map(|rule| {
                rule.sources.len()
                    + rule.destinations.len()
                    + rule.source_ports.len()
                    + rule.destination_ports.len()
                    + rule.icmp_types.len()
            })
            .sum();
        if count > RANGES_MAX {
            return Err(TooMany::Ranges);
        }
        let words = rules.len().div_ceil(64);
        let addresses = |of: fn(&Rule) -> &Vec<(Host, Host)>| {
            let ranges: Vec<Vec<(u128, u128)>> = rules
                .iter()
                .map(|rule| {
                    of(rule)
                        .iter()
                        .map(|(first, last)| (first.to_bits(), last.to_bits()))
                        .collect()
                })
                .collect();
            Dimension::new(&ranges, 0, words, |last: u128| last.checked_add(1))
        };
        // Rules about types are about ICMP, and those about ports are not: both are one dimension.
        let types = |rule: &Rule| -> Vec<(u16, u16)> {
            let types = rule.icmp_types.iter().map(|&number| u16::from(number));
            types.map(|number| (number, number)).collect()
        };
        let destination_ports = |rule: &Rule| match rule.icmp_types.is_empty() {
            true => rule.destination_ports.clone(),
            false => types(rule),
        };
        let ports = |of: &dyn Fn(&Rule) -> Vec<(u16, u16)>| {
            let ranges: Vec<Vec<(u16, u16)>> = rules.iter().map(of).collect();
            Dimension::new(&ranges, 0, words, |last: u16| last.checked_add(1))
        };
        let mut actions: Vec<_> = rules
            .iter()
            .map(|rule| (rule.number, rule.action))
            .collect();
        actions.sort_by_key(|(number, _)| *number);
        let kinds: Vec<Vec<(u16, u16)>> = rules
            .iter()
            .map(|rule| match (rule.link, &rule.protocols[..]) {
                (None, []) => Vec::new(),
                (None, protocols) => protocols
                    .iter()
                    .map(|&protocol| (kind(protocol, Link::Inside), kind(protocol, Link::Outside)))
                    .collect(),
                (Some(link), []) => (0..=255)
                    .map(|protocol| (kind(protocol, link), kind(protocol, link)))
                    .collect(),
                (Some(link), protocols) => protocols
                    .iter()
                    .map(|&protocol| (kind(protocol, link), kind(protocol, link)))
                    .collect(),
            })
            .collect();
        Ok(Self {
            addresses: [
                addresses(|rule| &rule.sources),
                addresses(|rule| &rule.destinations),
            ],
            ports: [
                ports(&|rule| rule.source_ports.clone()),
                ports(&destination_ports),
            ],
            kinds: Dimension::new(&kinds, 0, words, |last: u16| last.checked_add(1)),
            words,
            default,
            actions,
            rules,
        })
    }

    /// What is done with a new flow, and the rule that says so; `None`: the default.
    ///
    /// Costs five binary searches and an intersection of five sets, which ends at the first rule that matches. Does not
    /// allocate.
    #[must_use]
    pub fn decide(&self, query: &Query) -> (Action, Option<&Rule>) {
        let words = self.words;
        let sets = [
            self.addresses[1].set(query.destination.to_bits(), words),
            self.addresses[0].set(query.source.to_bits(), words),
            self.ports[1].set(query.destination_port, words),
            self.ports[0].set(query.source_port, words),
            self.kinds.set(kind(query.protocol, query.link), words),
        ];
        for word in 0..words {
            let common = sets.iter().fold(u64::MAX, |common, set| common & set[word]);
            if common != 0 {
                let rule = &self.rules[64 * word + common.trailing_zeros() as usize];
                return (rule.action, Some(rule));
            }
        }
        (self.default, None)
    }

    /// What the rule of a number does, by halving; `None` if there is none.
    #[must_use]
    pub fn action_of(&self, number: u32) -> Option<Action> {
        let place = self
            .actions
            .binary_search_by_key(&number, |(number, _)| *number);
        place.ok().map(|place| self.actions[place].1)
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is done with what no rule matches.
    #[must_use]
    pub fn default_action(&self) -> Action {
        self.default
    }

    /// Bytes that the compiled form takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let addresses: usize = self.addresses.iter().map(Dimension::bytes).sum();
        let ports: usize = self.ports.iter().map(Dimension::bytes).sum();
        let actions = self.actions.len() * size_of::<(u32, Action)>();
        addresses + ports + self.kinds.bytes() + actions
    }
}

impl Default for Rules {
    /// No rules, and everything is dropped.
    fn default() -> Self {
        Self::new(Vec::new(), Action::Drop).expect("no rules are not too many")
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        (&self.rules, self.default) == (&other.rules, other.default)
    }
}
impl Eq for Rules {}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::objects::hash;
    use core::net::Ipv4Addr;

    fn matches(rule: &Rule, query: &Query) -> bool {
        fn within<T: Copy + PartialOrd>(ranges: &[(T, T)], value: T) -> bool {
            ranges.is_empty() || ranges.iter().any(|(a, b)| *a <= value && value <= *b)
        }
        rule.link.is_none_or(|link| link == query.link)
            && (rule.protocols.is_empty() || rule.protocols.contains(&query.protocol))
            && within(&rule.sources, query.source)
            && within(&rule.destinations, query.destination)
            && within(&rule.source_ports, query.source_port)
            && within(&rule.destination_ports, query.destination_port)
    }

    /// Against a search from rule to rule, on rules that overlap in every way, at the ends of their ranges.
    #[test]
    fn the_compiled_form_decides_as_the_list_does() {
        let mut hits = 0;
        for seed in 0..60 {
            let number = |place: u64, below: u64| hash::words(seed, place, 9) % below;
            let count = [0, 1, 3, 63, 64, 65, 130][number(0, 7) as usize];
            let mut draw = 10;
            let mut next = |below: u64| {
                draw += 1;
                hash::words(seed, draw, 11) % below
            };
            let address = |bits: u64| Host::from(Ipv4Addr::from_bits(bits as u32));
            let rules: Vec<Rule> = (0..count)
                .map(|place| {
                    let mut addresses = || -> Vec<(Host, Host)> {
                        (0..next(3))
                            .map(|_| {
                                let first = next(40);
                                (address(first), address(first + next(20)))
                            })
                            .collect()
                    };
                    let (sources, destinations) = (addresses(), addresses());
                    let mut ports = || -> Vec<(u16, u16)> {
                        (0..next(3))
                            .map(|_| match next(8) {
                                0 => (u16::MAX - 2, u16::MAX),
                                _ => {
                                    let first = next(30) as u16;
                                    (first, first + next(9) as u16)
                                }
                            })
                            .collect()
                    };
                    let (source_ports, destination_ports) = (ports(), ports());
                    Rule {
                        action: match next(3) {
                            0 => Action::Allow,
                            1 => Action::Drop,
                            _ => Action::Block(60),
                        },
                        link: [None, Some(Link::Inside), Some(Link::Outside)][next(3) as usize],
                        protocols: [vec![], vec![6], vec![6, 17], vec![255]][next(4) as usize]
                            .clone(),
                        sources,
                        destinations,
                        source_ports,
                        destination_ports,
                        icmp_types: vec![],
                        logs: false,
                        number: place,
                        line: place,
                        text: String::new(),
                    }
                })
                .collect();
            let compiled = Rules::new(rules.clone(), Action::Drop).unwrap();
            for _ in 0..2_000 {
                let query = Query {
                    link: [Link::Inside, Link::Outside][next(2) as usize],
                    protocol: [6, 17, 255][next(3) as usize],
                    source: address(next(64)),
                    destination: address(next(64)),
                    source_port: [next(42) as u16, u16::MAX - 3 + next(4) as u16][next(2) as usize],
                    destination_port: next(42) as u16,
                };
                let numbered = rules.get(next(200) as usize);
                let action = numbered.and_then(|rule| compiled.action_of(rule.number));
                assert_eq!(action, numbered.map(|rule| rule.action));
                let expected = rules.iter().find(|rule| matches(rule, &query));
                let (action, rule) = compiled.decide(&query);
                assert_eq!(rule, expected, "seed {seed}, {query:?}");
                assert_eq!(action, expected.map_or(Action::Drop, |rule| rule.action));
                hits += usize::from(rule.is_some());
            }
        }
        assert!(hits > 10_000, "{hits} hits are too few to show anything");
    }

    #[test]
    fn too_many_are_refused() {
        let rule = Rule {
            action: Action::Allow,
            link: None,
            protocols: vec![],
            sources: vec![],
            source_ports: vec![(1, 1)],
            destinations: vec![],
            destination_ports: vec![],
            icmp_types: vec![],
            logs: false,
            number: 0,
            line: 1,
            text: String::new(),
        };
        let many = vec![rule.clone(); RULES_MAX + 1];
        assert_eq!(Rules::new(many, Action::Drop).unwrap_err(), TooMany::Rules);
        let wide = Rule {
            source_ports: vec![(1, 1); RANGES_MAX + 1],
            ..rule
        };
        assert_eq!(
            Rules::new(vec![wide], Action::Drop).unwrap_err(),
            TooMany::Ranges
        );
    }
}
