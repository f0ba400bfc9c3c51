//! Records of a function's `report`, concatenated, as the control plane reads them.

use asterism_state::{Reader, Wire};

/// A record of a report: some bytes at least.
pub trait Record: Wire {}

/// Calls `each` for all records that a part of a report holds; false if something else follows.
pub fn read_records<R: Record>(part: &[u8], mut each: impl FnMut(R)) -> bool {
    let mut input = Reader::new(part, &[]);
    while !input.is_empty() {
        match R::decode(&mut input) {
            Ok(record) => each(record),
            Err(_) => return false,
        }
    }
    true
}
