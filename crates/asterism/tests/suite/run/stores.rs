//! Objects in a store: two hosts that share nothing of an object but the store, which goes away and comes back; a host that is killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use asterism_lab::redis::Redis;
use asterism_output::End;
use asterism_packet::{Flow4, build};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::run::host::{
    Cluster, FIREWALL, Host, NAT, PortEnd, answer, outbound, own_loopback_address, wait,
};

/// A store's process. It is killed when this is dropped.
pub(crate) struct StoreProcess {
    child: Child,
    log: std::path::PathBuf,
    pub(crate) address: SocketAddr,
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl StoreProcess {
    /// `asterism store` with these arguments, which listens at this address.
    pub(crate) fn start(folder: &Path, listen: &str, arguments: &[&str]) -> StoreProcess {
        let log = folder.join("store.log");
        let child = Command::new(env!("CARGO_BIN_EXE_asterism"))
            .args(["store", "--listen", listen])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut store = StoreProcess {
            child,
            log,
            address: SocketAddr::from(([0; 4], 0)),
        };
        store.address = wait("the store to start", || {
            assert_eq!(store.child.try_wait().unwrap(), None, "{}", store.log());
            let log = store.log();
            let line = log.lines().find(|line| line.contains("event=started"))?;
            let (_, rest) = line.split_once("address=")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        store
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it as the service manager does.
    pub(crate) fn stop(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended = wait("the store to end", || self.child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{}", self.log());
        assert!(self.log().contains("event=stopped"), "{}", self.log());
    }
}

/// Where a store listens that is started again there: nothing else takes the port meanwhile.
pub(super) fn again() -> String {
    format!("{}:0", own_loopback_address())
}

pub(super) fn on_the_embedded_store(test: fn(SocketAddr)) {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    test(store.address);
}

pub(super) fn on_a_redis(what: &str, test: fn(SocketAddr)) {
    match Redis::start() {
        Some(redis) => test(redis.address()),
        None => println!("SKIPPED {what}: redis-server is not installed"),
    }
}

/// The fragments of a datagram of this flow: the first says the flow, the second is known by the first alone.
fn fragments(flow: u16, identification: u16) -> [Vec<u8>; 2] {
    let mut whole = [0; 256];
    let length = build::flow4(&outbound(flow), &[7; 100], &mut whole).unwrap();
    let (headers, data) = whole[..length].split_at(34);
    [(0, 64), (64, 108)].map(|(start, end)| {
        let mut part = headers.to_vec();
        part.extend(&data[start..end]);
        let more = if end < 108 { 0x2000 } else { 0 };
        part[16..18].copy_from_slice(&(20 + (end - start) as u16).to_be_bytes());
        part[18..20].copy_from_slice(&identification.to_be_bytes());
        part[20..22].copy_from_slice(&(more | (start as u16 / 8)).to_be_bytes());
        part[24..26].copy_from_slice(&[0, 0]);
        let checksum = asterism_function::checksum::of(&part[14..34]);
        part[24..26].copy_from_slice(&checksum.to_be_bytes());
        part
    })
}

/// The ends of a host's ports.
pub(super) struct Ends {
    pub(super) inside: PortEnd,
    pub(super) outside: PortEnd,
}

impl Ends {
    pub(super) fn of(cluster: &Cluster, host: &str) -> Ends {
        let end = |port| cluster.end(host, port);
        let (inside, outside) = (end("inside"), end("outside"));
        Ends { inside, outside }
    }

    /// Sends a frame from inside; whether it leaves, or is dropped.
    fn passes(&mut self, host: &Host, frame: &[u8]) -> bool {
        let before = dropped(host);
        self.inside.send_frame(frame);
        wait("what becomes of a frame", || {
            if !self.outside.take_frames().is_empty() {
                return Some(true);
            }
            (dropped(host) > before).then_some(false)
        })
    }

    /// Sends a frame from inside until it leaves: a host waits for its store for 300 ms, in which a busy machine need not run it.
    fn passes_in_the_end(&mut self, host: &Host, frame: &[u8]) {
        wait("a frame to leave", || {
            self.passes(host, frame).then_some(())
        });
    }
}

/// So many packets of a flow leave one host, and as many answers to them the other.
pub(super) fn both_ways((a, b): (&mut Ends, &mut Ends), flow: &Flow4, number: u32) {
    for _ in 0..number {
        a.inside.send(flow);
        assert_eq!(a.outside.next(), *flow);
        b.outside.send(&answer(flow));
        assert_eq!(b.inside.next(), answer(flow));
    }
}

/// Packets that a host dropped since it waited too long for them.
fn dropped(host: &Host) -> u64 {
    let status = host.ask(&["status"]);
    let dropped = status["instances"][0]["dropped"].as_object().unwrap();
    dropped.values().map(|count| count.as_u64().unwrap()).sum()
}

fn is_connected(host: &Host) -> bool {
    host.ask(&["status"])["store"]["connected"] == true
}

/// How long hosts wait for a store that runs, where nothing takes it away: a busy machine may hold it up for longer than the default.
pub(super) const LONG: &str = "timeout = \"5s\"\n";

/// A NAT whose fragments are in the store at this address.
fn tables(address: SocketAddr) -> String {
    format!(
        "[store]\naddress = \"{address}\"\ntimeout = \"300ms\"\n{NAT}[function.nat.state]\nfragments = {{ placement = \"remote\" }}\n"
    )
}

pub(super) fn hosts(cluster: &Cluster) -> [Host; 2] {
    let mut hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
    for host in &mut hosts {
        host.wait_for("READY=1");
        wait("the store", || is_connected(host).then_some(()));
    }
    hosts
}

/// Datagrams whose fragments go through two hosts, of which one is killed.
fn hosts_share_the_store(address: SocketAddr) {
    let tables = tables(address).replace("timeout = \"300ms\"\n", LONG);
    let cluster = Cluster::of(2, "", &tables);
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    for number in 0..20 {
        let [first, second] = fragments(4_000 + number, 100 + number);
        assert!(at_a.passes(&a, &first), "{}", a.log());
        assert!(at_b.passes(&b, &second), "{}", b.log());
    }
    for host in [&a, &b] {
        let status = host.ask(&["status"]);
        let store = &status["store"];
        assert_eq!(store["address"], address.to_string());
        assert!(store["keys_read"].as_u64() > Some(0), "{store}");
        assert!(store["round_trip_us"].as_u64() > Some(0), "{store}");
        host.says(
            &["status"],
            End::Done,
            &[&format!("store {address}: connected for")],
        );
        assert_eq!(host.live("fragments"), 0, "instances keep nothing of them");
    }
    assert!(a.ask(&["status"])["store"]["decided"].as_u64() >= Some(20));
    // What nobody knows of is dropped, and what one knew that is dead is not.
    let [_, unknown] = fragments(4_100, 300);
    assert!(!at_b.passes(&b, &unknown));
    let [first, second] = fragments(4_200, 400);
    assert!(at_a.passes(&a, &first));
    a.signal(Signal::KILL);
    assert!(at_b.passes(&b, &second), "{}", b.log());
}

/// Datagrams that go out by one NAT come back by the other, and no two inside endpoints share an outside port. One of them is killed.
fn nats_share_their_sessions(address: SocketAddr) {
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "[store]\naddress = \"{address}\"\n{LONG}{NAT}[function.nat.port_quarantine]\ntime = \"0s\"\n[function.nat.state]\nsessions = {remote}\nports = {remote}\nmappings = {remote}\n"
    );
    let cluster = Cluster::of(2, "", &tables);
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let mut outside = std::collections::BTreeSet::new();
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        let (from, to) = match number % 2 {
            0 => (&mut at_a, &mut at_b),
            _ => (&mut at_b, &mut at_a),
        };
        from.inside.send(&flow);
        let translated = from.outside.next();
        assert!(outside.insert(translated.source()), "{translated:?}");
        to.outside.send(&answer(&translated));
        assert_eq!(to.inside.next().destination(), flow.source());
    }
    for host in [&a, &b] {
        assert_eq!(host.live("sessions"), 0, "instances keep nothing of them");
    }
    a.signal(Signal::KILL);
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        at_b.inside.send(&flow);
        let translated = at_b.outside.next();
        assert!(outside.contains(&translated.source()), "{translated:?}");
        at_b.outside.send(&answer(&translated));
        assert_eq!(at_b.inside.next().destination(), flow.source());
    }
}

#[test]
fn translations_go_on_through_another_host_by_the_embedded_store() {
    on_the_embedded_store(nats_share_their_sessions);
}

#[test]
fn translations_go_on_through_another_host_by_a_redis() {
    on_a_redis("NATs that share a Redis", nats_share_their_sessions);
}

#[test]
fn hosts_share_what_is_in_the_embedded_store() {
    on_the_embedded_store(hosts_share_the_store);
}

#[test]
fn hosts_share_what_is_in_a_redis() {
    on_a_redis("hosts that share a Redis", hosts_share_the_store);
}

/// A limiter that is to fail open: while nobody answers at the store's address, packets go past it after its longest wait.
fn packets_go_past_a_limiter(top: &str, when_down: &str, stage: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "[store]\naddress = \"{}\"\ntimeout = \"100ms\"\n{when_down}{stage}\
         [function.limiter]\nsources = {{ rate = 1_000_000, burst = 1_000_000 }}\n\
         [function.limiter.state]\nsources = {remote}\n",
        store.address
    );
    let cluster = Cluster::of(2, top, &tables);
    let [a, _b] = hosts(&cluster);
    let mut ends = Ends::of(&cluster, "a");
    ends.inside.send(&outbound(4_000));
    assert_eq!(ends.outside.next(), outbound(4_000));
    store.stop();
    wait("the host to miss it", || (!is_connected(&a)).then_some(()));
    for number in 0..20 {
        ends.inside.send(&outbound(4_000 + number));
        assert_eq!(ends.outside.next(), outbound(4_000 + number));
    }
    wait("the packets to be shown", || {
        let instance = &a.ask(&["status"])["instances"][0];
        // On a busy machine the first one too, for which the store was late.
        let bypassed = instance["stages"][0]["bypassed"].as_u64()?;
        ((20..=21).contains(&bypassed) && instance["parked"] == 0).then_some(())
    });
}

#[test]
fn packets_go_past_a_stage_whose_store_is_away() {
    let stage = "[stage.limiter]\non_failure = \"bypass\"\nwait = \"20ms\"\n";
    packets_go_past_a_limiter("chain = [\"limiter\"]\n", "", stage);
}

#[test]
fn packets_go_past_a_function_whose_store_is_away() {
    packets_go_past_a_limiter("", "when_down = \"bypass\"\nbypass_after = \"20ms\"\n", "");
}

/// Two firewalls that share flows by the store at this address alone.
fn firewalls(address: SocketAddr) -> (Cluster, [Host; 2]) {
    firewalls_of(&format!("address = \"{address}\"\n{LONG}"))
}

/// The same with this in the table of the store.
pub(super) fn firewalls_of(store: &str) -> (Cluster, [Host; 2]) {
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "[store]\n{store}{FIREWALL}[function.firewall.state]\nflows = {remote}\nfragments = {remote}\n"
    );
    let cluster = Cluster::of(2, "", &tables);
    let rules = "allow udp on inside\ndefault drop\n";
    std::fs::write(cluster.path("some.rules"), rules).unwrap();
    let hosts = hosts(&cluster);
    (cluster, hosts)
}

