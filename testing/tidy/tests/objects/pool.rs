use super::*;

#[state]
struct Bindings {
    bound: BiMap<Endpoint, Endpoint>,
    ports: Pool<EndpointSpace>,
}

fn state(builder: &Builder) -> Bindings {
    let outside = [Ipv4Addr::new(203, 0, 113, 1)];
    let space = EndpointSpace::new(&outside, 1_024..=u16::MAX, &[Protocol::UDP]);
    let mut state = Bindings {
        bound: builder.table("bound", 10_000, &[300]),
        ports: builder.pool("ports", space),
    };
    // A dead member's ports rest until an entry that nobody knows has ended.
    state.ports.held_for(&[300]);
    // A port returns when the last entry with it is forgotten by everybody; lane 1 is the right key.
    let returns = state.ports.returns();
    state.bound.on_forget(1, move |pair, last| {
        if last {
            returns.item(&pair.1);
        }
    });
    // One that an entry of another host has, or of this one's earlier incarnation, is granted to nobody.
    let holds = state.ports.returns();
    state.bound.on_adopt(move |pair| holds.hold(&pair.1));
    state
}

fn packet(ask: Ask<'_, Bindings>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if let Some(known) = ask.bound.by_left(&flow.source())? {
        ask.act()?.bound.touch(&known);
        return Ok(Verdict::Forward(OUT));
    }
    let wish = u32::from(flow.source_port);
    let Some((grant, vacancy)) = ask.ports.grant(0, wish)?.zip(ask.bound.vacancy()?) else {
        return Ok(Verdict::Drop(Reason::PortsExhausted));
    };
    let mut act = ask.act()?;
    let port = act.ports.take(grant);
    act.bound.insert(vacancy, (flow.source(), port), ());
    Ok(Verdict::Forward(OUT))
}

#[test]
fn ports_are_taken_and_return() {
    let (mut kit, verdicts) = play(state, packet, &[(1, 80), (1, 81), (2, 80)]);
    assert_eq!(verdicts, [PASSES; 3]);
    assert_eq!(kit.state().ports.usage().in_use, 2);
    kit.advance(1_000);
    assert_eq!(kit.state().ports.usage().in_use, 0);
}
