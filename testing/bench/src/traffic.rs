//! Traffic: flows drawn at random, their frames, buffers to receive them in, and published distributions.
//!
//! Everything is drawn from one seed. Read [`Flows`] for which hosts talk to which others, [`Buffers`] for what a packet
//! loop is given, `distributions` for sizes, mixes and popularity.

pub mod distributions;
pub mod flows;
pub mod frames;
pub mod random;

pub use distributions::{Distribution, Mix, Zipf};
pub use flows::{Endpoint, Flows, Protocol, Session};
pub use frames::{Buffer, Buffers, Direction, FRAME_BYTES, HEADROOM_BYTES, SmallFrame, Templates};
pub use random::Random;
