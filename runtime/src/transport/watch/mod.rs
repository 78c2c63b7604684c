//! Watches of the engine: all of them on one etcd watch stream (rules P16, P17, P19).

mod stream;
mod table;
mod watches;

pub(crate) use stream::Submit;
pub(crate) use watches::Watches;
