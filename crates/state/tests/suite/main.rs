//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod accumulators;
mod announced;
mod block_assignment;
mod convergence;
mod generations;
mod golden;
mod graphs;
mod in_store;
mod incarnations;
mod local;
mod manual;
mod objects;
mod parts;
mod recorded;
mod saved;
mod shapes;
mod shared_later;
mod shown;
mod sketches;
mod token_buckets;
mod token_rates;
mod top_k;
mod unconfirmed;
mod undecided;
mod versions;
mod windowed;
