//! `asterism up CONFIG`: a configuration of real interfaces, in a network namespace (needs root and `ip`; says `SKIPPED` without), the
//! mistakes that are found before anything is started, and a changed configuration of the local network.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use asterism_lab::{Cable, Lab, Node, pause, wait_until};
use serde_json::Value;

use crate::up::{KILL, Up, ask, down, signal};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const PATIENCE: Duration = Duration::from_secs(30);
const API: &str = "http://127.0.0.1:7580";

/// Two NAT hosts behind a director, and their orchestrator, all on one machine.
const MACHINE: &str = r#"
[cluster]
name = "machine"
key = "cluster.key"
members = ["a", "b"]
member.a.address = "127.0.0.1:7401"
member.b.address = "127.0.0.1:7402"
orchestrators = ["127.0.0.1:7500"]
epochs = "epoch.toml"

[orchestrator]
api.listen = "127.0.0.1:7580"

[orchestrator.director.edge.arm.inside]
side = "inside"
shared = ["10.77.0.1"]
via.a.address = "10.77.0.11"
via.b.address = "10.77.0.12"

[orchestrator.director.edge.arm.outside]
side = "outside"
shared = ["198.51.100.1"]
via.a.address = "198.51.100.11"
via.b.address = "198.51.100.12"

[orchestrator.director.edge.machine.d]
control = "127.0.0.1:7600"
arm.inside = { interface = "d-in", address = "10.77.0.3" }
arm.outside = { interface = "d-out", address = "198.51.100.3" }

[host]
join_wait = "300ms"

[function.nat]
outside = ["203.0.113.1"]
inside = ["10.77.0.0/24"]

[function.nat.state]
sessions.placement = "replicated"
ports = { placement = "replicated", allocation = "leased", absent = "wait 20ms" }

[on.a]
host = { control = "a.control.sock", state = "a.state" }
port = { inside.interface = "a-in", outside.interface = "a-out" }
function.nat.inside_link = { address = "10.77.0.11/24", mac = "02:00:00:00:01:0a", next_hop = "10.77.0.2" }
function.nat.outside_link = { address = "198.51.100.11/24", mac = "02:00:00:00:02:0a", next_hop = "198.51.100.2" }

[on.b]
host = { control = "b.control.sock", state = "b.state" }
port = { inside.interface = "b-in", outside.interface = "b-out" }
function.nat.inside_link = { address = "10.77.0.12/24", mac = "02:00:00:00:01:0b", next_hop = "10.77.0.2" }
function.nat.outside_link = { address = "198.51.100.12/24", mac = "02:00:00:00:02:0b", next_hop = "198.51.100.2" }
"#;

/// A machine with the interfaces of two hosts and a director, each on the segment of a client or of a server.
struct Machine {
    lab: Lab,
    machine: Node,
    client: Node,
    _others: [Node; 2],
}

impl Machine {
    fn new() -> Machine {
        let lab = Lab::new().unwrap();
        let [machine, client, server, switch] =
            ["machine", "client", "server", "switch"].map(|name| lab.node(name).unwrap());
        for (bridge, end, of_end) in [("in", &client, "10.77.0"), ("out", &server, "198.51.100")] {
            let names = ["a", "b", "d"].map(|name| format!("{name}-{bridge}"));
            let ends = names.iter().map(|name| (&machine, name.as_str()));
            let ends: Vec<_> = ends.chain([(end, "eth")]).collect();
            lab.bridge(&switch, bridge, &ends, &Cable::default())
                .unwrap();
            let route = match bridge {
                "in" => format!("default via {of_end}.1"),
                _ => format!("203.0.113.0/24 via {of_end}.1"),
            };
            end.ip(&[
                format!("address add {of_end}.2/24 dev eth"),
                format!("route add {route}"),
            ])
            .unwrap();
        }
        for host in ["a", "b"] {
            let set = |side, number| {
                format!("link set dev {host}-{side} address 02:00:00:00:0{number}:0{host}")
            };
            machine.ip(&[set("in", 1), set("out", 2)]).unwrap();
        }
        Machine {
            lab,
            machine,
            client,
            _others: [server, switch],
        }
    }

