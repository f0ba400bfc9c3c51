//! Building blocks of scan and flood detectors: observations of probes, gathered in small values that join.
//!
//! One instance may see a source's probes, and another the answers. So nothing here is a table of flows. Each source has a
//! [`SourceHistory`]: small sets of its probes and their outcomes. An [`Observation`] is a packet's evidence about one
//! source; [`Scans`] updates the history and decides whether it is a scan. [`Floods`] finds SYN floods (RFC 4987) by samples
//! of a service's handshakes, from however many sources, and [`Traffic`] finds ports that get more than a [`VolumePolicy`]
//! allows. The function decides what follows:
//!
//! ```
//! use asterism_detection::{Observation, Scans, Thresholds, SourceHistories};
//! use asterism_function::build::{Header4, Segment, tcp4};
//! use asterism_function::testkit::Testkit;
//! use asterism_function::{Ask, Builder, Late, NetworkFunction, PortNumber, Reason, TcpFlags, Verdict, state};
//!
//! #[state]
//! struct Probed {
//!     histories: SourceHistories,
//! }
//!
//! /// A wire through which nobody can scan: his further probes are dropped, all else that he sends passes, and no one is reported.
//! struct Opaque(Scans);
//!
//! impl NetworkFunction for Opaque {
//!     type State = Probed;
//!
//!     fn state(&self, builder: &Builder) -> Probed {
//!         Probed { histories: self.0.table(builder, 65_536) }
//!     }
//!
//!     fn packet(&self, ask: Ask<'_, Probed>) -> Result<Verdict, Late> {
//!         let out = PortNumber(ask.port().0 ^ 1);
//!         let Some((source, Some(observation))) = Observation::of(ask.packet()) else {
//!             return Ok(Verdict::Forward(out));
//!         };
//!         if !self.0.teaches(&ask, &ask.histories, &observation)? {
//!             return Ok(Verdict::Forward(out));
//!         }
//!         let update = self.0.learn(&ask, &ask.histories, &observation)?;
//!         // A refusal may show the scan, too, and is not the scanner's.
//!         let is_probe_of_scan = update.detected.is_some() && observation.scanner == source;
//!         // Without room for the history it is not remembered, and goes on all the same.
//!         update.write(&mut ask.act()?.histories);
//!         Ok(match is_probe_of_scan {
//!             true => Verdict::Drop(Reason::Blocked),
//!             false => Verdict::Forward(out),
//!         })
//!     }
//! }
//!
//! let scans = Scans::new(60, Thresholds { ports: 7, hosts: 5 });
//! let mut wire = Testkit::new(Opaque(scans));
//! let ends = Header4::between([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
//! let mut probe = |port: u16| {
//!     let mut frame = [0; 64];
//!     let syn = Segment::with_flags(TcpFlags::SYN);
//!     let length = tcp4(&ends, 40_000, port, &syn, b"", &mut frame).unwrap();
//!     wire.packet(PortNumber(0), &frame[..length]).verdict
//! };
//! let passed = (1..=1_000).filter(|&port| probe(port) == Verdict::Forward(PortNumber(1)));
//! assert_eq!(passed.count(), 6);
//! ```
//!
//! Layer 3c. Read first: `history.rs`, then `observation.rs`, `sources.rs`, `scan.rs` and `evidence.rs`; `handshakes.rs` before
//! `flood.rs`.

pub mod flood;
pub mod history;
pub mod mutant;
pub mod observation;
pub mod scan;
pub mod sources;
pub mod volume;

mod bits;
mod evidence;
mod handshakes;

use asterism_function::objects::TableAct;
use asterism_function::{Entry, Key, Single, Value};

pub use flood::{FloodPolicy, Floods, SeesFloods};
pub use handshakes::{Flood, Handshakes, Sample, Service};
pub use history::{Class, DetectedScan, Methods, Scanner, Shape, SourceHistory, Thresholds};
pub use observation::{Observation, What};
pub use scan::{HistoryUpdate, Scans, SourceHistories};
pub use sources::Sources;
pub use volume::{MeasuresVolume, Traffic, VolumePolicy, Watch};

/// Writes what is due in a map. How many values there was no room for: one, or none.
#[inline]
fn write<K: Key, V: Value>(
    map: &mut TableAct<'_, Single<K>, V>,
    due: Option<(Entry<K, V>, V)>,
) -> u64 {
    due.map_or(0, |(room, value)| u64::from(!map.put(room, value)))
}
