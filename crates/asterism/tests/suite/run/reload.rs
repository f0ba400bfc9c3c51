//! Rules and signatures that change while packets flow: of a function alone, and of one that is a stage of a chain.

use asterism_output::End;
use asterism_packet::build::{self, Header4, Segment};
use asterism_packet::{Flow4, TcpFlags};

use crate::run::host::{Cluster, Host, NAT, PortEnd, SERVER, answer, outbound, wait};

/// From inside to anybody; from outside to nobody.
const RULES: &str = "allow udp on inside\ndefault drop\n";
/// Flows that are known before rules change.
const FLOWS: u16 = 40;

/// A host with the test at both ends of it, and flows that pass each way.
struct Traffic {
    inside: PortEnd,
    outside: PortEnd,
    /// Each flow as it left, in the order of their ports.
    left: Vec<Flow4>,
}

impl Traffic {
    fn begin(cluster: &Cluster) -> Traffic {
        let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
        let left = (0..FLOWS).map(|number| {
            inside.send(&outbound(4_000 + number));
            outside.next()
        });
        let left = left.collect();
        Traffic {
            inside,
            outside,
            left,
        }
    }

    /// A packet of each known flow, each way: all arrive, and nothing else does.
    fn all_pass(&mut self) {
        for number in 0..FLOWS {
            self.inside.send(&outbound(4_000 + number));
            self.outside.send(&answer(&self.left[usize::from(number)]));
        }
        let (mut out, mut back) = (Vec::new(), Vec::new());
        wait("a packet of each flow each way", || {
            out.extend(self.outside.take());
            back.extend(self.inside.take());
            (out.len() >= self.left.len() && back.len() >= self.left.len()).then_some(())
        });
        assert_eq!(out, self.left);
        let expected: Vec<_> = (0..FLOWS)
            .map(|number| answer(&outbound(4_000 + number)))
            .collect();
        assert_eq!(back, expected);
    }

    /// Whether a packet of this flow gets out; else it is dropped, perhaps after a wait for what others may know of it.
    fn passes(&mut self, host: &Host, flow: &Flow4) -> bool {
        let before = dropped(host);
        self.inside.send(flow);
        wait("what becomes of a packet", || {
            let came = self.outside.take();
            if let Some(left) = came.first() {
                assert_eq!(
                    (came.len(), left.destination_port),
                    (1, flow.destination_port)
                );
                return Some(true);
            }
            (dropped(host) > before).then_some(false)
        })
    }

    /// Whether a frame gets out; else it is dropped.
    fn lets(&mut self, host: &Host, frame: &[u8]) -> bool {
        let before = dropped(host);
        self.inside.send_frame(frame);
        wait("what becomes of a frame", || {
            if !self.outside.take_frames().is_empty() {
                return Some(true);
            }
            (dropped(host) > before).then_some(false)
        })
    }

    /// Has the flows go on without a rest while `change` runs. Tells what that gives.
    fn during<T: Send>(&mut self, change: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let running = scope.spawn(change);
            let mut rounds = 0;
            while !running.is_finished() || rounds == 0 {
                self.all_pass();
                rounds += 1;
            }
            self.all_pass();
            running.join().unwrap()
        })
    }
}

/// To a port that nobody used before.
fn to_port(port: u16) -> Flow4 {
    Flow4 {
        destination: SERVER,
        destination_port: port,
        ..outbound(6_000 + port)
    }
}

/// Packets that the host dropped, for whatever reason.
fn dropped(host: &Host) -> u64 {
    let status = host.ask(&["status"]);
    let reasons = status["instances"][0]["dropped"].as_object().unwrap();
    reasons.values().filter_map(serde_json::Value::as_u64).sum()
}

