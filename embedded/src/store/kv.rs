//! Put and delete outside of transactions.

use etcd_client::proto::{PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse};

use super::{Refusal, Store, check, inner_header};

impl Store {
    /// Puts a key.
    ///
    /// # Errors
    ///
    /// The request lacks a key, is too large, or has a value or lease although it keeps the old one. Or its lease, or the key
    /// whose value or lease it keeps, does not exist.
    pub fn put(&mut self, request: &PbPutRequest) -> Result<PbPutResponse, Refusal> {
        let size = check::sent(request)?;
        check::put(request)?;
        check::proposed(size)?;
        self.lease_exists(request.lease)?;
        self.kept_key_exists(request)?;
        let mut response = self.write(|write| write.put(request, inner_header));
        response.header = Some(self.header());
        Ok(response)
    }

    /// Deletes keys. If no key is deleted, there is no new revision.
    ///
    /// # Errors
    ///
    /// The request lacks a key, or is too large.
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
            return Err(Refusal::LEASE_NOT_FOUND.into());
        }
        Ok(())
    }

    pub(super) fn kept_key_exists(&self, request: &PbPutRequest) -> Result<(), Refusal> {
        if (request.ignore_value || request.ignore_lease)
            && self.keys.get(&request.key, self.revision).is_none()
        {
            return Err(Refusal::KEY_NOT_FOUND.into());
        }
        Ok(())
    }
}
