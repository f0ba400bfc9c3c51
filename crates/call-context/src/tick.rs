//! The unit of idle times.

/// Seconds since the cluster's time base; what idle times are counted in.
pub type Tick = u32;
