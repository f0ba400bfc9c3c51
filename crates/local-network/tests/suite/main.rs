//! Whole clusters on this machine, without root: hosts are processes of their own, behind the director.

mod cluster;
mod directors;
mod hosts;