/// Connections that are opened through one host go on through the other, which has never heard of them.
fn firewalls_share_the_store(address: SocketAddr) {
    let (cluster, [a, b]) = firewalls(address);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        at_a.inside.send(&flow);
        assert_eq!(at_a.outside.next(), flow);
        at_b.outside.send(&answer(&flow));
        assert_eq!(at_b.inside.next(), answer(&flow));
    }
    // Nobody opened this one.
    let before = dropped(&b);
    at_b.outside.send(&answer(&outbound(5_000)));
    wait("it to be dropped", || (dropped(&b) > before).then_some(()));
    for host in [&a, &b] {
        assert_eq!(host.live("flows"), 0, "instances keep nothing of them");
    }
    a.signal(Signal::KILL);
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        at_b.inside.send(&flow);
        assert_eq!(at_b.outside.next(), flow);
        at_b.outside.send(&answer(&flow));
        assert_eq!(at_b.inside.next(), answer(&flow));
    }
    assert!(at_b.inside.take().is_empty());
}

#[test]
fn connections_go_on_through_another_host_by_the_embedded_store() {
    on_the_embedded_store(firewalls_share_the_store);
}

#[test]
fn connections_go_on_through_another_host_by_a_redis() {
    on_a_redis("firewalls that share a Redis", firewalls_share_the_store);
}

