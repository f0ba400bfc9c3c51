use super::*;

#[state]
struct Recent {
    /// Packets of each source within the last minute.
    packets: WindowedCounters<Ipv4Addr>,
}

fn state(builder: &Builder) -> Recent {
    let minute = Window {
        buckets: 6,
        bucket_seconds: 10,
    };
    Recent {
        packets: builder.windowed_counters("packets", 100_000, minute),
    }
}

fn packet(ask: Ask<'_, Recent>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if let Some(tally) = ask.packets.find(&flow.source)? {
        if tally.total >= 1_000 {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        ask.act()?.packets.add(&tally, 1);
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn packets_of_a_minute_are_counted() {
    let (mut kit, _) = play(state, packet, &[(1, 80), (1, 80)]);
    assert_eq!(kit.state().packets.total(&host(1)), 2);
    kit.advance(100);
    assert_eq!(kit.state().packets.total(&host(1)), 0);
    assert_eq!(kit.entries(), [(0, 0)], "the key is forgotten");
}
