//! `asterism blocked`: any host tells whom rules of all hosts block, until when and by which.

use asterism::command_line::End;

use crate::host::{Cluster, outbound, wait};

const RULE: &str = "block 10m udp on inside to any port 7";

#[test]
fn any_host_tells_whom_all_of_them_block() {
    let cluster = Cluster::new(2, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    let function = "[function.firewall]\nrules = \"some.rules\"\n";
    std::fs::write(&path, format!("{}{function}", &text[..nat])).unwrap();
    std::fs::write(cluster.path("some.rules"), format!("\n{RULE}\n")).unwrap();
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let (end, text) = b.command(&["blocked"]);
    assert_eq!((end, text.as_str()), (End::Done, "nobody is blocked\n"));
    let mut inside = cluster.end("a", "inside");
    let _outside = cluster.end("a", "outside");
    inside.send(&outbound(4_000));
    for host in [&a, &b] {
        let block = wait("the block of the first host", || {
            let document = host.ask(&["blocked"]);
            let blocked = document["blocked"].as_array().unwrap();
            assert!(blocked.len() <= 1, "{document}");
            blocked.first().cloned()
        });
        assert_eq!(block["function"], "firewall");
        assert_eq!(block["source"], "10.0.0.2");
        assert_eq!(block["destination"], serde_json::Value::Null);
        assert_eq!(block["by"], format!("line 2: {RULE}"));
        let seconds = block["seconds"].as_u64().unwrap();
        assert!((500..=601).contains(&seconds), "{block}");
    }
}

#[test]
fn what_blocks_nobody_says_so() {
    let cluster = Cluster::new(1, "");
    let mut host = cluster.begin(0, &[]);
    host.wait_for("READY=1");
    let (end, text) = host.command(&["blocked"]);
    assert_eq!(end, End::File);
    assert!(text.contains("blocks nobody: it needs"), "{text}");
}
