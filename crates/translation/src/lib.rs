//! Address and port translation (RFC 4787, RFC 5382, RFC 5508, RFC 6887, RFC 6888), shared by all functions that translate.
//!
//! A function has a [`Translator`] among its settings, which is a [`Router`](asterism_forwarding::Router) too, and six
//! objects in its state ([`Translates`], by the macro [`translates!`], beside the router's). [`Translator::way`] gives the
//! forwarding decision for a packet from inside; [`Translator::outward`] and [`Translator::inward`] reserve what its
//! translation needs, and their results are written once the packet is sure to leave. [`Translator::outbound`] and
//! [`Translator::inbound`] do all of this for a function without further rules. Beside them: ICMP errors about
//! translated packets ([`Translator::error_from_outside`], [`Translator::error_from_inside`]), exempt destinations
//! ([`Translator::exempt`]), and packets for the translator itself ([`Translator::own`]), such as requests for mappings.
//! Quotas of subscribers, blocks of ports and their log come with the outside ports; see [`NatConfig`].
//!
//! ```
//! use asterism_forwarding::{PacketClass, Errors, Fragmented, Fragments, Interface, Neighbours, Side, forwards, tables};
//! use asterism_function::testkit::Testkit;
//! use asterism_function::{
//!     Ask, Builder, Endpoint, Flow4, Late, MacAddress, Map, NetworkFunction, Packet, Pool, PortNumber, Reason, Table, Verdict,
//!     build, state,
//! };
//! use asterism_translation::{Asked, NatConfig, OutsidePorts, Session, Translator, ForwardingPath, translates};
//! use core::ops::ControlFlow;
//!
//! #[state]
//! struct Tables {
//!     sessions: Table<Session, asterism_forwarding::Progress>,
//!     ports: Pool<OutsidePorts>,
//!     mappings: Map<Endpoint, Asked>,
//!     fragments: Fragments<Fragmented>,
//!     neighbours: Neighbours,
//!     errors: Errors,
//! }
//! forwards!(Tables, Fragmented);
//! translates!(Tables);
//!
//! /// The gateway of a guests' network: questions and the web leave it, translated, and nothing else does.
//! struct Guests(Translator);
//!
//! impl NetworkFunction for Guests {
//!     type State = Tables;
//!
//!     fn state(&self, builder: &Builder) -> Tables {
//!         let (sessions, ports, mappings) = self.0.tables(builder);
//!         let (fragments, neighbours, errors) = tables(builder, 1_024, 1_024);
//!         Tables { sessions, ports, mappings, fragments, neighbours, errors }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Tables>) -> Result<Verdict, Late> {
//!         let (ask, side, came) = match self.0.router.admit(ask)? {
//!             ControlFlow::Continue(admitted) => admitted,
//!             ControlFlow::Break(verdict) => return Ok(verdict),
//!         };
//!         let PacketClass::Flow(flow) = came else {
//!             return Ok(Verdict::Drop(Reason::Filtered));
//!         };
//!         let (source, destination) = (flow.source(), flow.destination());
//!         if side == Side::Outside {
//!             return match self.0.inward(&ask, source, destination) {
//!                 Ok(inward) => self.0.router.forward(ask, inward.egress(), |act| inward.write(act)),
//!                 Err(stop) => stop.dropped(),
//!             };
//!         }
//!         let may_leave = [53, 80, 443].contains(&destination.port);
//!         if !may_leave || self.0.way(source, destination) != ForwardingPath::Out {
//!             return Ok(Verdict::Drop(Reason::Filtered));
//!         }
//!         match self.0.outward(&ask, (source, destination), false, false) {
//!             Ok(outward) => self.0.router.forward(ask, outward.egress(), |act| outward.write(act)),
//!             Err(stop) => stop.map(|_| Reason::Filtered).dropped(),
//!         }
//!     }
//! }
//!
//! let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
//! let inside = Interface::new(PortNumber(0), [10, 0, 0, 1].into(), 24, mac(1));
//! let outside = Interface::new(PortNumber(1), [203, 0, 113, 1].into(), 24, mac(2));
//! let (guest, server) = ([10, 0, 0, 9].into(), [203, 0, 113, 80].into());
//! let config = NatConfig {
//!     neighbours: vec![(guest, mac(3)), (server, mac(4))],
//!     ..NatConfig::new(inside, outside, vec![outside.address])
//! };
//! let mut kit = Testkit::new(Guests(Translator::new(config).expect("it is right")));
//! let mut send = |port, station: MacAddress, flow: Flow4| {
//!     let mut frame = vec![0; 128];
//!     let length = build::flow4(&flow, b"hello", &mut frame).expect("it has room");
//!     frame.truncate(length);
//!     frame[..6].copy_from_slice(&station.0);
//!     kit.packet(port, &frame)
//! };
//! let question = Flow4 { source: guest, destination: server, source_port: 4_000, destination_port: 53, protocol: 17 };
//! let mut asked = send(inside.port, inside.mac, question);
//! assert_eq!(asked.verdict, Verdict::Forward(outside.port));
//! let translated = Packet::parse(&mut asked.packet).expect("a packet").flow4().expect("a flow");
//! assert_eq!(translated.source, outside.address);
//! let answer = Flow4 { source: server, destination: outside.address, source_port: 53, destination_port: translated.source_port, ..question };
//! let mut answered = send(outside.port, outside.mac, answer);
//! assert_eq!(answered.verdict, Verdict::Forward(inside.port));
//! let back = Packet::parse(&mut answered.packet).expect("a packet").flow4().expect("a flow");
//! assert_eq!((back.destination, back.destination_port), (guest, 4_000));
//! let mail = send(inside.port, inside.mac, Flow4 { destination_port: 25, ..question });
//! assert_eq!(mail.verdict, Verdict::Drop(Reason::Filtered));
//! ```
//!
//! Layer 3c, above `forwarding`. IPv4 only. Read first: `session.rs`, then `translator.rs`, `paths.rs` and `flows.rs`. `bindings.rs` has
//! the rules of RFC 4787. For carriers: `limits.rs` (settings), `subscribers.rs` (ports within quotas, blocks and pools) and
//! `accounting/` (owners of ports). `pcp/` has mappings that hosts request.

mod accounting;
mod bindings;
mod config;
mod error;
mod exempt;
mod flows;
mod limits;
pub mod mutant;
mod paths;
pub mod pcp;
mod ports;
mod session;
mod state;
mod subscribers;
mod translator;

pub use accounting::{EVENTS_MAX, NEWS_QUESTION, NatEvent, NatEventKind, NatReportPart, NatUse};
pub use config::{Filtering, Forward, NatConfig, ONE_TO_ONE_MAX, OUTSIDE_ADDRESSES_MAX, OneToOne};
pub use exempt::{EXEMPT_MAX, NatExemption};
pub use limits::{
    AddressPool, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, POOL_NETWORKS_MAX,
    POOLS_MAX, PortBlocks, PortQuarantine, SUBSCRIBERS_MAX, SubscriberLimits,
};
pub use paths::{ForwardingPath, Inward, Outward, Refused};
pub use pcp::{Asked, PortControl};
pub use ports::OutsidePorts;
pub use session::{BY_INSIDE, BY_OUTSIDE, Session};
pub use state::{Translates, TranslationWrites, Translations};
pub use translator::Translator;
