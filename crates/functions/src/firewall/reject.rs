//! Answers to flows that a rule rejects, within a bound a second for each link, as a router's errors.

use asterism_forwarding::OneMore;
use asterism_function::{Act, Ask, Late, PortNumber, Tally, build};
use asterism_tracking::Link;

use super::{Firewall, FirewallState, metrics};

/// An answer that is due, and within the bound.
pub(super) struct Answer {
    one_more: OneMore,
    hits: Option<Tally<u32>>,
}

impl Firewall {
    /// Whether a packet that a rule rejects is answered: `None` beyond the bound. Late where `answers` is.
    pub(super) fn answer(
        &self,
        ask: &Ask<'_, FirewallState>,
        link: Link,
    ) -> Result<Option<Answer>, Late> {
        let most = self.config.answers_per_second;
        let (one_more, hits) = ask.all((
            OneMore::within(&ask.answers, link as u8, ask.now(), most),
            ask.hits.find(&metrics::ANSWERED),
        ))?;
        Ok(one_more.map(|one_more| Answer { one_more, hits }))
    }
}

impl Answer {
    /// Sends it by the link that the packet came by, if the packet may be answered at all.
    pub(super) fn send(self, act: &mut Act<'_, FirewallState>, port: PortNumber) {
        if !self.one_more.count(&mut act.answers) {
            return;
        }
        let mut is_sent = false;
        act.emit(port, |packet, out| {
            let length = build::refusal(packet.bytes(), out);
            is_sent = length.is_some();
            length
        });
        if let (true, Some(hits)) = (is_sent, &self.hits) {
            act.hits.add(hits, 1);
        }
    }
}
