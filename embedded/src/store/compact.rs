//! Compaction of the store: forgets the revisions before a given one.

use etcd_client::proto::{PbCompactionRequest, PbCompactionResponse};

use super::{Refusal, Store};

impl Store {
    /// Forgets the revisions before one; later reads and watches of them are refused.
    ///
    /// # Errors
    ///
    /// The revision is already compacted, or not reached yet.
    pub fn compact(
        &mut self,
        request: &PbCompactionRequest,
    ) -> Result<PbCompactionResponse, Refusal> {
        if request.revision <= self.compacted {
            return Err(Refusal::COMPACTED.into());
        }
        if request.revision > self.revision {
            return Err(Refusal::FUTURE_REVISION.into());
        }
        self.compacted = request.revision;
        // Only keys that changed since the last compaction have old versions. So the cost grows with the writes, not with the keys.
        for change in self.history.until(self.compacted) {
            self.keys.compact(&change.kv.key, self.compacted);
        }
        self.history.compact(self.compacted);
        Ok(PbCompactionResponse { header: Some(self.header()) })
    }
}
