use super::*;

#[state]
struct Ports {
    /// Which host has which port: one each.
    owners: BiMap<Ipv4Addr, u16>,
}

fn state(builder: &Builder) -> Ports {
    Ports {
        owners: builder.table("owners", 10_000, &[300]),
    }
}

fn packet(ask: Ask<'_, Ports>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    let (host, port) = (flow.source, flow.destination_port);
    if let Some(owned) = ask.owners.by_left(&host)? {
        let is_its_own = owned.row.1 == port;
        ask.act()?.owners.touch(&owned);
        return Ok(if is_its_own {
            Verdict::Forward(OUT)
        } else {
            Verdict::Drop(Reason::Filtered)
        });
    }
    let is_taken = ask.owners.by_right(&port)?.is_some();
    match ask.owners.vacancy()?.filter(|_| !is_taken) {
        Some(vacancy) => {
            ask.act()?.owners.insert(vacancy, (host, port), ());
            Ok(Verdict::Forward(OUT))
        }
        None => Ok(Verdict::Drop(Reason::Filtered)),
    }
}

#[test]
fn a_host_has_a_port_and_a_port_a_host() {
    let (kit, verdicts) = play(
        state,
        packet,
        &[(1, 80), (2, 80), (1, 81), (2, 81), (1, 80)],
    );
    let other = Verdict::Drop(Reason::Filtered);
    assert_eq!(verdicts, [PASSES, other, other, PASSES, PASSES]);
    assert_eq!(kit.state().owners.len_now(), 2);
}
