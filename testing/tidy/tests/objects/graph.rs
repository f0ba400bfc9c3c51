use super::*;

#[state]
struct Talk {
    /// Which hosts send packets to which others.
    links: Graph<Ipv4Addr>,
}

fn state(builder: &Builder) -> Talk {
    Talk {
        // 100,000 edges as instances see them; one that nobody uses for 300 seconds ends.
        links: builder.graph("links", 100_000, 300),
    }
}

fn packet(ask: Ask<'_, Talk>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if ask.links.out_degree(&flow.source)? > 1_000 {
        return Ok(Verdict::Drop(Reason::Blocked)); // it scans, or spreads
    }
    if let Some(link) = ask.links.link(&flow.source, &flow.destination)? {
        ask.act()?.links.add(link, 1);
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn edges_have_weights_and_nodes_degrees() {
    let (kit, _) = play(state, packet, &[(1, 80), (1, 81), (2, 80)]);
    let links = &kit.state().links;
    let server = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(links.weight(&host(1), &server), Ok(Some(2)));
    assert_eq!(
        (links.in_degree(&server), links.out_degree(&host(1))),
        (Ok(2), Ok(1))
    );
}