#[test]
fn connections_go_on_after_a_failover_of_their_store() {
    let Some(mut servers) = Redis::start_replicated(2) else {
        println!("SKIPPED a failover of a store: redis-server is not installed");
        return;
    };
    let addresses: Vec<String> = servers
        .iter()
        .map(|one| one.address().to_string())
        .collect();
    let store = format!("address = {addresses:?}\nack = \"replica\"\n{LONG}");
    let (cluster, [a, b]) = firewalls_of(&store);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        at_a.inside.send(&flow);
        assert_eq!(at_a.outside.next(), flow);
    }
    // Nothing leaves that would be lost with the primary.
    servers[1..].iter().for_each(Redis::cut_off);
    at_a.inside.send(&outbound(4_999));
    asterism_lab::pause(std::time::Duration::from_millis(300));
    assert!(at_a.outside.take().is_empty());
    servers[0].kill();
    let heir = Redis::fail_over(&servers[1..]).address().to_string();
    for host in [&a, &b] {
        wait("the promoted one", || {
            let store = &host.ask(&["status"])["store"];
            (store["connected"] == true && store["address"] == heir).then_some(())
        });
        let store = &host.ask(&["status"])["store"];
        assert_eq!(store["addresses"].as_array().map(Vec::len), Some(3));
        host.says(
            &["status"],
            End::Done,
            &[&format!("store {heir}: connected")],
        );
    }
    // What left was acknowledged by a replica, and the one that has most was promoted: all of them are known.
    for number in 0..20 {
        let flow = outbound(4_000 + number);
        at_b.outside.send(&answer(&flow));
        assert_eq!(at_b.inside.next(), answer(&flow));
    }
    let new = outbound(5_000);
    at_b.inside.send(&new);
    assert_eq!(at_b.outside.next(), new);
    at_a.outside.send(&answer(&new));
    assert_eq!(at_a.inside.next(), answer(&new));
    for host in [&a, &b] {
        wait("its line", || {
            host.log().contains("event=store-primary").then_some(())
        });
    }
}