/// Changes the rules of the host's firewall, whose table is called `name`, while flows pass.
fn rules_change(cluster: &Cluster, name: &str) {
    let write = |rules: &str| std::fs::write(cluster.path("firewall.rules"), rules).unwrap();
    write(RULES);
    let mut a = cluster.start(0);
    let mut traffic = Traffic::begin(cluster);
    traffic.all_pass();
    assert!(traffic.passes(&a, &to_port(9)));

    // A new rule holds for new flows as soon as the command has answered; none that is known loses a packet.
    write(&format!("drop udp on inside to any port 9, 10\n{RULES}"));
    let (end, text) = traffic.during(|| a.command(&["reload"]));
    assert_eq!(end, End::Done, "{text}");
    assert!(text.contains(&format!("[function.{name}] rules")), "{text}");
    assert!(!traffic.passes(&a, &to_port(10)));
    assert!(traffic.passes(&a, &to_port(11)));
    // The flow to port 9 was allowed when it began.
    assert!(traffic.passes(&a, &to_port(9)));

    // A file with a mistake changes nothing, and the answer says where it is.
    write(&format!(
        "allow udp on inside to any port 10\nalow udp on inside\n{RULES}"
    ));
    let (end, text) = traffic.during(|| a.command(&["reload"]));
    assert!(
        end == End::File && text.contains("firewall.rules:2: "),
        "{text}"
    );
    assert!(!traffic.passes(&a, &to_port(10)));
    std::fs::remove_file(cluster.path("firewall.rules")).unwrap();
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::File && text.contains("firewall.rules"),
        "{text}"
    );
    assert!(!traffic.passes(&a, &to_port(10)));
    assert!(a.log().contains("event=reload-refused"), "{}", a.log());

    // Not even with what can change does anything change that cannot.
    write(RULES);
    let table = format!("[function.{name}]");
    cluster.edit(&table, &format!("{table}\npick_up = true"));
    let config = std::fs::read_to_string(cluster.path("asterism.toml")).unwrap();
    let line = 1 + config
        .lines()
        .position(|line| line.starts_with("pick_up"))
        .unwrap();
    let (end, text) = traffic.during(|| a.command(&["reload"]));
    let said = format!(
        "asterism.toml:{line}: {table} pick_up cannot change while the host runs: stop all hosts"
    );
    assert!(end == End::File && text.contains(&said), "{text}");
    assert!(!text.contains("rules cannot"), "{text}");
    assert!(!traffic.passes(&a, &to_port(10)));

    // Again and again, by signals too, without a pause between.
    cluster.edit(&format!("{table}\npick_up = true"), &table);
    traffic.during(|| {
        for round in 0..20 {
            write(&format!(
                "allow udp on inside to any port {}\n{RULES}",
                20 + round
            ));
            let (end, text) = a.command(&["reload"]);
            assert_eq!(end, End::Done, "{text}");
        }
        a.signal(rustix::process::Signal::HUP);
    });
    assert!(traffic.passes(&a, &to_port(10)));
    a.stop();
}

#[test]
fn rules_of_a_firewall_change_while_packets_flow() {
    let cluster = Cluster::of(1, "", "[function.firewall]\nrules = \"firewall.rules\"\n");
    rules_change(&cluster, "firewall");
}

#[test]
fn rules_of_a_firewall_in_a_chain_change_while_packets_flow() {
    let tables = format!(
        "[stage.guard]\nfunction = \"firewall\"\n[function.guard]\nrules = \"firewall.rules\"\n{NAT}"
    );
    let cluster = Cluster::of(1, "chain = [\"guard\", \"nat\", \"monitor\"]", &tables);
    rules_change(&cluster, "guard");
}

#[test]
fn who_is_exempt_by_a_reload_is_let_through_though_he_is_blocked() {
    let cluster = Cluster::of(1, "", "[function.port-scan]\nports = 7\n");
    let mut a = cluster.start(0);
    let mut traffic = Traffic {
        inside: cluster.end("a", "inside"),
        outside: cluster.end("a", "outside"),
        left: Vec::new(),
    };
    let found = (1_100..1_140).find(|port| !traffic.passes(&a, &to_port(*port)));
    assert!(found.is_some(), "a scan of forty ports is blocked");
    assert!(!traffic.passes(&a, &to_port(1_200)));
    let exempt = format!("ports = 8\nexempt = [\"{}\"]", to_port(1).source);
    cluster.edit("ports = 7", &exempt);
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::Done && text.contains("[function.port-scan] exempt"),
        "{text}"
    );
    assert!(traffic.passes(&a, &to_port(1_201)));
    // What evidence is kept by cannot change, and with it nothing does.
    cluster.edit(&exempt, "ports = 8\nwindow = \"2m\"");
    let (end, text) = a.command(&["reload"]);
    let said = "[function.port-scan] window cannot change while the host runs";
    assert!(end == End::File && text.contains(said), "{text}");
    assert!(traffic.passes(&a, &to_port(1_202)));
    a.stop();
}

/// A segment of a stream from this port.
fn segment(port: u16, sequence: u32, payload: &str) -> Vec<u8> {
    let mut bytes = [0; 256];
    let header = Header4::between(outbound(port).source, SERVER);
    let segment = Segment {
        sequence,
        ..Segment::with_flags(TcpFlags::ACK)
    };
    let payload = payload.as_bytes();
    let length = build::tcp4(&header, port, 80, &segment, payload, &mut bytes);
    bytes[..length.unwrap()].to_vec()
}

