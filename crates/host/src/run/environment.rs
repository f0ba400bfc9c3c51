//! What a host is given by the machine around it: signals, cores, clocks, addresses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;

use asterism_config::Config;
use asterism_engine::transport::{MulticastConfig, UdpConfig, UdpPeer};
use asterism_io::clock::MonotonicClock;
use asterism_placement::MemberId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::saved::Moment;
use asterism_event_log::Event;

/// A flag that SIGTERM and SIGINT raise, the second of which ends the process at once, and one for SIGHUP.
///
/// # Errors
/// The operating system refuses a handler.
pub fn signals() -> io::Result<(Arc<AtomicBool>, Arc<AtomicBool>)> {
    let (stop, hang_up) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    signal_hook::flag::register(SIGHUP, hang_up.clone())?;
    Ok((stop, hang_up))
}

pub(super) fn pin(core: usize, events: &SyncSender<Event>) {
    let mut set = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        set.set(core);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        let _ = events.try_send(
            Event::warning("core-not-pinned")
                .with("core", core)
                .effect(format!("the packet loop runs on any core: {error}"))
                .cure("name a core that the process may use in [host] cores"),
        );
    }
}

/// The sockets of the state channel; `None` if members would have to reach each other and have no addresses.
///
/// `registered` are the addresses that an epoch says, where hosts register.
pub(super) fn udp_config(
    config: &Config,
    own: MemberId,
    registered: Option<&[(MemberId, SocketAddr)]>,
) -> Option<UdpConfig> {
    let (cluster, channel) = (&config.cluster, &config.cluster.channel);
    let mut peers = Vec::new();
    // A host alone has nobody to talk to: any port will do.
    let mut bind = SocketAddr::from(([127, 0, 0, 1], 0));
    let listed: Vec<(MemberId, Option<SocketAddr>)> = match registered {
        Some(addresses) => {
            bind = config.host.address?;
            let others = addresses.iter().filter(|(member, _)| *member != own);
            others.map(|(member, at)| (*member, Some(*at))).collect()
        }
        None => {
            let members = cluster.member_ids().into_iter();
            members.zip(cluster.addresses.iter().copied()).collect()
        }
    };
    for (member, address) in listed {
        match address {
            Some(address) if member == own => bind = address,
            Some(address) => peers.push(UdpPeer {
                member,
                address,
                multicast: channel.multicast.is_some(),
                near: cluster.is_near(member, own),
            }),
            None if cluster.members.len() > 1 => return None,
            None => {}
        }
    }
    let multicast = channel.multicast.map(|group| MulticastConfig {
        group,
        interface: channel.interface.clone().unwrap_or_default(),
        hops: 1,
        loopback: false,
    });
    Some(UdpConfig {
        peers,
        multicast,
        receive_buffer_bytes: channel.receive_buffer_bytes,
        send_buffer_bytes: channel.send_buffer_bytes,
        bandwidth_bits_per_second: channel.bandwidth_max.map(|bytes| bytes * 8),
        segmentation: channel.offload,
        receive_offload: channel.offload,
        ..UdpConfig::new(bind, [])
    })
}

pub(super) fn digest_of(addresses: &[std::net::Ipv4Addr]) -> u64 {
    addresses.iter().fold(1, |digest, address| {
        asterism_state::hash::word(address.to_bits().into(), digest)
    })
}

pub(super) fn moment(tick: u32, clock: &MonotonicClock) -> Moment {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Moment {
        tick,
        wall_s: clock.wall(),
        boot_s: boot.tv_sec as u64,
        boot: boot_id(),
    }
}

/// Which start of the machine this is; zero if the kernel does not say.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

pub(super) fn monotonic_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
