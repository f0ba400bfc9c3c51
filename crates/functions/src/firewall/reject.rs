//! Answers to flows that a rule rejects, within a bound a second. Imports `mod.rs`'s state, `metrics.rs`.

use asterism_function::{
    Act, Ask, At, Late, PortNumber, Single, Tally, Tick, Vacancy, Value, Wire, build,
};
use asterism_tracking::Link;

use super::{Firewall, FirewallState, metrics};

/// Answers are counted for each link.
pub(super) const LINKS: u32 = 2;
/// Seconds after which the count of a link is forgotten.
pub(super) const IDLE: [Tick; 1] = [60];

/// How many flows were answered in a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire, Value)]
#[value(order)]
pub struct Answers {
    second: Tick,
    sent: u16,
}

/// An answer that is due, and within the bound.
pub(super) struct Answer {
    link: Link,
    answers: Answers,
    known: Option<At<Single<u8>, Answers>>,
    vacancy: Option<Vacancy>,
    hits: Option<Tally<u32>>,
}

impl Firewall {
    /// Whether a packet that a rule rejects is answered: `None` beyond the bound. Late where `answers` is.
    pub(super) fn answer(
        &self,
        ask: &Ask<'_, FirewallState>,
        link: Link,
    ) -> Result<Option<Answer>, Late> {
        let (known, hits) = ask.all((
            ask.answers.get(&(link as u8)),
            ask.hits.find(&metrics::ANSWERED),
        ))?;
        let sent = known
            .map(|known| known.value)
            .filter(|answers| answers.second == ask.now())
            .map_or(0, |answers| answers.sent);
        if sent >= self.config.answers_per_second {
            return Ok(None);
        }
        let vacancy = match known {
            None => ask.answers.vacancy()?,
            Some(_) => None,
        };
        Ok(Some(Answer {
            link,
            answers: Answers {
                second: ask.now(),
                sent: sent + 1,
            },
            known,
            vacancy,
            hits,
        }))
    }
}

impl Answer {
    /// Sends it by the link that the packet came by, if the packet may be answered at all.
    pub(super) fn send(self, act: &mut Act<'_, FirewallState>, port: PortNumber) {
        match (self.known, self.vacancy) {
            (Some(known), _) => act.answers.update(&known, self.answers),
            (None, Some(vacancy)) => act.answers.insert(vacancy, self.link as u8, self.answers),
            (None, None) => return,
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

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::laws;

    #[test]
    fn values_join_as_the_law_says() {
        let answers = |draw: u64| Answers {
            second: (draw % 5) as u32,
            sent: (draw / 5 % 4) as u16,
        };
        for draw in 0..200 {
            laws::value(answers(draw), answers(draw * 7 + 1), answers(draw * 5 + 2));
        }
    }
}
