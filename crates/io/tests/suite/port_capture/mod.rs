//! Capture files: every variant of the formats, what real tools wrote, and what nobody should have written.

mod files;
mod formats;
mod hostile;
mod ports;
mod real;
