use super::*;

#[state]
struct Volumes {
    /// About how many bytes each source sent.
    bytes: CountMin<Ipv4Addr>,
}

fn state(builder: &Builder) -> Volumes {
    Volumes {
        // Too many by a thousandth of all bytes at most, but for one sum in a hundred.
        bytes: builder.count_min("bytes", 0.001, 0.01),
    }
}

fn packet(ask: Ask<'_, Volumes>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    if ask.bytes.get(&flow.source)? > 1 << 40 {
        return Ok(Verdict::Drop(Reason::Blocked));
    }
    let length = ask.packet().payload().len() as u64;
    ask.act()?.bytes.add(&flow.source, length);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn sums_are_never_too_small() {
    let (kit, _) = play(state, packet, &[(1, 80), (1, 80), (2, 80)]);
    let all = 3 * PAYLOAD.len() as u64;
    assert_eq!(kit.state().bytes.get(&host(1)), Ok(all / 3 * 2));
    assert!(kit.state().bytes.excess() < 1.0);
}