    /// Writes the configuration and its key.
    fn file(&self, text: &str) -> String {
        let key = self.lab.folder().join("cluster.key");
        if !key.exists() {
            asterism_config::key_file::write_new(&key, 1).unwrap();
        }
        let path = self.lab.file("asterism.toml", text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn up(&self, arguments: &[&str]) -> Up {
        self.machine.enter(|| Up::start(arguments)).unwrap()
    }

    /// Waits until the orchestrator says that both hosts take packets, and one comes through.
    fn wait_until_it_serves(&self) {
        let takes = || {
            let arguments = ["hosts", "--format", "json", "--api", API];
            let run = || Command::new(ASTERISM).args(arguments).output().unwrap();
            let output = self.machine.enter(run).unwrap();
            let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            document["cluster"]["hosts_taking"] == 2
        };
        wait_until("two hosts that take packets", PATIENCE, takes).unwrap();
        let ping = || {
            let ping = self.client.program("ping");
            let ping = ping.args(["-c", "1", "-W", "1", "198.51.100.2"]);
            ping.run().is_ok()
        };
        wait_until("an answer through the cluster", PATIENCE, ping).unwrap();
    }
}

/// What a command line that is refused says, and its exit code.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(ASTERISM)
        .arg("up")
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn a_configuration_of_real_interfaces_runs_by_one_command() {
    if let Err(why) = asterism_lab::needs(&["ip", "ping"]) {
        println!("SKIPPED a cluster on one machine: {why}");
        return;
    }
    let machine = Machine::new();
    let file = machine.file(MACHINE);
    let mut up = machine.up(&[&file]);
    let line = up.wait_for("host b is started as process");
    let killed: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    up.wait_for("asterism hosts --api http://127.0.0.1:7580");
    machine.wait_until_it_serves();
    up.wait_for("2 of 2 hosts take packets");
    wait_until("b to serve", PATIENCE, || {
        let hosts = machine.machine.enter(|| ask(API, &["hosts"])).unwrap();
        hosts["hosts"][1]["stage"] == "serving"
    })
    .unwrap();

    signal(killed, KILL);
    let line = up.wait_for("host b has ended with signal 9");
    assert!(line.ends_with("it is started again in 1s"), "{line}");
    // The end of its log.
    up.wait_for("| ");
    up.wait_for("host b is started as process");
    up.wait_for("2 of 2 hosts take packets");
    machine.wait_until_it_serves();

    let processes = up.processes();
    assert_eq!(processes.len(), 4, "{processes:?}");
    let report = up.end();
    let of = |key: &str| -> Vec<&Value> {
        let processes = report["processes"].as_array().unwrap().iter();
        processes.map(|process| &process[key]).collect()
    };
    assert_eq!(of("name"), ["orchestrator-1", "d", "a", "b"], "{report}");
    assert_eq!(of("role"), ["orchestrator", "director", "host", "host"]);
    assert_eq!(of("starts"), [1, 1, 1, 2], "{report}");
    assert_eq!(of("ends_by_itself"), [0, 0, 0, 1], "{report}");
    assert_eq!(of("end"), ["exit code 0"; 4], "{report}");
    assert_eq!(report["holds"], true, "{report}");
    assert!(!processes.into_iter().any(runs));

    // What a killed command leaves is found again by the next one, and ended by `down`.
    let mut up = machine.up(&[&file]);
    up.wait_for("Everything is started");
    let left = up.processes();
    up.kill_alone();
    let mut again = machine.up(&[&file]);
    again.wait_for("host b runs already");
    again.wait_for("asterism status --socket");
    again.kill_alone();
    assert!(left.iter().copied().all(runs), "{left:?}");
    let folder = machine.lab.folder().to_str().unwrap();
    assert_eq!(down(folder)["processes_stopped"], 4);
    assert!(!left.into_iter().any(runs));

    // An orchestrator that launches hosts keeps doing so, and they end with it.
    let launch = format!("\n[orchestrator.launch]\nwith = \"process\"\nprogram = {ASTERISM:?}\n");
    let file = machine.file(&(MACHINE.to_owned() + &launch));
    let mut up = machine.up(&[&file]);
    up.wait_for("asterism hosts --api");
    machine.wait_until_it_serves();
    up.wait_for("2 of 2 hosts take packets");
    assert_eq!(up.processes().len(), 2, "an orchestrator and a director");
    let report = up.end();
    assert_eq!(report["holds"], true, "{report}");
    let processes = report["processes"].as_array().unwrap().iter();
    let names: Vec<_> = processes.map(|process| &process["name"]).collect();
    assert_eq!(names, ["orchestrator-1", "d", "a", "b"], "{report}");
    let open = machine.machine.enter(|| UdpSocket::bind("127.0.0.1:7401"));
    assert!(open.unwrap().is_ok(), "the state channel of host a");
}

#[test]
fn a_role_that_refuses_its_configuration_ends_all() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a cluster with a refused role: {why}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    asterism_config::key_file::write_new(&folder.path().join("cluster.key"), 1).unwrap();
    let file = folder.path().join("asterism.toml");
    // Only the driver of routes looks whether a destination is there twice.
    let text = "[cluster]\nmembers = [\"a\"]\nkey = \"cluster.key\"\nepochs = \"epoch.toml\"\n\
         orchestrators = [\"127.0.0.1:7593\"]\n[orchestrator.routes.up]\ntable = 999\n\
         to = [\"203.0.113.0/24\", \"203.0.113.0/24\"]\n\
         via.a = { gateway = \"127.0.0.9\", interface = \"lo\" }\n[host]\ncontrol = \"a.sock\"\n\
         [port]\ninside = { kind = \"shared_memory\", role = \"listen\", path = \"a.in\" }\n\
         outside = { kind = \"shared_memory\", role = \"listen\", path = \"a.out\" }\n[function.pass-through]\n";
    fs::write(&file, text).unwrap();
    let (code, all) = refused(&[file.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{all}");
    for said in [
        "orchestrator-1 refuses its configuration, and everything was ended:",
        "[orchestrator.routes.up]: 203.0.113.0/24 is there twice",
    ] {
        assert!(all.contains(said), "{said} is not in {all}");
    }
    let down = down(folder.path().to_str().unwrap());
    assert_eq!(down["processes_stopped"], 0, "{down}");
}

#[test]
fn what_cannot_run_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("cluster.key");
    asterism_config::key_file::write_new(&key, 1).unwrap();
    let file = folder.path().join("asterism.toml");
    let path = file.to_str().unwrap();
    let with = |text: &str, arguments: &[&str]| {
        fs::write(&file, text).unwrap();
        refused(&[&[path], arguments].concat())
    };
    // Whatever is wrong, for whichever role.
    for (right, wrong, said) in [
        (
            "join_wait = \"300ms\"",
            "join_wait = \"300\"",
            "asterism.toml:32:",
        ),
        (
            "interface = \"b-out\"",
            "interfaces = \"b-out\"",
            "unknown field `interfaces`",
        ),
        ("interface = \"d-in\"", "interface = 7", "asterism.toml:28:"),
    ] {
        let (code, all) = with(&MACHINE.replace(right, wrong), &[]);
        assert_eq!(code, Some(3), "{all}");
        assert!(all.contains(said), "{said} is not in {all}");
    }
    // What each machine may have, and one machine may not have twice.
    let alike = MACHINE
        .replace("b.control.sock", "a.control.sock")
        .replace("b.state", "a.state")
        .replace(
            "[orchestrator.director.edge.machine.d]",
            "[orchestrator.director.edge.machine.e]\ncontrol = \"127.0.0.1:7601\"\n\
             arm.inside = { interface = \"d-in\", address = \"10.77.0.4\" }\n\
             arm.outside = { interface = \"e-out\", address = \"198.51.100.4\" }\n\
             [orchestrator.director.edge.machine.d]",
        );
    let (code, all) = with(&alike, &[]);
    assert_eq!(code, Some(3), "{all}");
    for said in [
        "host a and host b would both have the control socket",
        "a.state: write another state into [on.b.host]",
        "director e and director d would both have the interface d-in",
    ] {
        assert!(all.contains(said), "{said} is not in {all}");
    }
    let bridge = "[cluster]\nmembers = [\"a\", \"b\"]\nkey = \"cluster.key\"\nmember.a.address = \"127.0.0.1:7401\"\n\
         member.b.address = \"127.0.0.1:7402\"\n[port]\ninside = { interface = \"eth8\", offloads = \"off\" }\n\
         outside = { interface = \"eth9\", offloads = \"off\" }\n[function.pass-through]\n";
    let (code, all) = with(bridge, &[]);
    assert_eq!(code, Some(3), "{all}");
    let said = "hosts a and b would both take the packets of eth9: write another interface into [on.b.port.outside]";
    assert!(all.contains(said), "{all}");
    // What this machine has not.
    let absent = MACHINE.replace("127.0.0.1:7402", "192.0.2.77:7402");
    let (code, all) = with(&absent, &[]);
    assert_eq!(code, Some(5), "{all}");
    for said in [
        "host b: the interface b-out cannot be used",
        "director d: the interface d-in cannot be used",
        "host b: its state channel is at 192.0.2.77, which is no address of this machine",
    ] {
        assert!(all.contains(said), "{said} is not in {all}");
    }
    // Options of other forms.
    for arguments in [["--hosts", "3"], ["--scale-above", "100"], ["--flows", "7"]] {
        let (code, all) = with(MACHINE, &arguments);
        assert_eq!(code, Some(2), "{all}");
        assert!(all.contains(arguments[0]), "{all}");
    }
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["asterism.toml", "cluster.key"]);
}

#[test]
fn a_changed_configuration_of_the_local_network_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut up = Up::start(&["--folder", path, "--hosts", "2"]);
    up.wait_for("is started as process");
    up.kill();
    let file = folder.path().join("asterism.toml");
    let written = fs::read_to_string(&file).unwrap();
    let replaced = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        text.replace(from, to)
    };
    let addresses =
        "outside = [\"203.0.113.1\", \"203.0.113.2\", \"203.0.113.3\", \"203.0.113.4\"]";
    let mut changed = replaced(
        &written,
        addresses,
        "outside = [\"203.0.113.1\", \"203.0.113.2\"]\nfiltering = \"address-and-port-dependent\"",
    );
    changed = replaced(&changed, "min = 2, max = 2", "min = 1, max = 2");
    changed = replaced(&changed, "[tenants.green]", "[tenants.red]");
    changed = replaced(
        &changed,
        "[cluster]\n",
        "chain = [\"firewall\", \"nat\"]\n\n[cluster]\n",
    );
    changed += "\n[function.firewall]\nrules = \"up.rules\"\n";
    let rules = "allow tcp on inside\nallow udp, icmp on inside\ndefault drop\n";
    fs::write(folder.path().join("up.rules"), rules).unwrap();
    fs::write(&file, &changed).unwrap();

    let mut up = Up::start(&[file.to_str().unwrap(), "--flows", "20"]);
    up.wait_for("Packets are translated after");
    let line = up.wait_for("asterism hosts --api");
    let api = line.split_whitespace().nth(3).unwrap().to_owned();
    up.wait_for("1 of 2 hosts take packets");
    let plan = ask(&api, &["plan"]);
    assert_eq!((&plan["maximum"], &plan["hosts"]), (&2.into(), &1.into()));
    assert_eq!(ask(&api, &["scale", "2"])["changed"], true);
    up.wait_for("2 of 2 hosts take packets");
    let tenants = ask(&api, &["usage"])["tenants"].to_string();
    assert!(
        tenants.contains("red") && !tenants.contains("green"),
        "{tenants}"
    );
    wait_until("some flows", PATIENCE, || {
        let usage = ask(&api, &["usage"]);
        let tenants = usage["tenants"].as_array().unwrap().iter();
        let flows = tenants.filter_map(|one| one["flows"].as_u64());
        flows.sum::<u64>() > 20
    })
    .unwrap();
    pause(Duration::from_secs(2));
    let report = up.end();
    assert_eq!(report["holds"], true, "{report}");
    assert!(report["flows_done"].as_u64().unwrap() > 10, "{report}");
    assert_eq!(report["processes"][1]["name"], "b", "{report}");
    assert_eq!(fs::read_to_string(&file).unwrap(), changed);

    // It is not written over, and what the network cannot do is said.
    let (_, said) = refused(&["--folder", path, "--hosts", "2"]);
    assert!(
        said.contains("was changed, and is not written over"),
        "{said}"
    );
    let other = replaced(&changed, "\"203.0.113.2\"", "\"192.0.2.2\"");
    let other = replaced(&other, "b.outside.sock", "c.outside.sock");
    let other = replaced(
        &other,
        "inside = [\"10.78.0.0/16\"]",
        "inside = [\"10.79.0.0/16\"]",
    );
    let other = replaced(&other, "10.77.0.11/24", "10.77.0.99/24");
    fs::write(&file, other).unwrap();
    let (code, all) = refused(&[file.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{all}");
    for said in [
        "the servers do not know the outside address 192.0.2.2",
        "[on.b.port.outside]: the link of b is at path = ",
        "write inside = [\"10.78.0.0/16\"]",
        "b has another link on the inside: write inside_link = { address = \"10.77.0.11/24\"",
    ] {
        assert!(all.contains(said), "{said} is not in {all}");
    }
}
