//! What nobody should have written: damaged, cut and hostile captures.

use crate::port_capture::files::{Bytes, enhanced, interface, pcap, read, section};
use asterism_io::port::{CaptureProblem, CaptureReader, fuzz_capture};
use proptest::prelude::*;
use std::io::{self, Read};

#[test]
fn errors_name_the_file_the_offset_and_a_cure() {
    let good = pcap(
        false,
        0xA1B2_C3D4,
        1,
        &[(1, 0, &[1; 60], 60), (2, 0, &[2; 60], 60)],
    );
    let mut too_long = good.clone();
    too_long[24 + 76 + 8..][..4].copy_from_slice(&0x7FFF_FFFFu32.to_le_bytes());
    let mut versions = Bytes::default();
    section(&mut versions);
    versions.bytes[12] = 9;
    let mut blocks = Bytes::default();
    section(&mut blocks);
    let at = blocks.bytes.len() as u64;
    let mut nowhere = Bytes {
        big: false,
        bytes: blocks.bytes.clone(),
    };
    enhanced(&mut nowhere, 3, 0, &[0; 60], 60);
    let mut lengths = Bytes {
        big: false,
        bytes: blocks.bytes.clone(),
    };
    lengths.u32(5).u32(16).u32(0).u32(20);
    let mut odd = Bytes {
        big: false,
        bytes: blocks.bytes.clone(),
    };
    odd.u32(5).u32(13).raw(&[0; 5]);
    let mut raw = Bytes {
        big: false,
        bytes: blocks.bytes.clone(),
    };
    interface(&mut raw, 113, 0, 6, 0);
    let raw_at = raw.bytes.len() as u64;
    enhanced(&mut raw, 0, 0, &[0; 60], 60);
    let mut claim = Bytes {
        big: false,
        bytes: blocks.bytes.clone(),
    };
    interface(&mut claim, 1, 0, 6, 0);
    let claim_at = claim.bytes.len() as u64;
    let mut body = claim.fresh();
    body.u32(0)
        .u32(0)
        .u32(0)
        .u32(u32::MAX)
        .u32(60)
        .raw(&[0; 60]);
    claim.block(6, &body);

    for (bytes, packets, offset, report) in [
        (
            &b"PK\x03\x04 and more"[..],
            0,
            0,
            "give a pcap or pcapng file",
        ),
        (&b"\x1F\x8B\x08\x00\x00"[..], 0, 0, "gunzip"),
        (&b"\x28\xB5\x2F\xFD\x00"[..], 0, 0, "unzstd"),
        (&b""[..], 0, 0, "ends inside"),
        (&good[..20], 0, 0, "ends inside"),
        (&good[..24 + 76 + 7], 1, 24 + 76, "cut it there"),
        (&good[..24 + 76 + 30], 1, 24 + 76, "ends inside"),
        (&too_long[..], 1, 24 + 76, "at most 262144"),
        (
            &pcap(false, 0xA1B2_C3D4, 101, &[]),
            0,
            0,
            "link type 101 (raw IP)",
        ),
        (&pcap(true, 0xA1B2_C3D4, 113, &[]), 0, 0, "tcprewrite"),
        (&versions.bytes, 0, 0, "version other than 1"),
        (&nowhere.bytes, 0, at, "was not described"),
        (&lengths.bytes, 0, at, "two lengths differ"),
        (&odd.bytes, 0, at, "multiple of 4"),
        (&raw.bytes, 0, raw_at, "Linux cooked"),
        (&claim.bytes, 0, claim_at, "too short for the packet"),
    ] {
        let (read, error) = read(bytes);
        let error = error.unwrap_or_else(|| panic!("no error; expected {report:?}"));
        assert_eq!((read.len(), error.offset), (packets, offset), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(report) && text.contains("test.pcap"),
            "{text:?} lacks {report:?}"
        );
    }
    let error = CaptureReader::open("/nonexistent/x.pcap").unwrap_err();
    assert!(
        matches!(error.problem, CaptureProblem::Unreadable(_))
            && error.to_string().contains("x.pcap")
    );
}

#[test]
fn a_failing_source_is_an_error_and_short_reads_are_not() {
    struct OneByOne(Vec<u8>, usize);
    impl Read for OneByOne {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.1.is_multiple_of(5) {
                self.1 += 1;
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.1 += 1;
            if self.0.is_empty() {
                return Err(io::Error::other("the disk is on fire"));
            }
            into[0] = self.0.remove(0);
            Ok(1)
        }
    }
    let bytes = pcap(false, 0xA1B2_C3D4, 1, &[(1, 0, &[1; 60], 60)]);
    let mut reader = CaptureReader::new("slow", OneByOne(bytes, 0)).unwrap();
    let mut into = Vec::new();
    assert!(reader.next(&mut into).unwrap().is_some());
    assert_eq!(into, [1; 60]);
    assert!(
        reader
            .next(&mut into)
            .unwrap_err()
            .to_string()
            .contains("the disk is on fire")
    );
}

#[test]
fn every_prefix_and_every_changed_byte_of_a_capture_is_survived() {
    let classic = pcap(
        false,
        0xA1B2_C3D4,
        1,
        &[(1, 0, &[1; 20], 60), (2, 0, &[2; 9], 9)],
    );
    let mut modern = Bytes {
        big: true,
        ..Bytes::default()
    };
    section(&mut modern);
    interface(&mut modern, 1, 0, 9, 0);
    enhanced(&mut modern, 0, 5, &[1; 21], 21);
    for bytes in [classic, modern.bytes] {
        for length in 0..bytes.len() {
            fuzz_capture(&bytes[..length]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[at] = value;
                fuzz_capture(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_behind_any_magic_are_survived(
        magic in proptest::sample::select(vec![0xA1B2_C3D4u32, 0xD4C3_B2A1, 0xA1B2_3C4D, 0x34CD_B2A1, 0x0A0D_0D0A, 0]),
        reports in proptest::collection::vec(prop_oneof![0u32..32, any::<u32>(), Just(0x1A2B_3C4D)], 0..200),
    ) {
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend(reports.iter().flat_map(|report| report.to_le_bytes()));
        fuzz_capture(&bytes);
    }
}