#[test]
fn signatures_change_at_one_host_after_the_other_while_packets_flow() {
    const TABLE: &str = "[function.signature]\nresponse = \"block\"\nblock = \"1h\"\n";
    let [one, two] = [("one", 1), ("two", 2)].map(|(name, id)| {
        format!("signatures.{name} = {{ id = {id}, bytes = \"EVIL-{name}\" }}\n")
    });
    let cluster = Cluster::of(2, "", &format!("{TABLE}{one}"));
    let [a, b] = [cluster.begin(0, &[]), cluster.begin(1, &[])].map(|mut host| {
        host.wait_for("READY=1");
        host
    });
    let mut at_a = Traffic::begin(&cluster);
    let mut at_b = Traffic {
        inside: cluster.end("b", "inside"),
        outside: cluster.end("b", "outside"),
        left: Vec::new(),
    };
    let list = |host: &Host| {
        let status = host.ask(&["status"]);
        let own = &status["instances"][0]["own"];
        (own["signatures"].as_u64(), own["signature_list"].as_u64())
    };
    let first = list(&a);
    assert_eq!((first.0, list(&b)), (Some(1), first));
    assert!(!at_a.lets(&a, &segment(1, 1_000, "..EVIL-one..")));
    assert!(at_a.lets(&a, &segment(2, 1_000, "..EVIL-two..")));

    // One host looks for another one too: both are of one cluster, and what it finds is blocked by both.
    cluster.edit(&one, &format!("{one}{two}"));
    let (end, text) = at_a.during(|| a.command(&["reload"]));
    assert!(
        end == End::Done && text.contains("[function.signature] signatures"),
        "{text}"
    );
    let second = wait("the other list", || {
        let (signatures, list) = list(&a);
        (signatures == Some(2)).then_some((signatures, list))
    });
    assert!(second != first && list(&b) == first);
    assert!(!at_a.lets(&a, &segment(3, 1_000, "..EVIL-two..")));
    assert!(at_b.lets(&b, &segment(4, 1_000, "..EVIL-two..")));
    wait("the alert of the other", || {
        (b.live("alerts") == 2).then_some(())
    });
    assert!(!at_b.lets(&b, &segment(3, 1_100, "nothing of note")));
    assert_eq!(a.ask(&["status"])["peers"][0]["admitted"], true);

    // The other one does: what is split over both is found.
    let (end, text) = b.command(&["reload"]);
    assert_eq!(end, End::Done, "{text}");
    wait("the same list", || (list(&b) == second).then_some(()));
    assert!(at_a.lets(&a, &segment(5, 1_000, "....EVIL-t")));
    wait("what a saw", || (b.live("pieces") == 1).then_some(()));
    assert!(!at_b.lets(&b, &segment(5, 1_010, "wo....")));

    // A mistake changes nothing, and the answer says where it is and what to do.
    cluster.edit("id = 2", "id = 1");
    let (end, text) = at_a.during(|| a.command(&["reload"]));
    let config = std::fs::read_to_string(cluster.path("asterism.toml")).unwrap();
    let line = config.lines().position(|line| line.contains("EVIL-two"));
    let said = format!(
        "asterism.toml:{}: `two` has the id of `one`: give each signature an id of its own",
        1 + line.unwrap()
    );
    assert!(end == End::File && text.contains(&said), "{text}");
    assert_eq!(list(&a), second);
    assert!(!at_a.lets(&a, &segment(6, 1_000, "..EVIL-two..")));
    // Neither does what cannot change.
    cluster.edit(
        &two.replace("id = 2", "id = 1"),
        "signatures.two = { id = 3, bytes = \"EVIL-three\" }\nmin_piece = 3\n",
    );
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::File && text.contains("[function.signature] min_piece cannot change"),
        "{text}"
    );
    assert!(!text.contains("signatures"), "{text}");
    assert!(at_a.lets(&a, &segment(7, 1_000, "..EVIL-three..")));
}

/// A request that takes its time does not keep what was reloaded from being in force.
#[test]
fn a_reload_does_not_wait_for_a_trace() {
    let tables = "[stage.watch]\nfunction = \"monitor\"\n[function.watch]\nout_degree = 50\n[function.pass-through]\n";
    let cluster = Cluster::of(2, "chain = [\"watch\", \"pass-through\"]", tables);
    let hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])].map(|mut host| {
        host.wait_for("READY=1");
        host
    });
    std::thread::scope(|scope| {
        let tracing = scope.spawn(|| hosts[0].ask(&["trace", "-n", "1", "--within", "20"]));
        // A second request waits behind the first, and the reload passes both.
        std::thread::park_timeout(std::time::Duration::from_millis(300));
        let digests = scope.spawn(|| hosts[0].command(&["status", "--digests"]));
        std::thread::park_timeout(std::time::Duration::from_millis(100));
        cluster.edit("out_degree = 50", "out_degree = 60");
        for host in &hosts {
            let (end, text) = host.command(&["reload"]);
            assert!(
                end == End::Done && text.contains("[function.watch] out_degree"),
                "{text}"
            );
            assert!(!host.log().contains("reload-slow"), "{}", host.log());
        }
        // More than one, since a busy host may begin late to trace.
        let mut inside = cluster.end("a", "inside");
        wait("the trace", || {
            inside.send(&outbound(4_000));
            tracing.is_finished().then_some(())
        });
        assert_eq!(
            tracing.join().unwrap()["packets"].as_array().unwrap().len(),
            1
        );
        digests.join().unwrap();
    });
    // Hosts that took it up at different moments are one cluster still.
    let status = hosts[0].ask(&["status"]);
    assert_eq!(status["peers"][0]["admitted"], true);
}
