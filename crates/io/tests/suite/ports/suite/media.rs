//! A port of each kind with its other side at hand: what is injected there the port receives, what it sends is collected there.

use super::{Kind, reports};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, Frame, FramePool, STRIDE_BYTES_MAX};
use asterism_io::port::{
    AfPacketConfig, AfPacketMode, AfPacketPort, AfXdpConfig, AfXdpPort, CapturePort, CaptureReader,
    CaptureWriter, LinkState, MemoryPort, Port, PortError, PortStatistics, SharedMemoryConfig,
    SharedMemoryPort, SharedMemoryRole, TapConfig, TapPort, XdpMode,
};
use asterism_lab::{Cable, Lab, Node, Offloads};
use asterism_placement::Time;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long anything may take before it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The networks of one case.
pub(crate) struct Stand {
    lab: Lab,
    pub near: Node,
    pub far: Node,
}

impl Stand {
    /// Two nodes with a cable from `port0` to `far0`. The ends' offloads are as given.
    pub(crate) fn new(near: Offloads, far: Offloads) -> Result<Stand, String> {
        let lab = Lab::new().map_err(reports)?;
        let stand = Stand {
            near: lab.node("near").map_err(reports)?,
            far: lab.node("far").map_err(reports)?,
            lab,
        };
        stand.cable()?;
        stand.near.offloads("port0", near).map_err(reports)?;
        stand.far.offloads("far0", far).map_err(reports)?;
        Ok(stand)
    }

    /// The cable again.
    pub(crate) fn cable(&self) -> Result<(), String> {
        let ends = ((&self.near, "port0"), (&self.far, "far0"));
        self.lab
            .cable(ends.0, ends.1, &Cable::default())
            .map_err(reports)
    }

    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }
}

/// A medium: the port's other side.
pub(crate) struct Medium<'a> {
    pub kind: Kind,
    pub stand: Option<&'a Stand>,
    folder: PathBuf,
    other: Other,
}

/// Where a memory port's packets come from and go to.
type Ends = (Sender<Vec<u8>>, Receiver<Vec<u8>>);

enum Other {
    Raw(Option<RawSocket>),
    Peer(Option<Box<(SharedMemoryPort, FramePool)>>),
    Memory(Option<Ends>),
    Files { waiting: Vec<Vec<u8>>, read: usize },
}

/// A folder for files of one case, removed at the end.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("asterism-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens a port of a kind that sits on an interface (`tap0` for TAP).
pub(crate) fn open_on(kind: Kind, interface: &str) -> Result<Box<dyn Port>, PortError> {
    let packet = |mode| AfPacketConfig {
        mode,
        ring_slots: 1024,
        ..AfPacketConfig::new(kind.label(), interface)
    };
    let xdp = |mode| AfXdpConfig {
        mode,
        ..AfXdpConfig::new(kind.label(), interface)
    };
    Ok(match kind {
        Kind::AfPacketRing => Box::new(AfPacketPort::open(&packet(AfPacketMode::Ring))?),
        Kind::AfPacketBulk => Box::new(AfPacketPort::open(&packet(AfPacketMode::Bulk))?),
        Kind::AfXdpNative => Box::new(AfXdpPort::open(&xdp(XdpMode::Native))?),
        Kind::AfXdpGeneric => Box::new(AfXdpPort::open(&xdp(XdpMode::Generic))?),
        Kind::Tap | Kind::TapOffloads => Box::new(TapPort::open(&TapConfig {
            offloads: kind == Kind::TapOffloads,
            ..TapConfig::new(kind.label(), "tap0")
        })?),
        Kind::Memory | Kind::Capture | Kind::SharedMemory => {
            panic!("{} sits on no interface", kind.label())
        }
    })
}

