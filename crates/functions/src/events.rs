//! What events of the library's functions have in common: one list of numbers, and the words for classes. Each function names its own.

use asterism_function::OwnEvent;

/// The generator of what functions of the library find by themselves.
pub const LIBRARY: u32 = 900;

pub(crate) const SCAN: &str = "Detection of a Network Scan";
pub(crate) const DENIAL: &str = "Detection of a Denial of Service Attack";
pub(crate) const UNUSUAL: &str = "Potentially Bad Traffic";
pub(crate) const MISC: &str = "Misc activity";
pub(crate) const ATTACK: &str = "Misc Attack";

/// A kind of events of the library's.
pub(crate) const fn event(
    id: u32,
    text: &'static str,
    category: &'static str,
    severity: u8,
) -> OwnEvent {
    OwnEvent {
        generator: LIBRARY,
        ..OwnEvent::new(id, text, category, severity)
    }
}

/// All that functions of the library find by themselves, by their numbers.
#[must_use]
pub fn all() -> Vec<OwnEvent> {
    let functions: [&[OwnEvent]; 4] = [
        &crate::port_scan::EVENTS,
        &crate::signature::EVENTS,
        &crate::monitor::EVENTS,
        &crate::firewall::EVENTS,
    ];
    let mut all: Vec<OwnEvent> = functions.concat();
    all.retain(|event| event.generator == LIBRARY);
    all.sort_by_key(|event| event.id);
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_number_is_of_two_kinds() {
        let all = super::all();
        assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
}
