//! Direct return: each backend is a machine of its own on the hosts' link, has the service's address without answering ARP for it,
//! and a way to clients that passes no host.

use super::*;

/// A slow document: two seconds.
const BYTES: usize = 1_000_000;
const COUNT: usize = 6;

/// Backends with nginx, on one switch with the inside links of all hosts, and each with a cable to the client's node.
fn backends(lab: &NatLab) -> (Vec<Node>, Vec<Option<Program>>) {
    let nodes: Vec<Node> = (0..BACKENDS)
        .map(|number| lab.lab.node(&format!("web-{number}")).unwrap())
        .collect();
    let ends: Vec<_> = nodes.iter().map(|node| (node, "lan")).collect();
    // The node that is the client in a NAT's laboratory is the switch.
    let switch = &lab.client;
    lab.lab
        .bridge(switch, "lan", &ends, &Cable::default())
        .unwrap();
    for place in 1..=lab.hosts.len() {
        switch
            .ip(&[format!("link set dev nat{place} master lan")])
            .unwrap();
    }
    let programs = nodes.iter().enumerate().map(|(number, node)| {
        let macs = [1, 2].map(|end| format!("02:00:00:00:0{end}:1{number}"));
        let (own, cable) = (format!("web{number}"), Cable::default());
        lab.lab
            .cable(
                (node, "way"),
                (&lab.server, &own),
                &cable.macs(&macs[0], &macs[1]),
            )
            .unwrap();
        node.sysctl("net/ipv4/conf/all/arp_ignore", "1").unwrap();
        node.sysctl("net/ipv4/conf/all/arp_announce", "2").unwrap();
        node.ip(&[
            format!("address add {}/24 dev lan", backend_address(number)),
            format!("address add {TRANSLATED}/32 dev lo"),
            format!("route add {SERVER}/32 dev way"),
            format!("neighbour add {SERVER} lladdr {} dev way", macs[1]),
        ])
        .unwrap();
        Some(nginx(lab, node, &format!("{TRANSLATED}:80"), number))
    });
    let programs = programs.collect();
    (nodes, programs)
}

#[test]
fn backends_answer_clients_directly_and_a_host_dies_meanwhile() {
    if !ready(&["ip", "nginx", "curl"]) {
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(2, MS * 2)).unwrap();
    lab.lab.file("document", document(BYTES)).unwrap();
    let (nodes, programs) = backends(&lab);
    let mut cluster = Balanced::with(lab, programs, Kind::Direct);
    // All hosts know the stations of all backends before the first packet.
    wait_until("the stations of all backends", PATIENCE, || {
        (0..2).all(|place| {
            (0..BACKENDS).all(|number| cluster.knows_station(place, &backend_address(number)))
        })
    })
    .unwrap();
    cluster.lab.replies_through(&[0]).unwrap();
    cluster.every_backend_answers();

    let downloads: Vec<Program> = (0..COUNT).map(|number| cluster.download(number)).collect();
    wait_until("all downloads to begin", PATIENCE, || {
        (0..COUNT).all(|number| cluster.backend_of(number).is_some())
    })
    .unwrap();
    // What clients acknowledge goes by the other host now, which never saw these connections begin.
    cluster.hosts[0].take().unwrap().kill();
    cluster.lab.replies_through(&[1]).unwrap();
    for (number, download) in downloads.into_iter().enumerate() {
        let ended = download.wait(PATIENCE * 2).unwrap().successful();
        let got = std::fs::read(cluster.lab.lab.folder().join(format!("got-{number}")));
        assert!(
            ended.is_ok() && got.unwrap() == document(BYTES),
            "download {number}: {ended:?}\n{}",
            cluster.hosts_say()
        );
    }
    // No answer came by a host: they send by the outside link what they say for themselves alone.
    let by_hosts = cluster.lab.counts("out").unwrap();
    let directly = nodes
        .iter()
        .map(|node| node.interface_counts("way").unwrap().sent)
        .sum::<u64>();
    println!("frames of answers: {directly} directly, by hosts {by_hosts:?}");
    assert!(directly > (COUNT * BYTES / 1_500) as u64);
    assert!(by_hosts.iter().all(|one| one.sent < 100), "{by_hosts:?}");
    for host in cluster.hosts.into_iter().flatten() {
        assert!(host.runs(), "{}", host.stderr());
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}
