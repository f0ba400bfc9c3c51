//! Three processes of the built program on the machine's clock, with the test between them as Maelstrom is: it carries what
//! they say to each other, and loses a tenth of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_io::link::SeededRandom;
use asterism_placement::Time;
use serde_json::{Value, json};

const NAMES: [&str; 3] = ["n0", "n1", "n2"];
/// How long an answer may take, and how long the nodes may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running node and its input.
struct Process {
    child: Child,
    input: ChildStdin,
}

/// What Maelstrom's network does.
struct Carrier {
    processes: Vec<Process>,
    said: Receiver<String>,
    random: SeededRandom,
    clock: MonotonicClock,
    asked: u64,
    lost: u64,
}

impl Carrier {
    fn new(workload: &str) -> Self {
        let (sender, said) = channel();
        let processes = NAMES.iter().map(|_| start(workload, sender.clone()));
        let mut carrier = Self {
            processes: processes.collect(),
            said,
            random: SeededRandom::new(1),
            clock: MonotonicClock::new(),
            asked: 0,
            lost: 0,
        };
        for name in NAMES {
            let body = json!({"type": "init", "node_id": name, "node_ids": NAMES});
            assert_eq!(carrier.ask(name, body)["type"], "init_ok");
        }
        carrier
    }

    /// Sends a request, and carries messages until its answer comes.
    fn ask(&mut self, to: &str, mut body: Value) -> Value {
        self.asked += 1;
        body["msg_id"] = self.asked.into();
        self.deliver(&json!({"src": "c1", "dest": to, "body": body}));
        let asked = self.asked;
        let answer = self.carry(self.clock.now() + PATIENCE, |message| {
            message["body"]["in_reply_to"] == asked
        });
        answer.expect("an answer comes in time")["body"].take()
    }

    /// Carries messages until the wanted one comes, which is for a client, or until the time is over.
    fn carry(&mut self, until: Time, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        loop {
            let left = until - self.clock.now();
            let line = self.said.recv_timeout(left).ok()?;
            let message: Value = serde_json::from_str(&line).unwrap();
            if wanted(&message) {
                return Some(message);
            }
            if self.random.chance(0.1) {
                self.lost += 1;
            } else {
                self.deliver(&message);
            }
        }
    }

    fn carry_for(&mut self, time: Duration) {
        self.carry(self.clock.now() + time, |_| false);
    }

    fn deliver(&mut self, message: &Value) {
        let to = NAMES.iter().position(|name| message["dest"] == *name);
        let to = to.expect("a message for a node");
        writeln!(self.processes[to].input, "{message}").unwrap();
    }

    /// Reads every node until all say what is expected.
    fn settle(&mut self, field: &str, expected: &Value) {
        let until = self.clock.now() + PATIENCE;
        loop {
            let all = NAMES.map(|name| self.ask(name, json!({"type": "read"}))[field].take());
            if all.iter().all(|value| value == expected) {
                return;
            }
            assert!(self.clock.now() < until, "{all:?} and not {expected}");
            self.carry_for(Duration::from_millis(20));
        }
    }

    /// Ends every node's input, with which it ends.
    fn end(self) {
        assert!(self.lost > 0);
        for Process { mut child, input } in self.processes {
            drop(input);
            assert!(child.wait().unwrap().success());
        }
    }
}

fn start(workload: &str, said: Sender<String>) -> Process {
    let mut child = Command::new(env!("CARGO_BIN_EXE_asterism-maelstrom"))
        .args(["--workload", workload])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                return;
            }
        }
    });
    Process { child, input }
}

#[test]
fn three_processes_agree_on_a_set() {
    let mut carrier = Carrier::new("g-set");
    for number in 0..90 {
        let body = json!({"type": "add", "element": number});
        assert_eq!(carrier.ask(NAMES[number % 3], body)["type"], "add_ok");
        carrier.carry_for(Duration::from_millis(3));
    }
    let all: Vec<_> = (0..90).collect();
    carrier.settle("value", &json!(all));
    carrier.end();
}

#[test]
fn three_processes_agree_on_a_sum() {
    let mut carrier = Carrier::new("pn-counter");
    for number in 0..90_i64 {
        let body = json!({"type": "add", "delta": number % 10 - 7});
        let to = NAMES[number as usize % 3];
        assert_eq!(carrier.ask(to, body)["type"], "add_ok");
        carrier.carry_for(Duration::from_millis(3));
    }
    let sum: i64 = (0..90).map(|number| number % 10 - 7).sum();
    carrier.settle("value", &json!(sum));
    carrier.end();
}
