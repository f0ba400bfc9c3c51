use super::*;

#[state]
struct Present {
    /// Hosts that registered and did not leave.
    hosts: CountingBloom<Ipv4Addr>,
}

fn state(builder: &Builder) -> Present {
    Present {
        hosts: builder.counting_bloom("hosts", 10_000, 0.01),
    }
}

fn packet(ask: Ask<'_, Present>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    match (flow.destination_port, ask.hosts.contains(&flow.source)?) {
        (1, false) => ask.act()?.hosts.add(&flow.source),
        // Taking away what was never added would take others with it.
        (2, true) => ask.act()?.hosts.remove(&flow.source),
        (_, false) => return Ok(Verdict::Drop(Reason::Filtered)),
        (_, true) => {}
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn hosts_come_and_go() {
    let (_, verdicts) = play(state, packet, &[(1, 80), (1, 1), (1, 80), (1, 2), (1, 80)]);
    let unknown = Verdict::Drop(Reason::Filtered);
    assert_eq!(verdicts, [unknown, PASSES, PASSES, PASSES, unknown]);
}
