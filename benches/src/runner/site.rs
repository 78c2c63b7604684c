//! Site of a contest: the etcd that all sides lock by.

use super::cluster::Cluster;
use super::server::Server;
use crate::Result;

#[derive(Clone, Copy)]
pub(crate) enum Site {
    /// One member, on this machine.
    Machine,
    /// Three members on this machine, with proxies that delay like a network between any two of them and the clients.
    Network,
}

/// The same while it runs.
pub(crate) enum Etcd {
    Server(Box<Server>),
    Cluster(Box<Cluster>),
}

impl Site {
    pub(crate) fn start(self) -> Result<Etcd> {
        match self {
            Self::Machine => Server::start().map(|server| Etcd::Server(Box::new(server))),
            Self::Network => Cluster::start().map(|cluster| Etcd::Cluster(Box::new(cluster))),
        }
    }
}

impl Etcd {
    /// The URLs of all members, separated by commas.
    pub(crate) fn endpoints(&self) -> String {
        match self {
            Self::Server(server) => server.endpoint(),
            Self::Cluster(cluster) => cluster.endpoints(),
        }
    }

    /// Prepares it for a round.
    pub(crate) fn prepare(&self, round: usize) -> Result<()> {
        match self {
            Self::Server(_) => Ok(()),
            Self::Cluster(cluster) => cluster.lead(round),
        }
    }

    /// What was seen of it, in a sentence.
    pub(crate) fn note(self) -> Result<Option<String>> {
        match self {
            Self::Server(_) => Ok(None),
            Self::Cluster(cluster) => cluster.note().map(Some),
        }
    }
}
