//! Forgetting the past.

use etcd_client::proto::{PbCompactionRequest, PbCompactionResponse};

use super::{Refusal, Store};

impl Store {
    /// Forgets what was before a revision: reads and watches from before it are refused from now on.
    ///
    /// # Errors
    ///
    /// The revision is compacted already, or is not reached yet.
    pub fn compact(
        &mut self,
        request: &PbCompactionRequest,
    ) -> Result<PbCompactionResponse, Refusal> {
        if request.revision <= self.compacted {
            return Err(Refusal::compacted());
        }
        if request.revision > self.revision {
            return Err(Refusal::future_revision());
        }
        self.compacted = request.revision;
        // Only what changed since the last time has a past to forget, so this costs what was written, not what there is.
        for change in self.history.until(self.compacted) {
            self.keys.compact(&change.kv.key, self.compacted);
        }
        self.history.compact(self.compacted);
        Ok(PbCompactionResponse {
            header: Some(self.header()),
        })
    }
}
