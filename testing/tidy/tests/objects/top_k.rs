use super::*;

#[state]
struct Heaviest {
    /// The sources that sent most bytes, of each instance in 1,000 places.
    sources: TopK<Ipv4Addr>,
}

fn state(builder: &Builder) -> Heaviest {
    Heaviest {
        sources: builder.top_k("sources", 1_000),
    }
}

fn packet(ask: Ask<'_, Heaviest>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if ask.sources.get(&flow.source)? > 1 << 40 {
        return Ok(Verdict::Drop(Reason::Blocked));
    }
    let length = ask.packet().payload().len() as u64;
    ask.act()?.sources.add(&flow.source, length);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn the_heaviest_is_first() {
    let (kit, _) = play(state, packet, &[(1, 80), (2, 80), (2, 80), (3, 80)]);
    let sources = &kit.state().sources;
    let heaviest = sources.heaviest(2);
    let length = PAYLOAD.len() as u64;
    assert_eq!(
        (heaviest[0].key, heaviest[0].at_least),
        (host(2), 2 * length)
    );
    assert_eq!(
        (sources.total(), sources.excess()),
        (4 * length, 4 * length / 1_000)
    );
}
