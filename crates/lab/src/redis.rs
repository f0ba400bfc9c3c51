//! A Redis of a test's own, without files: it ends with what started it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::wait_until;

/// How long it may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    /// Starts one at a free port of this machine. `None` where there is no `redis-server`: a test says so loudly.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn start() -> Option<Redis> {
        let free = TcpListener::bind(("127.0.0.1", 0)).ok()?;
        let address = free.local_addr().ok()?;
        drop(free);
        let port = address.port().to_string();
        let process = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn();
        let redis = Redis {
            process: process.ok()?,
            address,
        };
        let answers = || TcpStream::connect(address).is_ok();
        wait_until("redis-server to answer", STARTS_WITHIN, answers).expect("it answers");
        Some(redis)
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
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
