//! The captures under `../shared/traces`, as Ethernet frames.

use std::fs;
use std::path::{Path, PathBuf};

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// Where the captures are, or a loud line and `None`.
pub(crate) fn folder(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !folder.is_dir() {
        eprintln!("SKIPPED (shared data absent): {test}");
        return None;
    }
    Some(folder)
}

/// Every capture below `folder`, sorted by name.
#[allow(
    dead_code,
    reason = "not every test that includes this module walks the folder"
)]
pub(crate) fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "pcap" || extension == "pcapng")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The frames of a capture of Ethernet or of bare IP, which gets an Ethernet header; none of any other link. What the
/// recorder cut is filled up with zeros.
pub(crate) fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).expect("a readable capture");
    let mut frames = Vec::new();
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let mut reader = PcapNgReader::new(&bytes[..]).expect("a pcapng header");
        while let Some(block) = reader.next_block() {
            match block {
                Ok(Block::EnhancedPacket(packet)) => {
                    frames.push((packet.data.to_vec(), packet.original_len as usize));
                }
                Ok(Block::SimplePacket(packet)) => {
                    frames.push((packet.data.to_vec(), packet.original_len as usize))
                }
                Ok(_) => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
        let link = reader
            .interfaces()
            .first()
            .map(|interface| interface.linktype);
        return ethernet(link.unwrap_or(DataLink::ETHERNET), frames);
    }
    let mut reader = PcapReader::new(&bytes[..]).expect("a pcap header");
    // Raw: some recorders wrote times and lengths beyond what their own header allows.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        frames.push((packet.data.to_vec(), packet.orig_len as usize));
    }
    ethernet(reader.header().datalink, frames)
}

fn ethernet(link: DataLink, frames: Vec<(Vec<u8>, usize)>) -> Vec<Vec<u8>> {
    let mut converted = Vec::new();
    for (mut bytes, length) in frames {
        bytes.resize(bytes.len().max(length), 0);
        let bytes = match link {
            DataLink::ETHERNET => bytes,
            // 12 is what some systems write for bare IP.
            DataLink::RAW | DataLink::Unknown(12) => {
                let ethertype: &[u8] = if bytes.first().is_some_and(|byte| byte >> 4 == 6) {
                    b"\x86\xdd"
                } else {
                    b"\x08\x00"
                };
                [&[0; 12], ethertype, &bytes].concat()
            }
            _ => continue,
        };
        converted.push(bytes);
    }
    converted
}
