//! The fuzz target of what comes from caches: digests, queries, reports. Nothing here is for anything else.

use super::icp::{self, Message};
use super::squid::{self, StoreKey};
use super::store_log::Line;

/// Reads any bytes as each of them, and uses what was read. Whether a digest was in them.
pub fn fuzz_caches(bytes: &[u8]) -> bool {
    let _ = Line::read(bytes);
    if let Message::Query { number, url } = Message::read(bytes) {
        let mut out = [0; 2_048];
        let length = icp::write_answer(true, number, url, &mut out)
            .expect("an answer is shorter than its query");
        assert_eq!(icp::read_answer(&out[..length]), Some((number, true)));
        let length = icp::write_query(number, url, &mut out).expect("a query that was read");
        assert_eq!(
            Message::read(&out[..length]),
            Message::Query { number, url }
        );
    }
    let _ = icp::read_answer(bytes);
    let Ok((header, mask)) = squid::read(bytes, 1 << 20) else {
        return false;
    };
    let written = [&header.bytes()[..], mask].concat();
    assert_eq!(squid::read(&written, 1 << 20), Ok((header, mask)));
    let key = StoreKey::of_get(bytes);
    assert!(
        key.places(header.bits())
            .iter()
            .all(|place| *place < header.bits())
    );
    let _ = squid::contains(mask, key);
    true
}
