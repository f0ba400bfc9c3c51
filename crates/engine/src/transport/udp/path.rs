//! How long datagrams may be: what the paths take whole, and what is done when that changes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use asterism_placement::Time;

use super::{DATAGRAM_BYTES_MIN, UdpTransport};
use crate::transport::config::PathMtu;
use crate::transport::kernel::{self, Socket};
use crate::transport::statistics::TransportEvent;

/// How often paths are asked for their MTU without cause.
pub(super) const PATH_INTERVAL: Duration = Duration::from_secs(10);
/// How often at most with cause.
const PATH_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How long an interface's MTU that was met is held to be true, as Linux holds that of a path.
const PROBED_MTU_LIFETIME: Duration = Duration::from_secs(600);
impl UdpTransport {
    /// Learns the path if that was not done just now.
    pub(super) fn learn_path_again(&mut self, now: Time) {
        if now.since(self.path_asked) >= PATH_INTERVAL_MIN || self.path_mode == PathMtu::Probe {
            self.learn_path(now);
        }
    }

    /// Asks the kernel how narrow the paths are, and sets the datagrams' bound by the narrowest.
    pub(super) fn learn_path(&mut self, now: Time) {
        self.path_asked = now;
        self.follow_interface();
        let narrowest = if self.path_mode == PathMtu::Probe {
            // What routers said is in the kernel's answer too, so it is not asked.
            let probed = self.probed;
            let probed = probed.filter(|(_, at)| now.since(*at) < PROBED_MTU_LIFETIME);
            let widest = self.datagram_bytes_limit + self.around_bytes();
            Some(probed.map_or(widest, |(mtu, _)| mtu))
        } else {
            let peers = self.peers.iter().enumerate();
            let present = peers.filter(|(place, _)| !self.absent.contains(place));
            let targets = present.map(|(_, peer)| peer.address);
            targets
                .chain(self.group_address)
                .filter_map(|to| self.ask_path(to).ok())
                .min()
        };
        let Some(mtu) = narrowest else { return };
        let whole = mtu.saturating_sub(self.around_bytes());
        let bytes = whole
            .min(self.datagram_bytes_limit)
            .max(DATAGRAM_BYTES_MIN.min(self.datagram_bytes_limit));
        if self.path_mtu != 0 && mtu != self.path_mtu {
            self.statistics.path_mtu_changes += 1;
        }
        self.path_mtu = mtu;
        self.whole_bytes_max = whole;
        if bytes != self.datagram_bytes {
            self.datagram_bytes = bytes;
            self.note(TransportEvent::DatagramBytes { bytes, mtu });
        }
        let sent = self.statistics.fragmented_sent;
        if self.datagram_bytes > whole {
            self.fragment(true);
        } else if self.is_fragmenting && sent == self.fragmented_before {
            self.fragment(false);
        }
        self.fragmented_before = sent;
    }

    /// An interface that vanished and came back has another number: the group is joined again.
    fn follow_interface(&mut self) {
        let (Some(group), Some(address)) = (&self.group, self.group_address) else {
            return;
        };
        // With no name, or none of that name, it stays as it is.
        let Ok(number) = kernel::interface(&self.interface.0) else {
            return;
        };
        if number != self.interface.1
            && group.join(address, number).is_ok()
            && self.own.send_multicast_by(number).is_ok()
        {
            self.interface.1 = number;
            self.statistics.interface_changes += 1;
        }
    }

    /// The MTU of the path to an address, as the kernel knows it now. Sends nothing.
    fn ask_path(&self, to: SocketAddr) -> io::Result<usize> {
        let socket = Socket::new(to)?;
        socket.bind(SocketAddr::new(self.local.ip(), 0))?;
        if to.ip().is_multicast() {
            socket.send_multicast_by(self.interface.1)?;
        }
        socket.set(kernel::MTU_DISCOVER, discover(self.path_mode))?;
        socket.connect(to)?;
        Ok(socket.get(kernel::MTU)? as usize)
    }

    /// Lets datagrams longer than the path be fragmented, or not.
    pub(super) fn fragment(&mut self, on: bool) {
        let on = on || self.path_mode == PathMtu::Fragment;
        let mode = if on {
            PathMtu::Fragment
        } else {
            self.path_mode
        };
        if on != self.is_fragmenting && self.own.set(kernel::MTU_DISCOVER, discover(mode)).is_ok() {
            self.is_fragmenting = on;
            if on && self.datagram_bytes > self.whole_bytes_max {
                let mtu = self.path_mtu;
                self.note(TransportEvent::Fragmenting { mtu });
            }
        }
    }
}

pub(super) fn discover(mode: PathMtu) -> i32 {
    // The numbers of both address families are the same.
    match mode {
        PathMtu::Discover => libc::IP_PMTUDISC_DO,
        PathMtu::Probe => libc::IP_PMTUDISC_PROBE,
        PathMtu::Fragment => libc::IP_PMTUDISC_DONT,
    }
}
