//! Nodes, cables, bridges and programs.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use asterism_lab::{Cable, LabError, Node, Offloads, package_of, wait_until};

use crate::lab;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn nodes_on_a_bridge_reach_one_another_and_nobody_else() {
    let Some(lab) = lab() else { return };
    let nodes: Vec<_> = (1..=3)
        .map(|n| lab.node(&format!("n{n}")).unwrap())
        .collect();
    let switch = lab.node("switch").unwrap();
    let ends: Vec<_> = nodes.iter().map(|node| (node, "eth0")).collect();
    lab.bridge(&switch, "br", &ends, &Cable::default()).unwrap();
    for (place, node) in nodes.iter().enumerate() {
        node.ip(&[format!("addr add 192.168.7.{}/24 dev eth0", place + 1)])
            .unwrap();
    }
    let sockets: Vec<_> = nodes
        .iter()
        .map(|node| {
            node.enter(|| UdpSocket::bind("0.0.0.0:700"))
                .unwrap()
                .unwrap()
        })
        .collect();
    for socket in &sockets {
        socket.set_read_timeout(Some(SECOND * 20)).unwrap();
    }
    sockets[0].send_to(b"to three", "192.168.7.3:700").unwrap();
    let mut buffer = [0; 64];
    let (length, from) = sockets[2].recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"to three");
    assert_eq!(from.to_string(), "192.168.7.1:700");
    assert!(nodes[0].interface_counts("eth0").unwrap().sent >= 1);
    assert!(nodes[0].interface_counts("eth1").is_err());
    // The machine itself is not on that network, and its own interfaces are not in the node.
    assert!(
        !std::fs::read_to_string("/proc/net/dev")
            .unwrap()
            .contains("br0")
    );
    let names = nodes[0].ip(&["link show"]).unwrap();
    assert_eq!(names.lines().count(), 2, "{names}");
    assert!(!names.contains("inet6"));
}

#[test]
fn a_frame_on_a_cable_without_offloads_fits_the_mtu() {
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    for (offloads, name) in [(Offloads::Off, "plain"), (Offloads::On, "large")] {
        let cable = Cable::default()
            .macs("02:00:00:00:00:0a", "02:00:00:00:00:0b")
            .offloads(offloads);
        lab.cable((&a, name), (&b, name), &cable).unwrap();
        let net = if offloads == Offloads::On { 1 } else { 0 };
        a.ip(&[format!("addr add 10.9.{net}.1/24 dev {name}")])
            .unwrap();
        b.ip(&[format!("addr add 10.9.{net}.2/24 dev {name}")])
            .unwrap();
        let server = b
            .enter(|| TcpListener::bind(format!("10.9.{net}.2:80")))
            .unwrap()
            .unwrap();
        let client = std::thread::spawn({
            let stream = a
                .enter(|| std::net::TcpStream::connect(format!("10.9.{net}.2:80")))
                .unwrap()
                .unwrap();
            move || {
                use std::io::Write;
                (&stream).write_all(&vec![7; 4 << 20]).unwrap();
            }
        });
        let mut received = Vec::new();
        use std::io::Read;
        server
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut received)
            .unwrap();
        client.join().unwrap();
        assert_eq!(received.len(), 4 << 20);
        let counts = b.interface_counts(name).unwrap();
        let mean = counts.received_bytes / counts.received;
        if offloads == Offloads::On {
            assert!(mean > 3_000, "{counts:?}");
        } else {
            assert!(counts.received >= (4 << 20) / 1_460, "{counts:?}");
        }
        assert!(
            a.ip(&[format!("link show {name}")])
                .unwrap()
                .contains("02:00:00:00:00:0a")
        );
    }
}

