//! The laboratory of a NAT cluster, with the kernel as the NAT: what does not hold here is the laboratory's fault.

use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, document};
use asterism_lab::nat::{CLIENT, NatLab, NatLabConfig, SERVER, TRANSLATED};
use asterism_lab::{Offloads, WireConfig};

use crate::lab;

const MS: Duration = Duration::from_millis(1);
/// Runs that are tried: one during which the machine stood still shows nothing.
const RUNS_MAX: usize = 40;

#[test]
fn a_kernel_translates_on_the_way_that_the_routes_say() {
    if lab().is_none() {
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(2, MS)).unwrap();
    lab.use_kernel(0).unwrap();
    lab.use_kernel(1).unwrap();
    for host in [0, 1] {
        lab.requests_through(&[host]).unwrap();
        lab.replies_through(&[host]).unwrap();
        let before = lab.counts("in").unwrap();
        let ping = lab
            .client
            .program("ping")
            .args(["-c3", "-i0.01", "-W20"])
            .arg(SERVER.to_string());
        assert!(ping.run().unwrap().text().contains("3 received"));
        let after = lab.counts("in").unwrap();
        assert!(after[host].received >= before[host].received + 3);
        assert!(after[1 - host].received <= before[1 - host].received + 1);
    }
    let socket = lab
        .server
        .enter(|| std::net::UdpSocket::bind((SERVER, 53)))
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(MS * 20_000)).unwrap();
    let client = lab
        .client
        .enter(|| std::net::UdpSocket::bind((CLIENT, 0)))
        .unwrap()
        .unwrap();
    client.send_to(b"who am I", (SERVER, 53)).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 10]).unwrap().1.ip(), TRANSLATED);
    assert!(lab.requests_through(&[]).is_err() && lab.replies_through(&[2]).is_err());
    assert!(NatLab::new(&NatLabConfig::new(17, MS)).is_err());
}

#[test]
fn documents_are_served_through_a_wire_that_delays() {
    if lab().is_none() {
        return;
    }
    let config = NatLabConfig {
        outside: Some(WireConfig::default().delay(MS * 10)),
        ..NatLabConfig::new(1, MS)
    };
    let lab = NatLab::new(&config).unwrap();
    lab.use_kernel(0).unwrap();
    let document = vec![b'x'; 100_000];
    lab.lab.file("document", &document).unwrap();
    let _nginx = lab.serve(lab.lab.folder(), 0).unwrap();
    let url = format!("http://{SERVER}/document");
    // Neighbours ask for one another's addresses first, each by a round trip.
    lab.client
        .program("ping")
        .args(["-c2", "-i0.01"])
        .arg(SERVER.to_string())
        .run()
        .unwrap();
    let connect = || {
        let words = ["-sS", "-o-", "-w%{stderr}%{time_connect}", &url];
        let finished = lab.client.program("curl").args(words).run().unwrap();
        assert!(finished.stdout == document);
        let connect = String::from_utf8_lossy(&finished.stderr);
        connect.parse::<f64>().unwrap()
    };
    // None is early, and one finds the machine at leisure.
    let mut times = Vec::new();
    while times.last().is_none_or(|time| *time >= 0.035) {
        assert!(times.len() < RUNS_MAX, "{times:?}");
        times.push(connect());
    }
    assert!(times.iter().all(|time| *time >= 0.020), "{times:?}");
}

#[test]
fn downloads_are_compared_and_overlap() {
    if lab().is_none() {
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(1, MS)).unwrap();
    lab.use_kernel(0).unwrap();
    let address = (SERVER, 8080).into();
    let _server = DocumentServer::start(&lab.server, address, 1 << 20).unwrap();
    let right = document(200_000);
    let downloads = Downloads {
        server: address,
        path: "/200000".to_owned(),
        document: &right,
        count: 30,
        at_once: 15,
        patience: MS * 20_000,
    };
    let mut runs = Vec::new();
    loop {
        let report = downloads.run(&lab.client).unwrap();
        assert_eq!(
            (report.complete(), report.downloads.len()),
            (30, 30),
            "{}",
            report.faults()
        );
        // Unless the machine stood still while they began.
        let found = (report.most_at_once(), report.connect_ms(0.5));
        if found.0 >= 14 && found.1 < 500.0 {
            break;
        }
        runs.push(found);
        assert!(runs.len() < RUNS_MAX, "{runs:?}");
    }
    let mut wrong = right.clone();
    wrong[150_000] ^= 1;
    let one = |path: &str, document: &[u8]| {
        let downloads = Downloads {
            path: path.to_owned(),
            document,
            count: 1,
            at_once: 1,
            ..downloads.clone()
        };
        downloads.run(&lab.client).unwrap().faults()
    };
    assert!(
        one("/200000", &wrong).contains("wrong after"),
        "{}",
        one("/200000", &wrong)
    );
    assert!(one("/200000", &right[..199_999]).contains("wrong after"));
    assert!(one("/199999", &right).contains("ended after 199999"));
    assert!(one("/x", &right).contains("404"));
    assert_eq!(one("/200000", &right), "0 failed: ");
    let refused = Downloads {
        server: (SERVER, 1).into(),
        ..downloads.clone()
    };
    assert_eq!(refused.run(&lab.client).unwrap().complete(), 0);
    assert!(
        Downloads {
            at_once: 0,
            ..downloads
        }
        .run(&lab.client)
        .is_err()
    );
}

#[test]
fn large_frames_go_through_the_kernel() {
    if lab().is_none() {
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(1, MS).offloads(Offloads::On)).unwrap();
    lab.use_forwarding(0).unwrap();
    let server = lab
        .server
        .program("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", &SERVER.to_string()])
        .start()
        .unwrap();
    server.wait_for_output("listening", MS * 20_000).unwrap();
    let client = lab
        .client
        .program("iperf3")
        .args(["-c", &SERVER.to_string(), "-t1", "-J"]);
    let said = client.run().unwrap().text();
    assert!(said.contains("\"bits_per_second\""), "{said}");
    let counts = lab.counts("in").unwrap()[0];
    assert!(
        counts.received_bytes / counts.received > 5_000,
        "{counts:?}"
    );
}
