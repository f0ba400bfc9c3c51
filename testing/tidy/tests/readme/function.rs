#[state]
struct Spent { packets: Counters<Ipv4Addr> }

struct Quota;
impl NetworkFunction for Quota {
    type State = Spent;
    fn state(&self, builder: &Builder) -> Spent { Spent { packets: builder.counters("packets", 100_000) } }
    fn packet(&self, ask: Ask<'_, Spent>) -> Result<Verdict, Late> {
        let Some(source) = ask.packet().ipv4_source() else { return Ok(Verdict::Drop(Reason::UnsupportedProtocol)) };
        let Some(spent) = ask.packets.find(&source)? else { return Ok(Verdict::Drop(Reason::TableFull)) };
        if spent.total >= 1_000_000 { return Ok(Verdict::Drop(Reason::Blocked)) } // over all hosts of the cluster
        ask.act()?.packets.add(&spent, 1);                                        // from here on nothing waits or fails
        Ok(Verdict::Forward(PortNumber(1)))
    }
}
