use super::*;

const CHUNK: usize = CHUNK_BYTES;
const MIB: usize = 1 << 20;

fn buffer(capacity: usize) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(capacity);
    buffer.push(1);
    buffer
}

/// Takes so many chunks, then gives them back; returns how many of them had been kept, and what was freed.
fn use_chunks(spare: &mut Spare, count: usize) -> (usize, usize) {
    let taken: Vec<_> = (0..count).map(|_| spare.take_chunk()).collect();
    let kept = taken.iter().flatten().count();
    assert!(taken.iter().flatten().all(Vec::is_empty));
    let given = taken.into_iter().map(|chunk| chunk.unwrap_or_else(|| buffer(CHUNK)));
    (kept, given.map(|chunk| spare.give_chunk(chunk).len()).sum())
}

#[test]
fn chunks_are_kept_empty_up_to_the_limit() {
    let mut spare = Spare::new(10 * CHUNK);
    assert_eq!(use_chunks(&mut spare, 14), (0, 4));
    assert_eq!((spare.bytes(), spare.chunks.buffers.len()), (10 * CHUNK, 10));
    assert_eq!(use_chunks(&mut spare, 14), (10, 4));
    assert_eq!(spare.set_limit(3 * CHUNK).len(), 7);
    assert_eq!(use_chunks(&mut spare, 5), (3, 2));
    assert_eq!(spare.set_limit(0).len(), 3);
    assert_eq!(use_chunks(&mut spare, 5), (0, 5));
    assert_eq!(spare.bytes(), 0);
}

#[test]
fn a_chunk_that_has_grown_is_kept_but_not_one_of_another_size() {
    let mut spare = Spare::new(10 * CHUNK);
    assert_eq!(spare.give_chunk(buffer(2 * CHUNK)).len(), 0);
    assert_eq!(spare.bytes(), 2 * CHUNK);
    for other in [16, CHUNK - 1, 4 * CHUNK + 1] {
        assert_eq!(spare.give_chunk(buffer(other)).len(), 1);
    }
    assert_eq!(spare.take_chunk().map(|chunk| chunk.capacity()), Some(2 * CHUNK));
    assert_eq!(spare.bytes(), 0);
}

#[test]
fn what_four_epochs_did_not_need_is_freed_and_what_they_needed_stays() {
    let mut spare = Spare::new(100 * CHUNK);
    for epoch in 1..10 {
        assert!(spare.begin_epoch(Epoch(epoch)).is_empty(), "a steady job keeps what it needs");
        use_chunks(&mut spare, 50);
        assert!(spare.begin_epoch(Epoch(epoch)).is_empty(), "the epoch has begun already");
    }
    let mut freed = Vec::new();
    for epoch in 10..19 {
        freed.push(spare.begin_epoch(Epoch(epoch)).len());
        let needed = if epoch == 13 { 12 } else { 7 };
        assert_eq!(use_chunks(&mut spare, needed), (needed, 0), "smaller snapshots find what they need");
    }
    assert_eq!(freed, [0, 0, 0, 0, 38, 0, 0, 0, 5], "all but the most that was needed");
    assert_eq!(spare.bytes(), 7 * CHUNK);
}

#[test]
fn a_file_gets_the_smallest_buffer_that_has_room_and_is_not_much_too_large() {
    let mut spare = Spare::new(1_000 * MIB);
    for bytes in [64, 8, 128, 16] {
        assert!(spare.give_file(buffer(bytes * MIB)).is_empty());
    }
    assert_eq!(spare.give_file(buffer(MIB - 1)).len(), 1);
    let mut take = |bytes: usize| spare.take_file(bytes * MIB).map(|file| (file.is_empty(), file.capacity() / MIB));
    assert_eq!(take(129), None);
    assert_eq!(take(1), None);
    assert_eq!(take(10), Some((true, 16)));
    assert_eq!(take(10), None, "64 is more than four times that");
    assert_eq!(take(16), Some((true, 64)));
    assert_eq!(take(64), Some((true, 128)));
    assert_eq!(take(8), Some((true, 8)));
    assert_eq!(spare.bytes(), 0);
}

#[test]
fn files_have_half_of_the_limit_and_chunks_make_room_for_them() {
    let mut spare = Spare::new(40 * MIB);
    use_chunks(&mut spare, 160);
    assert_eq!(spare.bytes(), 40 * MIB);
    assert_eq!(spare.give_file(buffer(15 * MIB)).len(), 60);
    assert_eq!(spare.give_file(buffer(6 * MIB)).len(), 1, "15 + 6 is more than 20");
    assert_eq!(spare.give_file(buffer(5 * MIB)).len(), 20);
    assert_eq!(spare.bytes(), 40 * MIB);
    assert_eq!(spare.set_limit(30 * MIB).len(), 40 + 1, "15 MiB for files");
    assert!(spare.bytes() <= 30 * MIB && spare.files.bytes == 15 * MIB);
}

#[test]
fn file_buffers_that_four_epochs_did_not_need_are_freed() {
    let mut spare = Spare::new(1_000 * MIB);
    for _ in 0..3 {
        spare.give_file(buffer(64 * MIB));
    }
    for epoch in 0..5 {
        let freed = spare.begin_epoch(Epoch(epoch));
        assert_eq!(freed.len(), if epoch < 4 { 0 } else { 2 });
        let file = spare.take_file(64 * MIB).unwrap();
        assert!(spare.give_file(file).is_empty());
    }
    assert_eq!(spare.bytes(), 64 * MIB);
}