#[test]
fn connections_go_on_after_their_store_was_away() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--append", "store.aof"];
    let mut store = StoreProcess::start(folder.path(), &again(), &arguments);
    let address = store.address;
    let (cluster, [a, b]) = firewalls_of(&format!("address = \"{address}\"\n"));
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let (known, new) = (outbound(4_000), outbound(4_001));
    at_a.inside.send(&known);
    assert_eq!(at_a.outside.next(), known);
    store.stop();
    let lost = [dropped(&a), dropped(&b)];
    at_a.inside.send(&new);
    at_b.outside.send(&answer(&known));
    wait("both to be dropped", || {
        (dropped(&a) > lost[0] && dropped(&b) > lost[1]).then_some(())
    });
    let late = b.ask(&["status"])["instances"][0]["dropped"]["parked-too-long"].as_u64();
    assert_eq!(late, Some(1));
    let _store = StoreProcess::start(folder.path(), &address.to_string(), &arguments);
    for host in [&a, &b] {
        wait("the store", || is_connected(host).then_some(()));
    }
    at_b.outside.send(&answer(&known));
    assert_eq!(at_b.inside.next(), answer(&known));
    at_a.inside.send(&new);
    assert_eq!(at_a.outside.next(), new);
    at_b.outside.send(&answer(&new));
    assert_eq!(at_b.inside.next(), answer(&new));
}

/// What a host's cache shows.
fn cache(host: &Host, count: &str) -> u64 {
    let shown = host.ask(&["status"])["store"]["cache"][count].as_u64();
    shown.expect("instances keep answers")
}

