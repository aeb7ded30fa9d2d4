//! Encoded elements and entries in collections that share structure: a copy costs O(1).

use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, VectorSync};

/// Encoded elements in order. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces(VectorSync<Arc<[u8]>>);

impl Default for Pieces {
    fn default() -> Self {
        Pieces(VectorSync::new_sync())
    }
}

impl Pieces {
    /// Appends an encoded element.
    pub fn push(&mut self, piece: Arc<[u8]>) {
        self.0.push_back_mut(piece);
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.0.iter()
    }
}

impl FromIterator<Arc<[u8]>> for Pieces {
    fn from_iter<I: IntoIterator<Item = Arc<[u8]>>>(pieces: I) -> Self {
        let mut all = Pieces::default();
        pieces.into_iter().for_each(|piece| all.push(piece));
        all
    }
}

/// Encoded map entries, ordered by encoded key. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries(RedBlackTreeMapSync<Arc<[u8]>, Arc<[u8]>>);

impl Default for Entries {
    fn default() -> Self {
        Entries(RedBlackTreeMapSync::new_sync())
    }
}

impl Entries {
    /// Sets the value under a key.
    pub fn put(&mut self, key: Arc<[u8]>, value: Arc<[u8]>) {
        self.0.insert_mut(key, value);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        self.0.remove_mut(key);
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.size()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in the order of their encoded keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Arc<[u8]>)> {
        self.0.iter()
    }
}

impl FromIterator<(Arc<[u8]>, Arc<[u8]>)> for Entries {
    fn from_iter<I: IntoIterator<Item = (Arc<[u8]>, Arc<[u8]>)>>(entries: I) -> Self {
        let mut all = Entries::default();
        entries.into_iter().for_each(|(key, value)| all.put(key, value));
        all
    }
}
