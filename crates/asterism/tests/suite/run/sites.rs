//! Two sites on loopback, as processes: state crosses by the relays; one is killed, is passed by, and the next epoch replaces it.

use asterism::command_line;
use asterism_output::End;

use crate::run::host::{Cluster, Host, outbound, wait};

/// `a` and `b` are in the west, `c` and `d` in the east.
fn of_two_sites() -> Cluster {
    let cluster = Cluster::new(4, "");
    cluster.edit("[cluster]\n", "[cluster]\nepochs = \"epoch.toml\"\n");
    for (name, site) in [("a", "west"), ("b", "west"), ("c", "east"), ("d", "east")] {
        let table = format!("[cluster.member.{name}]\n");
        cluster.edit(&table, &format!("{table}site = \"{site}\"\n"));
    }
    cluster
}

fn epoch(cluster: &Cluster, changes: &[&str]) {
    let config = cluster.path("asterism.toml");
    let all = ["asterism", "epoch", config.to_str().unwrap()];
    let all = all.iter().chain(changes);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
    assert_eq!(end, End::Done, "{}", String::from_utf8_lossy(&stderr));
}

/// The line of `asterism status` about a site.
fn line(host: &Host, site: &str) -> String {
    let text = host.command(&["status"]).1;
    let begins = format!("site {site}");
    let mut lines = text.lines().filter(|line| line.starts_with(&begins));
    lines.next().unwrap_or_default().to_owned()
}

fn wait_for_line(host: &Host, site: &str, ends: &str) {
    wait(&format!("\"{ends}\" of {site} at {}", host.name), || {
        let line = line(host, site);
        // How much a relay keeps is another matter.
        let line = line.split(" and keeps ").next()?;
        line.ends_with(ends).then_some(())
    });
}

#[test]
fn a_killed_relay_is_passed_by_and_the_next_epoch_names_another() {
    let cluster = of_two_sites();
    epoch(&cluster, &["--first"]);
    let mut hosts = [0, 1, 2, 3].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b, c, d] = &mut hosts;
    wait_for_line(a, "west, this host's", "this host is its relay");
    wait_for_line(b, "west, this host's", "a is its relay");
    wait_for_line(b, "east", "through c");
    wait_for_line(d, "west", "through a");

    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    let mut open = |ports: std::ops::Range<u16>| {
        for port in ports {
            inside.send(&outbound(port));
            outside.next();
        }
    };
    open(4_000..4_050);
    for host in [&*a, &*c, &*d] {
        wait("the sessions", || {
            (host.live("sessions") == 50).then_some(())
        });
    }
    wait("the relay to have handed datagrams on", || {
        let handed_on = c.ask(&["status"])["sites"]["relay"]["handed_on"].as_u64();
        (handed_on > Some(0)).then_some(())
    });

    c.child.kill().unwrap();
    c.child.wait().unwrap();
    wait_for_line(b, "east", "c is silent: directly to each of 2");
    open(5_000..5_050);
    wait("the sessions at d", || {
        (d.live("sessions") == 100).then_some(())
    });
    wait("the way past it to be counted", || {
        let fallbacks = b.ask(&["status"])["sites"]["relay_fallbacks"].as_u64();
        (fallbacks > Some(0)).then_some(())
    });

    epoch(&cluster, &["--without", "c"]);
    wait_for_line(b, "east", "through d");
    wait_for_line(d, "east, this host's", "this host is its relay");
    open(6_000..6_050);
    for host in [&*a, &*d] {
        wait("the sessions", || {
            (host.live("sessions") == 150).then_some(())
        });
    }
}
