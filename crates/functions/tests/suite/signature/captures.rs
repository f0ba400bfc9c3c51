//! Real captures: what the function finds when packets are dealt over three instances is what a slow and sure way finds that
//! puts every stream together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use asterism_function::{Fragment, Packet, TcpFlags, Transport};
use asterism_functions::signature::{Signature, SignatureConfig};

use crate::signature::cluster::Cluster;
use crate::signature::packets::list;

/// What an edge device would look for: the names that attacks and tools go by.
pub(crate) fn realistic() -> Vec<Signature> {
    let lines: Vec<&[u8]> = include_bytes!("list.txt")
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    assert!(lines.len() >= 100);
    list(&lines)
}

/// All classic captures with little-endian numbers below the folder of shared traces; `None`, said loudly, without it.
pub(crate) fn captures(test: &str) -> Option<Vec<PathBuf>> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces"
    ));
    if !folder.is_dir() {
        eprintln!("SKIPPED (shared data absent): {test}");
        return None;
    }
    let (mut folders, mut files) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder that can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains("cap") {
                files.push(path);
            }
        }
    }
    files.sort();
    Some(files)
}

/// The frames of a capture of Ethernet or raw IP; none of others.
pub(crate) fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if bytes.len() < 24 || bytes[..4] != [0xd4, 0xc3, 0xb2, 0xa1] {
        return Vec::new();
    }
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut frames = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() && at + 16 + word(at + 8) <= bytes.len() {
        let frame = &bytes[at + 16..at + 16 + word(at + 8)];
        let mut whole = Vec::new();
        match word(20) {
            1 => {}
            12 | 101 | 228 => {
                whole.extend_from_slice(&[0; 12]);
                let is_v6 = frame.first().is_some_and(|byte| byte >> 4 == 6);
                whole.extend_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
            }
            _ => return Vec::new(),
        }
        whole.extend_from_slice(frame);
        frames.push(whole);
        at += 16 + word(at + 8);
    }
    frames
}

/// What is known of a stream: its bytes by sequence number, the first that came, and how its segments cut it.
#[derive(Default)]
struct Sure {
    bytes: BTreeMap<u32, u8>,
    /// Signatures in one payload.
    whole: BTreeSet<u32>,
    /// A byte came twice and differed.
    disagrees: bool,
}

/// The signatures in a text, by trying each that begins with the byte at each place.
fn held(text: &[u8], signatures: &[Signature]) -> BTreeSet<u32> {
    let mut by_byte = vec![Vec::new(); 256];
    for one in signatures {
        by_byte[usize::from(one.bytes[0])].push(one);
    }
    let mut held = BTreeSet::new();
    for (place, byte) in text.iter().enumerate() {
        for one in &by_byte[usize::from(*byte)] {
            if text[place..].starts_with(&one.bytes) {
                held.insert(one.id);
            }
        }
    }
    held
}

impl Sure {
    fn take(&mut self, sequence: u32, payload: &[u8], signatures: &[Signature]) {
        for (place, byte) in payload.iter().enumerate() {
            let at = sequence.wrapping_add(place as u32);
            self.disagrees |= *self.bytes.entry(at).or_insert(*byte) != *byte;
        }
        self.whole.extend(held(payload, signatures));
    }

    /// All signatures in its bytes.
    fn all(&self, signatures: &[Signature]) -> BTreeSet<u32> {
        let mut found = self.whole.clone();
        let (mut run, mut next) = (Vec::new(), None);
        let mut search = |run: &[u8]| found.extend(held(run, signatures));
        for (&at, &byte) in &self.bytes {
            if next != Some(at) {
                search(&run);
                run.clear();
            }
            run.push(byte);
            next = at.checked_add(1);
        }
        search(&run);
        found
    }
}

/// A capture dealt over three instances, with an exchange after every `lag` packets: the alerts, what the sure way finds, and
/// what all in it would have to find whole.
struct PlaceAssignment {
    found: BTreeSet<(String, u32)>,
    whole: BTreeSet<(String, u32)>,
    all: BTreeSet<(String, u32)>,
    /// Streams that the instances and the sure way may read differently.
    disagree: BTreeSet<String>,
    segments: u64,
    places: usize,
    /// With reassembly: streams, segments that left a gap before them, and gaps that were given up.
    reassembled: (usize, u64, u64),
}

