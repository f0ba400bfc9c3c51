//! A laboratory: nodes, cables between them, a folder for their files, and the end of all of it.
#![allow(
    clippy::disallowed_types,
    reason = "programs are registered from any thread; nothing here is on a packet's path"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::LabError;
use crate::namespace::{Guard, permitted};
use crate::node::{Node, Offloads};
use crate::program::{Registry, lock};

/// Laboratories that this process has made, for the names of their folders.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A laboratory. Dropped, it ends every program in it and removes its folder; the kernel removes namespaces and interfaces.
/// The same happens when the process that holds it dies, however that happens.
#[derive(Debug)]
pub struct Lab {
    registry: Registry,
    folder: PathBuf,
    guard: Guard,
}

impl Lab {
    /// An empty laboratory. Needs root. Some 5 ms.
    pub fn new() -> Result<Lab, LabError> {
        if !permitted() {
            return Err(LabError::NotPermitted);
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("asterism-lab-{}-{number}", std::process::id()));
        let made = || {
            if folder.exists() {
                // Left by a process of the same number whose guard was killed too.
                std::fs::remove_dir_all(&folder)?;
            }
            std::fs::create_dir(&folder)
        };
        made().map_err(|error| LabError::kernel(format!("making {}", folder.display()), error))?;
        let guard = Guard::start(&folder).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&folder);
        })?;
        Ok(Lab {
            registry: Arc::new(Mutex::new(Vec::new())),
            folder,
            guard,
        })
    }

    /// A folder for configurations, keys and documents to serve; removed at the end, also after a crash.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file into the folder and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, LabError> {
        let path = self.folder.join(name);
        std::fs::write(&path, content)
            .map_err(|error| LabError::kernel(format!("writing {}", path.display()), error))?;
        Ok(path)
    }

    /// A new node: no interface but `lo`, IPv6 off, no filtering of asymmetric paths. Some 5 ms.
    pub fn node(&self, name: &str) -> Result<Node, LabError> {
        Node::new(name, self.guard.processes(), Arc::clone(&self.registry))
    }

    /// A cable: a pair of interfaces, one in each node, both up.
    pub fn cable(
        &self,
        (first, first_name): (&Node, &str),
        (second, second_name): (&Node, &str),
        cable: &Cable,
    ) -> Result<(), LabError> {
        let file = second.namespace_file();
        let mac = |mac: &Option<String>| {
            mac.as_ref()
                .map(|mac| format!("address {mac} "))
                .unwrap_or_default()
        };
        let mtu = cable.mtu_bytes;
        let queue = cable.queue_frames;
        first.ip(&[
            format!(
                "link add name {first_name} mtu {mtu} txqueuelen {queue} {}type veth peer name {second_name} mtu {mtu} txqueuelen {queue} {}netns {file}",
                mac(&cable.macs[0]),
                mac(&cable.macs[1]),
            ),
            format!("link set dev {first_name} up"),
        ])?;
        second.ip(&[format!("link set dev {second_name} up")])?;
        first.offloads(first_name, cable.offloads)?;
        second.offloads(second_name, cable.offloads)
    }

    /// A bridge in a node, with a cable to each of the others: `name0`, `name1`, … are its ports. It is a switch: frames do not
    /// pass the packet filter of its node, as a machine with `br_netfilter` has them do.
    pub fn bridge(
        &self,
        node: &Node,
        name: &str,
        ends: &[(&Node, &str)],
        cable: &Cable,
    ) -> Result<(), LabError> {
        node.ip(&[
            format!("link add name {name} type bridge mcast_snooping 0"),
            format!("link set dev {name} up"),
        ])?;
        node.enter(|| {
            for filter in ["iptables", "ip6tables", "arptables"] {
                // Not there where bridges have no packet filter at all.
                let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{filter}");
                let _ = std::fs::write(setting, "0");
            }
        })?;
        for (number, (end, interface)) in ends.iter().enumerate() {
            let port = format!("{name}{number}");
            self.cable((end, interface), (node, &port), cable)?;
            node.ip(&[format!("link set dev {port} master {name}")])?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Programs whose handles are still held: the guard could not end before they are waited for.
        let running: Vec<_> = lock(&self.registry).drain(..).collect();
        for program in running.iter().filter_map(std::sync::Weak::upgrade) {
            program.kill();
        }
    }
}

/// What a cable is like.
#[derive(Clone, Debug)]
pub struct Cable {
    /// Bytes of the largest IP packet.
    pub mtu_bytes: u32,
    /// What frames look like.
    pub offloads: Offloads,
    /// Ethernet addresses of the first and the second end; the kernel draws those that are not given.
    pub macs: [Option<String>; 2],
    /// Frames that wait before each end at most.
    pub queue_frames: u32,
}

impl Default for Cable {
    /// An Ethernet cable: an MTU of 1,500, offloads off, addresses drawn, 1,000 frames of queue.
    fn default() -> Cable {
        Cable {
            mtu_bytes: 1_500,
            offloads: Offloads::Off,
            macs: [None, None],
            queue_frames: 1_000,
        }
    }
}

impl Cable {
    /// The same with these Ethernet addresses at its ends.
    #[must_use]
    pub fn macs(mut self, first: &str, second: &str) -> Cable {
        self.macs = [Some(first.to_owned()), Some(second.to_owned())];
        self
    }

    /// The same with these offloads.
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> Cable {
        self.offloads = offloads;
        self
    }
}
