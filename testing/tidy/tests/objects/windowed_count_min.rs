use super::*;

#[state]
struct Recent {
    /// About how many packets each port got within the last minute.
    packets: WindowedCountMin<u16>,
}

fn state(builder: &Builder) -> Recent {
    let minute = Window {
        buckets: 6,
        bucket_seconds: 10,
    };
    Recent {
        packets: builder.windowed_count_min("packets", (0.001, 0.01), minute),
    }
}

fn packet(ask: Ask<'_, Recent>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if ask.packets.get(&flow.destination_port)? >= 1_000 {
        return Ok(Verdict::Drop(Reason::Blocked));
    }
    ask.act()?.packets.add(&flow.destination_port, 1);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn sums_of_a_minute_are_never_too_small() {
    let (mut kit, _) = play(state, packet, &[(1, 80), (2, 80), (1, 443)]);
    assert_eq!(kit.state().packets.get(&80), Ok(2));
    kit.advance(100);
    kit.packet(PortNumber(0), &bytes(1, 22));
    assert_eq!(kit.state().packets.get(&80), Ok(0));
}