/// The frames in another order: some overtake the three before them.
fn reordered(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut frames = frames.to_vec();
    for (place, some) in frames.chunks_mut(4).enumerate() {
        if place % 3 > 0 {
            some.rotate_right(1);
        }
    }
    frames
}

fn deal(frames: &[Vec<u8>], config: &SignatureConfig, lag: usize) -> PlaceAssignment {
    let mut cluster = Cluster::new(config, 3);
    let mut streams: BTreeMap<String, Sure> = BTreeMap::new();
    let mut segments = 0;
    for (place, frame) in frames.iter().enumerate() {
        let mut bytes = frame.clone();
        if let Ok(packet) = Packet::parse(&mut bytes)
            && packet.layout().fragment() == Fragment::Whole
            && let Some((from, to)) = packet.ports()
        {
            let (source, destination) = match (packet.ipv4_source(), packet.ipv6_source()) {
                (Some(source), _) => (source.into(), packet.ipv4_destination().unwrap().into()),
                (_, source) => (
                    core::net::IpAddr::from(source.unwrap()),
                    packet.ipv6_destination().unwrap().into(),
                ),
            };
            let end = |address, port| core::net::SocketAddr::new(address, port);
            let (from, to) = (end(source, from), end(destination, to));
            match packet.layout().transport() {
                Transport::Tcp => {
                    segments += u64::from(!packet.payload().is_empty());
                    let syn = packet.tcp_flags().unwrap().contains(TcpFlags::SYN);
                    let sequence = packet.tcp_sequence().unwrap().wrapping_add(syn.into());
                    let sure = streams.entry(format!("tcp {from} > {to}")).or_default();
                    sure.take(sequence, packet.payload(), &config.signatures);
                }
                _ => {
                    let sure = streams.entry(format!("udp {from} > {to}")).or_default();
                    sure.whole
                        .extend(held(packet.payload(), &config.signatures));
                }
            }
        }
        cluster.packet((place * 7 + place / 5) % 3, frame);
        if place % lag == lag - 1 {
            cluster.exchange();
        }
    }
    let mut found = cluster.agreed();
    found.extend(cluster.unreported(0));
    let named = |name: &String, ids: BTreeSet<u32>| -> Vec<_> {
        ids.into_iter().map(|id| (name.clone(), id)).collect()
    };
    PlaceAssignment {
        found: found
            .iter()
            .map(|one| (one.stream.to_string(), one.id))
            .collect(),
        whole: streams
            .iter()
            .flat_map(|(name, sure)| named(name, sure.whole.clone()))
            .collect(),
        all: streams
            .iter()
            .flat_map(|(name, sure)| named(name, sure.all(&config.signatures)))
            .collect(),
        disagree: streams
            .iter()
            .filter(|(_, sure)| sure.disagrees)
            .map(|(name, _)| name.clone())
            .collect(),
        segments,
        places: cluster.state(0).pieces.len_now(),
        reassembled: {
            let state = cluster.state(0);
            let counts = [&state.out_of_order, &state.gaps].map(|count| count.total());
            (state.streams.len_now(), counts[0], counts[1])
        },
    }
}

#[test]
fn captures_dealt_over_three_instances_give_what_whole_streams_give() {
    let Some(paths) = captures("captures_dealt_over_three_instances_give_what_whole_streams_give")
    else {
        return;
    };
    let config = SignatureConfig {
        pieces_max: 1 << 13,
        alerts_max: 1 << 10,
        ..SignatureConfig::new(realistic())
    };
    let (mut segments, mut places, mut alerts, mut read) = (0, 0, 0, 0);
    for path in paths {
        let frames = frames(&path);
        let dealt = deal(&frames, &config, 16);
        read += frames.len();
        segments += dealt.segments;
        places += dealt.places;
        alerts += dealt.found.len();
        let name = path.display();
        for found in &dealt.found {
            assert!(
                dealt.all.contains(found) || dealt.disagree.contains(&found.0) || found.1 == 0,
                "{name}: {found:?} is nowhere in its stream"
            );
        }
        for wanted in dealt.all.union(&dealt.whole) {
            assert!(
                dealt.found.contains(wanted) || dealt.found.contains(&(wanted.0.clone(), 0)),
                "{name}: {wanted:?} was not found"
            );
        }
    }
    eprintln!(
        "{read} frames, {segments} TCP segments with payload, {places} places with pieces, {alerts} alerts"
    );
    assert!(read > 10_000, "{read} frames");
}

