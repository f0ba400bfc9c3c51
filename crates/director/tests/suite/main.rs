//! Tests of the director from outside.
