//! The configuration with which `asterism run` makes hosts of a local network: a NAT whose ports are the network's links.

use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use crate::addresses::{HOSTS_MAX, LinkSide, OUTSIDE_ADDRESSES_MAX, outside_address};
use crate::error::LocalNetworkError;
use crate::traffic::TrafficError;

/// Bytes of the path of a Unix socket at most: 108 of `sockaddr_un` less the zero at its end.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Bytes of a host's name at most.
const NAME_BYTES_MAX: usize = 32;

/// What the file says. [`ClusterFile::new`] has sane values for all but folder, name, hosts and addresses.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// The folder of sockets, state files and this file.
    pub folder: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// The hosts, in the order in which ports of addresses are assigned. A host's place is the number of its addresses.
    pub hosts: Vec<String>,
    /// The address of each host's state channel; not needed by a single host.
    pub channel: Vec<SocketAddr>,
    /// The key's file, in the folder. `asterism keygen` writes it.
    pub key: String,
    /// The file of epochs, in the folder. `asterism epoch` writes it. `None`: all members take part from the start.
    pub epochs: Option<String>,
    /// The addresses of orchestrators, which then hand epochs to the hosts. None: nobody does.
    pub orchestrators: Vec<SocketAddr>,
    /// Where each host serves its metrics. None: nowhere.
    pub metrics: Vec<SocketAddr>,
    /// Outside addresses of the NAT, at most [`OUTSIDE_ADDRESSES_MAX`]; as in the network's configuration.
    pub outside_addresses: u8,
    /// Packets that a link to a host holds each way; as in the network's configuration.
    pub slots: u32,
    /// How long a packet from outside waits for a session that another host may just have made (as the field `absent` takes it).
    pub absent: String,
    /// Further whole tables at the end of the file.
    pub more: String,
}

impl ClusterFile {
    /// A cluster with epochs in `epoch.toml`, its key in `cluster.key`, four outside addresses, and packets that wait 20 ms for a
    /// session.
    #[must_use]
    pub fn new(
        folder: impl Into<PathBuf>,
        cluster: impl Into<String>,
        hosts: Vec<String>,
        channel: Vec<SocketAddr>,
    ) -> ClusterFile {
        ClusterFile {
            folder: folder.into(),
            cluster: cluster.into(),
            hosts,
            channel,
            key: "cluster.key".to_owned(),
            epochs: Some("epoch.toml".to_owned()),
            orchestrators: Vec::new(),
            metrics: Vec::new(),
            outside_addresses: 4,
            slots: crate::network::SLOTS_SANE,
            absent: "wait 20ms".to_owned(),
            more: String::new(),
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        ClusterFile::path_in(&self.folder)
    }

    /// Where the file of a cluster in this folder is.
    #[must_use]
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join("asterism.toml")
    }

