//! Where the open sessions of a key lie, in order, for keys that have many of them.
//!
//! Sessions of one key never touch, so that order by start is order by end, and those that a new record joins are
//! neighbours. With few sessions looking at each is quickest; a key that is seen with more than [`MANY`] is put into
//! the index, and leaves it when it has less than half of that.
//!
//! Invariant: a key in the index has there exactly the windows that its state has. The index is memory only: after a
//! restore it is empty.

use std::collections::{BTreeMap, HashMap};

use millpond_core::{Key, KeyHash};

use super::window::Window;

/// So many sessions of a key are looked at one by one.
pub(crate) const MANY: usize = 16;

/// The start and the end of each session.
type Spans = BTreeMap<i64, i64>;

/// See the module.
pub(crate) struct Sessions<K> {
    /// Keys may share a hash.
    keys: HashMap<u64, Vec<(K, Spans)>>,
}

impl<K> Default for Sessions<K> {
    fn default() -> Self {
        Sessions { keys: HashMap::new() }
    }
}

impl<K: Key> Sessions<K> {
    fn spans(&mut self, hash: KeyHash, key: &K) -> Option<&mut Spans> {
        if self.keys.is_empty() {
            return None;
        }
        let same_hash = self.keys.get_mut(&hash.0)?;
        same_hash.iter_mut().find(|(known, _)| known == key).map(|(_, spans)| spans)
    }

    /// The sessions that touch `window`, in order; `None` when the key is not in the index.
    pub(crate) fn touching(&mut self, hash: KeyHash, key: &K, window: &Window) -> Option<Vec<Window>> {
        let spans = self.spans(hash, key)?;
        let before_its_end = spans.range(..=window.end).rev().map(|(start, end)| Window::new(*start, *end));
        let mut touching: Vec<Window> = before_its_end.take_while(|session| session.touches(window)).collect();
        touching.reverse();
        Some(touching)
    }

    /// Takes a key into the index that has more than [`MANY`] sessions.
    pub(crate) fn learn(&mut self, hash: KeyHash, key: &K, sessions: &[Window]) {
        let spans = sessions.iter().map(|session| (session.start, session.end)).collect();
        self.keys.entry(hash.0).or_default().push((key.clone(), spans));
    }

    /// A session has come into the state.
    pub(crate) fn added(&mut self, hash: KeyHash, key: &K, session: Window) {
        if let Some(spans) = self.spans(hash, key) {
            spans.insert(session.start, session.end);
        }
    }

    /// A session has left the state.
    pub(crate) fn removed(&mut self, hash: KeyHash, key: &K, session: Window) {
        let Some(spans) = self.spans(hash, key) else { return };
        spans.remove(&session.start);
        if spans.len() > MANY / 2 {
            return;
        }
        if let Some(same_hash) = self.keys.get_mut(&hash.0) {
            same_hash.retain(|(known, _)| known != key);
            if same_hash.is_empty() {
                self.keys.remove(&hash.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wi_20_the_index_finds_what_looking_at_each_finds(
            sessions in prop::collection::btree_map(-100i64..100, 1i64..10, 0..40),
            window in (-120i64..120, 1i64..40),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        ) {
            // Sessions that do not touch: each begins after the last one has ended.
            let mut all: Vec<Window> = Vec::new();
            for (start, length) in sessions {
                if all.last().is_none_or(|last| last.end < start) {
                    all.push(Window::new(start, start + length));
                }
            }
            let window = Window::new(window.0, window.0 + window.1);
            let (hash, other) = (KeyHash(5), 8u64);
            let mut index = Sessions::default();
            index.learn(hash, &7u64, &all);
            prop_assert!(index.touching(hash, &7, &window).is_some());
            // A key with the same hash is another key.
            prop_assert_eq!(index.touching(hash, &other, &window), None);
            for index_of in removed {
                if !all.is_empty() {
                    let gone = all.remove(index_of.index(all.len()));
                    index.removed(hash, &7, gone);
                }
                if let Some(found) = index.touching(hash, &7, &window) {
                    let expected: Vec<Window> = all.iter().copied().filter(|one| one.touches(&window)).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
