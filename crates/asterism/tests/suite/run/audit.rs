//! Hosts compare their state all the time, and one can have the others take over what it has.

use asterism_output::End;

use crate::run::host::{Cluster, outbound, wait};

/// How long ago an object had been found equal, in microseconds.
fn equal_ago(audit: &serde_json::Value, object: &str) -> u64 {
    let objects = audit["objects"].as_array().unwrap();
    let named = objects.iter().find(|known| known["object"] == object);
    named.unwrap()["equal_us_ago"].as_u64().unwrap()
}

#[test]
fn hosts_find_each_other_equal_and_repair_from_one() {
    let cluster = Cluster::new(2, "");
    let mut hosts = [0, 1].map(|place| cluster.begin(place, &[]));
    hosts.iter_mut().for_each(|host| host.wait_for("READY=1"));
    let [a, b] = &mut hosts;
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    for port in 4_000..4_050 {
        inside.send(&outbound(port));
        outside.next();
    }
    wait("the sessions at a", || {
        (a.live("sessions") == 50).then_some(())
    });

    // Everything that was there before was compared since.
    wait("b to be compared", || {
        let audit = b.ask(&["audit"]);
        let recent = audit["parts_equal"].as_u64() > Some(1_000);
        (audit["reference"] == "a" && recent && equal_ago(&audit, "sessions") < 1_000_000)
            .then_some(())
    });
    let (code, text) = b.command(&["audit"]);
    assert_eq!(code, End::Done, "{text}");
    assert!(
        text.contains("Compared with a") && text.contains("equal"),
        "{text}"
    );
    let (_, text) = a.command(&["audit"]);
    assert!(text.contains("This host is the reference"), "{text}");
    assert!(a.command(&["status"]).1.contains("Audit: "));

    // What one has is written again, and all have that.
    let (code, text) = a.command(&["audit", "--repair", "sessions"]);
    assert_eq!(code, End::Done, "{text}");
    assert!(text.contains("50 entries were written again"), "{text}");
    // And what b alone has would go there: nothing, here.
    let (code, text) = a.command(&["audit", "--repair", "sessions", "--remove"]);
    assert_eq!(code, End::Done, "{text}");
    assert!(
        text.contains("The other hosts remove the entries"),
        "{text}"
    );
    wait("b to have it", || {
        let digest = |host: &crate::run::host::Host| {
            let status = host.ask(&["status", "--digests"]);
            status["instances"][0]["objects"].clone()
        };
        let (a, b) = (digest(a), digest(b));
        let equal = a.as_array().unwrap().iter().zip(b.as_array().unwrap());
        equal
            .into_iter()
            .all(|(a, b)| a["digest"] == b["digest"])
            .then_some(())
    });
    wait("b to be compared again", || {
        let audit = b.ask(&["audit"]);
        (equal_ago(&audit, "sessions") < 1_000_000).then_some(())
    });
    assert_eq!((a.live("sessions"), b.live("sessions")), (50, 50));
    for (wrong, says) in [
        ("flows", "there is no object \"flows\""),
        ("sessions:300", "parts are numbers from 0 to 255"),
        ("ports", "its kind is not audited"),
    ] {
        let (code, text) = a.command(&["audit", "--repair", wrong]);
        assert!(code != End::Done && text.contains(says), "{wrong}: {text}");
    }
}
