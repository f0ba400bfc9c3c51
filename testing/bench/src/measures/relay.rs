//! A bare relay: the ports of the product and nothing between them but new Ethernet addresses. What the laboratory's machine
//! gives to any program that moves packets by these sockets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool, STRIDE_BYTES, STRIDE_BYTES_MAX};
use asterism_io::port::{AfPacketConfig, AfPacketMode, AfPacketPort, Port};
use asterism_lab::nat::NatLab;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lab::absent;
use crate::contract::Failure;

/// Frames of the relay.
const FRAMES: usize = 1_024;
/// The longest sleep, as of a host.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Relays between the interfaces of the first host until it is asked to end.
pub(super) fn relay(lab: &NatLab, mode: AfPacketMode, ends: &AtomicBool) -> Result<(), Failure> {
    let done = lab.hosts[0].enter(|| run(mode, ends)).map_err(absent)?;
    done.map_err(Failure::Unsound)
}

fn run(mode: AfPacketMode, ends: &AtomicBool) -> Result<(), String> {
    let stride = match mode {
        AfPacketMode::Ring => STRIDE_BYTES,
        AfPacketMode::Bulk => STRIDE_BYTES_MAX,
    };
    let mut pool = FramePool::with_stride(FRAMES, stride).map_err(|error| error.to_string())?;
    let open = |interface: &str| {
        let config = AfPacketConfig {
            mode,
            merges_segments: mode == AfPacketMode::Ring,
            // The kernel beside it answers the routers' questions for addresses.
            exclusive: false,
            ..AfPacketConfig::new(interface, interface)
        };
        AfPacketPort::open(&config).map_err(|error| error.to_string())
    };
    let mut ports = [open("in")?, open("out")?];
    // As of packets that leave by each: to the router, from the NAT.
    let addresses = [
        asterism_lab::nat::INSIDE_MACS,
        asterism_lab::nat::OUTSIDE_MACS,
    ];
    let clock = MonotonicClock::new();
    let mut burst = Burst::new();
    while !ends.load(Ordering::Relaxed) {
        let mut moved = 0;
        for from in [0, 1] {
            ports[from].advance(clock.now());
            moved += ports[from].receive(&mut pool, &mut burst);
            for frame in burst.as_mut_slice() {
                pool.bytes_mut(frame)[..12].copy_from_slice(&addresses[1 - from]);
            }
            if !burst.is_empty() {
                ports[1 - from].send(&mut pool, &mut burst);
            }
        }
        if moved == 0 {
            for port in &mut ports {
                port.flush(&mut pool).map_err(|error| error.to_string())?;
            }
            let mut waits: Vec<_> = ports
                .iter()
                .filter_map(Port::wait_descriptor)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: SLEEP_MAX.subsec_nanos().into(),
            };
            // A signal that ends the sleep early costs a turn.
            let _ = poll(&mut waits, Some(&timeout));
        }
    }
    Ok(())
}
