//! What every port must do.

use super::frames::{Long, check_finished, experimental, has_pseudo_sum, numbered, unfinished};
use super::media::{Driven, Folder, Medium, Stand};
use super::{Kind, expect, reports, transfer};
use asterism_io::port::{LinkState, PortDrop};
use asterism_lab::Offloads;
use asterism_packet::Packet;
use std::net::UdpSocket;

/// Does `work` with an open port of a kind, inside a network of its own if it needs one.
fn with_port(
    kind: Kind,
    far: Offloads,
    work: impl FnOnce(&mut Driven<'_>) -> Result<(), String> + Send,
) -> Result<(), String> {
    let folder = Folder::new("ports");
    if !kind.needs_root() {
        return work(&mut Driven::new(Medium::new(kind, None, &folder))?);
    }
    // The near end's own offloads are off, so that the kernel shows whether it understood what it was informed of each packet.
    let stand = Stand::new(Offloads::Off, far)?;
    stand
        .near
        .enter(|| {
            let mut driven = Driven::new(Medium::new(kind, Some(&stand), &folder))?;
            work(&mut driven)?;
            let lost = driven.pool.in_use();
            drop(driven);
            expect(lost == 0, || format!("{lost} frames were lost"))
        })
        .map_err(reports)?
}

/// Packets of all lengths, in order, both ways.
pub(crate) fn burst(kind: Kind) -> Result<(), String> {
    const PACKETS: u32 = 1_000;
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|number| numbered(number, 60 + (number as usize * 37) % 1_455))
        .collect();
    let folder = Folder::new("burst");
    if kind == Kind::Capture {
        let mut medium = Medium::new(kind, None, &folder);
        packets
            .iter()
            .try_for_each(|packet| medium.inject(packet))?;
        let mut driven = Driven::new(medium)?;
        let received = driven.receive(packets.len())?;
        expect(received == packets, || "what was read differs".into())?;
        return send_and_count(&mut driven, &packets);
    }
    with_port(kind, Offloads::Off, |driven| {
        for part in packets.chunks(200) {
            part.iter()
                .try_for_each(|packet| driven.medium.inject(packet))?;
            let received = driven.receive(part.len())?;
            expect(received == part, || "what was received differs".into())?;
        }
        let counted = driven.port.statistics();
        expect(counted.received_packets == u64::from(PACKETS), || {
            format!("{counted:?}")
        })?;
        send_and_count(driven, &packets)
    })
}

fn send_and_count(driven: &mut Driven<'_>, packets: &[Vec<u8>]) -> Result<(), String> {
    let mut collected = Vec::new();
    let mut sent = 0;
    for part in packets.chunks(200) {
        sent += driven.send(part);
        let wanted = part.len();
        collected.extend(driven.collect("all are there", |packets| packets.len() >= wanted)?);
    }
    expect(collected == packets, || "what was sent differs".into())?;
    let counted = driven.port.statistics();
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let right = sent == packets.len()
        && counted.sent_packets == sent as u64
        && counted.sent_bytes == bytes as u64
        && counted.dropped_total() == 0;
    expect(right, || format!("{sent} sent: {counted:?}"))
}

