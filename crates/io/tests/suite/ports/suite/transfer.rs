//! Real TCP through ports: the kernel's own sockets on both sides, and packets forwarded between two ports in the middle.

use super::media::{Folder, PATIENCE, Stand, open_on, sleep_on};
use super::{Kind, expect, reports};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool, STRIDE_BYTES_MAX};
use asterism_io::port::{
    Port, PortStatistics, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole,
};
use asterism_lab::{Cable, Offloads};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is transferred each way.
const BYTES: usize = 4 << 20;

/// What a transfer showed.
pub(crate) struct Transfer {
    /// Of the port of the kind.
    pub port: PortStatistics,
    /// Of the bulk port at the server's side.
    pub other: PortStatistics,
    /// The longest packet that passed.
    pub longest_bytes: usize,
}

/// Transfers 4 MiB each way between a client behind a port of `kind` and a server behind a bulk port. The server's interfaces
/// keep their offloads, so long packets without checksums arrive from there; the client's only where the port takes them.
pub(crate) fn through(kind: Kind) -> Result<Transfer, String> {
    let offloads = if kind.offloads() {
        Offloads::On
    } else {
        Offloads::Off
    };
    let stand = Stand::new(offloads, offloads)?;
    let server = stand.lab().node("server").map_err(reports)?;
    let cable = Cable::default().offloads(Offloads::On);
    stand
        .lab()
        .cable((&stand.near, "port1"), (&server, "server0"), &cable)
        .map_err(reports)?;
    server
        .ip(&["address add 10.79.0.2/24 dev server0"])
        .map_err(reports)?;
    let folder = Folder::new("transfer");
    stand
        .near
        .enter(|| {
            let mut pairs: Vec<[Box<dyn Port>; 2]> = Vec::new();
            let bulk = |interface| open_on(Kind::AfPacketBulk, interface).map_err(reports);
            if kind == Kind::SharedMemory {
                let end = |role| {
                    SharedMemoryPort::open(&SharedMemoryConfig {
                        slots: 256,
                        slot_bytes: STRIDE_BYTES_MAX as u32,
                        ..SharedMemoryConfig::new("link", folder.0.join("link"), role)
                    })
                    .map_err(reports)
                };
                let (listening, connecting) = (
                    end(SharedMemoryRole::Listen)?,
                    end(SharedMemoryRole::Connect)?,
                );
                pairs.push([Box::new(listening), bulk("port0")?]);
                pairs.push([Box::new(connecting), bulk("port1")?]);
            } else {
                pairs.push([open_on(kind, "port0").map_err(reports)?, bulk("port1")?]);
            }
            // A TAP interface has its client in this node.
            let (client, interface) = if kind.is_on_cable() || kind == Kind::SharedMemory {
                (&stand.far, "far0")
            } else {
                (&stand.near, "tap0")
            };
            client
                .ip(&[format!("address add 10.79.0.1/24 dev {interface}")])
                .map_err(reports)?;
            let listener = server
                .enter(|| TcpListener::bind("10.79.0.2:80"))
                .map_err(reports)?
                .map_err(reports)?;
            forward_while(pairs, || {
                std::thread::scope(|scope| {
                    let serving = scope.spawn(|| serve(&listener));
                    let asked = client
                        .enter(|| ask(SocketAddrV4::new(Ipv4Addr::new(10, 79, 0, 2), 80)))
                        .map_err(reports)?;
                    let served = serving.join().map_err(|_| "the server panicked")?;
                    asked.and(served)
                })
            })
        })
        .map_err(reports)?
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at ^ (at >> 8)) as u8).collect()
}

fn check(stream: &mut TcpStream) -> Result<(), String> {
    let mut received = vec![0; BYTES];
    stream.read_exact(&mut received).map_err(reports)?;
    expect(received == pattern(), || {
        "what was transferred differs".into()
    })
}

fn serve(listener: &TcpListener) -> Result<(), String> {
    sleep_on(
        Some(std::os::fd::AsFd::as_fd(listener)),
        PATIENCE.as_millis() as i32 * 3,
    );
    listener.set_nonblocking(true).map_err(reports)?;
    let (mut stream, _) = listener
        .accept()
        .map_err(|error| format!("nobody connected: {error}"))?;
    stream.set_nonblocking(false).map_err(reports)?;
    stream
        .set_read_timeout(Some(3 * PATIENCE))
        .map_err(reports)?;
    stream
        .set_write_timeout(Some(3 * PATIENCE))
        .map_err(reports)?;
    check(&mut stream)?;
    stream.write_all(&pattern()).map_err(reports)
}

fn ask(server: SocketAddrV4) -> Result<(), String> {
    let mut stream = TcpStream::connect_timeout(&server.into(), 3 * PATIENCE).map_err(reports)?;
    stream
        .set_read_timeout(Some(3 * PATIENCE))
        .map_err(reports)?;
    stream
        .set_write_timeout(Some(3 * PATIENCE))
        .map_err(reports)?;
    stream.write_all(&pattern()).map_err(reports)?;
    check(&mut stream)
}

/// Forwards between the two ports of each pair while `work` lasts.
fn forward_while(
    mut pairs: Vec<[Box<dyn Port>; 2]>,
    work: impl FnOnce() -> Result<(), String> + Send,
) -> Result<Transfer, String> {
    let mut pool = FramePool::with_stride(512, STRIDE_BYTES_MAX).map_err(reports)?;
    let clock = MonotonicClock::new();
    let done = AtomicBool::new(false);
    let (result, longest_bytes) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            done.store(true, Ordering::Release);
            result
        });
        let mut burst = Burst::new();
        let mut longest = 0;
        while !done.load(Ordering::Acquire) {
            let now = clock.now();
            let mut received = 0;
            for pair in &mut pairs {
                for (from, to) in [(0, 1), (1, 0)] {
                    pair[from].advance(now);
                    received += pair[from].receive(&mut pool, &mut burst);
                    longest = burst
                        .iter()
                        .map(|frame| frame.len())
                        .fold(longest, usize::max);
                    pair[to].send(&mut pool, &mut burst);
                }
            }
            if received == 0 {
                for port in pairs.iter_mut().flatten() {
                    let _ = port.flush(&mut pool);
                }
                std::thread::yield_now();
            }
        }
        let result = worker
            .join()
            .unwrap_or_else(|_| Err("the transfer panicked".to_owned()));
        (result, longest)
    });
    let transfer = Transfer {
        port: pairs[0][0].statistics(),
        other: pairs[pairs.len() - 1][1].statistics(),
        longest_bytes,
    };
    result.map_err(|why| {
        format!(
            "TCP through the port: {why}; the port: {:?}; the bulk port behind it: {:?}",
            transfer.port, transfer.other
        )
    })?;
    let lost = pool.in_use();
    expect(lost == 0, || format!("{lost} frames were lost"))?;
    Ok(transfer)
}
