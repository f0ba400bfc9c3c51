//! The rules of the pages: see each file. `ASTERISM_BLESS=1 cargo test -p asterism-tidy` writes the generated parts again.

mod documented;
mod generated;
mod links;
mod manifests;
mod proven;
mod reported;
mod shown;
mod structure;
mod vectors;
