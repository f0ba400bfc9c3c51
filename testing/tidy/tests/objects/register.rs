use super::*;

/// What passes. Of two that were written at once the later one in this list counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[value(order)]
enum Gate {
    Open = 0,
    Shut = 1,
}

#[state]
struct Mode {
    gate: Register<Gate>,
}

fn state(builder: &Builder) -> Mode {
    Mode {
        gate: builder.register("gate", Gate::Open),
    }
}

fn packet(ask: Ask<'_, Mode>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    match (flow.destination_port, ask.gate.get()?) {
        (1, _) => ask.act()?.gate.set(Gate::Open),
        (2, _) => ask.act()?.gate.set(Gate::Shut),
        (_, Gate::Shut) => return Ok(Verdict::Drop(Reason::Blocked)),
        (_, Gate::Open) => {}
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn what_was_written_last_counts() {
    let (_, verdicts) = play(state, packet, &[(1, 80), (1, 2), (1, 80), (1, 1), (1, 80)]);
    let blocked = Verdict::Drop(Reason::Blocked);
    assert_eq!(verdicts, [PASSES, PASSES, blocked, PASSES, PASSES]);
}