/// Frames below Ethernet's shortest pass as they are; those without a whole header are sent or counted, and harm nobody.
pub(crate) fn short_frame(kind: Kind) -> Result<(), String> {
    let whole: Vec<Vec<u8>> = [14, 15, 20, 42, 59, 60]
        .into_iter()
        .map(experimental)
        .collect();
    let cut: Vec<Vec<u8>> = [0, 1, 13].into_iter().map(experimental).collect();
    let check = |driven: &mut Driven<'_>| {
        let mut all = cut.clone();
        all.extend(whole.clone());
        let sent = driven.send(&all);
        let dropped = driven.port.statistics().dropped_total() as usize;
        expect(sent + dropped == all.len() && sent >= whole.len(), || {
            format!("{sent} were sent and {dropped} counted as dropped")
        })?;
        let collected = driven.collect("they are there", |packets| packets.len() >= sent)?;
        expect(collected.ends_with(&whole), || {
            format!("what was sent differs: {collected:?}")
        })
    };
    if kind == Kind::Capture {
        let folder = Folder::new("short");
        let mut medium = Medium::new(kind, None, &folder);
        whole.iter().try_for_each(|packet| medium.inject(packet))?;
        let mut driven = Driven::new(medium)?;
        let received = driven.receive(whole.len())?;
        expect(received == whole, || "what was read differs".into())?;
        return check(&mut driven);
    }
    with_port(kind, Offloads::Off, |driven| {
        whole
            .iter()
            .try_for_each(|packet| driven.medium.inject(packet))?;
        let received = driven.receive(whole.len())?;
        expect(received == whole, || {
            format!("what was received differs: {received:?}")
        })?;
        check(driven)
    })
}

/// A checksum that somebody left to the hardware is right in the end, whatever stands in its field.
pub(crate) fn checksum_offload(kind: Kind) -> Result<(), String> {
    with_port(kind, Offloads::On, |driven| {
        for (long, tagged) in [
            (Long::Tcp4, false),
            (Long::Udp4, false),
            (Long::Tcp6, false),
        ] {
            let frame = unfinished(&mut driven.pool, long, 999, tagged);
            driven.send_frames(vec![frame]);
            let collected = driven.collect("it is there", |packets| !packets.is_empty())?;
            check_finished(&collected, 999, kind.offloads())
                .map_err(|why| format!("{long:?}: {why}"))?;
        }
        if kind == Kind::SharedMemory {
            return Ok(());
        }
        from_the_kernel(kind, driven)
    })
}

/// What the kernel's own sockets send, whose checksums it leaves to the interface.
fn from_the_kernel(kind: Kind, driven: &mut Driven<'_>) -> Result<(), String> {
    let Some(stand) = driven.medium.stand else {
        return Ok(());
    };
    let (node, interface) = if kind.is_on_cable() {
        (&stand.far, "far0")
    } else {
        (&stand.near, "tap0")
    };
    node.ip(&[
        format!("address add 10.78.0.2/24 dev {interface}"),
        format!("neighbour add 10.78.0.1 lladdr 02:00:00:00:00:01 dev {interface}"),
    ])
    .map_err(reports)?;
    let socket = node
        .enter(|| UdpSocket::bind("10.78.0.2:7000"))
        .map_err(reports)?
        .map_err(reports)?;
    let is_ours = |bytes: &[u8]| bytes.len() == 42 + 777;
    for _ in 0..3 {
        socket
            .send_to(&[5; 777], "10.78.0.1:7001")
            .map_err(reports)?;
    }
    let frames = driven.receive_frames(3, is_ours)?;
    for frame in frames {
        let mut packet = driven.pool.bytes(&frame).to_vec();
        driven.pool.release(frame);
        let parsed = Packet::parse(&mut packet).map_err(|why| format!("{why:?}"))?;
        let valid = parsed.verify_transport_checksum() == Some(true);
        let partial = kind.offloads() && has_pseudo_sum(&packet);
        expect(valid || partial, || "a received checksum is wrong".into())?;
    }
    Ok(())
}

