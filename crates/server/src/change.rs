//! Writes of all APIs: what they do to a key, and how they are made.

use super::Worker;
use crate::tiered::{Fill, Made, Tiered, WriteError, WriteTerms};
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

    /// The same for the store, where the row that it makes `expires` then.
    pub(super) fn intent(self, key: &Key, expires: Option<Timestamp>) -> Intent {
        match self {
            Change::Put { content_type, content_encoding, value, .. } => {
                let (content_type, content_encoding) = (content_type.as_str(), content_encoding.as_str());
                let attributes = Attributes { content_type, content_encoding, expires };
                // Large values are not held twice while the store works: the one that is copied here is dropped.
                Intent::Put(Row::with(key, attributes, &value, Version::default()))
            }
            Change::Touch(_) => Intent::Touch(expires),
            Change::Delete => Intent::Delete,
        }
    }

    /// When the row ends that it makes, by the clock of `tier`.
    pub(super) async fn expires(&self, tier: &Tiered) -> Result<Option<Timestamp>, WriteError> {
        match self {
            Change::Put { expiry: Some(Expiry::After(ttl)), .. } | Change::Touch(ttl) => {
                tier.end_after(*ttl).await.map(Some)
            }
            Change::Put { expiry: Some(Expiry::At(instant)), .. } => Ok(Some(*instant)),
            Change::Put { expiry: None, .. } | Change::Delete => Ok(None),
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
        let write = async {
            let expires = change.expires(tier).await?;
            tier.write(key, change.intent(key, expires), terms.into(), Fill::IfAllowed).await
        };
        self.locked(write).await
    }
}
