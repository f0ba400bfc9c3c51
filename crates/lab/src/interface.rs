//! What `ip` cannot do to an interface: switch its offloads off, as `ethtool` would, and choose who works off what it receives.
//!
//! A kernel socket hands frames without checksum and of up to 64 KiB to a veth pair, because nothing between the two ends
//! has to know better. Who reads such frames raw must either take them with their meta-data (`PACKET_VNET_HDR`) or have
//! them switched off.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The ioctl of `ethtool` (linux/sockios.h).
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// Commands of linux/ethtool.h that switch one offload: transmit checksums, TSO, GSO, GRO.
const OFFLOADS: [(u32, &str); 4] = [
    (0x17, "transmit checksums"),
    (0x1f, "TCP segmentation"),
    (0x24, "segmentation"),
    (RECEIVE_MERGING, "receive merging"),
];
/// GRO: a pair of virtual interfaces has it off by itself, and is several times slower with it.
const RECEIVE_MERGING: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches checksum and segmentation offloads of an interface of the calling thread's namespace on or off. On, receive
/// merging (GRO) stays as it is.
///
/// Off, every frame on the wire has its checksum and fits the MTU, those that UDP sockets segment (`UDP_SEGMENT`) included.
pub fn set_offloads(interface: &str, on: bool) -> io::Result<()> {
    let socket = socket()?;
    for (command, what) in OFFLOADS {
        if on && command == RECEIVE_MERGING {
            continue;
        }
        let mut value = Value {
            command,
            data: u32::from(on),
        };
        let mut request = request(interface)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request names an interface and points to a value that lives until the call returns.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(
                error.kind(),
                format!("{what} of {interface}: {error}"),
            ));
        }
    }
    Ok(())
}

/// The most cores that Linux can be built for.
const CORES_MAX: usize = 8_192;

/// Has this core work off what an interface of the calling thread's namespace receives.
pub(crate) fn receive_on_core(interface: &str, core: usize) -> io::Result<()> {
    if core >= CORES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no core {core}"),
        ));
    }
    // What `/sys` shows belongs to the namespace that it was mounted in. This mount is nowhere, and ends with its descriptor.
    let system = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(system.as_fd())?;
    let mount = fsmount(
        system.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    let root = format!("/proc/self/fd/{}", mount.as_raw_fd());
    let mask = mask_of(core);
    for queue in std::fs::read_dir(format!("{root}/class/net/{interface}/queues"))? {
        let queue = queue?;
        if queue.file_name().to_string_lossy().starts_with("rx-") {
            std::fs::write(queue.path().join("rps_cpus"), &mask)?;
        }
    }
    Ok(())
}

/// One core as the kernel writes a set of them: 32 to a group, the highest first.
fn mask_of(core: usize) -> String {
    let lower = ",00000000".repeat(core / 32);
    format!("{:x}{lower}", 1_u32 << (core % 32))
}

/// The number of an interface of the calling thread's namespace.
pub(crate) fn index_of(interface: &str) -> io::Result<i32> {
    let socket = socket()?;
    let mut request = request(interface)?;
    // SAFETY: the request names an interface and has room for the answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote the index.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

/// Bytes of an interface's MTU.
pub(crate) fn mtu_of(interface: &str) -> io::Result<usize> {
    let socket = socket()?;
    let mut request = request(interface)?;
    // SAFETY: the request names an interface and has room for the answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes are a request with an empty name.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let bytes = interface.as_bytes();
    if bytes.is_empty() || bytes.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{interface:?}: an interface's name has 1 to 15 bytes"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed() as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_cores_are_in_groups_of_32() {
        assert_eq!(mask_of(0), "1");
        assert_eq!(mask_of(1), "2");
        assert_eq!(mask_of(31), "80000000");
        assert_eq!(mask_of(32), "1,00000000");
        assert_eq!(mask_of(66), "4,00000000,00000000");
    }
}
