//! An etcd in memory behind its JSON gateway, as far as the store uses it, with virtual time for leases, and troubles that a real one
//! has rarely. One request a connection, one after the other, so that each test is the same every time.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::proxy::request;

/// What happens to the next request that it can happen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A transaction is made; its answer is a 500.
    AnswerLost,
    /// A transaction is not made; its answer is a 500.
    RequestLost,
    /// A watch is begun and ends, as a clean answer.
    StreamEnds,
    /// A range is answered by a member that lags behind: without the last change.
    Past,
    /// A range is cut: the first half of it, and that there is more.
    Cut,
    /// A range is answered by another cluster.
    OtherCluster,
    /// Another candidate wins right after a range that found no leader.
    WonBetween,
}

/// What a test has it do.
#[derive(Clone, Debug)]
enum Order {
    Trouble(Trouble),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// History is forgotten up to now.
    Compact,
    /// All leases end, while their keys stay: a member that was cut off.
    EndLeases,
    /// An operator removes a key.
    Remove(String),
    End,
}

#[derive(Clone, Debug)]
struct Kv {
    value: Vec<u8>,
    revision: u64,
    lease: u64,
}

#[derive(Debug, Default)]
struct Etcd {
    revision: u64,
    kvs: BTreeMap<String, Kv>,
    /// Revision, key and value of each change; `None`: it was removed.
    history: Vec<(u64, String, Option<Vec<u8>>)>,
    compacted: u64,
    /// When each lease ends.
    leases: BTreeMap<u64, u64>,
    leases_granted: u64,
    now_ms: u64,
    troubles: Vec<Trouble>,
    /// Watches that wait for changes: none comes, since they are asked for one after the other.
    held: Vec<TcpStream>,
}