#[test]
fn an_interface_receives_on_the_core_that_it_is_asked_to() {
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    lab.cable((&a, "eth0"), (&b, "eth0"), &Cable::default())
        .unwrap();
    let last = std::thread::available_parallelism().unwrap().get() - 1;
    a.receive_on_core("eth0", last).unwrap();
    // As a program in the node sees it, with its own view of the system.
    let cores_of = |node: &Node| {
        let look = "mount -t sysfs look /sys && cat /sys/class/net/eth0/queues/rx-0/rps_cpus";
        let reported = node.program("unshare").args(["--mount", "sh", "-c", look]);
        let mask = reported.run().unwrap().text().trim().replace(',', "");
        u128::from_str_radix(&mask, 16).unwrap()
    };
    assert_eq!(cores_of(&a), 1 << last);
    assert_eq!(cores_of(&b), 0);
    a.receive_on_core("eth0", 100_000).unwrap_err();
    let missing = a.receive_on_core("eth7", 0).unwrap_err().to_string();
    assert!(missing.contains("queues of eth7"), "{missing}");
}

#[test]
fn programs_are_run_watched_and_ended() {
    let Some(lab) = lab() else { return };
    let node = lab.node("n").unwrap();
    let finished = node
        .program("sh")
        .args(["-c", "cat; echo \"$WORD\" >&2; pwd; exit 3"])
        .env("WORD", "said")
        .input("read\n")
        .current_folder(lab.folder())
        .finish()
        .unwrap();
    assert_eq!(finished.status.code(), Some(3));
    assert_eq!(
        finished.text(),
        format!("read\n{}\n", lab.folder().display())
    );
    assert_eq!(finished.stderr, b"said\n");
    let error = finished.successful().unwrap_err().to_string();
    assert!(
        error.contains("n: sh -c") && error.contains("said"),
        "{error}"
    );

    let error = node
        .program("sleep")
        .arg("60")
        .time_max(SECOND / 10)
        .run()
        .unwrap_err();
    assert!(matches!(error, LabError::TooSlow { .. }), "{error}");
    let error = node
        .program("no-such-program")
        .run()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no-such-program is not installed"),
        "{error}"
    );
    assert_eq!(package_of("/usr/sbin/nginx"), Some("nginx-light"));
    assert_eq!(package_of("ls"), None);

    let program = node
        .program("sh")
        .args(["-c", "echo ready; exec sleep 60"])
        .start()
        .unwrap();
    program.wait_for_output("ready", SECOND * 10).unwrap();
    assert!(program.runs());
    let ended = program.terminate(SECOND * 10).unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended.status),
        Some(15)
    );
    let program = node.program("true").start().unwrap();
    let error = program
        .wait_for_output("never said", SECOND * 10)
        .unwrap_err();
    assert!(matches!(error, LabError::Failed { .. }), "{error}");
    let error = node
        .ip(&["link set dev lo up", "link set dev eth7 up"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("eth7"), "{error}");
    assert!(node.sysctl("net/no/such", "1").is_err());
}

#[test]
fn output_without_end_is_kept_to_its_bound() {
    let Some(lab) = lab() else { return };
    let node = lab.node("n").unwrap();
    let finished = node
        .program("head")
        .args([
            "-c",
            &(asterism_lab::OUTPUT_BYTES_MAX + 100_000).to_string(),
            "/dev/zero",
        ])
        .run()
        .unwrap();
    assert_eq!(finished.stdout.len(), asterism_lab::OUTPUT_BYTES_MAX);
}

/// Children that left their parent's group and session are ended too.
#[test]
fn nothing_outlives_a_laboratory() {
    let Some(lab) = lab() else { return };
    let node = lab.node("n").unwrap();
    let folder = lab.folder().to_owned();
    lab.file("kept", "until the end").unwrap();
    let escaped = node
        .program("sh")
        .args([
            "-c",
            "setsid sh -c 'echo inner $PPID; exec sleep 61' & echo ready; wait",
        ])
        .start()
        .unwrap();
    escaped.wait_for_output("inner", SECOND * 10).unwrap();
    let number = node.namespace_number().unwrap();
    assert!(
        crate::crash::holders(number) >= 3,
        "this process, the shell, the sleeper"
    );
    // The handle of the program outlives the laboratory.
    drop(lab);
    drop(node);
    assert!(!escaped.runs());
    assert!(!folder.exists());
    wait_until("the end of all holders", SECOND * 20, || {
        crate::crash::holders(number) == 0
    })
    .unwrap();
}
