//! All tests of this crate from outside, in one program: each further one costs seconds of linking.

mod balancer;
mod chain;
mod command_line;
mod demo;
mod documents;
mod eve;
mod kill;
mod laboratory;
mod mistakes;
mod monitoring;
mod network_recipes;
mod orchestrate_etcd;
mod orchestrated;
mod orchestrated_directors;
mod orchestrated_switch;
mod outside;
mod real_programs;
mod registered;
mod remote;
mod run;
mod scaffold;
mod scenarios;
mod tenants;
mod up;
mod validator;
mod wireshark;
