use super::*;

/// What is known of a host.
#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
struct Seen {
    #[join(min)]
    since: Tick,
    #[join(max)]
    port: u16,
}

#[state]
struct Hosts {
    seen: Map<Ipv4Addr, Seen>,
}

fn state(builder: &Builder) -> Hosts {
    Hosts {
        // Room for 100,000 over the whole cluster; an entry ends 300 seconds after its last use.
        seen: builder.table("seen", 100_000, &[300]),
    }
}

fn packet(ask: Ask<'_, Hosts>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    let seen = Seen {
        since: ask.now(),
        port: flow.destination_port,
    };
    // Without room it is not recorded, and goes on all the same.
    let room = ask.seen.entry(flow.source)?;
    ask.act()?.seen.put(room, seen);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn the_first_time_and_the_highest_port_stay() {
    let (kit, _) = play(state, packet, &[(1, 80), (1, 443), (1, 22), (2, 53)]);
    let seen = |number| kit.state().seen.value_now(&host(number).into()).unwrap();
    assert_eq!((seen(1).port, seen(2).port), (443, 53));
    assert_eq!(seen(2).since, seen(1).since + 3);
}
