use super::*;

#[state]
struct Sums {
    /// Packets of all instances.
    packets: Counter,
}

fn state(builder: &Builder) -> Sums {
    Sums {
        packets: builder.counter("packets"),
    }
}

fn packet(ask: Ask<'_, Sums>) -> Result<Verdict, Late> {
    if ask.packets.get()? >= 1_000_000 {
        return Ok(Verdict::Drop(Reason::Blocked));
    }
    ask.act()?.packets.add(1);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn packets_are_counted() {
    let (kit, _) = play(state, packet, &[(1, 80), (2, 80)]);
    assert_eq!(kit.state().packets.total(), 2);
}
