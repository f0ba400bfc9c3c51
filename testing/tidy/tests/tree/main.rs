//! The rules of the sources: see each file.

mod circles;
mod layers;
mod planted;
mod sources;
mod supply;
mod words;