/// Packets of 64 KiB: cut into right segments, or passed whole where the medium takes them; and real TCP through the port.
pub(crate) fn sixty_four_kib(kind: Kind) -> Result<(), String> {
    const PAYLOAD: usize = 65_000;
    if matches!(kind, Kind::Memory | Kind::Capture) {
        // They keep packets as they are.
        return with_port(kind, Offloads::Off, |driven| {
            let packet = numbered(1, 65_549);
            expect(driven.send(std::slice::from_ref(&packet)) == 1, || {
                "not sent".into()
            })?;
            let collected = driven.collect("it is there", |packets| !packets.is_empty())?;
            expect(collected == [packet], || "what was sent differs".into())
        });
    }
    with_port(kind, Offloads::Off, |driven| {
        for long in [Long::Tcp4, Long::Tcp6, Long::Udp4] {
            // The kernel cuts UDP into no more than 128 datagrams, and TCP into what IP can name.
            let frame = unfinished(&mut driven.pool, long, PAYLOAD, false);
            driven.send_frames(vec![frame]);
            let payload_of = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).sum::<usize>();
            let collected = driven.collect("all is there", |packets| {
                payload_of(packets) >= PAYLOAD + 42
                    && packets.len() * 42 + PAYLOAD <= payload_of(packets)
            })?;
            check_finished(&collected, PAYLOAD, kind.offloads())
                .map_err(|why| format!("{long:?}: {why}"))?;
        }
        Ok(())
    })?;
    let transfer = transfer::through(kind)?;
    // From the server came long packets, whatever the port behind takes.
    expect(transfer.longest_bytes > 10_000, || {
        format!("the longest packet had {} bytes", transfer.longest_bytes)
    })?;
    expect(kind.offloads() || transfer.port.segments_made > 100, || {
        format!("nothing was cut: {:?}", transfer.port)
    })
}

/// A link that goes down is reported, drops are counted under their reason, and packets pass again once it is up.
pub(crate) fn link_down(kind: Kind) -> Result<(), String> {
    with_port(kind, Offloads::Off, |driven| {
        for round in 0..2 {
            driven.medium.set_link(false)?;
            driven.until("the link is down", |driven| {
                driven.port.link() == LinkState::Down
            })?;
            let before = driven.port.statistics().dropped(PortDrop::LinkDown);
            let packets: Vec<_> = (0..50).map(|number| numbered(number, 100)).collect();
            let sent = driven.send(&packets);
            let dropped = driven.port.statistics().dropped(PortDrop::LinkDown) - before;
            let carrierless = driven.port.statistics().dropped_total();
            expect(sent == 0 && dropped == 50, || {
                format!("{sent} sent, {dropped} counted as link down, {carrierless} in all")
            })?;
            driven.medium.set_link(true)?;
            driven.until("the link is up again", |driven| {
                driven.port.link() == LinkState::Up
            })?;
            driven.medium.collect();
            let packet = numbered(round, 200);
            driven.medium.inject(&packet)?;
            let received = driven.receive_frames(1, |bytes| bytes == packet)?;
            let sent = driven.send_frames(received);
            expect(sent == 1, || {
                "nothing is sent after the link came back".into()
            })?;
            driven.collect("it is there", |packets| packets.contains(&packet))?;
        }
        let counted = driven.port.statistics();
        expect(counted.link_downs == 2, || format!("{counted:?}"))
    })
}

/// A port that is closed can be opened again at once.
pub(crate) fn close_and_reopen(kind: Kind) -> Result<(), String> {
    if kind == Kind::Capture {
        let folder = Folder::new("reopen");
        let mut medium = Medium::new(kind, None, &folder);
        medium.inject(&numbered(0, 100))?;
        let mut driven = Driven::new(medium)?;
        for round in 0..5 {
            let packet = numbered(round, 100);
            expect(driven.receive(1)? == [packet], || "it differs".into())?;
            driven.medium.inject(&numbered(round + 1, 100))?;
            driven.reopen()?;
        }
        return Ok(());
    }
    with_port(kind, Offloads::Off, |driven| {
        for round in 0..5 {
            let packet = numbered(round, 100 + round as usize);
            driven.medium.inject(&packet)?;
            let received = driven.receive_frames(1, |bytes| bytes == packet)?;
            driven.send_frames(received);
            driven.collect("it is there", |packets| packets.contains(&packet))?;
            driven.reopen()?;
            driven.medium.collect();
        }
        Ok(())
    })
}
