//! Redis servers of a test's own: one, a primary with replicas, or a cluster of several. They end with what started them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asterism_resp::{CommandWriter, Value};
use rustix::process::{Pid, Signal, kill_process};

use crate::port::KeptPort;
use crate::program::wait_until;

/// How long it may take to answer, or to do what a command says.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// A server.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    address: SocketAddr,
    /// Its ports: for clients, and for other members of a cluster.
    _ports: [Option<KeptPort>; 2],
    /// A folder of its own. A server reads what it finds there when it begins, and a replica leaves there what it was sent.
    folder: PathBuf,
}

impl Redis {
    /// Starts one at a free port of this machine. `None` where there is no `redis-server`: a test says so loudly.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn start() -> Option<Redis> {
        Redis::start_with(&[], None)
    }

    fn start_with(arguments: &[&str], bus: Option<KeptPort>) -> Option<Redis> {
        let kept = KeptPort::new().ok()?;
        let address = kept.address();
        let port = address.port().to_string();
        let folder = format!("asterism-redis-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        // What a test that was killed left behind.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder of its own");
        let process = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            // A replica that has just begun is to be of use at once.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(arguments)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            let _ = std::fs::remove_dir(&folder);
            return None;
        };
        let redis = Redis {
            process,
            address,
            _ports: [Some(kept), bus],
            folder,
        };
        let answers = || redis.command(&["PING"]).is_ok();
        wait_until("redis-server to answer", DONE_WITHIN, answers).expect("it answers");
        Some(redis)
    }

    /// Starts a primary, the first one, and so many replicas of it, which have all that it has.
    ///
    /// # Panics
    /// One of them does not answer.
    #[must_use]
    pub fn start_replicated(replicas: usize) -> Option<Vec<Redis>> {
        let primary = Redis::start()?;
        let mut all = vec![primary];
        for _ in 0..replicas {
            let replica = Redis::start()?;
            replica.follow(all[0].address);
            all.push(replica);
        }
        Some(all)
    }

    /// Of the replicas among these servers that live the one that has received most becomes the primary of the others, as Sentinel does it.
    ///
    /// # Panics
    /// None lives.
    pub fn fail_over(servers: &[Redis]) -> &Redis {
        let is_replica = |redis: &&Redis| {
            let role = redis.command(&["ROLE"]);
            role.is_ok_and(|role| role.starts_with("slave"))
        };
        let replicas: Vec<&Redis> = servers.iter().filter(is_replica).collect();
        let best = replicas.iter().max_by_key(|replica| replica.received());
        let best = best.expect("a replica lives");
        best.promote();
        for other in &replicas {
            if other.address != best.address {
                other.follow(best.address);
            }
        }
        best
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Where it answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has it do this; its reply as text, of an array a line for each value.
    ///
    /// # Errors
    /// It does not answer, or its reply is an error.
    pub fn command(&self, words: &[&str]) -> io::Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let values = self.call(&words)?;
        let lines: Vec<_> = values
            .iter()
            .map(|value| String::from_utf8_lossy(value))
            .collect();
        Ok(lines.join("\n"))
    }

    /// The same with any bytes; the values of the reply.
    fn call(&self, words: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        let mut stream = TcpStream::connect_timeout(&self.address, DONE_WITHIN)?;
        stream.set_read_timeout(Some(DONE_WITHIN))?;
        let mut command = Vec::new();
        CommandWriter::new(&mut command).command(words);
        stream.write_all(&command)?;
        let (mut received, mut room) = (Vec::new(), [0; 4_096]);
        loop {
            let count = stream.read(&mut room)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            received.extend(&room[..count]);
            match Value::read(&received) {
                Ok(Some((Value::Error(error), _))) => {
                    return Err(io::Error::other(
                        String::from_utf8_lossy(error).into_owned(),
                    ));
                }
                Ok(Some((value, _))) => {
                    let mut values = Vec::new();
                    flatten(&value, &mut values);
                    return Ok(values);
                }
                Ok(None) => {}
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn must(&self, words: &[&str]) -> String {
        let done = self.command(words);
        done.unwrap_or_else(|error| panic!("{words:?} at {}: {error}", self.address))
    }

    /// Makes it a replica of another one, and waits until it has what that one has.
    ///
    /// # Panics
    /// It does not do so in time.
    pub fn follow(&self, primary: SocketAddr) {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        self.must(&["REPLICAOF", &host, &port]);
        let is_done = || self.must(&["ROLE"]).lines().nth(3) == Some("connected");
        wait_until("the replica to have all", DONE_WITHIN, is_done).expect("it has all");
    }

    /// A replica receives nothing more, and keeps what it has.
    ///
    /// # Panics
    /// It does not answer.
    pub fn cut_off(&self) {
        // Nobody listens there.
        self.must(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    /// Makes it a primary.
    ///
    /// # Panics
    /// It does not answer.
    pub fn promote(&self) {
        self.must(&["REPLICAOF", "NO", "ONE"]);
    }

    /// How much it has of what its primary wrote: of several replicas the one with the most is to be promoted.
    ///
    /// # Panics
    /// It is no replica.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.offset("slave_repl_offset:").expect("it is a replica")
    }

    /// How much a primary has written, as its replicas count what they received.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.offset("master_repl_offset:").expect("it has one")
    }

    fn offset(&self, name: &str) -> Option<u64> {
        let info = self.must(&["INFO", "replication"]);
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Has it do nothing, until it goes on.
    ///
    /// # Panics
    /// It is not there.
    pub fn pause(&self) {
        let id = Pid::from_child(&self.process);
        kill_process(id, Signal::STOP).expect("it is there");
    }

    /// Has it go on.
    ///
    /// # Panics
    /// It is not there.
    pub fn go_on(&self) {
        let id = Pid::from_child(&self.process);
        kill_process(id, Signal::CONT).expect("it is there");
    }

    /// Kills it.
    ///
    /// # Panics
    /// It cannot be killed.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is there");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A cluster of several servers, each of which has a part of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    /// Its members.
    pub members: Vec<Redis>,
}

impl RedisCluster {
    /// Starts one of so many members. `None` where there is no `redis-server`.
    ///
    /// # Panics
    /// It does not become whole.
    #[must_use]
    pub fn start(members: usize) -> Option<RedisCluster> {
        let members: Option<Vec<Redis>> = (0..members)
            .map(|_| {
                let bus = KeptPort::new().ok()?;
                let bus_port = bus.address().port().to_string();
                let arguments = ["--cluster-enabled", "yes", "--cluster-port", &bus_port];
                let more = ["--cluster-node-timeout", "60000"];
                Redis::start_with(&[&arguments[..], &more].concat(), Some(bus))
            })
            .collect();
        let cluster = RedisCluster { members: members? };
        let count = cluster.members.len();
        for (place, member) in cluster.members.iter().enumerate() {
            let (from, to) = (place * SLOTS / count, (place + 1) * SLOTS / count - 1);
            member.must(&[
                "CLUSTER",
                "ADDSLOTSRANGE",
                &from.to_string(),
                &to.to_string(),
            ]);
            member.must(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
        for member in &cluster.members[1..] {
            let first = cluster.members[0].address;
            // The bus has a port of its own.
            let bus = cluster.members[0].must(&["CONFIG", "GET", "cluster-port"]);
            let bus = bus.lines().nth(1).unwrap_or_default().to_owned();
            let (host, port) = (first.ip().to_string(), first.port().to_string());
            member.must(&["CLUSTER", "MEET", &host, &port, &bus]);
        }
        let is_whole = || {
            let is_well = |member: &Redis| {
                let info = member.must(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{count}"))
            };
            cluster.members.iter().all(is_well)
        };
        wait_until("the cluster to be whole", DONE_WITHIN, is_whole).expect("it is whole");
        Some(cluster)
    }

    /// Which member has this key.
    ///
    /// # Panics
    /// None has it.
    #[must_use]
    pub fn holder(&self, key: &str) -> usize {
        let has = |member: &Redis| member.command(&["EXISTS", key]).is_ok();
        let holder = self.members.iter().position(has);
        holder.expect("a member has the slot")
    }

    /// Gives the slot of a key, with all that is in it, to another member, while clients use it.
    ///
    /// # Panics
    /// A member does not do its part.
    pub fn move_slot(&self, key: &str, to: usize) {
        let (from, to) = (&self.members[self.holder(key)], &self.members[to]);
        let slot = from.must(&["CLUSTER", "KEYSLOT", key]);
        let (source, target) = (
            from.must(&["CLUSTER", "MYID"]),
            to.must(&["CLUSTER", "MYID"]),
        );
        to.must(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        from.must(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        let (host, port) = (to.address.ip().to_string(), to.address.port().to_string());
        loop {
            let keys = from.call(&[b"CLUSTER", b"GETKEYSINSLOT", slot.as_bytes(), b"100"]);
            let keys = keys.expect("the keys of the slot");
            if keys.is_empty() {
                break;
            }
            let (host, port) = (host.as_bytes(), port.as_bytes());
            let mut migrate = vec![&b"MIGRATE"[..], host, port, b"", b"0", b"60000", b"KEYS"];
            migrate.extend(keys.iter().map(Vec::as_slice));
            from.call(&migrate).expect("the keys move");
        }
        let others = self.members.iter();
        let others = others.filter(|member| member.address != to.address);
        for member in [to].into_iter().chain(others) {
            member.must(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }
}

/// The values of a reply, those of arrays among them.
fn flatten(value: &Value<'_>, into: &mut Vec<Vec<u8>>) {
    match value {
        Value::Status(text) | Value::String(text) | Value::Error(text) => into.push(text.to_vec()),
        Value::Integer(number) => into.push(number.to_string().into_bytes()),
        Value::Null => into.push(Vec::new()),
        Value::Boolean(is_so) => into.push(is_so.to_string().into_bytes()),
        Value::Array(values) | Value::Push(values) => {
            values.for_each(|value| flatten(&value, into));
        }
    }
}
