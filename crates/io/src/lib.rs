//! Frames and ports: how packets come from networks, files and memory, and how they leave. Knows neither functions nor their state.
//! Read first: `frame.rs`, then `port/mod.rs`. Beside them: the clock, rings between threads,
//! statistics for other threads, and the emulated conditions of a link.

pub mod clock;
pub mod frame;
pub mod link;
pub mod pages;
pub mod port;
pub mod ring;
pub mod seqlock;
