//! Blocked sources and the ends of their blocks, shared by all functions that block sources for whatever reason.
//!
//! A function keeps a map from sources to [`Block`]s, which join: the block that ends last wins whole. The function reports
//! them as [`BlockedRecord`](blocked::BlockedRecord)s, and accepts an operator's changes by frames on the port
//! [`CONTROL`](asterism_function::CONTROL):
//!
//! ```
//! use asterism_blocking::{Block, Change, of_source};
//! use asterism_function::{Ask, Builder, CONTROL, Host, Late, Map, NetworkFunction, PortNumber, Reason, Verdict, state};
//!
//! #[state]
//! struct Doors {
//!     blocked: Map<Host, Block>,
//! }
//!
//! /// A wire that some sources may not use.
//! struct Door;
//!
//! impl NetworkFunction for Door {
//!     type State = Doors;
//!
//!     fn state(&self, builder: &Builder) -> Doors {
//!         Doors { blocked: builder.table("blocked", 1_024, &Block::idle(600)) }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Doors>) -> Result<Verdict, Late> {
//!         if ask.port() == CONTROL {
//!             let Some((source, seconds)) = of_source(ask.packet().bytes()) else {
//!                 return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
//!             };
//!             let block = seconds.map(|seconds| Block::manual(ask.now(), seconds));
//!             let change = Change::new(&ask.blocked, source, block)?;
//!             return Ok(change.write(&mut ask.act()?.blocked));
//!         }
//!         let Some((source, _)) = Host::ends(ask.packet()) else {
//!             return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
//!         };
//!         let block = ask.blocked.get(&source)?;
//!         Ok(match block.is_some_and(|block| ask.now() < block.value.until) {
//!             true => Verdict::Drop(Reason::Blocked),
//!             false => Verdict::Forward(PortNumber(ask.port().0 ^ 1)),
//!         })
//!     }
//! }
//! ```
//!
//! Layer 3c. Read first: `manual.rs`.

pub mod blocked;
pub mod manual;

pub use manual::{Block, Change, Order, of_source};
