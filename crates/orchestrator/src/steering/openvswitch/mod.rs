//! Open vSwitch: its messages so far.
pub mod openflow;
