//! Three nodes on virtual time, joined by links that lose, repeat, delay and reorder their messages.

use std::time::Duration;

use asterism_io::link::{LinkConditions, Network};
use asterism_maelstrom::{ELEMENTS_MAX, Node, Output, Start, Workload};
use asterism_placement::{Incarnation, Time};
use serde_json::{Value, json};

const NODES: u16 = 3;
/// Requests of clients to each node.
const REQUESTS: u64 = 200;

/// Nodes, and the lines on their way between them.
struct Referee {
    nodes: Vec<Node>,
    network: Network,
    now: Time,
    /// Bodies of answers, in order.
    answers: Vec<Value>,
    asked: u64,
}

fn name(place: u16) -> String {
    format!("n{}", place + 1)
}

/// One message in ten is lost, one in ten comes twice, one in five is overtaken.
fn rough() -> LinkConditions {
    LinkConditions {
        delay: Duration::from_millis(3),
        jitter: Duration::from_millis(2),
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.2,
        reordering_delay: Duration::from_millis(30),
        // Lines, not datagrams.
        mtu_bytes: 1 << 16,
        ..LinkConditions::default()
    }
}

impl Referee {
    /// Nodes that have heard `init`, over rough links.
    fn new(workload: Workload, seed: u64) -> Self {
        let mut network = Network::new(seed);
        network.set_defaults(rough());
        let nodes = (0..NODES).map(|place| {
            Node::new(Start {
                workload,
                incarnation: Incarnation(seed * 100 + u64::from(place) + 1),
                secrets: [place as u8 + 1; 48],
                tick_at_zero: 1_000,
            })
        });
        let mut referee = Self {
            nodes: nodes.collect(),
            network,
            now: Time::ZERO,
            answers: Vec::new(),
            asked: 0,
        };
        let all: Vec<_> = (0..NODES).map(name).collect();
        for place in 0..NODES {
            let own = name(place);
            let body = json!({"type": "init", "node_id": own, "node_ids": all});
            assert_eq!(referee.ask(place, body)["type"], "init_ok");
        }
        referee
    }

    /// Sends a request and returns the answer, which comes at once.
    fn ask(&mut self, place: u16, mut body: Value) -> Value {
        self.asked += 1;
        body["msg_id"] = self.asked.into();
        let line = json!({"src": "c1", "dest": name(place), "body": body}).to_string();
        self.nodes[usize::from(place)].handle_line(self.now, &line);
        self.collect(place);
        let answer = self.answers.pop().expect("every request has an answer");
        assert_eq!(answer["in_reply_to"], self.asked);
        answer
    }

    /// Gives a node a turn, and takes what it writes.
    fn collect(&mut self, place: u16) {
        let node = &mut self.nodes[usize::from(place)];
        node.turn(self.now);
        while let Some(output) = node.poll_output(self.now) {
            let Output::Line(line) = output else {
                continue;
            };
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["src"], name(place));
            let to = message["dest"].as_str().unwrap();
            match (0..NODES).find(|&place| name(place) == to) {
                Some(to) => {
                    assert_eq!(message["body"]["type"], "asterism");
                    self.network.send(self.now, place, to, line.as_bytes());
                }
                None => self.answers.push(message["body"].clone()),
            }
        }
    }

    /// Lets time pass, with everything that is due.
    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            while let Some((_, to, line)) = self.network.receive(self.now) {
                let line = String::from_utf8(line).unwrap();
                self.nodes[usize::from(to)].handle_line(self.now, &line);
            }
            (0..NODES).for_each(|place| self.collect(place));
            let due = self.nodes.iter().filter_map(Node::poll_timeout);
            let next = due.chain(self.network.next_delivery()).min().unwrap();
            // A turn takes a little time, so that time always passes.
            let soonest = self.now + Duration::from_micros(50);
            self.now = next.max(soonest).min(until);
        }
    }

    fn read(&mut self, place: u16, field: &str) -> Value {
        let mut answer = self.ask(place, json!({"type": "read"}));
        assert_eq!(answer["type"], "read_ok");
        answer[field].take()
    }

    /// Clients write to all nodes in turn while time passes; `write` gives a request and the type of its answer.
    fn write_all(&mut self, mut write: impl FnMut(u64) -> Value, answered: &str) {
        for number in 0..REQUESTS * u64::from(NODES) {
            let place = (number % u64::from(NODES)) as u16;
            let answer = self.ask(place, write(number));
            assert_eq!(answer, json!({"type": answered, "in_reply_to": self.asked}));
            self.run_for(Duration::from_millis(2));
        }
    }

    /// Waits until every node reads the expected, which it must within five seconds, and stays so.
    fn settle(&mut self, field: &str, expected: &Value) {
        for _ in 0..50 {
            self.run_for(Duration::from_millis(100));
            if (0..NODES).all(|place| self.read(place, field) == *expected) {
                break;
            }
        }
        self.run_for(Duration::from_millis(500));
        for place in 0..NODES {
            assert_eq!(self.read(place, field), *expected, "{}", name(place));
        }
        let total = self.network.statistics_total();
        assert!(
            total.lost > 50 && total.duplicated > 50 && total.reordered > 50,
            "the links were rough: {total:?}"
        );
    }
}

