//! Writes of all APIs: what they do to a key, and how they are made.

use super::Worker;
use crate::tiered::{Made, Tiered, WriteError, WriteTerms};
use kv::{Attributes, Key, Row, Timestamp, Version};
use std::time::Duration;
use store::Intent;

/// What a write does to its key.
#[derive(Debug)]
pub(super) enum Change {
    Put {
        content_type: String,
        content_encoding: String,
        expiry: Option<Expiry>,
        value: Vec<u8>,
    },
    /// Gives the row another end: so long from now.
    Touch(Duration),
    Delete,
}

/// When a value ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expiry {
    After(Duration),
    At(Timestamp),
}

impl Change {
    /// A put of this `body`; other changes have none.
    pub(super) fn with_body(mut self, body: Vec<u8>) -> Change {
        if let Change::Put { value, .. } = &mut self {
            *value = body;
        }
        self
    }

    /// The same for the store. What ends after a time does so by the clock of `tier`.
    pub(super) async fn intent(self, tier: &Tiered, key: &Key) -> Result<Intent, WriteError> {
        match self {
            Change::Put { content_type, content_encoding, expiry, value } => {
                let expires = match expiry {
                    Some(Expiry::After(ttl)) => Some(tier.end_after(ttl).await?),
                    Some(Expiry::At(instant)) => Some(instant),
                    None => None,
                };
                let (content_type, content_encoding) = (content_type.as_str(), content_encoding.as_str());
                let attributes = Attributes { content_type, content_encoding, expires };
                // Large values are not held twice while the store works: the one that is copied here is dropped.
                Ok(Intent::Put(Row::with(key, attributes, &value, Version::default())))
            }
            Change::Touch(ttl) => Ok(Intent::Touch(Some(tier.end_after(ttl).await?))),
            Change::Delete => Ok(Intent::Delete),
        }
    }
}

impl Worker {
    /// Makes a write, under the injected lock if there is one.
    pub(super) async fn write(
        &self,
        key: &Key,
        change: Change,
        terms: impl Into<WriteTerms>,
    ) -> Result<Made, WriteError> {
        let tier = self.shared.tiers.tier_of(key);
        let write = async { tier.write(key, change.intent(tier, key).await?, terms).await };
        self.locked(write).await
    }
}
