//! Draining a job in a pod: the BOSH agent's protocol, and replacements for the drain scripts
//! that cannot work across containers.

pub mod hook;
pub mod patch;

mod journal;
mod script;