/// See the module. It ends when it is dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    pub(crate) fn start() -> Gateway {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, given) = channel();
        let thread = std::thread::spawn(move || {
            let mut etcd = Etcd {
                revision: 1,
                ..Etcd::default()
            };
            for mut client in listener.incoming().map_while(Result::ok) {
                if !etcd.obey(&given) {
                    return;
                }
                if let Some((head, body)) = request(&mut client) {
                    etcd.serve(client, &head, &body);
                }
            }
        });
        Gateway {
            address,
            orders,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn order(&self, order: Order) {
        // It is obeyed before the next request; a gateway that panicked fails the test there.
        let _ = self.orders.send(order);
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.order(Order::Trouble(trouble));
    }

    pub(crate) fn pass(&self, milliseconds: u64) {
        self.order(Order::Pass(milliseconds));
    }

    pub(crate) fn compact(&self) {
        self.order(Order::Compact);
    }

    pub(crate) fn end_leases(&self) {
        self.order(Order::EndLeases);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.order(Order::Remove(key.to_owned()));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.order(Order::End);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(value.get(name)?.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

fn integer(value: &Value, name: &str) -> u64 {
    let text = value.get(name).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_set(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether a range, or a single key, has a key.
fn covers(range: &Value, key: &str) -> bool {
    let from = text(range, "key").unwrap_or_default();
    match text(range, "range_end") {
        Some(end) => *key >= *from && *key < *end,
        None => key == from,
    }
}

fn respond(client: &mut TcpStream, status: &str, body: &str) {
    // A client that has gone needs no answer.
    let _ = write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

impl Etcd {
    /// Does what was ordered; whether it goes on.
    fn obey(&mut self, given: &Receiver<Order>) -> bool {
        for order in given.try_iter().collect::<Vec<_>>() {
            match order {
                Order::Trouble(trouble) => self.troubles.push(trouble),
                Order::Pass(milliseconds) => {
                    self.now_ms += milliseconds;
                    let ended = self
                        .leases
                        .iter()
                        .filter(|(_, until)| **until <= self.now_ms);
                    for lease in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
                        self.end_lease(lease);
                    }
                }
                Order::Compact => {
                    self.compacted = self.revision;
                    self.history.clear();
                }
                Order::EndLeases => self.leases.clear(),
                Order::Remove(key) => self.change(&[(key, None, 0)]),
                Order::End => return false,
            }
        }
        true
    }

    fn strikes(&mut self, trouble: Trouble) -> bool {
        let place = self.troubles.iter().position(|one| *one == trouble);
        place.map(|place| self.troubles.remove(place)).is_some()
    }

    fn end_lease(&mut self, lease: u64) {
        self.leases.remove(&lease);
        let bound = self.kvs.iter().filter(|(_, kv)| kv.lease == lease);
        let bound: Vec<_> = bound.map(|(key, _)| (key.clone(), None, 0)).collect();
        self.change(&bound);
    }

    /// Makes changes as one revision; removals of what is absent are none.
    fn change(&mut self, changes: &[(String, Option<Vec<u8>>, u64)]) {
        let exists = |key: &String| self.kvs.contains_key(key);
        let real = changes
            .iter()
            .filter(|(key, value, _)| value.is_some() || exists(key));
        let real: Vec<_> = real.cloned().collect();
        if real.is_empty() {
            return;
        }
        self.revision += 1;
        for (key, value, lease) in real {
            self.history
                .push((self.revision, key.clone(), value.clone()));
            match value {
                None => drop(self.kvs.remove(&key)),
                Some(value) => {
                    let kv = Kv {
                        value,
                        revision: self.revision,
                        lease,
                    };
                    self.kvs.insert(key, kv);
                }
            }
        }
    }

    fn header(&self) -> Value {
        json!({ "cluster_id": "77", "revision": self.revision.to_string() })
    }

    /// A key with its value, as etcd writes it: what is zero is absent.
    fn kv(key: &str, kv: &Kv) -> Value {
        let mut json = json!({
            "key": STANDARD.encode(key), "mod_revision": kv.revision.to_string(), "version": "1",
        });
        if !kv.value.is_empty() {
            json["value"] = Value::String(STANDARD.encode(&kv.value));
        }
        json
    }

    fn range(&self, range: &Value) -> Value {
        let found = self.kvs.iter().filter(|(key, _)| covers(range, key));
        let kvs: Vec<_> = found.map(|(key, kv)| Etcd::kv(key, kv)).collect();
        let mut json = json!({ "header": self.header() });
        if !kvs.is_empty() {
            json["count"] = Value::String(kvs.len().to_string());
            if !is_set(range, "count_only") {
                json["kvs"] = Value::Array(kvs);
            }
        }
        json
    }

    fn transaction(&mut self, body: &Value) -> Value {
        let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        let holds = list("compare").iter().all(|compare| {
            let key = text(compare, "key").unwrap_or_default();
            let revision = self.kvs.get(&key).map_or(0, |kv| kv.revision);
            revision == integer(compare, "mod_revision")
        });
        let operations = list(if holds { "success" } else { "failure" });
        let change = |operation: &Value| {
            if let Some(put) = operation.get("request_put") {
                let value = STANDARD.decode(put["value"].as_str()?).ok()?;
                return Some((text(put, "key")?, Some(value), integer(put, "lease")));
            }
            let removed = operation.get("request_delete_range")?;
            Some((text(removed, "key")?, None, 0))
        };
        self.change(&operations.iter().filter_map(change).collect::<Vec<_>>());
        let responses = operations
            .iter()
            .map(|operation| match operation.get("request_range") {
                Some(range) => json!({ "response_range": self.range(range) }),
                None => json!({ "response_put": { "header": self.header() } }),
            });
        let mut json =
            json!({ "header": self.header(), "responses": responses.collect::<Vec<_>>() });
        if holds {
            json["succeeded"] = Value::Bool(true);
        }
        json
    }

    fn question(&mut self, range: &Value) -> Value {
        if self.strikes(Trouble::Past) {
            let last = self.revision;
            self.revision -= 1;
            let kvs = self.kvs.clone();
            self.kvs.retain(|_, kv| kv.revision < last);
            let answer = self.range(range);
            self.kvs = kvs;
            self.revision = last;
            return answer;
        }
        let mut answer = self.range(range);
        if self.strikes(Trouble::OtherCluster) {
            answer["header"]["cluster_id"] = Value::String("78".to_owned());
        }
        if range.get("range_end").is_some()
            && self.strikes(Trouble::Cut)
            && let Some(kvs) = answer.get_mut("kvs").and_then(Value::as_array_mut)
        {
            kvs.truncate(kvs.len() / 2);
            answer["more"] = Value::Bool(true);
        }
        if range.get("range_end").is_none() && self.strikes(Trouble::WonBetween) {
            let key = text(range, "key").unwrap_or_default();
            self.change(&[(key, Some(b"rival".to_vec()), 0)]);
        }
        answer
    }

    fn serve(&mut self, mut client: TcpStream, head: &str, body: &[u8]) {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let answer = match path {
            "/v3/kv/range" => self.question(&body),
            "/v3/kv/txn" => {
                if self.strikes(Trouble::RequestLost) {
                    return respond(&mut client, "500 Internal Server Error", "{}");
                }
                let answer = self.transaction(&body);
                if self.strikes(Trouble::AnswerLost) {
                    return respond(&mut client, "500 Internal Server Error", "{}");
                }
                answer
            }
            "/v3/lease/grant" => {
                self.leases_granted += 1;
                let (id, ttl) = (self.leases_granted, integer(&body, "TTL"));
                self.leases.insert(id, self.now_ms + 1_000 * ttl);
                json!({ "header": self.header(), "ID": id.to_string(), "TTL": ttl.to_string() })
            }
            "/v3/lease/keepalive" => {
                let id = integer(&body, "ID");
                let mut json = json!({ "header": self.header(), "ID": id.to_string() });
                if let Some(until) = self.leases.get_mut(&id) {
                    *until = (*until).max(self.now_ms + 1_000);
                    json["TTL"] = Value::String("1".to_owned());
                }
                json!({ "result": json })
            }
            "/v3/lease/revoke" => {
                self.end_lease(integer(&body, "ID"));
                json!({ "header": self.header() })
            }
            "/v3/watch" => return self.watch(client, &body["create_request"]),
            _ => return respond(&mut client, "404 Not Found", "Not Found"),
        };
        respond(&mut client, "200 OK", &answer.to_string());
    }

    fn watch(&mut self, mut client: TcpStream, range: &Value) {
        let from = integer(range, "start_revision");
        let mut lines = vec![json!({ "header": self.header(), "created": true })];
        if from <= self.compacted {
            lines.push(json!({
                "header": self.header(), "canceled": true,
                "compact_revision": self.compacted.to_string(),
            }));
        }
        let history = self.history.iter();
        let events = history.filter(|(at, key, _)| *at >= from && covers(range, key));
        let events = events.map(|(at, key, value)| {
            let kv = Kv {
                value: value.clone().unwrap_or_default(),
                revision: *at,
                lease: 0,
            };
            let mut event = json!({ "kv": Etcd::kv(key, &kv) });
            if value.is_none() {
                event["type"] = Value::String("DELETE".to_owned());
            }
            event
        });
        let events: Vec<_> = events.collect();
        if !events.is_empty() {
            lines.push(json!({ "header": self.header(), "events": events }));
        }
        let text = lines
            .iter()
            .map(|line| format!("{}\n", json!({ "result": line })));
        let text: String = text.collect();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
        let _ = write!(client, "{head}{text}");
        if !self.strikes(Trouble::StreamEnds) {
            // Earlier ones have been left by their clients.
            self.held = vec![client];
        }
    }
}