/// `asterism state get` on a host: keys and values of the entries, sorted, and whether there are more.
fn found(host: &Host, arguments: &[&str]) -> (Vec<String>, bool) {
    let mut words = vec!["state", "get"];
    words.extend(arguments);
    let answer = host.ask(&words);
    let entries = answer["entries"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value| {
        assert!(entry.get("member").is_none(), "who wrote it nobody knows");
        format!("{}: {} = {}", entry["object"], entry["key"], entry["value"]).replace('"', "")
    };
    let mut texts: Vec<String> = entries.iter().map(text).collect();
    texts.sort();
    (texts, answer["more"] == true)
}

/// Any host finds what any other wrote.
fn entries_are_found_in_the_store(address: SocketAddr) {
    let (cluster, [a, b]) = firewalls(address);
    let mut at_a = Ends::of(&cluster, "a");
    for number in 0..100 {
        let flow = outbound(4_000 + number);
        at_a.inside.send(&flow);
        assert_eq!(at_a.outside.next(), flow);
    }
    for host in [&a, &b] {
        wait("a census", || {
            let entries = &host.ask(&["status"])["store"]["entries"];
            (entries["flows"] == 100 && entries["fragments"] == 0).then_some(())
        });
        let (one, more) = found(host, &["10.0.0.2:4017"]);
        assert_eq!((one.len(), more), (1, false), "{one:?}");
        assert!(
            one[0].starts_with("flows: ") && one[0].contains("10.0.0.2:4017"),
            "{one:?}"
        );
        assert_eq!(found(host, &["10.0.0.2:4017", "--object", "flows"]).0, one);
        assert_eq!(
            found(host, &["10.0.0.2:4017", "--object", "hits"]).0,
            [""; 0]
        );
        assert_eq!(found(host, &["10.0.0.2:5000"]).0, [""; 0]);
        let (many, more) = found(host, &["198.51.100.2:7"]);
        assert_eq!((many.len(), more), (64, true));
    }
}

#[test]
fn entries_are_found_in_the_embedded_store() {
    on_the_embedded_store(entries_are_found_in_the_store);
}

#[test]
fn entries_are_found_in_a_redis() {
    on_a_redis("entries in a Redis", entries_are_found_in_the_store);
}

#[test]
fn known_flows_go_on_by_what_hosts_keep_while_the_store_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--append", "store.aof"];
    let mut store = StoreProcess::start(folder.path(), &again(), &arguments);
    let address = store.address;
    let settings = "cache = {}\nwhen_down = \"serve-known\"\nknown_for = \"1h\"\n";
    let (cluster, [a, b]) = firewalls_of(&format!("address = \"{address}\"\n{settings}"));
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let (known, new) = (outbound(4_000), outbound(4_001));
    let mut passes = |number| both_ways((&mut at_a, &mut at_b), &known, number);
    passes(10);
    for host in [&a, &b] {
        wait("hits", || {
            (cache(host, "hits") > 4 && cache(host, "entries") > 0).then_some(())
        });
    }
    // The first answer changed what `a` had kept.
    wait("a change", || (cache(&a, "changes") > 0).then_some(()));
    store.stop();
    for host in [&a, &b] {
        wait("it to be missed", || (!is_connected(host)).then_some(()));
    }
    passes(10);
    let lost = dropped(&a);
    at_a.inside.send(&new);
    wait("it to be dropped", || (dropped(&a) > lost).then_some(()));
    let _store = StoreProcess::start(folder.path(), &address.to_string(), &arguments);
    for host in [&a, &b] {
        wait("the store", || is_connected(host).then_some(()));
    }
    both_ways((&mut at_a, &mut at_b), &new, 1);
}

#[test]
fn a_store_goes_away_and_comes_back_under_running_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).unwrap();
    let arguments = ["--append", "store.aof", "--password-file", "secret"];
    let mut store = StoreProcess::start(folder.path(), &again(), &arguments);
    let address = store.address;
    let tables = tables(address).replace(
        "timeout",
        &format!("password_file = \"{}\"\ntimeout", secret.display()),
    );
    let cluster = Cluster::of(2, "", &tables);
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let [first, known] = fragments(4_000, 100);
    at_a.passes_in_the_end(&a, &first);

    store.stop();
    wait("both to miss the store", || {
        let are_away = [&a, &b]
            .iter()
            .all(|host| host.log().contains("event=store-away"));
        are_away.then_some(())
    });
    // On a busy machine there may be another item for a moment.
    let status = wait("the item", || {
        let status = b.ask(&["status"]);
        (status["health"][0]["item"] == "store-away").then_some(status)
    });
    assert_eq!(status["store"]["connected"], false);
    assert!(status["store"]["away"].is_string(), "{}", status["store"]);
    b.says(
        &["status"],
        End::Done,
        &["away (", "needs a look: the store", "store-away"],
    );
    // What is known to the store alone, and what is new there, is dropped. Nothing else misses it.
    let [new, _] = fragments(4_001, 101);
    assert!(!at_b.passes(&b, &known));
    assert!(!at_a.passes(&a, &new));
    at_a.inside.send(&outbound(4_002));
    assert_eq!(at_a.outside.next().destination_port, 7);

    let _store = StoreProcess::start(folder.path(), &address.to_string(), &arguments);
    for host in [&a, &b] {
        wait("the store", || is_connected(host).then_some(()));
        wait("its line", || {
            host.log().contains("event=store-back").then_some(())
        });
    }
    let [first, second] = fragments(4_003, 103);
    at_a.passes_in_the_end(&a, &first);
    at_b.passes_in_the_end(&b, &second);
}