#[test]
fn a_set_has_every_element_at_every_node() {
    let mut referee = Referee::new(Workload::GSet, 1);
    // Every third element is added at two nodes.
    let element = |number: u64| number - u64::from(number % 3 == 1);
    referee.write_all(
        |number| json!({"type": "add", "element": element(number)}),
        "add_ok",
    );
    let mut all: Vec<_> = (0..REQUESTS * u64::from(NODES)).map(element).collect();
    all.dedup();
    referee.settle("value", &json!(all));
}

#[test]
fn broadcast_messages_come_to_every_node() {
    let mut referee = Referee::new(Workload::Broadcast, 2);
    let line = json!({"n1": ["n2"], "n2": ["n1", "n3"], "n3": ["n2"]});
    for place in 0..NODES {
        let answer = referee.ask(place, json!({"type": "topology", "topology": line}));
        assert_eq!(answer["type"], "topology_ok");
    }
    referee.write_all(
        |number| json!({"type": "broadcast", "message": number * 7}),
        "broadcast_ok",
    );
    let all: Vec<_> = (0..REQUESTS * u64::from(NODES)).map(|n| n * 7).collect();
    referee.settle("messages", &json!(all));
}

#[test]
fn a_sum_that_grows_is_exact() {
    let mut referee = Referee::new(Workload::GCounter, 3);
    let delta = |number: u64| number * number % 17;
    referee.write_all(
        |number| json!({"type": "add", "delta": delta(number)}),
        "add_ok",
    );
    let sum: u64 = (0..REQUESTS * u64::from(NODES)).map(delta).sum();
    referee.settle("value", &json!(sum));
}

#[test]
fn a_sum_with_subtractions_is_exact() {
    let mut referee = Referee::new(Workload::PnCounter, 4);
    let delta = |number: u64| (number * number % 17) as i64 - 11;
    referee.write_all(
        |number| json!({"type": "add", "delta": delta(number)}),
        "add_ok",
    );
    let sum: i64 = (0..REQUESTS * u64::from(NODES)).map(delta).sum();
    assert!(sum < 0);
    referee.settle("value", &json!(sum));
}

/// As Maelstrom's nemesis does: a node apart goes on answering, and after the partition all know all.
#[test]
fn a_node_that_was_cut_off_catches_up_both_ways() {
    let mut referee = Referee::new(Workload::GSet, 5);
    referee.run_for(Duration::from_millis(500));
    for (from, to) in [(&[2][..], &[0, 1][..]), (&[0, 1], &[2])] {
        referee.network.set_partitioned(from, to, true);
    }
    referee.write_all(|number| json!({"type": "add", "element": number}), "add_ok");
    referee.run_for(Duration::from_secs(10));
    let known = |value: Value| value.as_array().unwrap().len();
    assert_eq!(known(referee.read(2, "value")), REQUESTS as usize);
    for (from, to) in [(&[2][..], &[0, 1][..]), (&[0, 1], &[2])] {
        referee.network.set_partitioned(from, to, false);
    }
    let all: Vec<_> = (0..REQUESTS * u64::from(NODES)).collect();
    referee.settle("value", &json!(all));
}

