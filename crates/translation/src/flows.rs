//! A packet of a flow in all cases, for functions without further rules. Its parts are in `paths.rs`.

use asterism_forwarding::Report;
use asterism_function::{Ask, Flow4, Late, Reason, Verdict};

use crate::paths::{ForwardingPath, Refused};
use crate::state::Translates;
use crate::translator::Translator;

impl Translator {
    /// Handles a packet of a flow from inside: translates it, routes it between two inside hosts, or answers it. A refused
    /// packet is dropped, and its sender gets an ICMP error where that is due. Of ICMP queries the destination port is zero.
    /// `is_first`: the session was looked for and is not there.
    ///
    /// Late as [`Translator::outward`] and the router are.
    #[inline]
    pub fn outbound<S: Translates>(
        &self,
        ask: Ask<'_, S>,
        flow: Flow4,
        is_first: bool,
    ) -> Result<Verdict, Late> {
        let (inside, remote) = (flow.source(), flow.destination());
        // What is read below comes while the packet is judged, where it was not asked for ahead.
        self.prefetch_first(&ask, inside);
        let (report, reason) = match self.way(inside, remote) {
            ForwardingPath::Own => return self.own(ask),
            ForwardingPath::Inside => return self.between_insides(ask),
            ForwardingPath::Refused(reason) => return Ok(Verdict::Drop(reason)),
            ForwardingPath::Unrouted => (Report::NetworkUnreachable, Reason::NoRoute),
            way @ (ForwardingPath::Out | ForwardingPath::Hairpin) => {
                let hairpins = way == ForwardingPath::Hairpin;
                match self.outward(&ask, (inside, remote), hairpins, is_first) {
                    Ok(outward) => {
                        let egress = outward.egress();
                        return self.router.forward(ask, egress, |act| outward.write(act));
                    }
                    Err(stop) => match stop.refused()? {
                        Refused::Silently(reason) => return Ok(Verdict::Drop(reason)),
                        Refused::Reported(reason) => (Report::Prohibited, reason),
                    },
                }
            }
        };
        self.router.report(ask, report, reason)
    }

    /// Handles a packet of a flow from outside: leads it to the inside host of its session or binding, answers it, or drops
    /// it. Of ICMP replies the source port is zero.
    ///
    /// Late as [`Translator::inward`] and the router are.
    #[inline]
    pub fn inbound<S: Translates>(&self, ask: Ask<'_, S>, flow: Flow4) -> Result<Verdict, Late> {
        let (remote, outside) = (flow.source(), flow.destination());
        if !self.router.answers_for(outside.address) {
            return match self.router.is_interface(outside.address) {
                true => self.own(ask),
                false => Ok(Verdict::Drop(Reason::NotForUs)),
            };
        }
        match self.inward(&ask, remote, outside) {
            Ok(inward) => {
                let egress = inward.egress();
                self.router.forward(ask, egress, |act| inward.write(act))
            }
            Err(stop) => stop.dropped(),
        }
    }
}
