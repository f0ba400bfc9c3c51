//! Web-cache digests with real Squids: one host fetches a cache's digest, another serves it to a second cache, which then finds its
//! sibling's objects; queries are answered by either host. And a cache whose digest lies. Says `SKIPPED` where Squid is not installed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use asterism_functions::cache_digests::icp::{read_answer, write_query};
use asterism_functions::cache_digests::squid::Header;
use asterism_lab::squid::{Origin, Squid, is_installed};
use asterism_packet::{Packet, build};
use serde_json::Value;

use crate::run::host::{Cluster, Host, own_loopback_socket, wait};

const ASKER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const CACHE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The same cache, as one that reports, and where to.
const REPORTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const COLLECTOR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const OBJECTS: u32 = 200;

/// A cluster of two whose function knows these caches; where each host serves digests.
fn cluster(caches: &str) -> (Cluster, [SocketAddr; 2]) {
    let cluster = Cluster::new(2, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    let mut text = format!(
        "{}[function.cache-digests]\ninterval = \"1s\"\nkeep = \"1m\"\ntimeout = \"5s\"\n{caches}\n",
        &text[..nat]
    );
    let served = [own_loopback_socket(), own_loopback_socket()];
    for (name, at) in ["a", "b"].iter().zip(served) {
        text.push_str(&format!(
            "[on.{name}.function.cache-digests]\nserve = \"{at}\"\n"
        ));
    }
    std::fs::write(&path, text).unwrap();
    (cluster, served)
}

fn start(cluster: &Cluster) -> [Host; 2] {
    let mut hosts = [cluster.begin(0, &[]), cluster.begin(1, &[])];
    for host in &mut hosts {
        host.wait_for("READY=1");
    }
    hosts
}

/// What a host knows of a cache.
fn known(host: &Host, cache: usize, url: Option<&str>) -> Value {
    let arguments: Vec<_> = ["digests"].into_iter().chain(url).collect();
    host.ask(&arguments)["caches"][cache].clone()
}

/// What a host answers at a path: the head and what follows.
fn served(at: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(end.unwrap() + 4);
    (String::from_utf8(answer).unwrap(), body)
}

#[test]
fn a_squid_finds_its_siblings_objects_by_a_digest_that_another_host_fetched() {
    if !is_installed() {
        println!(
            "SKIPPED web-cache digests with real programs: squid is not installed: apt-get install squid"
        );
        return;
    }
    let origin = Origin::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // It also reports what it stores, as a cache of its own.
    let reports = UdpSocket::bind("127.0.0.1:0").unwrap();
    reports.set_nonblocking(true).unwrap();
    let address = reports.local_addr().unwrap();
    let log = format!("cache_store_log udp://{address}");
    let first = Squid::start(folder.path(), "first", &log).unwrap();
    let (mut reported, mut room) = (Vec::new(), [0; 2_000]);
    for number in 0..OBJECTS {
        assert_eq!(first.get(&origin.url(number)).unwrap(), 200);
        while let Ok(length) = reports.recv(&mut room) {
            reported.push(room[..length].to_vec());
        }
    }
    assert_eq!(origin.asked(), u64::from(OBJECTS));
    let caches = format!(
        "caches.first = {{ address = \"{CACHE}\", http = {} }}\ncaches.reports = {{ address = \"{REPORTS}\", reports = 1_000 }}\nreports = \"{COLLECTOR}:5140\"",
        first.port()
    );
    let (cluster, places) = cluster(&caches);
    let [a, b] = start(&cluster);
    // Squid's icons are in it too.
    wait("the digest at the other host", || {
        let known = known(&b, 0, None);
        (known["objects"].as_u64() >= Some(OBJECTS.into())).then_some(())
    });
    let count = |host: &Host, name: &str| host.ask(&["status"])["caches"][name].clone();
    assert!(count(&a, "fetched").as_u64() >= Some(1));
    assert_eq!(count(&b, "fetched"), 0, "one fetches for all");
    for number in 0..OBJECTS {
        let known = known(&b, 0, Some(&origin.url(number)));
        assert_eq!(known["holds"], true, "{number}");
    }
    let unknown = (0..20).map(|number| known(&b, 0, Some(&origin.url(OBJECTS + number))));
    assert!(unknown.filter(|known| known["holds"] == false).count() > 10);

    let url = format!("http://{}/digests/first", places[1]);
    let peer = format!(
        "cache_peer 127.0.0.1 sibling {} 0 no-query no-netdb-exchange digest-url={url}",
        first.port()
    );
    let second = Squid::start(folder.path(), "second", &peer).unwrap();
    // It asks for the digest when it misses an object for the first time, and has it a moment later.
    let mut stranger = 10_000;
    wait("squid to use the digest", || {
        stranger += 1;
        assert_eq!(second.get(&origin.url(stranger)).unwrap(), 200);
        (count(&b, "served").as_u64() >= Some(1)).then_some(())
    });
    let mut probed = 0;
    wait("the first hit", || {
        std::thread::park_timeout(Duration::from_millis(50));
        assert_eq!(second.get(&origin.url(probed)).unwrap(), 200);
        probed += 1;
        (second.sibling_hits() > 0).then_some(())
    });
    let before = (second.sibling_hits(), origin.asked());
    for number in probed..OBJECTS {
        assert_eq!(second.get(&origin.url(number)).unwrap(), 200);
    }
    let hits = second.sibling_hits() - before.0;
    // What went otherwise, as both caches tell it.
    let odd = [&second, &first].map(|squid| {
        let log = squid.file("access.log");
        let odd = log
            .lines()
            .filter(|line| !line.contains(" CD_SIBLING_HIT/"));
        odd.rev().take(20).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(hits as u32, OBJECTS - probed, "{}\n\n{}", odd[0], odd[1]);
    assert!(
        probed < OBJECTS / 2,
        "{probed} requests before the first hit"
    );
    assert_eq!(origin.asked(), before.1, "nothing was asked of the origin");
    // Reports pass through one host, and the other knows what they reported.
    while let Ok(length) = reports.recv(&mut room) {
        reported.push(room[..length].to_vec());
    }
    let mut insides = ["a", "b"].map(|name| cluster.end(name, "inside"));
    let mut outsides = ["a", "b"].map(|name| cluster.end(name, "outside"));
    for report in &reported {
        let mut frame = [0; 2_000];
        let header = build::Header4::between(REPORTS, COLLECTOR);
        let length = build::udp4(&header, 40_000, 5_140, report, &mut frame).unwrap();
        outsides[0].send_frame(&frame[..length]);
        let passed = wait("the report to go on", || insides[0].take_frames().pop());
        assert_eq!(passed, &frame[..length]);
    }
    wait("all reports at the other host", || {
        let stored = known(&b, 1, None)["counts"]["stored"].as_u64();
        (stored >= Some(OBJECTS.into())).then_some(())
    });
    for number in 0..OBJECTS {
        let known = known(&b, 1, Some(&origin.url(number)));
        assert_eq!(known["holds"], true, "{number}");
    }
    // Queries on the way to the cache are answered by either host in its name.
    for (inside, outside) in insides.iter_mut().zip(&mut outsides) {
        let (mut payload, mut frame) = ([0; 200], [0; 300]);
        let length = write_query(77, origin.url(3).as_bytes(), &mut payload).unwrap();
        let header = build::Header4::between(ASKER, CACHE);
        let length = build::udp4(&header, 3_130, 3_130, &payload[..length], &mut frame).unwrap();
        inside.send_frame(&frame[..length]);
        let mut answer = wait("the answer", || inside.take_frames().pop());
        let packet = Packet::parse(&mut answer).unwrap();
        assert_eq!(packet.flow4().unwrap().source, CACHE);
        assert_eq!(read_answer(packet.payload()), Some((77, true)));
        assert!(
            outside.take_frames().is_empty(),
            "it went on to the cache too"
        );
    }
    assert!(
        b.command(&["status"])
            .1
            .contains("digests of web caches: 0 fetched")
    );
    assert!(
        b.command(&["digests", &origin.url(3)])
            .1
            .contains("first: HOLDS IT")
    );
}

#[test]
fn digests_that_lie_are_refused_and_the_one_before_stays() {
    // A cache that first tells a digest of one object, then others that lie.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(at) = listener.local_addr().unwrap() else {
        panic!()
    };
    let header = Header {
        count: 1,
        ..Header::sized(100, 5)
    };
    let mut good = [&header.bytes()[..], &[0; 63]].concat();
    good[128] = 7;
    let lies = [
        [&good[..128], &[0xff; 63]].concat(),
        [&good[..16], &[0xff; 4], &good[20..]].concat(),
        [&[0, 9, 0, 9], &good[4..]].concat(),
        good[..150].to_vec(),
    ];
    let reported = good.clone();
    std::thread::spawn(move || {
        let mut digests = [reported].into_iter().chain(lies.into_iter().cycle());
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 500];
            let _ = stream.read(&mut request);
            let digest = digests.next().unwrap();
            let head = format!(
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
                digest.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &digest].concat());
            // What is shorter than it says ends here.
        }
    });
    let SocketAddr::V4(silent) = own_loopback_socket() else {
        panic!()
    };
    let cache = |name: &str, at: SocketAddrV4| {
        let (address, port) = (at.ip(), at.port());
        format!("caches.{name} = {{ address = \"{address}\", http = {port} }}")
    };
    let caches = [cache("liar", at), cache("silent", silent)].join("\n");
    let (cluster, places) = cluster(&caches);
    let [a, b] = start(&cluster);
    let reasons = ["overfull", "sizes", "truncated", "unreachable", "version"];
    wait("all lies to be refused", || {
        // The second host tries too, when the first one has got nothing for a while.
        let both = [&a, &b].map(|host| host.ask(&["status"])["caches"]["refused"].clone());
        let reported = both.iter().filter_map(Value::as_object);
        let reported: BTreeSet<&str> = reported
            .flat_map(|reported| reported.keys().map(String::as_str))
            .collect();
        assert!(
            reported.iter().all(|reason| reasons.contains(reason)),
            "{reported:?}"
        );
        (reported.len() == reasons.len()).then_some(())
    });
    // What was fetched before stays, at either host, and comes out as it came.
    for (host, at) in [(&a, places[0]), (&b, places[1])] {
        wait("the digest", || {
            (known(host, 0, None)["objects"] == 1).then_some(())
        });
        assert_eq!(known(host, 1, Some("http://a/"))["digest"], "unknown");
        let (head, body) = served(at, "/digests/liar");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("application/cache-digest"));
        assert_eq!(body, good);
        // All together are the one that is known; Squid may write the host before the path.
        assert_eq!(served(at, "/squid-internal-periodic/store_digest").1, good);
        assert_eq!(served(at, "http://x:1/digests/liar").1, good);
        for path in ["/digests/silent", "/digests/nobody", "/"] {
            let (head, _) = served(at, path);
            assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
        }
    }
    wait("its line", || {
        a.log().contains("digest-refused").then_some(())
    });
}