#[test]
fn garbage_is_counted_and_the_node_goes_on() {
    let mut referee = Referee::new(Workload::GSet, 6);
    let before = referee.nodes[0].tally();
    let mut garbled = 0;
    let mut refused = 0;
    let say = |referee: &mut Referee, from: &str, datagram: Value| {
        let body = json!({"type": "asterism", "datagram": datagram});
        let line = json!({"src": from, "dest": "n1", "body": body}).to_string();
        let now = referee.now;
        referee.nodes[0].handle_line(now, &line);
    };
    for number in 0..60u64 {
        for (from, datagram) in [
            ("n2", json!("?~no base64~?")),
            ("n2", json!(number)),
            ("n2", Value::Null),
            ("n1", json!("AAAA")),
            ("n7", json!("AAAA")),
        ] {
            say(&mut referee, from, datagram);
            garbled += 1;
        }
        // Bytes without an order, of every length from none on: a letter of base64 is six bits of them.
        let word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let letters: String = (0..4 * number as usize)
            .map(|place| {
                let value = word[place % 8].wrapping_add(place as u8) % 26;
                char::from(b'A' + value)
            })
            .collect();
        say(&mut referee, "n3", json!(letters));
        refused += 1;
        referee.ask(0, json!({"type": "add", "element": number}));
        referee.run_for(Duration::from_millis(2));
    }
    let after = referee.nodes[0].tally();
    assert_eq!(after.garbled - before.garbled, garbled);
    assert!(after.datagrams_refused - before.datagrams_refused >= refused);
    let all: Vec<_> = (0..60).collect();
    for _ in 0..20 {
        referee.run_for(Duration::from_millis(200));
    }
    for place in 0..NODES {
        assert_eq!(referee.read(place, "value"), json!(all));
    }
}

#[test]
fn a_seed_gives_the_same_run() {
    let run = || {
        let mut referee = Referee::new(Workload::GCounter, 7);
        referee.run_for(Duration::from_secs(1));
        referee.ask(1, json!({"type": "add", "delta": 5}));
        referee.run_for(Duration::from_secs(1));
        let tallies: Vec<_> = referee.nodes.iter().map(Node::tally).collect();
        (referee.network.statistics_total(), tallies)
    };
    assert_eq!(run(), run());
}

/// A node alone of as many as a cluster may have: its share of the set is the smallest.
#[test]
fn what_finds_no_room_is_certainly_not_done() {
    let mut node = Node::new(Start {
        workload: Workload::GSet,
        incarnation: Incarnation(1),
        secrets: [1; 48],
        tick_at_zero: 1_000,
    });
    let now = Time::ZERO;
    let mut ask = |mut body: Value| -> Value {
        body["msg_id"] = 1.into();
        let line = json!({"src": "c1", "dest": "n1", "body": body}).to_string();
        node.handle_line(now, &line);
        node.turn(now);
        let mut answer = Value::Null;
        while let Some(output) = node.poll_output(now) {
            // The rest is for 63 nodes that are not there.
            if let Output::Line(line) = output
                && line.contains(r#""dest":"c1""#)
            {
                let mut message: Value = serde_json::from_str(&line).unwrap();
                answer = message["body"].take();
            }
        }
        answer
    };
    let init = |count: u32| {
        let names: Vec<_> = (1..=count).map(|number| format!("n{number}")).collect();
        json!({"type": "init", "node_id": "n1", "node_ids": names})
    };
    assert_eq!(ask(init(65))["code"], 10);
    assert_eq!(ask(init(64))["type"], "init_ok");
    let share = ELEMENTS_MAX / 64;
    for element in 0..share {
        let answer = ask(json!({"type": "add", "element": element}));
        assert_eq!(answer["type"], "add_ok", "{element}");
    }
    assert_eq!(ask(json!({"type": "add", "element": share}))["code"], 11);
    // What is there already needs no room.
    assert_eq!(ask(json!({"type": "add", "element": 0}))["type"], "add_ok");
    let all: Vec<_> = (0..share).collect();
    assert_eq!(ask(json!({"type": "read"}))["value"], json!(all));
}
