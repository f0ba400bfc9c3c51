//! Why the demo does not run.

use asterism_config::diagnostic::Report;
use asterism_config::functions::FunctionError;
use asterism_io::port::CaptureError;

use crate::fleet::FleetError;

/// Why the demo did not run. All that it needs is in this binary, so each one is a mistake in the build or a lack of memory.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A configuration of the demo has mistakes.
    #[error("{}", .0.render(false))]
    Configuration(Box<Report>),
    /// The configuration of the hosts names another function than a NAT.
    #[error("the demo's function is no NAT")]
    NoNat,
    /// The configuration of the IDPS names another function than the port-scan detector.
    #[error("the demo's IDPS is none")]
    NoIdps,
    /// A function was not made.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// A host was not started.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A capture of the demo's traffic is damaged.
    #[error("the demo's own capture is damaged: {0}")]
    Capture(#[from] CaptureError),
}
