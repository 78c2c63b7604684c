//! Fence: a condition in an etcd or SQL transaction, so that a former holder cannot commit.

use std::fmt;

use crate::engine::{OwnedLock, OwnedLocks};
use crate::values::{LockError, LossCause, getters};

/// Returns the condition that this lock is held. After that, its key is not handed over (rule P22).
pub(crate) fn fence(locks: &OwnedLocks, lock: &OwnedLock) -> Fence {
    locks.fence();
    Fence { key: lock.key.to_string(), create_revision: lock.created.get() }
}

/// A condition for an etcd transaction: `key` still has this create revision, so its owner still has the lock. With any client, compare
/// the `create_revision` of `key`; with the feature `etcd-client`, use `Compare::from(fence)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fence {
    /// The owner's key in etcd, with prefix and name.
    pub key: String,
    /// The etcd revision at which the key was created.
    pub create_revision: i64,
}

#[cfg(feature = "etcd-client")]
impl From<Fence> for etcd_client::Compare {
    fn from(Fence { key, create_revision }: Fence) -> Self {
        Self::create_revision(key, etcd_client::CompareOp::Equal, create_revision)
    }
}

/// SQL dialect of a database, for [`FenceSql`]. `MySql` is for MariaDB too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Dialect {
    Postgres,
    MySql,
    Sqlite,
}

impl Dialect {
    /// Returns the statement that creates the table for fences, if it does not exist. Execute it with your migrations.
    ///
    /// The table has one small row for each name that was ever fenced. A row may be deleted while no call holds its name or waits for it.
    ///
    /// After etcd was wiped or restored from a snapshot (log code `etcd.history_lost`), tokens begin again below those in the table, and
    /// every fenced transaction is refused. Empty the table then, while no body runs.
    #[must_use]
    pub fn migration(self) -> &'static str {
        match self {
            // Names are ASCII and case-sensitive, whatever character set the database uses.
            Self::MySql => {
                "create table if not exists etcd_locked_tokens (name varchar(1280) character set ascii collate ascii_bin \
                 not null primary key, token bigint not null, writes bigint not null default 0)"
            }
            _ => {
                "create table if not exists etcd_locked_tokens (name varchar(1280) not null primary key, token bigint not null)"
            }
        }
    }
}

/// Fence of a transaction as SQL for any driver, from [`Locked::fence_sql`](crate::Locked::fence_sql). If all holders fence their
/// transactions, a paused holder cannot commit after a later holder has written.
///
/// The table of [`Dialect::migration`] stores the greatest token seen for each name. The fence raises it and so locks the row until the
/// transaction ends: the next holder's fence waits for that. `examples/fencing` in the repository has a file to copy for each client.
///
/// 1. Begin a transaction. In MySQL, execute [`before`](Self::before).
/// 2. Execute [`sql`](Self::sql). Both statements take the parameters [`name`](Self::name) and [`token`](Self::token).
/// 3. `sql` returns one row, or none if a later holder was first. Pass that to [`confirm`](Self::confirm), and roll back on an error.
/// 4. Read what your writes depend on, write, and commit. If the body is dropped meanwhile, the transaction must be rolled back.
#[must_use = "execute its statement in the transaction, and confirm what that returns"]
#[derive(Clone, Copy)]
pub struct FenceSql<'l> {
    pub(crate) dialect: Dialect,
    pub(crate) call: &'l OwnedLocks,
    pub(crate) lock: &'l OwnedLock,
}

impl<'l> FenceSql<'l> {
    getters! { self:
        /// Returns a statement to execute first. Only MySQL needs one, because it cannot insert, update and return a row at once. Without
        /// it, `sql` returns no row.
        // It changes the row each time: a cluster with several writers compares only changed rows at commit.
        before: Option<&'static str> = (self.dialect == Dialect::MySql).then_some(
            "insert into etcd_locked_tokens (name, token) values (?, ?) on duplicate key update \
             token = greatest(token, values(token)), writes = writes + 1",
        );
        /// Returns the statement that raises the token. It returns one row, or none if a later holder was first.
        sql: &'static str = match self.dialect {
            Dialect::MySql => "select token from etcd_locked_tokens where name = ? and token = ? for update",
            _ => "insert into etcd_locked_tokens (name, token) values ($1, $2) \
                  on conflict (name) do update set token = excluded.token \
                  where etcd_locked_tokens.token <= excluded.token returning token",
        };
        /// Returns the first parameter, a text: the lock's name with the prefix.
        name: &'l str = self.lock.name_of_key();
        /// Returns the second parameter, a 64-bit integer.
        token: i64 = self.lock.token.as_i64();
    }

    /// Checks that [`sql`](Self::sql) returned a row, and that the lock is still held: the statement may have waited for long.
    ///
    /// # Errors
    /// [`LockError::Lost`]: a later holder was first, or the lock was lost meanwhile. Roll the transaction back.
    pub fn confirm(&self, row: bool) -> Result<(), LockError> {
        let lost = self.call.lost().or((!row).then_some(LossCause::Overtaken));
        let lost = lost.map(|cause| LockError::Lost { name: self.lock.name.clone(), cause });
        lost.map_or(Ok(()), Err)
    }
}

/// Shows the template and never a value, which may be personal data.
impl fmt::Debug for FenceSql<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FenceSql({:?}, {})", self.dialect, self.lock.name)
    }
}