    /// The control socket of a host.
    #[must_use]
    pub fn control_socket(&self, host: &str) -> PathBuf {
        self.folder.join(format!("{host}.control.sock"))
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Names or addresses that cannot be, or a folder with too long a path.
    pub fn text(&self) -> Result<String, LocalNetworkError> {
        self.check()?;
        let ClusterFile {
            cluster,
            hosts,
            key,
            slots,
            absent,
            more,
            ..
        } = self;
        let mut text =
            format!("[cluster]\nname = {cluster:?}\nkey = {key:?}\nmembers = {hosts:?}\n");
        // Writing to a string cannot fail.
        if let Some(epochs) = &self.epochs {
            let _ = writeln!(text, "epochs = {epochs:?}");
        }
        if !self.orchestrators.is_empty() {
            let addresses: Vec<_> = self
                .orchestrators
                .iter()
                .map(SocketAddr::to_string)
                .collect();
            let _ = writeln!(text, "orchestrators = {addresses:?}");
        }
        if hosts.len() > 1 {
            for (host, address) in hosts.iter().zip(&self.channel) {
                let _ = writeln!(text, "member.{host}.address = \"{address}\"");
            }
        }
        text.push_str("\n[host]\ninstances = 1\njoin_wait = \"300ms\"\n");
        for side in LinkSide::BOTH {
            let word = side.word();
            let _ = write!(
                text,
                "\n[port.{word}]\nkind = \"shared_memory\"\nrole = \"connect\"\nring = {slots}\n"
            );
        }
        let outside: Vec<_> = (0..self.outside_addresses)
            .map(|number| outside_address(number).to_string())
            .collect();
        let _ = write!(
            text,
            "\n[function.nat]\noutside = {outside:?}\ninside = [\"10.78.0.0/16\"]\n\
             \n[function.nat.state]\nsessions = {{ placement = \"replicated\" }}\n"
        );
        // Nobody else makes entries that a single host could wait for.
        let absent = if hosts.len() > 1 { absent } else { "drop" };
        let _ = writeln!(
            text,
            "ports = {{ placement = \"replicated\", allocation = \"leased\", absent = {absent:?} }}"
        );
        for (number, host) in (0..).zip(hosts) {
            self.write_host(&mut text, number, host)?;
        }
        text.push_str(more);
        Ok(text)
    }

    /// Writes the file, which is whole or as it was.
    ///
    /// # Errors
    /// As [`ClusterFile::text`], or the system's.
    pub fn write(&self) -> Result<PathBuf, LocalNetworkError> {
        let text = self.text()?;
        let path = self.path();
        let new = self.folder.join("asterism.toml.new");
        let failed = |error| LocalNetworkError::File {
            path: path.clone(),
            error,
        };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        std::fs::write(&new, text).map_err(failed)?;
        std::fs::rename(&new, &path).map_err(failed)?;
        Ok(path)
    }

    fn write_host(
        &self,
        text: &mut String,
        number: u8,
        host: &str,
    ) -> Result<(), LocalNetworkError> {
        let control = self.control_socket(host);
        let state = format!("{host}.state");
        let _ = write!(
            text,
            "\n[on.{host}.host]\ncontrol = {control:?}\nstate = {state:?}\n"
        );
        if let Some(address) = self.metrics.get(usize::from(number)) {
            let _ = writeln!(text, "metrics = \"{address}\"");
        }
        for side in LinkSide::BOTH {
            let path = link_socket(&self.folder, host, side)?;
            let _ = writeln!(text, "[on.{host}.port.{}]\npath = {path:?}", side.word());
        }
        let _ = writeln!(text, "[on.{host}.function.nat]");
        for side in LinkSide::BOTH {
            let _ = writeln!(text, "{}", link_line(side, number));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), LocalNetworkError> {
        check_hosts(&self.hosts)?;
        let (hosts, addresses) = (self.hosts.len(), self.channel.len());
        if hosts > 1 && hosts != addresses {
            return Err(LocalNetworkError::Channel { hosts, addresses });
        }
        if !(1..=OUTSIDE_ADDRESSES_MAX).contains(&self.outside_addresses) {
            let error = TrafficError::OutsideAddresses(self.outside_addresses);
            return Err(error.into());
        }
        for host in &self.hosts {
            check_path(self.control_socket(host))?;
        }
        Ok(())
    }
}

/// Addresses for the state channels of so many hosts, on which nobody listens now. They are on a loopback address that follows
/// from `number` (a process's, say): on 127.0.0.1 the kernel gives such ports to other sockets before the hosts are started.
///
/// # Errors
/// The system has none.
pub fn loopback_addresses(hosts: usize, number: u32) -> Result<Vec<SocketAddr>, LocalNetworkError> {
    let [_, a, b, c] = number.to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | (a & 63), b, c.max(1));
    // Held all at once, so that they differ.
    let sockets: io::Result<Vec<_>> = (0..hosts).map(|_| UdpSocket::bind((address, 0))).collect();
    let sockets = sockets.map_err(LocalNetworkError::NoAddress)?;
    let addresses: io::Result<Vec<_>> = sockets.iter().map(UdpSocket::local_addr).collect();
    addresses.map_err(LocalNetworkError::NoAddress)
}

/// The line of a NAT's settings with its link on this side, of the host with this number.
#[must_use]
pub fn link_line(side: LinkSide, number: u8) -> String {
    let (word, address, mac) = (side.word(), side.host(number), side.host_mac(number));
    let (next_hop, next_hop_mac) = (side.router(), side.router_mac());
    format!(
        "{word}_link = {{ address = \"{address}/24\", mac = \"{mac}\", next_hop = \"{next_hop}\", \
         next_hop_mac = \"{next_hop_mac}\", promiscuous = false }}"
    )
}

/// The socket where a host's port and the network meet: `HOST.SIDE.sock` in the folder.
///
/// # Errors
/// Its path is too long.
pub fn link_socket(
    folder: &Path,
    host: &str,
    side: LinkSide,
) -> Result<PathBuf, LocalNetworkError> {
    check_path(folder.join(format!("{host}.{}.sock", side.word())))
}

fn check_path(path: PathBuf) -> Result<PathBuf, LocalNetworkError> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(LocalNetworkError::SocketPath { path, bytes });
    }
    Ok(path)
}

