//! A [`Router`] (RFC 1812) between two links for functions that forward IPv4 packets under addresses of their own, and keys
//! and values of flows.
//!
//! A function has a [`Router`] among its settings and three tables in its state ([`Forwards`], by the macro [`forwards!`]).
//! [`Router::admit`] takes a packet in: it answers ARP (RFC 826), sends later fragments after the first, and classifies all
//! other packets. [`Router::forward`] sends a packet on: routes, next hops, time to live, fragmentation, tunnels (RFC 2003),
//! and the ICMP errors that are due. The function decides between the two. [`Router::resolve_ahead`] resolves a station's
//! address before the first packet to it, when the host's control side requests that.
//!
//! ```
//! use asterism_forwarding::{PacketClass, Errors, Fragmented, Fragments, Neighbours, Egress, Router, forwards, tables};
//! use asterism_function::{Ask, Builder, Late, NetworkFunction, Reason, Verdict, state};
//! use core::ops::ControlFlow;
//!
//! #[state]
//! struct Tables {
//!     fragments: Fragments<Fragmented>,
//!     neighbours: Neighbours,
//!     errors: Errors,
//! }
//! forwards!(Tables, Fragmented);
//!
//! /// Forwards what has a route, and nothing else.
//! struct Relay(Router);
//!
//! impl NetworkFunction for Relay {
//!     type State = Tables;
//!
//!     fn state(&self, builder: &Builder) -> Tables {
//!         let (fragments, neighbours, errors) = tables(builder, 1_024, 1_024);
//!         Tables { fragments, neighbours, errors }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Tables>) -> Result<Verdict, Late> {
//!         let (ask, _side, came) = match self.0.admit(ask)? {
//!             ControlFlow::Continue(admitted) => admitted,
//!             ControlFlow::Break(verdict) => return Ok(verdict),
//!         };
//!         let (PacketClass::Flow(flow) | PacketClass::Query(flow) | PacketClass::Reply(flow)) = came else {
//!             return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
//!         };
//!         let to = flow.destination().address;
//!         match self.0.side_of(to) {
//!             Some(side) => self.0.forward(ask, Egress::routed(side, to), |_| {}),
//!             None => Ok(Verdict::Drop(Reason::NoRoute)),
//!         }
//!     }
//! }
//! ```
//!
//! Layer 3c, above `function`; it knows no port and no placement. IPv4 only, and two links. Read first: `router.rs`, then
//! `link.rs`; `ends.rs` and `connection.rs` are key and value of tables of flows.

mod ahead;
mod connection;
mod ends;
mod error;
mod fault;
mod fragment;
mod interface;
mod link;
mod neighbour;
mod progress;
mod report;
mod router;
mod state;
mod tunnel;

pub use ahead::StationRequest;
pub use connection::{Connection, Direction, IdleTimes};
pub use ends::Ends;
pub use error::{embedded, quoted};
pub use fault::{ConfigFault, Faults};
pub use fragment::{FragmentContext, FragmentKey, Fragmented, Fragments, portless};
pub use interface::{Interface, Prefix, ROUTES_MAX, Route, Side, is_host};
pub use link::{ForwardingMode, Link};
pub use neighbour::{Neighbour, Neighbours, NextHop, next_hop};
pub use progress::{Progress, Segment};
pub use report::{ERRORS_IDLE, ERRORS_MAX, Errors, ErrorsSent, OneMore, Report};
pub use router::{Admission, Egress, PacketClass, Router, RouterConfig};
pub use state::{Forwards, Tables, Writes, tables};
