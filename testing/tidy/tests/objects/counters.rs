use super::*;

#[state]
struct Ports {
    /// Packets to each port.
    packets: Counters<u16>,
}

fn state(builder: &Builder) -> Ports {
    Ports {
        packets: builder.counters("packets", 4_096),
    }
}

fn packet(ask: Ask<'_, Ports>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    // Found, or about to be started; `None` where there is no room for another key.
    if let Some(tally) = ask.packets.find(&flow.destination_port)? {
        if tally.total >= 1_000_000 {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        ask.act()?.packets.add(&tally, 1);
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn ports_are_counted_apart() {
    let (kit, _) = play(state, packet, &[(1, 80), (2, 80), (1, 443)]);
    let packets = &kit.state().packets;
    assert_eq!([80, 443, 22].map(|port| packets.total(&port)), [2, 1, 0]);
}
