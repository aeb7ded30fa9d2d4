//! Values in fixed-size chunks, addressed by `u32` ids that stay valid until removal.
//!
//! Owns where values live and the list of free ids. Does *not* own any look-up. Growing never
//! copies values, except within the first chunk, which starts small for the sake of small tables.

use crate::prefetch::prefetch;

const CHUNK_BITS: u32 = 16;
const CHUNK: usize = 1 << CHUNK_BITS;
/// End of the free list; also an id that is never given.
pub(crate) const NO_ID: u32 = u32::MAX;

enum Cell<T> {
    Free(u32),
    Used(T),
}

/// See the module.
pub(crate) struct Slab<T> {
    first: Vec<Cell<T>>,
    rest: Vec<Vec<Cell<T>>>,
    free: u32,
    used: u32,
}

/// There are 2^32 - 1 values already.
#[derive(Debug)]
pub(crate) struct SlabFull;

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab { first: Vec::new(), rest: Vec::new(), free: NO_ID, used: 0 }
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.used as usize
    }

    /// One past the largest id ever given.
    pub(crate) fn bound(&self) -> u32 {
        let chunks = self.rest.len();
        let ids = match self.rest.last() {
            Some(last) => chunks * CHUNK + last.len(),
            None => self.first.len(),
        };
        ids as u32
    }

    /// Bytes of memory in use for the cells; the untouched end of a chunk does not count.
    pub(crate) fn bytes(&self) -> usize {
        self.bound() as usize * size_of::<Cell<T>>()
    }

    #[inline]
    fn cell(&self, id: u32) -> Option<&Cell<T>> {
        let chunk = (id >> CHUNK_BITS) as usize;
        let at = id as usize & (CHUNK - 1);
        if chunk == 0 { self.first.get(at) } else { self.rest.get(chunk - 1)?.get(at) }
    }

    #[inline]
    fn cell_mut(&mut self, id: u32) -> Option<&mut Cell<T>> {
        let chunk = (id >> CHUNK_BITS) as usize;
        let at = id as usize & (CHUNK - 1);
        if chunk == 0 { self.first.get_mut(at) } else { self.rest.get_mut(chunk - 1)?.get_mut(at) }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        match self.cell(id) {
            Some(Cell::Used(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.cell_mut(id) {
            Some(Cell::Used(value)) => Some(value),
            _ => None,
        }
    }

    /// Asks for the cache line of a value.
    #[inline]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(cell) = self.cell(id) {
            prefetch(cell);
        }
    }

    /// Stores a value under a free id.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, SlabFull> {
        let id = self.free;
        if id != NO_ID
            && let Some(cell) = self.cell_mut(id)
            && let Cell::Free(next) = *cell
        {
            *cell = Cell::Used(value);
            self.free = next;
            self.used += 1;
            return Ok(id);
        }
        let id = self.bound();
        if id == NO_ID {
            return Err(SlabFull);
        }
        let chunk = (id >> CHUNK_BITS) as usize;
        if chunk == 0 {
            // Most maps of a key have one entry: a list would make room for four.
            if id == 0 {
                self.first.reserve_exact(1);
            }
            self.first.push(Cell::Used(value));
        } else {
            if chunk > self.rest.len() {
                self.rest.push(Vec::with_capacity(CHUNK));
            }
            self.rest[chunk - 1].push(Cell::Used(value));
        }
        self.used += 1;
        Ok(id)
    }

    /// Takes the value out and frees its id.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.take(id)?;
        self.free_taken(id);
        Some(value)
    }

    /// Takes the value out but keeps the id reserved for [`Slab::put_back`] or
    /// [`Slab::free_taken`].
    #[inline]
    pub(crate) fn take(&mut self, id: u32) -> Option<T> {
        let cell = self.cell_mut(id)?;
        match std::mem::replace(cell, Cell::Free(NO_ID)) {
            Cell::Used(value) => Some(value),
            free => {
                *cell = free;
                None
            }
        }
    }

    /// Stores a value under an id reserved by [`Slab::take`].
    #[inline]
    pub(crate) fn put_back(&mut self, id: u32, value: T) {
        if let Some(cell) = self.cell_mut(id) {
            *cell = Cell::Used(value);
        }
    }

    /// Frees an id reserved by [`Slab::take`].
    pub(crate) fn free_taken(&mut self, id: u32) {
        let next = self.free;
        if let Some(cell) = self.cell_mut(id) {
            *cell = Cell::Free(next);
            self.free = id;
            self.used -= 1;
        }
    }

    /// Every id with its value, in the order of ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let cells = self.first.iter().chain(self.rest.iter().flatten());
        cells.enumerate().filter_map(|(id, cell)| match cell {
            Cell::Used(value) => Some((id as u32, value)),
            Cell::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_reused_and_stay_valid_over_chunks() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..3 * CHUNK as u64 + 5).map(|i| slab.insert(i).unwrap()).collect();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(slab.get(*id), Some(&(i as u64)));
        }
        assert_eq!(slab.remove(7), Some(7));
        assert_eq!(slab.remove(7), None);
        assert_eq!(slab.remove(70_000), Some(70_000));
        assert_eq!(slab.len(), 3 * CHUNK + 3);
        assert_eq!(slab.insert(1).unwrap(), 70_000);
        assert_eq!(slab.insert(2).unwrap(), 7);
        assert_eq!(slab.bound() as usize, 3 * CHUNK + 5);
        assert_eq!(slab.iter().count(), slab.len());
    }

    #[test]
    fn a_taken_id_is_reserved_until_put_back_or_freed() {
        let mut slab = Slab::new();
        let id = slab.insert("a").unwrap();
        assert_eq!(slab.take(id), Some("a"));
        let other = slab.insert("b").unwrap();
        assert_ne!(id, other);
        slab.put_back(id, "c");
        assert_eq!(slab.get(id), Some(&"c"));
    }
}