#[test]
fn hosts_start_without_their_store_and_refuse_a_wrong_password() {
    let folder = tempfile::tempdir().unwrap();
    // Of an address where nothing else is bound: it is free until the store takes it.
    let free = std::net::TcpListener::bind((own_loopback_address(), 0)).unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).unwrap();
    let cluster = Cluster::of(1, "", &tables(address));
    let mut a = cluster.start(0);
    // A busy host says so before it has tried to reach it.
    wait("the line", || {
        a.log().contains("event=store-away").then_some(())
    });
    wait("the reason", || {
        (a.ask(&["status"])["store"]["away"] == "unreachable").then_some(())
    });
    let arguments = ["--password-file", "secret"];
    let mut store = StoreProcess::start(folder.path(), &address.to_string(), &arguments);
    wait("the password to be missed", || {
        (a.ask(&["status"])["store"]["away"] == "login").then_some(())
    });
    store.stop();
    let _store = StoreProcess::start(folder.path(), &address.to_string(), &[]);
    wait("the store", || is_connected(&a).then_some(()));
    // It is not changed while the host runs.
    cluster.edit("timeout = \"300ms\"", "timeout = \"400ms\"");
    a.says(
        &["reload"],
        End::File,
        &["[store] timeout cannot change while the host runs"],
    );
    cluster.edit("timeout = \"400ms\"", "timeout = \"300ms\"");
    cluster.edit("placement = \"remote\"", "placement = \"local\"");
    a.says(&["reload"], End::File, &["no object lives in the store"]);
    a.stop();
    // A password that others can read is none.
    cluster.edit("placement = \"local\"", "placement = \"remote\"");
    cluster.edit(
        "timeout = \"300ms\"",
        &format!(
            "timeout = \"300ms\"\npassword_file = \"{}\"",
            secret.display()
        ),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, mode).unwrap();
    let mut a = cluster.begin(0, &[]);
    assert_eq!(a.ended(), Some(1), "{}", a.log());
    assert!(a.log().contains("chmod 600"), "{}", a.log());
}

#[test]
fn hosts_of_two_stores_are_of_two_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let shape = |change: &dyn Fn(&Cluster)| {
        let cluster = Cluster::of(1, "", &tables(store.address));
        change(&cluster);
        let a = cluster.start(0);
        a.ask(&["status"])["shape"].as_str().unwrap().to_owned()
    };
    let one = shape(&|_| {});
    assert_eq!(one, shape(&|_| {}));
    let named = shape(&|cluster| cluster.edit("timeout", "name = \"other\"\ntimeout"));
    let more = shape(&|cluster| {
        cluster.edit(
            "fragments = { placement = \"remote\" }",
            "fragments = { placement = \"remote\" }\nmappings = { placement = \"remote\" }",
        );
    });
    assert!(one != named && one != more && named != more);
    // Servers are named in any order.
    let listed = |addresses: &str| {
        shape(&|cluster| cluster.edit(&format!("\"{}\"", store.address), addresses))
    };
    let ordered = listed("[\"127.0.0.1:1\", \"127.0.0.1:2\"]");
    assert_eq!(ordered, listed("[\"127.0.0.1:2\", \"127.0.0.1:1\"]"));
    assert_ne!(ordered, listed("\"127.0.0.1:1\""));
    assert_ne!(ordered, one);
    let smaller = shape(&|cluster| cluster.edit("\"remote\" }", "\"remote\", capacity = 128 }"));
    assert_ne!(one, smaller);
}
