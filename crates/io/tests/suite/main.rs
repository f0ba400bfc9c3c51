//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod metering;
mod port_capture;
mod port_wrapping;
mod ports;
mod ring;
