//! Which clause of which RFC the NAT meets, and how: one table for tests and documentation.
