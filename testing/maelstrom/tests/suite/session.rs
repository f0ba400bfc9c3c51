//! The built program over pipes: a script of lines, and every answer to it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What a program said to a script.
struct Reply {
    /// Messages to clients, in order.
    answers: Vec<Value>,
    /// Messages to other nodes.
    datagrams: Vec<Value>,
    log: String,
}

/// Runs the program for a workload, gives it the lines and ends its input.
fn run(workload: &str, lines: &[String]) -> Reply {
    let mut program = Command::new(env!("CARGO_BIN_EXE_asterism-maelstrom"))
        .args(["--workload", workload])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Written before anything is read: what the program says fits its pipes.
    let mut input = program.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let output = program.wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    let said = String::from_utf8(output.stdout).unwrap();
    let messages = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let (answers, datagrams) =
        messages.partition(|message: &Value| message["dest"].as_str().unwrap().starts_with('c'));
    Reply {
        answers,
        datagrams,
        log,
    }
}

/// A request of client `c1` to `n1`, as Maelstrom writes it.
fn request(id: u64, mut body: Value) -> String {
    body["msg_id"] = id.into();
    json!({"id": id + 100, "src": "c1", "dest": "n1", "body": body}).to_string()
}

fn init(id: u64) -> String {
    request(
        id,
        json!({"type": "init", "node_id": "n1", "node_ids": ["n1"]}),
    )
}

/// The answer to request `id`.
fn answer(id: u64, mut body: Value) -> Value {
    body["in_reply_to"] = id.into();
    json!({"src": "n1", "dest": "c1", "body": body})
}

fn error(id: u64, code: u16, text: &str) -> Value {
    answer(id, json!({"type": "error", "code": code, "text": text}))
}

/// Requests in order, each with the body of its answer, after `init`.
fn check(workload: &str, exchanges: &[(Value, Value)]) {
    let mut lines = vec![init(0)];
    let mut expected = vec![answer(0, json!({"type": "init_ok"}))];
    for (id, (asked, answered)) in (1..).zip(exchanges) {
        lines.push(request(id, asked.clone()));
        expected.push(answer(id, answered.clone()));
    }
    let said = run(workload, &lines);
    assert_eq!(said.answers, expected, "{workload}: {}", said.log);
    assert_eq!(said.datagrams, [Value::Null; 0]);
}

#[test]
fn g_set() {
    let add = |element: i64| json!({"type": "add", "element": element});
    let added = json!({"type": "add_ok"});
    let read = json!({"type": "read"});
    check(
        "g-set",
        &[
            (read.clone(), json!({"type": "read_ok", "value": []})),
            (add(3), added.clone()),
            (add(-1), added.clone()),
            (add(3), added.clone()),
            (add(i64::MAX), added),
            (read, json!({"type": "read_ok", "value": [-1, 3, i64::MAX]})),
        ],
    );
}

#[test]
fn g_counter() {
    let add = |delta: i64| json!({"type": "add", "delta": delta});
    let added = json!({"type": "add_ok"});
    let read = json!({"type": "read"});
    let negative = "`delta` is not a whole number that is not negative";
    check(
        "g-counter",
        &[
            (read.clone(), json!({"type": "read_ok", "value": 0})),
            (add(4), added.clone()),
            (add(0), added.clone()),
            (
                add(-1),
                json!({"type": "error", "code": 12, "text": negative}),
            ),
            (add(7), added),
            (read, json!({"type": "read_ok", "value": 11})),
        ],
    );
}

#[test]
fn pn_counter() {
    let add = |delta: i64| json!({"type": "add", "delta": delta});
    let added = json!({"type": "add_ok"});
    let read = json!({"type": "read"});
    check(
        "pn-counter",
        &[
            (add(4), added.clone()),
            (add(-9), added.clone()),
            (read.clone(), json!({"type": "read_ok", "value": -5})),
            (add(6), added),
            (read, json!({"type": "read_ok", "value": 1})),
        ],
    );
}

#[test]
fn broadcast() {
    let broadcast = |message: i64| json!({"type": "broadcast", "message": message});
    let done = json!({"type": "broadcast_ok"});
    let read = json!({"type": "read"});
    check(
        "broadcast",
        &[
            (
                json!({"type": "topology", "topology": {"n1": []}}),
                json!({"type": "topology_ok"}),
            ),
            (broadcast(1_000), done.clone()),
            (broadcast(8), done.clone()),
            (broadcast(8), done),
            (read, json!({"type": "read_ok", "messages": [8, 1_000]})),
        ],
    );
}

