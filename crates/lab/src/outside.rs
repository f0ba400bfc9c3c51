//! The world outside a host: a port by which nothing comes, and of which the test sees what leaves.

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};

/// Calls this for each packet that leaves, with its bytes.
struct Outside<S>(S);

/// The port that calls `sees`.
pub fn port(sees: impl FnMut(&[u8]) + Send + 'static) -> Box<dyn Port> {
    Box::new(Outside(sees))
}

impl<S: FnMut(&[u8]) + Send> Port for Outside<S> {
    fn name(&self) -> &str {
        "outside"
    }
    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        for frame in burst.iter() {
            (self.0)(pool.bytes(frame));
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}
