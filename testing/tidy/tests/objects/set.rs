use super::*;

#[state]
struct Talks {
    /// Which host asked which port.
    asked: Set<(Ipv4Addr, u16)>,
}

fn state(builder: &Builder) -> Talks {
    Talks {
        asked: builder.table("asked", 100_000, &[300]),
    }
}

fn packet(ask: Ask<'_, Talks>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    let talk = (flow.source, flow.destination_port);
    if let Some(known) = ask.asked.get(&talk)? {
        ask.act()?.asked.touch(&known);
        return Ok(Verdict::Forward(OUT));
    }
    let Some(vacancy) = ask.asked.vacancy()? else {
        return Ok(Verdict::Drop(Reason::TableFull));
    };
    ask.act()?.asked.insert(vacancy, talk, ());
    Ok(Verdict::Forward(OUT))
}

#[test]
fn a_talk_is_known_once() {
    let (kit, _) = play(state, packet, &[(1, 80), (1, 80), (1, 443), (2, 80)]);
    assert_eq!(kit.state().asked.len_now(), 3);
}
