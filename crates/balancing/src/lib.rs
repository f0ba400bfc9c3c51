//! Load balancing over servers: the backend of a new flow, the health of backends, and the path of packets to a backend and
//! back.
//!
//! - [`Pools`] are the services of a function ([`Service`]s, its settings). [`Pools::of`] finds the pool of a destination,
//!   and [`Pool::choose`] a backend of it for a new flow: by the client's affinity, else by [`Maglev`] (Eisenbud et al., NSDI
//!   2016, section 3.4) or by the fewest flows. [`Pool::by_hash`] and [`Pool::by_usage`] choose by a key alone, without
//!   flows.
//! - [`HealthVotes`] are the votes on a backend. Hosts vote by frames on the port [`CONTROL`](asterism_function::CONTROL)
//!   ([`CheckResult`], [`Pools::reported`]), flows by their outcome ([`Pools::said`]: RFC 9293 §3.10.7.1). [`Pool::is_down`]
//!   counts the votes.
//! - A [`Role`] marks flows beside a client's ordinary flow: a rival that waits to replace another flow, or the flow of a
//!   client on the backends' own link. [`Pool::fate`] decides where a client's packet of a known flow goes: to the flow's
//!   backend, or to another.
//! - A [`Flow`] is the record of a flow that has a backend, and [`Path`] how its packets leave by a
//!   [`Router`](asterism_forwarding::Router): translated, handed to a station, or in a tunnel (RFC 2003). **Clients are on
//!   the router's outside link, backends on its inside.**
//!
//! A function that balances flows has four objects in its state, which [`tables`] builds. A function that only spreads
//! packets needs `health` at most:
//!
//! ```
//! use asterism_balancing::{Backend, ControlAction, CheckResult, Health, HealthSource, Pools, Service, health};
//! use asterism_function::testkit::Testkit;
//! use asterism_function::{
//!     Ask, Builder, CONTROL, Endpoint, Late, NetworkFunction, PortNumber, Protocol, Reason, Verdict, build, state,
//! };
//!
//! #[state]
//! struct Found {
//!     health: Health,
//! }
//!
//! /// A wire on which several resolvers answer what one is asked: a client's questions go to the same one for as long as it lives.
//! struct Resolvers {
//!     asked: Endpoint,
//!     pools: Pools,
//! }
//!
//! impl NetworkFunction for Resolvers {
//!     type State = Found;
//!
//!     fn state(&self, builder: &Builder) -> Found {
//!         Found { health: health(builder, 16) }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Found>) -> Result<Verdict, Late> {
//!         if ask.port() == CONTROL {
//!             match self.pools.reported(&ask, &ask.health)? {
//!                 ControlAction::Write(said) => said.write(&mut ask.act()?.health),
//!                 ControlAction::End(verdict) => return Ok(verdict),
//!                 // A wire has no stations.
//!                 ControlAction::Resolve(_) => {}
//!             }
//!             return Ok(Verdict::Consumed);
//!         }
//!         let Some(flow) = ask.packet().flow4() else {
//!             return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
//!         };
//!         let (from, to) = (flow.source(), flow.destination());
//!         let egress = Verdict::Forward(PortNumber(ask.port().0 ^ 1));
//!         if let Some(pool) = self.pools.of(to) {
//!             let is_alive = |number| pool.may_take(number, &ask.health, ask.now(), HealthSource::All);
//!             let Some(number) = pool.by_hash(&ask, pool.key(from, to), is_alive)? else {
//!                 return Ok(Verdict::Drop(Reason::NoBackend));
//!             };
//!             let resolver = pool.backends()[number].answers_at(to);
//!             ask.act()?.packet.set_destination(resolver);
//!         } else if self.pools.is_backend(from.address) {
//!             ask.act()?.packet.set_source(self.asked);
//!         }
//!         Ok(egress)
//!     }
//! }
//!
//! let [client, asked, one, other] = [5, 53, 1, 2].map(|last| Endpoint::new([203, 0, 113, last].into(), 53, Protocol::UDP));
//! let backends = vec![Backend::new(one.address, 53), Backend::new(other.address, 53)];
//! let service = Service { checked: true, persistent: true, ..Service::new(asked, backends) };
//! let mut wire = Testkit::new(Resolvers { asked, pools: Pools::new(&[service], 16).unwrap() });
//! let mut question = [0; 128];
//! let header = build::Header4::between(client.address, asked.address);
//! let length = build::udp4(&header, 53, 53, b"which address has it?", &mut question).unwrap();
//! // Both live; then a host finds that neither one nor the other does.
//! for dead in [None, Some(one), Some(other)] {
//!     if let Some(backend) = dead {
//!         wire.packet(CONTROL, &CheckResult { member: 0, backend, is_down: true }.frame());
//!     }
//!     let outcome = wire.packet(PortNumber(0), &question[..length]);
//!     match dead {
//!         None => assert_eq!(outcome.verdict, Verdict::Forward(PortNumber(1))),
//!         Some(dead) if dead == one => assert_eq!(outcome.packet[30..34], other.address.octets()),
//!         Some(_) => assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBackend)),
//!     }
//! }
//! ```
//!
//! Layer 3c, above `forwarding`. IPv4 only. Read first: `service.rs` and `flow.rs`, then `choose.rs` (the backend of a flow)
//! and `watch.rs` (the health of backends).

mod affinity;
mod check_result;
mod choose;
mod fate;
mod flow;
mod health_votes;
mod maglev;
pub mod mutant;
mod path;
mod pool;
mod role;
mod service;
mod state;
mod watch;

pub use affinity::{Affinity, AffinityUpdate, ClientKey, Clients};
pub use check_result::CheckResult;
pub use choose::{Chosen, Known};
pub use fate::Fate;
pub use flow::{Flow, Flows, direction, opens};
pub use health_votes::{FAILURES, HealthVotes, SILENCE_SECONDS, VOTE_SECONDS, VOTERS};
pub use maglev::{Maglev, PLACES};
pub use path::{Led, Path};
pub use pool::{BACKENDS_MOST, Pool, Pools};
pub use role::Role;
pub use service::{Backend, Choice, Mode, PASSIVE_MAX, Service, WEIGHT_MAX};
pub use state::{Sizes, tables};
pub use watch::{ControlAction, Health, HealthSource, HealthUpdate, health};