impl<'a> Medium<'a> {
    /// The medium of a kind; call inside the near node, if there is one.
    pub(crate) fn new(kind: Kind, stand: Option<&'a Stand>, folder: &Folder) -> Medium<'a> {
        let other = match kind {
            Kind::Memory => Other::Memory(None),
            Kind::Capture => Other::Files {
                waiting: Vec::new(),
                read: 0,
            },
            Kind::SharedMemory => Other::Peer(None),
            _ => Other::Raw(None),
        };
        Medium {
            kind,
            stand,
            folder: folder.0.clone(),
            other,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn shared_memory(&self, role: SharedMemoryRole) -> SharedMemoryConfig {
        SharedMemoryConfig {
            slots: 1024,
            slot_bytes: STRIDE_BYTES_MAX as u32,
            ..SharedMemoryConfig::new("link", self.path("link"), role)
        }
    }

    /// Opens the port, and the other side if it is not there yet. A capture gives what was injected before.
    pub(crate) fn open(&mut self) -> Result<Box<dyn Port>, String> {
        let connecting = self.shared_memory(SharedMemoryRole::Connect);
        let (in_path, out_path) = (self.path("in.pcap"), self.path("out.pcap"));
        match &mut self.other {
            Other::Raw(raw) => {
                let port = open_on(self.kind, "port0").map_err(reports)?;
                // A TAP interface went with the port that was closed.
                if raw.is_none() || !self.kind.is_on_cable() {
                    self.reattach()?;
                }
                Ok(port)
            }
            Other::Peer(peer) => {
                if peer.is_none() {
                    let port = SharedMemoryPort::open(&SharedMemoryConfig {
                        role: SharedMemoryRole::Listen,
                        ..connecting.clone()
                    })
                    .map_err(reports)?;
                    let pool = FramePool::with_stride(64, STRIDE_BYTES_MAX).map_err(reports)?;
                    *peer = Some(Box::new((port, pool)));
                }
                let port = SharedMemoryPort::open(&connecting).map_err(reports)?;
                Ok(Box::new(port))
            }
            Other::Memory(ends) => {
                let (feed, fed) = channel();
                let (collect, collected) = channel();
                *ends = Some((feed, collected));
                Ok(Box::new(Channelled {
                    inner: MemoryPort::new("memory"),
                    fed,
                    collect,
                }))
            }
            Other::Files { waiting, read } => {
                let mut writer = CaptureWriter::create(&in_path).map_err(reports)?;
                for frame in waiting.drain(..) {
                    writer.write(0, frame.len(), &frame);
                }
                writer.flush().map_err(reports)?;
                *read = 0;
                let reader = CaptureReader::open(&in_path).map_err(reports)?;
                let output = CaptureWriter::create(&out_path).map_err(reports)?;
                Ok(Box::new(
                    CapturePort::reading("capture", reader).with_output(output),
                ))
            }
        }
    }

    /// Opens the raw socket at the other side, again if the interface there is another one.
    pub(crate) fn reattach(&mut self) -> Result<(), String> {
        let raw = match self.stand {
            Some(stand) if self.kind.is_on_cable() => {
                let opened = stand.far.enter(|| RawSocket::open("far0"));
                opened.map_err(reports)?.map_err(reports)?
            }
            _ => RawSocket::open("tap0").map_err(reports)?,
        };
        self.other = Other::Raw(Some(raw));
        Ok(())
    }

    /// Lets the port receive a frame.
    pub(crate) fn inject(&mut self, frame: &[u8]) -> Result<(), String> {
        match &mut self.other {
            Other::Raw(Some(raw)) => raw.send(frame).map_err(|error| {
                format!("a frame of {} bytes was not injected: {error}", frame.len())
            }),
            Other::Peer(Some(peer)) => {
                let (port, pool) = &mut **peer;
                let mut burst = Burst::new();
                let held = pool.allocate_copy(frame).ok_or("no buffer")?;
                let _ = burst.push(held);
                (port.send(pool, &mut burst) == 1)
                    .then_some(())
                    .ok_or_else(|| format!("the peer did not send: {:?}", port.statistics()))
            }
            Other::Memory(Some((feed, _))) => feed.send(frame.to_vec()).map_err(reports),
            Other::Files { waiting, .. } => {
                waiting.push(frame.to_vec());
                Ok(())
            }
            _ => Err("the medium is not open".to_owned()),
        }
    }

    /// What the port sent since the last call, as far as it is here.
    pub(crate) fn collect(&mut self) -> Vec<Vec<u8>> {
        let out = self.path("out.pcap");
        match &mut self.other {
            Other::Raw(Some(raw)) => std::iter::from_fn(|| raw.receive().ok()).collect(),
            Other::Peer(Some(peer)) => {
                let (port, pool) = &mut **peer;
                let mut burst = Burst::new();
                let mut frames = Vec::new();
                while port.receive(pool, &mut burst) > 0 {
                    frames.extend(burst.iter().map(|frame| pool.bytes(frame).to_vec()));
                    pool.release_all(&mut burst);
                }
                frames
            }
            Other::Memory(Some((_, collected))) => collected.try_iter().collect(),
            Other::Files { read, .. } => {
                let mut all = Vec::new();
                let mut bytes = Vec::new();
                if let Ok(mut reader) = CaptureReader::open(out) {
                    while let Ok(Some(_)) = reader.next(&mut bytes) {
                        all.push(bytes.clone());
                    }
                }
                let new = all.split_off((*read).min(all.len()));
                *read += new.len();
                new
            }
            _ => Vec::new(),
        }
    }

    /// Sets the link down or up at the other side.
    pub(crate) fn set_link(&mut self, up: bool) -> Result<(), String> {
        let report = if up { "up" } else { "down" };
        let listening = self.shared_memory(SharedMemoryRole::Listen);
        match (&mut self.other, self.stand) {
            (Other::Peer(peer), _) => {
                *peer = None;
                if up {
                    let port = SharedMemoryPort::open(&listening).map_err(reports)?;
                    let pool = FramePool::with_stride(64, STRIDE_BYTES_MAX).map_err(reports)?;
                    *peer = Some(Box::new((port, pool)));
                }
                Ok(())
            }
            (Other::Raw(_), Some(stand)) if self.kind.is_on_cable() => stand
                .far
                .ip(&[format!("link set dev far0 {report}")])
                .map(drop)
                .map_err(reports),
            (Other::Raw(_), Some(stand)) => stand
                .near
                .ip(&[format!("link set dev tap0 {report}")])
                .map(drop)
                .map_err(reports),
            _ => Err("the medium has no link".to_owned()),
        }
    }

    /// Time passes at the other side too.
    pub(crate) fn advance(&mut self, now: Time) {
        if let Other::Peer(Some(peer)) = &mut self.other {
            let (port, pool) = &mut **peer;
            port.advance(now);
            let _ = port.flush(pool);
        }
    }
}

/// A port, its medium and a pool, driven as an idle loop would.
pub(crate) struct Driven<'a> {
    pub port: Box<dyn Port>,
    pub medium: Medium<'a>,
    pub pool: FramePool,
    pub clock: MonotonicClock,
    /// What `flush` reported.
    pub reported: Vec<String>,
}

impl<'a> Driven<'a> {
    /// Opens, and waits until the link is up.
    pub(crate) fn new(medium: Medium<'a>) -> Result<Driven<'a>, String> {
        Driven::with_pool(
            medium,
            FramePool::with_stride(512, STRIDE_BYTES_MAX).map_err(reports)?,
        )
    }

    pub(crate) fn with_pool(mut medium: Medium<'a>, pool: FramePool) -> Result<Driven<'a>, String> {
        let port = medium.open()?;
        let mut driven = Driven {
            port,
            medium,
            pool,
            clock: MonotonicClock::new(),
            reported: Vec::new(),
        };
        driven.until("the link is up", |driven| {
            driven.port.link() == LinkState::Up
        })?;
        // What the kernel says by itself when an interface comes up is not ours.
        driven.medium.collect();
        Ok(driven)
    }

    /// Closes the port and opens it again at once.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        let closed: Box<dyn Port> = Box::new(MemoryPort::sink("closed"));
        drop(std::mem::replace(&mut self.port, closed));
        self.port = self.medium.open()?;
        self.until("the link is up again", |driven| {
            driven.port.link() == LinkState::Up
        })
    }

    /// One turn of an idle loop: nothing was received, so it sleeps, at most 5 ms.
    pub(crate) fn idle(&mut self) {
        let now = self.clock.now();
        self.port.advance(now);
        self.medium.advance(now);
        if let Err(reported) = self.port.flush(&mut self.pool) {
            self.reported.push(reported.to_string());
        }
        sleep_on(self.port.wait_descriptor(), 5);
    }

    /// Turns until something holds.
    pub(crate) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Driven<'a>) -> bool,
    ) -> Result<(), String> {
        let end = self.clock.now() + PATIENCE;
        while !holds(self) {
            if self.clock.now() > end {
                return Err(format!(
                    "after {PATIENCE:?} it is not so that {what}; {:?}; the port reported: {:?}",
                    self.port.statistics(),
                    self.reported
                ));
            }
            self.idle();
        }
        Ok(())
    }

    /// Receives until there are `count` frames that `mine` knows; others are released.
    pub(crate) fn receive_frames(
        &mut self,
        count: usize,
        mine: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Frame>, String> {
        let mut frames = Vec::new();
        let mut burst = Burst::new();
        self.until(&format!("{count} packets are received"), |driven| {
            while driven.port.receive(&mut driven.pool, &mut burst) > 0 {
                for frame in burst.drain() {
                    if mine(driven.pool.bytes(&frame)) {
                        frames.push(frame);
                    } else {
                        driven.pool.release(frame);
                    }
                }
            }
            frames.len() >= count
        })
        .map_err(|why| format!("{} came; {why}", frames.len()))?;
        Ok(frames)
    }

    /// Receives `count` packets.
    pub(crate) fn receive(&mut self, count: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut packets = Vec::new();
        let mut burst = Burst::new();
        self.until(&format!("{count} packets are received"), |driven| {
            while driven.port.receive(&mut driven.pool, &mut burst) > 0 {
                packets.extend(burst.iter().map(|frame| driven.pool.bytes(frame).to_vec()));
                driven.pool.release_all(&mut burst);
            }
            packets.len() >= count
        })?;
        Ok(packets)
    }

    /// Sends frames, burst by burst; returns how many the port says it sent.
    pub(crate) fn send_frames(&mut self, frames: Vec<Frame>) -> usize {
        let mut burst = Burst::new();
        let mut sent = 0;
        for frame in frames {
            if burst.room() == 0 {
                sent += self.port.send(&mut self.pool, &mut burst);
            }
            let _ = burst.push(frame);
        }
        sent + self.port.send(&mut self.pool, &mut burst)
    }

    /// Sends packets.
    pub(crate) fn send(&mut self, packets: &[Vec<u8>]) -> usize {
        let mut sent = 0;
        for part in packets.chunks(32) {
            let frames = part
                .iter()
                .filter_map(|packet| self.pool.allocate_copy(packet))
                .collect();
            sent += self.send_frames(frames);
        }
        sent
    }

    /// Collects at the other side until `enough`.
    pub(crate) fn collect(
        &mut self,
        what: &str,
        mut enough: impl FnMut(&[Vec<u8>]) -> bool,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut packets = Vec::new();
        self.until(what, |driven| {
            if driven.port.flush(&mut driven.pool).is_err() {
                return false;
            }
            packets.extend(driven.medium.collect());
            enough(&packets)
        })
        .map_err(|why| format!("{} were collected; {why}", packets.len()))?;
        Ok(packets)
    }
}

/// Sleeps until a descriptor is readable, at most `milliseconds`.
pub(crate) fn sleep_on(descriptor: Option<BorrowedFd<'_>>, milliseconds: i32) {
    let mut polled = libc::pollfd {
        fd: descriptor.map_or(-1, |descriptor| descriptor.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one `pollfd` that lives through the call; a negative descriptor is ignored.
    unsafe { libc::poll(&mut polled, 1, milliseconds) };
}

/// A raw socket: the other side of ports on interfaces, made without them.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    /// On an interface of the thread's network namespace.
    pub(crate) fn open(interface: &str) -> std::io::Result<RawSocket> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: a name with its closing zero, and numbers.
        let (index, socket) = unsafe {
            (
                libc::if_nametoindex(name.as_ptr()),
                libc::socket(
                    libc::AF_PACKET,
                    libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                    0,
                ),
            )
        };
        if index == 0 || socket < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let set = |level: i32, option: i32, value: i32| {
            // SAFETY: the kernel reads four bytes.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    option,
                    (&raw const value).cast(),
                    4,
                )
            }
        };
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the kernel reads an address that lives through the call.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(RawSocket(socket))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> std::io::Result<()> {
        // SAFETY: the kernel reads the frame.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }

    pub(crate) fn receive(&self) -> std::io::Result<Vec<u8>> {
        let mut frame = vec![0; 70_000];
        // SAFETY: the kernel writes at most the buffer's length.
        let received = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                0,
            )
        };
        let bytes = usize::try_from(received).map_err(|_| std::io::Error::last_os_error())?;
        frame.truncate(bytes);
        Ok(frame)
    }
}

/// A memory port whose packets come and go by channels.
struct Channelled {
    inner: MemoryPort,
    fed: Receiver<Vec<u8>>,
    collect: Sender<Vec<u8>>,
}

impl Port for Channelled {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        self.fed
            .try_iter()
            .for_each(|packet| self.inner.feed(packet));
        self.inner.receive(pool, burst)
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let sent = self.inner.send(pool, burst);
        for packet in self.inner.take_sent() {
            let _ = self.collect.send(packet);
        }
        sent
    }
    fn statistics(&self) -> PortStatistics {
        self.inner.statistics()
    }
}
