//! What an observation adds to the history of its source: hosts and ports, probed, refused or answered.

use asterism_function::{Ask, State};

use crate::bits::{host_bit, port_bit};
use crate::history::{Class, Methods, Set, SourceHistory, WindowBits};
use crate::observation::{Observation, What};

/// Whether a UDP datagram from a host to a port answers the one whose history it is: it comes from a host that was
/// probed, to the very port that probed. From another port than the probed one will do (TFTP, RFC 1350 §4).
#[inline(always)]
pub(crate) fn is_answered(history: &SourceHistory, epoch: u32, host: u64, to: u64) -> bool {
    history.knows(epoch, Set::HostsProbed, host) && history.knows(epoch, Set::PORTS_USED, to)
}

/// Whether a history's source sent something to a host that was not known to send anything itself. One that does converses, whatever the
/// ports are: peers of VXLAN send from ports that nobody sends to.
#[inline(always)]
pub(crate) fn converses(history: &SourceHistory, epoch: u32, host: u64) -> bool {
    history.knows(epoch, Set::HostsProbed, host) && !history.has(epoch, Set::HostsAccepted, host)
}

/// [`marks`] of an exempt source in a history that others share: what comes to its ports is an answer, and nothing is evidence.
pub(crate) fn exempt_marks<S: State>(
    ask: &Ask<'_, S>,
    epoch: u32,
    observation: &Observation,
    known: Option<&SourceHistory>,
) -> Option<WindowBits> {
    if observation.what != What::Datagram {
        return None;
    }
    let host = host_bit(ask, observation.target);
    let marks = WindowBits::default()
        .with(Set::HostsProbed, host)
        .with(Set::HostsAccepted, host)
        .with(Set::PORTS_USED, port_bit(ask, observation.from));
    let is_news = known.is_none_or(|history| !history.holds(epoch, &marks));
    is_news.then_some(marks)
}

/// The sets that an observation adds to; `None` if it adds nothing to what is known.
pub(crate) fn marks<S: State>(
    ask: &Ask<'_, S>,
    epoch: u32,
    observation: &Observation,
    history: Option<&SourceHistory>,
) -> Option<WindowBits> {
    if history.is_none() && !begins(observation) {
        return None;
    }
    let known = Known {
        epoch,
        history,
        host: host_bit(ask, observation.target),
        port: port_bit(ask, observation.port),
    };
    let (host, port) = (known.host, known.port);
    let marks = match observation.what {
        What::Probe(methods) => {
            let marks = WindowBits::by(methods).with(Set::HostsProbed, host);
            match observation.class {
                Class::Icmp => marks,
                _ => marks.with(Set::PortsProbed, port),
            }
        }
        What::Named => WindowBits::default()
            .with(Set::HostsProbed, host)
            .with(Set::PortsNamed, port),
        What::Flagged(methods) => WindowBits::by(methods | Methods::FRAGMENTS),
        What::Datagram => known.of_datagram(observation.class, port_bit(ask, observation.from)),
        What::Accepted => known.of_accepted(observation.class, port_bit(ask, observation.from)),
        What::Expired => known.of_expired()?,
        What::Engaged => known.of_engaged()?,
        What::Refused { reporter } => {
            known.of_refused(observation.class, || host_bit(ask, reporter))?
        }
        What::Reset { answers_ack } => known.of_reset(answers_ack)?,
    };
    // What others saw may have made a scan of it meanwhile: a probe is judged even if it adds nothing. Not so a datagram, of which a
    // quiet flow has many.
    let is_judged = matches!(
        observation.what,
        What::Probe(_) | What::Named | What::Flagged(_)
    );
    let is_news = is_judged || history.is_none_or(|history| !history.holds(epoch, &marks));
    is_news.then_some(marks)
}

/// Whether an observation begins a history where there is none.
#[inline]
fn begins(observation: &Observation) -> bool {
    match observation.what {
        What::Probe(_) | What::Datagram | What::Named | What::Flagged(_) => true,
        // The SYN may have gone through another instance, and its history not be here yet.
        What::Accepted => observation.class == Class::Tcp,
        What::Reset { answers_ack } => answers_ack,
        What::Engaged | What::Refused { .. } | What::Expired => false,
    }
}

