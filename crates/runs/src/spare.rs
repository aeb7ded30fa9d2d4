//! Chunks of emptied row buffers, kept for the next ones.
//!
//! Owns at most [`SPARE_CHUNKS`] empty chunks for the whole process. Workers fill chunks, background threads
//! empty them: given back to the allocator, their memory returns to the operating system, and the worker that
//! takes it again waits for page faults in the middle of a checkpoint.

use std::sync::Mutex;

/// Capacity of a chunk; it grows beyond this only for a large last row.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Most chunks kept: 32 MiB.
const SPARE_CHUNKS: usize = 128;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty chunk with room for [`CHUNK_BYTES`].
pub(crate) fn take() -> Vec<u8> {
    let spare = SPARE.lock().ok().and_then(|mut spare| spare.pop());
    spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
}

/// Gives back a chunk whose rows are no longer needed; one of another size is freed.
pub(crate) fn give(mut chunk: Vec<u8>) {
    if chunk.capacity() != CHUNK_BYTES {
        return;
    }
    chunk.clear();
    if let Ok(mut spare) = SPARE.lock()
        && spare.len() < SPARE_CHUNKS
    {
        spare.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_the_usual_size_are_kept_empty_and_their_number_is_bounded() {
        for _ in 0..2 * SPARE_CHUNKS {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            chunk.push(1);
            give(chunk);
        }
        give(Vec::with_capacity(2 * CHUNK_BYTES));
        give(Vec::with_capacity(16));
        let spare = SPARE.lock().unwrap();
        assert!(spare.len() <= SPARE_CHUNKS);
        assert!(spare.iter().all(|chunk| chunk.is_empty() && chunk.capacity() == CHUNK_BYTES));
        drop(spare);
        assert_eq!(take().capacity(), CHUNK_BYTES);
    }
}
