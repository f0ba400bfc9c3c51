//! Tests of the tree itself, as TigerBeetle's: layers, bans, lengths of files, dependencies, documents and the code in
//! them. There is nothing here but tests; `tests/tree` lints the sources, `tests/documents` the pages, and
//! `tests/tutorial.rs` and `tests/readme.rs` are the code that the pages show.
