use super::*;

#[state]
struct Loads {
    /// Packets that each of four servers has got.
    servers: Vector,
}

fn state(builder: &Builder) -> Loads {
    Loads {
        servers: builder.vector("servers", 4),
    }
}

fn packet(ask: Ask<'_, Loads>) -> Result<Verdict, Late> {
    let Some(place) = ask.servers.lowest(0..4)? else {
        return Ok(Verdict::Drop(Reason::Filtered));
    };
    ask.act()?.servers.add(place, 1);
    Ok(Verdict::Forward(PortNumber(place as u16)))
}

#[test]
fn servers_take_turns() {
    let (kit, verdicts) = play(state, packet, &[(1, 80); 6]);
    let turns = [0, 1, 2, 3, 0, 1].map(|place| Verdict::Forward(PortNumber(place)));
    assert_eq!(verdicts, turns);
    assert_eq!(kit.state().servers.get(1), Ok(2));
}