/// Refuses names that cannot be, two of one name, and too many.
pub(crate) fn check_hosts(hosts: &[String]) -> Result<(), LocalNetworkError> {
    if hosts.len() > HOSTS_MAX {
        return Err(LocalNetworkError::Hosts(hosts.len()));
    }
    for (place, host) in hosts.iter().enumerate() {
        let is_sound = |sign: char| sign.is_ascii_alphanumeric() || sign == '-' || sign == '_';
        if host.is_empty() || host.len() > NAME_BYTES_MAX || !host.chars().all(is_sound) {
            return Err(LocalNetworkError::HostName(host.clone()));
        }
        if hosts[..place].contains(host) {
            return Err(LocalNetworkError::SameHost(host.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("nat-{number}")).collect()
    }

    fn file(hosts: usize) -> ClusterFile {
        let channel = loopback_addresses(hosts, 7).unwrap();
        ClusterFile::new("folder", "local", names(hosts), channel)
    }

    #[test]
    fn every_host_has_links_and_addresses_of_its_own() {
        let text = file(3).text().unwrap();
        for part in [
            "members = [\"nat-0\", \"nat-1\", \"nat-2\"]",
            "path = \"folder/nat-2.outside.sock\"",
            "member.nat-1.address = \"127.64.0.7:",
            "10.77.0.12/24",
            "absent = \"wait 20ms\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!file(1).text().unwrap().contains("member."));
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let mut long = file(2);
        long.folder = PathBuf::from("x".repeat(SOCKET_PATH_BYTES_MAX));
        let error = long.text().unwrap_err().to_string();
        assert!(
            error.contains("use a folder with a shorter path"),
            "{error}"
        );
        let mut few = file(2);
        few.channel.pop();
        assert!(matches!(
            few.text(),
            Err(LocalNetworkError::Channel {
                hosts: 2,
                addresses: 1
            })
        ));
        for name in ["", "a/b", "a.b", "é", &"x".repeat(33)] {
            let hosts = vec![name.to_owned()];
            assert!(matches!(
                check_hosts(&hosts),
                Err(LocalNetworkError::HostName(_))
            ));
        }
        let twice = vec!["a".to_owned(), "a".to_owned()];
        assert!(matches!(
            check_hosts(&twice),
            Err(LocalNetworkError::SameHost(_))
        ));
        assert!(matches!(
            check_hosts(&names(HOSTS_MAX + 1)),
            Err(LocalNetworkError::Hosts(_))
        ));
        let mut addresses = file(1);
        addresses.outside_addresses = 0;
        assert!(matches!(
            addresses.text(),
            Err(LocalNetworkError::Traffic(_))
        ));
    }

    #[test]
    fn free_addresses_differ() {
        let mut addresses = loopback_addresses(8, 1).unwrap();
        addresses.dedup();
        assert_eq!(addresses.len(), 8);
    }
}