#[test]
fn whatever_comes_is_answered_or_logged() {
    let lines = [
        String::new(),
        "{\"src\":".into(),
        "[1,2]".into(),
        "\u{0}\u{7f}".into(),
        json!({"src": "c1", "dest": "n1"}).to_string(),
        json!({"src": "n2", "dest": "n1", "body": {"type": "asterism", "datagram": "AAAA"}})
            .to_string(),
        request(1, json!({"type": "read"})),
        request(2, json!({"type": "init", "node_id": "n1"})),
        request(3, json!({"type": "init", "node_id": "n1", "node_ids": [7]})),
        request(
            4,
            json!({"type": "init", "node_id": "n1", "node_ids": ["n2"]}),
        ),
        request(
            5,
            json!({"type": "init", "node_id": "n1", "node_ids": ["n1", "n1"]}),
        ),
        init(6),
        init(7),
        request(8, json!({"type": "cas", "key": 1})),
        request(9, json!({"kind": "read"})),
        request(10, json!({"type": "broadcast", "message": 1})),
        request(11, json!({"type": "add"})),
        request(12, json!({"type": "add", "element": "seven"})),
        request(13, json!({"type": "add", "element": 1.5})),
        request(14, json!({"type": "add", "element": u64::MAX})),
        json!({"src": "c1", "dest": "n9", "body": {"type": "read", "msg_id": 15}}).to_string(),
        json!({"src": "n2", "dest": "n1", "body": {"type": "asterism", "datagram": "AAAA"}})
            .to_string(),
        json!({"src": "n1", "dest": "n1", "body": {"type": "asterism"}}).to_string(),
        json!({"src": "c1", "dest": "n1", "body": {"type": "read"}}).to_string(),
        json!({"src": "c1", "dest": "n1", "body": {"type": "cas", "msg_id": "x"}}).to_string(),
        format!("\"{}\"", "x".repeat(3 << 19)),
        request(16, json!({"type": "read"})),
    ];
    let said = run("g-set", &lines);
    let no_number = "`element` is no whole number of 64 bits, and nothing else is kept";
    let no_request = "the workload g-set has no such request";
    assert_eq!(
        said.answers,
        [
            error(1, 11, "this node has not heard `init` yet"),
            error(2, 12, "`node_ids` is missing"),
            error(3, 12, "`node_ids` are no strings"),
            error(4, 12, "`node_id` is not among `node_ids`"),
            error(5, 12, "`node_ids` names a node twice"),
            answer(6, json!({"type": "init_ok"})),
            error(7, 22, "this node has heard `init` before"),
            error(8, 10, no_request),
            error(9, 10, no_request),
            error(10, 10, no_request),
            error(11, 12, "`element` is missing"),
            error(12, 10, no_number),
            error(13, 10, no_number),
            error(14, 10, no_number),
            answer(16, json!({"type": "read_ok", "value": []})),
        ],
        "{}",
        said.log
    );
    for (sentence, times) in [
        ("a line was not read: ", 5),
        ("a message for \"n9\" came here", 1),
        ("no datagram of a node", 2),
        ("bytes or more was skipped", 1),
        ("panicked", 0),
    ] {
        let count = said.log.matches(sentence).count();
        assert_eq!(count, times, "{sentence}: {}", said.log);
    }
    let counted = "unreadable: 5, misdirected: 1, refused: 14, early: 1, garbled: 2,";
    assert!(said.log.contains(counted), "{}", said.log);
}

#[test]
fn what_nodes_say_to_each_other_is_base64_in_messages_of_ours() {
    let said = run(
        "g-set",
        &[request(
            1,
            json!({"type": "init", "node_id": "n1", "node_ids": ["n2", "n3", "n1"]}),
        )],
    );
    assert_eq!(said.answers, [answer(1, json!({"type": "init_ok"}))]);
    assert!(!said.datagrams.is_empty());
    for message in &said.datagrams {
        assert_eq!(message["src"], "n1");
        assert!(["n2", "n3"].contains(&message["dest"].as_str().unwrap()));
        assert_eq!(message["body"]["type"], "asterism");
        assert!(message["body"]["datagram"].as_str().unwrap().len() > 40);
        assert_eq!(message["body"].as_object().unwrap().len(), 2);
    }
}

#[test]
fn a_command_line_that_says_no_workload_is_refused() {
    for (arguments, code) in [
        (&[][..], 2),
        (&["--workload"], 2),
        (&["--workload", "lin-kv"], 2),
        (&["--workload", "g-set", "more"], 2),
        (&["--help"], 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_asterism-maelstrom"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}
