//! Checked views and in-place edits of packets, checksums and flow keys.
