//! A running `nfcapd`, and what `nfdump` shows of what it collected.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Whether a program is there; said loudly if not.
pub(crate) fn has(program: &str, test: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        eprintln!("SKIPPED ({program} is not installed): {test}");
    }
    found
}

/// The collector.
pub(crate) struct Collector {
    child: Child,
    folder: PathBuf,
    socket: UdpSocket,
    port: u16,
}

impl Collector {
    /// Starts it; `None` where it is not installed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        if !has("nfcapd", test) || !has("nfdump", test) {
            return None;
        }
        let folder = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let free = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        let child = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-t", "3600", "-B", "4000000", "-p"])
            .arg(port.to_string())
            .arg("-w")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfcapd runs");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
        socket
            .connect(("127.0.0.1", port))
            .expect("an address of this machine");
        // A port that nobody listens on refuses the datagram before; what no collector understands is left out by it.
        let listens = (0..500).any(|_| {
            let _ = socket.send(&[0]);
            std::thread::park_timeout(Duration::from_millis(20));
            socket.send(&[0]).is_ok()
        });
        assert!(listens, "nfcapd does not listen");
        Some(Self {
            child,
            folder,
            socket,
            port,
        })
    }

    /// Sends it a message, once it has taken those before: what the receiver's buffer does not hold is lost, as with every exporter over
    /// UDP.
    pub(crate) fn send(&self, message: &[u8]) -> bool {
        self.socket.send(message).expect("the collector listens");
        self.await_taken();
        true
    }

    /// Waits until all that was sent was taken from its socket.
    fn await_taken(&self) {
        let at = format!("0100007F:{:04X}", self.port);
        let is_taken = || {
            let sockets = std::fs::read_to_string("/proc/net/udp").expect("Linux");
            let mut lines = sockets.lines().map(|line| line.split_whitespace());
            let socket = lines.find(|line| line.clone().nth(1) == Some(&at));
            let queues = socket.and_then(|mut line| line.nth(4));
            queues.expect("it listens").ends_with(":00000000")
        };
        for _ in 0..300_000 {
            if is_taken() {
                return;
            }
            std::thread::park_timeout(Duration::from_micros(100));
        }
        panic!("it does not take what is sent");
    }

    /// Ends it; what `nfdump` shows of all that it has, as these arguments say.
    pub(crate) fn shown(mut self, arguments: &[&str]) -> String {
        self.await_taken();
        // What it took last it has still to write.
        std::thread::park_timeout(Duration::from_millis(500));
        let id = self.child.id().to_string();
        let killed = Command::new("kill").arg(&id).status().expect("kill runs");
        assert!(killed.success());
        self.child.wait().expect("nfcapd ends");
        let output = Command::new("nfdump")
            .arg("-R")
            .arg(&self.folder)
            .args(["-q", "-6"])
            .args(arguments)
            .output()
            .expect("nfdump runs");
        std::fs::remove_dir_all(&self.folder).expect("the folder goes");
        String::from_utf8(output.stdout).expect("nfdump writes text")
    }
}
