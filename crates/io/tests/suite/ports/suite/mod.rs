//! The conformance suite of ports: the same cases for every kind of port. The engine's tests run it case by case; the measure
//! `ports.conformance` counts what passed. Cases for ports of the kernel build their network in a laboratory, which needs root.
//!
//! Read `cases.rs` for what a port must do, `media.rs` for how each kind is set up, `transfer.rs` for real TCP through ports.

mod cases;
pub(crate) mod frames;
pub(crate) mod media;
pub(crate) mod transfer;

/// A kind of port, as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Capture,
    AfPacketRing,
    AfPacketBulk,
    AfXdpNative,
    AfXdpGeneric,
    Tap,
    TapOffloads,
    SharedMemory,
}

impl Kind {
    pub(crate) const ALL: [Kind; 9] = [
        Kind::Memory,
        Kind::Capture,
        Kind::AfPacketRing,
        Kind::AfPacketBulk,
        Kind::AfXdpNative,
        Kind::AfXdpGeneric,
        Kind::Tap,
        Kind::TapOffloads,
        Kind::SharedMemory,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Capture => "capture",
            Kind::AfPacketRing => "af-packet-ring",
            Kind::AfPacketBulk => "af-packet-bulk",
            Kind::AfXdpNative => "af-xdp-native",
            Kind::AfXdpGeneric => "af-xdp-generic",
            Kind::Tap => "tap",
            Kind::TapOffloads => "tap-offloads",
            Kind::SharedMemory => "shared-memory",
        }
    }

    /// Whether it is a port of the kernel, which only root may open.
    pub(crate) fn needs_root(self) -> bool {
        !matches!(self, Kind::Memory | Kind::Capture | Kind::SharedMemory)
    }

    /// Whether packets pass it with what they lack noted, instead of finished.
    pub(crate) fn offloads(self) -> bool {
        matches!(
            self,
            Kind::AfPacketBulk | Kind::TapOffloads | Kind::SharedMemory
        )
    }

    /// Whether it sits on one end of a cable.
    pub(crate) fn is_on_cable(self) -> bool {
        matches!(
            self,
            Kind::AfPacketRing | Kind::AfPacketBulk | Kind::AfXdpNative | Kind::AfXdpGeneric
        )
    }
}

/// What a port must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Burst,
    ShortFrame,
    ChecksumOffload,
    SixtyFourKib,
    LinkDown,
    CloseAndReopen,
}

impl Case {
    pub(crate) const ALL: [Case; 6] = [
        Case::Burst,
        Case::ShortFrame,
        Case::ChecksumOffload,
        Case::SixtyFourKib,
        Case::LinkDown,
        Case::CloseAndReopen,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Case::Burst => "burst",
            Case::ShortFrame => "short-frame",
            Case::ChecksumOffload => "checksum-offload",
            Case::SixtyFourKib => "64-kib",
            Case::LinkDown => "link-down",
            Case::CloseAndReopen => "close-and-reopen",
        }
    }

    /// Whether the case means something for a kind: memory and captures have no link, and keep packets as they are.
    pub(crate) fn applies(self, kind: Kind) -> bool {
        match kind {
            Kind::Memory => matches!(self, Case::Burst | Case::ShortFrame | Case::SixtyFourKib),
            Kind::Capture => !matches!(self, Case::ChecksumOffload | Case::LinkDown),
            _ => true,
        }
    }
}

/// Runs a case; the error says what the port did wrong.
pub(crate) fn run(kind: Kind, case: Case) -> Result<(), String> {
    let result = match case {
        Case::Burst => cases::burst(kind),
        Case::ShortFrame => cases::short_frame(kind),
        Case::ChecksumOffload => cases::checksum_offload(kind),
        Case::SixtyFourKib => cases::sixty_four_kib(kind),
        Case::LinkDown => cases::link_down(kind),
        Case::CloseAndReopen => cases::close_and_reopen(kind),
    };
    result.map_err(|why| format!("{}, {}: {why}", kind.label(), case.label()))
}

/// An error in words where something was expected.
pub(crate) fn expect(right: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(otherwise()) }
}

/// Any failure as words.
pub(crate) fn reports(error: impl std::fmt::Display) -> String {
    error.to_string()
}
