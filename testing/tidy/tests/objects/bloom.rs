use super::*;

#[state]
struct Known {
    /// Hosts that were ever seen, and one stranger in a hundred.
    hosts: Bloom<Ipv4Addr>,
}

fn state(builder: &Builder) -> Known {
    Known {
        hosts: builder.bloom("hosts", 10_000, 0.01),
    }
}

fn packet(ask: Ask<'_, Known>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if ask.hosts.contains(&flow.source)? {
        return Ok(Verdict::Forward(OUT));
    }
    // The first packet of a host is looked at elsewhere.
    ask.act()?.hosts.add(&flow.source);
    Ok(Verdict::Forward(PortNumber(2)))
}

#[test]
fn a_host_is_new_once() {
    let (_, verdicts) = play(state, packet, &[(1, 80), (1, 80), (2, 80), (2, 80)]);
    let new = Verdict::Forward(PortNumber(2));
    assert_eq!(verdicts, [new, PASSES, new, PASSES]);
}
