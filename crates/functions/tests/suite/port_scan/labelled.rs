//! The labelled captures: exactly the labelled scanners, of the labelled kind.

use core::net::IpAddr;
use std::path::Path;

use asterism_function::PortNumber;
use asterism_function::testkit::late_everywhere;
use asterism_functions::port_scan::{
    Alert, Class, Methods, PortScan, PortScanConfig, Shape, Subject,
};

use crate::port_scan::capture::{detect, names, read, run, traces};
use crate::port_scan::ip::alone;

/// A line of `scan-labels.csv`.
pub(crate) struct Label {
    pub(crate) file: String,
    pub(crate) scanner: Option<IpAddr>,
    pub(crate) kind: String,
}

/// Reads the labels.
pub(crate) fn labels(traces: &Path) -> Vec<Label> {
    let text = std::fs::read_to_string(traces.join("scan-labels.csv")).unwrap();
    let labels: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<_> = line.split(',').collect();
            Label {
                file: fields[0].into(),
                scanner: fields[1].parse().ok(),
                kind: fields[2].into(),
            }
        })
        .collect();
    assert_eq!(labels.len(), 17);
    labels
}

impl Label {
    /// What the label's words mean: class, shape and method.
    fn expected(&self) -> (Class, Shape, Methods) {
        let has = |word: &str| self.kind.contains(word);
        let class = match () {
            () if has("ICMP") => Class::Icmp,
            () if has("UDP") => Class::Udp,
            () => Class::Tcp,
        };
        let shape = if has("sweep") || has("horizontal") {
            Shape::Hosts
        } else {
            Shape::Ports
        };
        let method = match () {
            () if has("ICMP") => Methods::PING,
            () if has("UDP") => Methods::UDP,
            () if has("FIN") => Methods::FIN,
            () if has("Xmas") => Methods::XMAS,
            () if has("NULL") => Methods::NULL,
            () if has("ACK scan") => Methods::ACK,
            () => Methods::SYN,
        };
        (class, shape, method)
    }

    /// Whether the alerts are exactly the label's.
    pub(crate) fn fits(&self, found: &[(Subject, Alert)]) -> bool {
        let Some(scanner) = self.scanner else {
            return found.is_empty();
        };
        let (class, shape, method) = self.expected();
        let expected = Subject {
            source: scanner.into(),
            class,
            shape,
        };
        matches!(found, [(subject, alert)] if *subject == expected && alert.methods == method)
    }

    /// Demands it.
    pub(crate) fn check(&self, found: &[(Subject, Alert)], how: &str) {
        assert!(
            self.fits(found),
            "{} ({} by {:?}), {how}: {:?}",
            self.file,
            self.kind,
            self.scanner,
            names(found)
        );
    }
}

#[test]
fn every_labelled_scan_is_found_and_nothing_else() {
    let Some(traces) = traces("every_labelled_scan_is_found_and_nothing_else") else {
        return;
    };
    for label in labels(&traces) {
        let (found, dropped) = run(detect(), &read(&traces.join(&label.file)));
        label.check(&found, "one instance");
        assert_eq!(dropped, 0, "detection alone drops nothing");
    }
}

#[test]
fn blocking_stops_the_scan_and_harms_nobody_else() {
    let Some(traces) = traces("blocking_stops_the_scan_and_harms_nobody_else") else {
        return;
    };
    for label in labels(&traces) {
        let steps = read(&traces.join(&label.file));
        let (found, dropped) = run(PortScanConfig::default(), &steps);
        assert_eq!(found.is_empty(), label.scanner.is_none(), "{}", label.file);
        assert!(
            found
                .iter()
                .all(|(subject, _)| Some(subject.source.address()) == label.scanner)
        );
        assert_eq!(dropped > 0, label.scanner.is_some(), "{}", label.file);
    }
}

#[test]
fn an_exempt_scanner_raises_no_alarm() {
    let Some(traces) = traces("an_exempt_scanner_raises_no_alarm") else {
        return;
    };
    for label in labels(&traces) {
        let exempt = PortScanConfig {
            exempt: label.scanner.into_iter().map(alone).collect(),
            ..PortScanConfig::default()
        };
        assert_eq!(
            run(exempt, &read(&traces.join(&label.file))),
            (vec![], 0),
            "{}",
            label.file
        );
    }
}

#[test]
fn late_answers_change_nothing() {
    let Some(traces) = traces("late_answers_change_nothing") else {
        return;
    };
    for label in labels(&traces) {
        let steps: Vec<_> = read(&traces.join(&label.file))
            .into_iter()
            .take(600)
            .map(|(seconds, frame)| (seconds, PortNumber(0), frame))
            .collect();
        let volume = Some(Default::default());
        late_everywhere(
            || {
                PortScan::new(PortScanConfig {
                    volume,
                    ..PortScanConfig::default()
                })
            },
            &steps,
        );
    }
}
