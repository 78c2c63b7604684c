//! Writing one key, or deleting many.

use etcd_client::proto::{PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse};

use super::{Refusal, Store, check, inner_header};

impl Store {
    /// Puts a key.
    ///
    /// # Errors
    ///
    /// There is no key in the request, or a value or lease beside "keep the old one"; there is no such lease; there is no
    /// key whose value or lease could be kept; the request is too large.
    pub fn put(&mut self, request: &PbPutRequest) -> Result<PbPutResponse, Refusal> {
        let size = check::sent(request)?;
        check::put(request)?;
        check::proposed(size)?;
        self.lease_exists(request.lease)?;
        self.has_what_it_keeps(request)?;
        let mut response = self.write(|write| write.put(request, inner_header));
        response.header = Some(self.header());
        Ok(response)
    }

    /// Deletes keys; no key, no revision.
    ///
    /// # Errors
    ///
    /// There is no key in the request, or it is too large.
    pub fn delete_range(&mut self, request: &PbDeleteRequest) -> Result<PbDeleteResponse, Refusal> {
        let size = check::sent(request)?;
        check::delete(request)?;
        check::proposed(size)?;
        let mut response = self.write(|write| write.delete_range(request, inner_header));
        response.header = Some(self.header());
        Ok(response)
    }

    pub(super) fn lease_exists(&self, lease: i64) -> Result<(), Refusal> {
        if lease != 0 && !self.leases.contains(lease) {
            return Err(Refusal::lease_not_found());
        }
        Ok(())
    }

    pub(super) fn has_what_it_keeps(&self, request: &PbPutRequest) -> Result<(), Refusal> {
        if (request.ignore_value || request.ignore_lease)
            && self.keys.get(&request.key, self.revision).is_none()
        {
            return Err(Refusal::key_not_found());
        }
        Ok(())
    }
}
