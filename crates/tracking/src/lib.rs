//! Connection tracking (RFC 9293 for TCP; pseudo-connections of UDP, ICMP queries and other protocols; IPv4 and IPv6), for
//! functions between two links that let packets pass because of earlier packets.
//!
//! A function has a [`Tracker`] among its settings and two tables in its state ([`Tracks`], by the macro [`tracks!`]).
//! [`Tracker::follow`] decides on a packet: packets of a known flow pass, also where another instance saw its beginning. A
//! packet that fits no flow is dropped, once no other instance can have seen a packet that would make it fit. The function
//! decides on a packet that would open a flow: it opens the flow ([`Tracker::open`]) or refuses it ([`Tracker::refuse`]).
//! With three more counters in its state, the function also bounds half-open connections, by source, destination and link
//! ([`Limits`]).
//!
//! ```
//! use asterism_function::build::{self, Header4};
//! use asterism_function::testkit::Testkit;
//! use asterism_function::{Ask, Builder, Late, NetworkFunction, PortNumber, Reason, Verdict, state};
//! use asterism_tracking::{Flows, Fragments, IdleTimes, Link, Tracker, flows, fragments, tracks};
//!
//! #[state]
//! struct Asked {
//!     flows: Flows,
//!     fragments: Fragments,
//! }
//! tracks!(Asked);
//!
//! /// A wire that lets in answers to what was asked from inside, and nothing else.
//! struct AnswersOnly(Tracker);
//!
//! impl NetworkFunction for AnswersOnly {
//!     type State = Asked;
//!
//!     fn state(&self, builder: &Builder) -> Asked {
//!         Asked {
//!             flows: flows(builder, 65_536, &IdleTimes::DEFAULT),
//!             fragments: fragments(builder, 4_096),
//!         }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Asked>) -> Result<Verdict, Late> {
//!         let Some(link) = Link::of(ask.port()) else {
//!             return Ok(Verdict::Drop(Reason::NotForUs));
//!         };
//!         self.0.follow(ask, link, |ask, opening| match opening.link {
//!             Link::Inside => self.0.open(ask, opening),
//!             Link::Outside => self.0.refuse(&ask, opening, Reason::Denied),
//!         })
//!     }
//! }
//!
//! let (inside, outside) = (PortNumber(0), PortNumber(1));
//! let datagram = |from: [u8; 4], to: [u8; 4], ports: (u16, u16)| {
//!     let mut frame = vec![0; 100];
//!     let header = Header4::between(from.into(), to.into());
//!     let length = build::udp4(&header, ports.0, ports.1, b"what", &mut frame);
//!     frame.truncate(length.expect("it fits"));
//!     frame
//! };
//! let (host, server) = ([10, 0, 0, 5], [192, 0, 2, 53]);
//! let mut kit = Testkit::new(AnswersOnly(Tracker::default()));
//! let answer = datagram(server, host, (53, 4_000));
//! assert_eq!(kit.packet(outside, &answer).verdict, Verdict::Drop(Reason::Denied));
//! let question = datagram(host, server, (4_000, 53));
//! assert_eq!(kit.packet(inside, &question).verdict, Verdict::Forward(outside));
//! assert_eq!(kit.packet(outside, &answer).verdict, Verdict::Forward(inside));
//! ```
//!
//! Layer 3c. Read first: `track.rs`, the value that joins, then `tracker.rs`. `flow.rs` has the keys of flows, `segment.rs`
//! the parts of TCP that are read; `fragments.rs` and `half_open.rs` stand for themselves.

mod flow;
mod fragments;
mod half_open;
mod idle;
pub mod mutant;
mod opening;
mod segment;
mod state;
mod track;
mod tracker;

pub use flow::{Direction, Flow, Link, has_ports};
pub use fragments::{Datagram, FirstFragment, Fragments, fragments, later_fragment};
pub use half_open::{ByHost, ByLink, HalfOpen, HalfOpenAct, Limits, half_open};
pub use idle::IdleTimes;
pub use opening::{Admission, NoRoom, Opening};
pub use state::{Flows, Tracked, TrackedAct, Tracks, flows};
pub use track::Track;
pub use tracker::Tracker;