/// What is known of a source, and the bits of the host and port that an observation is about.
struct Known<'a> {
    epoch: u32,
    history: Option<&'a SourceHistory>,
    host: u64,
    port: u64,
}

impl Known<'_> {
    #[inline(always)]
    fn knows(&self, set: Set, bits: u64) -> bool {
        self.history
            .is_some_and(|history| history.knows(self.epoch, set, bits))
    }

    #[inline(always)]
    fn probed(&self, host: u64) -> bool {
        self.knows(Set::HostsProbed, host)
    }

    /// The marks of a datagram; `used` is the bit of the port that it comes from.
    #[inline]
    fn of_datagram(&self, class: Class, used: u64) -> WindowBits {
        let marks = WindowBits::by(match class {
            Class::Ip => Methods::PROTOCOLS,
            _ => Methods::UDP,
        });
        let marks = marks
            .with(Set::HostsProbed, self.host)
            .with(Set::PortsProbed, self.port)
            .with(Set::PORTS_USED, used);
        // What was answered once is remembered for as long as either side goes on.
        let answered = [
            (Set::PortsAnswered, self.port),
            (Set::HostsAccepted, self.host),
        ];
        answered
            .into_iter()
            .filter(|(set, bits)| self.knows(*set, *bits))
            .fold(marks, |marks, (set, bits)| marks.with(set, bits))
    }

    /// The marks of an answer to the port whose bit is `used`.
    #[inline]
    fn of_accepted(&self, class: Class, used: u64) -> WindowBits {
        let marks = WindowBits::default()
            .with(Set::HostsAccepted, self.host)
            .with(Set::PortsAnswered, self.port);
        // The same from the other side.
        match self.history {
            Some(history)
                if class.is_of_datagrams() && is_answered(history, self.epoch, self.host, used) =>
            {
                marks
                    .with(Set::HostsProbed, self.host)
                    .with(Set::PORTS_USED, used)
            }
            _ => marks,
        }
    }

    /// The marks of a datagram whose hop limit expired: each datagram of such a search has a port of its own.
    #[inline]
    fn of_expired(&self) -> Option<WindowBits> {
        let marks = WindowBits::default()
            .with(Set::HostsAccepted, self.host)
            .with(Set::PortsAnswered, self.port);
        self.knows(Set::PortsProbed, self.port).then_some(marks)
    }

    /// The marks of a connection that goes on, only of what was probed: else a server's clients would fill its sets and hide what it
    /// probes itself.
    #[inline]
    fn of_engaged(&self) -> Option<WindowBits> {
        let asked = self.probed(self.host) || self.knows(Set::HostsReset, self.host);
        if !asked
            || !(self.knows(Set::PortsProbed, self.port) || self.knows(Set::PortsNamed, self.port))
        {
            return None;
        }
        let marks = WindowBits::default()
            .with(Set::HostsEngaged, self.host)
            .with(Set::PortsAnswered, self.port);
        Some(marks)
    }

    /// The marks of a refusal that the host with the bit `reporter` sent.
    #[inline]
    fn of_refused(&self, class: Class, reporter: impl FnOnce() -> u64) -> Option<WindowBits> {
        // A translator on the way quotes another address than was probed.
        let refusing = match self.probed(self.host) {
            true => self.host,
            false => reporter(),
        };
        if !self.probed(refusing) {
            return None;
        }
        let marks = WindowBits::default().with(Set::HostsRefused, refusing);
        let is_of_port = class.is_of_datagrams() && self.knows(Set::PortsProbed, self.port);
        Some(match is_of_port {
            true => marks.with(Set::PORTS_REFUSED, self.port),
            false => marks,
        })
    }

    /// The marks of a reset of a connection. One that answers an acknowledgement which nobody asked for shows a probe by it.
    #[inline]
    fn of_reset(&self, answers_ack: bool) -> Option<WindowBits> {
        let marks = WindowBits::default().with(Set::HostsReset, self.host);
        match (self.probed(self.host), answers_ack) {
            (true, _) => Some(marks),
            (false, true) => {
                let by_ack = WindowBits {
                    methods: Methods::ACK,
                    ..marks
                };
                Some(by_ack.with(Set::PortsProbed, self.port))
            }
            (false, false) => None,
        }
    }
}
