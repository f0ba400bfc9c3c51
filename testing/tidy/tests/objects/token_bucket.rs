use super::*;

#[state]
struct Limits {
    /// Bytes that each source may send.
    sources: TokenBucket<Ipv4Addr>,
}

fn state(builder: &Builder) -> Limits {
    let rate = TokenRate {
        tokens_per_second: 125_000,
        burst_tokens: 250_000,
    };
    Limits {
        sources: builder.token_bucket("sources", 10_000, rate, Spending::Approximate),
    }
}

fn packet(ask: Ask<'_, Limits>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    let length = ask.packet().payload().len() as u64;
    let Some(tokens) = ask.sources.tokens(&flow.source, length)? else {
        return Ok(Verdict::Drop(Reason::Blocked));
    };
    ask.act()?.sources.spend(tokens);
    Ok(Verdict::Forward(OUT))
}

#[test]
fn a_bucket_has_what_was_not_spent() {
    let (mut kit, verdicts) = play(state, packet, &[(1, 80), (1, 80)]);
    assert_eq!(verdicts, [PASSES, PASSES]);
    kit.packet(PortNumber(0), &bytes(1, 80));
    let spent = 2 * PAYLOAD.len() as u64;
    assert_eq!(kit.state().sources.available(&host(1)), Ok(250_000 - spent));
}