/// Signatures taken out of the captures themselves, from where two segments meet: so real segmentation splits them.
#[test]
fn what_real_segments_split_is_found() {
    what_real_segments_split(false);
}

/// The same with reassembly, and frames out of order: the findings are exactly those of whole streams.
#[test]
fn what_real_segments_in_the_wrong_order_split_is_found() {
    what_real_segments_split(true);
}

fn what_real_segments_split(reassembly: bool) {
    let Some(paths) = captures("what_real_segments_split") else {
        return;
    };
    let (mut split, mut together, mut early, mut given_up) = (0, 0, 0, 0);
    for path in paths {
        let frames = frames(&path);
        let wanted = across_segments(&frames);
        if wanted.is_empty() {
            continue;
        }
        // As many as one packet can tell.
        let most = if reassembly { 5 } else { 8 };
        let wanted = wanted.iter().take(most);
        let wanted: Vec<&[u8]> = wanted.map(|bytes| &bytes[..]).collect();
        let config = SignatureConfig {
            alerts_max: 1 << 14,
            reassembly,
            ..SignatureConfig::new(list(&wanted))
        };
        let dealt = match reassembly {
            true => deal(&reordered(&frames), &config, 1),
            false => deal(&frames, &config, 1),
        };
        let name = path.display();
        for wanted in &dealt.all {
            if dealt.disagree.contains(&wanted.0) {
                continue;
            }
            split += u32::from(!dealt.whole.contains(wanted));
            let in_pieces = !reassembly && dealt.found.contains(&(wanted.0.clone(), 0));
            assert!(
                dealt.found.contains(wanted) || in_pieces,
                "{name}: {wanted:?} was not found"
            );
        }
        if reassembly {
            let wrong = dealt.found.iter().find(|found| !dealt.all.contains(*found));
            let is_known = wrong.is_none_or(|found| dealt.disagree.contains(&found.0));
            assert!(is_known, "{name}: {wrong:?} is nowhere in its stream");
            let (streams, before, gaps) = dealt.reassembled;
            (together, early) = (together + streams, early + before);
            // Captures lack some segments for good: their gaps are given up, and hide nothing.
            given_up += gaps;
        }
    }
    eprintln!(
        "{split} signatures that real segments split; {together} streams reassembled, {early} segments out of order, {given_up} gaps given up"
    );
    assert!(
        split > 100 && (early > 100 || !reassembly),
        "{split} {early}"
    );
}

/// Up to eight texts of sixteen bytes that lie across the border of two segments in order, a different part on either side.
fn across_segments(frames: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let mut ends: BTreeMap<_, (u32, Vec<u8>)> = BTreeMap::new();
    let mut texts = BTreeSet::new();
    for frame in frames {
        let mut bytes = frame.clone();
        let Ok(packet) = Packet::parse(&mut bytes) else {
            continue;
        };
        let (Some(flow), Some(sequence)) = (packet.flow4(), packet.tcp_sequence()) else {
            continue;
        };
        let payload = packet.payload();
        if payload.len() < 16 || texts.len() == 8 {
            continue;
        }
        let key = (
            flow.source,
            flow.source_port,
            flow.destination,
            flow.destination_port,
        );
        let next = sequence.wrapping_add(payload.len() as u32);
        let end = payload[payload.len() - 16..].to_vec();
        if let Some((expected, before)) = ends.insert(key, (next, end))
            && expected == sequence
        {
            let share = 2 + texts.len() % 13;
            texts.insert([&before[16 - share..], &payload[..16 - share]].concat());
        }
    }
    texts
}
