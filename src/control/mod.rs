//! Commands and their answers, as datagrams on a unix socket.

pub mod client;
pub mod peers;
pub mod protocol;
mod reach;
pub mod socket;
