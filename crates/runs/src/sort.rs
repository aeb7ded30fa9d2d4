//! Puts the rows of a buffer in order: by (section rank, key group, key), then by age.
//!
//! First the rows' bytes are copied, bucket by bucket of neighbouring (section, group) pairs, so that
//! all that follows works on a few kilobytes at a time. Then each bucket is sorted by one 128-bit
//! number per row: 8 bytes of the *sort key* from the current depth on, how many bytes it has from
//! there on (at most 9), and the row's place. The sort key of a row is rank (2 bytes), group
//! (2 bytes), key bytes. Rows with equal numbers are then sorted by the next 8 bytes.

use crate::buffer::{BufferedRow, RowBuffer};
use crate::error::RunError;

/// Bytes of the sort key before the key's own.
const ADDRESS_BYTES: usize = 4;
/// "More than these 8 bytes."
const LONGER: usize = 9;
/// Below this many rows, and from this depth on, whole keys are compared.
const FEW: usize = 16;
const DEEP: usize = 72;
/// More buckets than this at once would each have too little cache.
const MAX_BUCKETS: usize = 4096;
/// Fewer rows per bucket than this are not worth a bucket.
const ROWS_PER_BUCKET: usize = 8;

const HEAD_BYTES: usize = 16;
const TOMBSTONE: u32 = u32::MAX;
const CLASS_SHIFT: u32 = 60;

/// A row with the place of its section instead of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortedRow<'a> {
    pub(crate) rank: u16,
    pub(crate) group: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    /// How many buffers had been merged in before the row came.
    pub(crate) generation: u32,
}

/// Visits the rows in order; of equal rows only the one that wins.
///
/// `ranks[state]` is the place of the state's section among the sections ordered by name.
pub(crate) fn for_each_winner(
    buffer: RowBuffer,
    ranks: &[u16],
    mut visit: impl FnMut(SortedRow<'_>),
) -> Result<(), RunError> {
    let buckets = Buckets::new(&buffer, ranks);
    let (rows, ends) = distribute(buffer, ranks, &buckets)?;
    let depth = if buckets.shift == 0 { ADDRESS_BYTES } else { 0 };
    let mut items = Vec::new();
    let mut start = 0;
    for end in ends {
        items.clear();
        while start < end {
            let row = row_at(&rows, start);
            items.push(item(sort_bytes(&row, depth), ADDRESS_BYTES + row.key.len() - depth, start));
            start += HEAD_BYTES + row.key.len() + row.value.map_or(0, <[u8]>::len);
        }
        refine(&rows, &mut items, depth);
        visit_winners(&rows, &items, &mut visit);
    }
    Ok(())
}

/// Visits one row of each run of equal rows; equal rows stand together, the oldest first.
fn visit_winners(rows: &[u8], items: &[u128], mut visit: impl FnMut(SortedRow<'_>)) {
    let mut sorted = items.iter().map(|item| row_at(rows, place_of(*item)));
    let Some(mut winner) = sorted.next() else {
        return;
    };
    for row in sorted {
        let equal = row.key == winner.key && row.group == winner.group && row.rank == winner.rank;
        if !equal {
            visit(winner);
            winner = row;
        } else if beats(&row, &winner) {
            winner = row;
        }
    }
    visit(winner);
}

/// Whether a row wins over an equal one that came before it.
fn beats(later: &SortedRow<'_>, earlier: &SortedRow<'_>) -> bool {
    later.value.is_some() || earlier.value.is_none() || later.generation > earlier.generation
}

/// Which bucket a row belongs to: its (rank, group) pair without the low bits.
struct Buckets {
    first_group: u32,
    groups: usize,
    shift: u32,
    count: usize,
}

impl Buckets {
    fn new(buffer: &RowBuffer, ranks: &[u16]) -> Self {
        let groups = buffer.groups().len() as usize;
        let pairs = ranks.len() * groups;
        let limit = (buffer.rows() / ROWS_PER_BUCKET).clamp(1, MAX_BUCKETS);
        let mut shift = 0;
        while pairs >> shift > limit {
            shift += 1;
        }
        Buckets { first_group: buffer.groups().start, groups, shift, count: (pairs >> shift) + 1 }
    }

    #[inline]
    fn of(&self, rank: u16, group: u16) -> usize {
        (usize::from(rank) * self.groups + (u32::from(group) - self.first_group) as usize) >> self.shift
    }
}

/// Copies all rows so that those of a bucket stand together, in the order in which they came; also
/// returns where each bucket ends. The buffer is given back to the allocator piece by piece.
fn distribute(buffer: RowBuffer, ranks: &[u16], buckets: &Buckets) -> Result<(Vec<u8>, Vec<usize>), RunError> {
    let mut ends = vec![0usize; buckets.count];
    let mut unknown = None;
    buffer.for_each(|row| match ranks.get(usize::from(row.state)) {
        Some(rank) => ends[buckets.of(*rank, row.group)] += bytes_of(&row),
        None => unknown = Some(row.state),
    });
    if let Some(state) = unknown {
        return Err(RunError::UnknownState { state, sections: ranks.len() });
    }
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    let mut rows = vec![0u8; total];
    buffer.consume(|generation, row| {
        let rank = ranks[usize::from(row.state)];
        let end = &mut ends[buckets.of(rank, row.group)];
        let start = *end;
        *end += bytes_of(&row);
        write_row(&mut rows[start..*end], rank, generation, &row);
    });
    Ok((rows, ends))
}

#[inline]
fn bytes_of(row: &BufferedRow<'_>) -> usize {
    HEAD_BYTES + row.key.len() + row.value.map_or(0, <[u8]>::len)
}

#[inline]
fn write_row(bytes: &mut [u8], rank: u16, generation: u32, row: &BufferedRow<'_>) {
    let value_bytes = row.value.map_or(TOMBSTONE, |value| value.len() as u32);
    let head = u128::from(generation)
        | u128::from(rank) << 32
        | u128::from(row.group) << 48
        | u128::from(row.key.len() as u32) << 64
        | u128::from(value_bytes) << 96;
    let (head_bytes, rest) = bytes.split_at_mut(HEAD_BYTES);
    head_bytes.copy_from_slice(&head.to_le_bytes());
    let (key, value) = rest.split_at_mut(row.key.len());
    key.copy_from_slice(row.key);
    value.copy_from_slice(row.value.unwrap_or_default());
}

#[inline]
fn row_at(rows: &[u8], place: usize) -> SortedRow<'_> {
    let (head, rest) = rows[place..].split_first_chunk::<HEAD_BYTES>().expect("a row begins with its head");
    let head = u128::from_le_bytes(*head);
    let (key, rest) = rest.split_at((head >> 64) as u32 as usize);
    let value_bytes = (head >> 96) as u32;
    SortedRow {
        rank: (head >> 32) as u16,
        group: (head >> 48) as u16,
        key,
        value: (value_bytes != TOMBSTONE).then(|| &rest[..value_bytes as usize]),
        generation: head as u32,
    }
}

#[inline]
fn item(front: u64, remaining: usize, place: usize) -> u128 {
    let class = remaining.min(LONGER) as u64;
    u128::from(front) << 64 | u128::from(class << CLASS_SHIFT | place as u64)
}

#[inline]
fn place_of(item: u128) -> usize {
    (item as u64 & ((1 << CLASS_SHIFT) - 1)) as usize
}

/// Sorts rows that agree in their first `depth` sort-key bytes.
fn refine(rows: &[u8], items: &mut [u128], depth: usize) {
    items.sort_unstable();
    let same = |a: &u128, b: &u128| a >> CLASS_SHIFT == b >> CLASS_SHIFT;
    for run in items.chunk_by_mut(same) {
        let class = (run[0] >> CLASS_SHIFT) as usize & 15;
        if run.len() == 1 || class < LONGER {
            continue;
        }
        let next = depth + 8;
        if run.len() <= FEW || next >= DEEP {
            run.sort_unstable_by_key(|item| {
                let place = place_of(*item);
                (&row_at(rows, place).key[next - ADDRESS_BYTES..], place)
            });
            continue;
        }
        for item in run.iter_mut() {
            let place = place_of(*item);
            let row = row_at(rows, place);
            *item = self::item(sort_bytes(&row, next), ADDRESS_BYTES + row.key.len() - next, place);
        }
        refine(rows, run, next);
    }
}

/// 8 bytes of the sort key as a big-endian number, zeros where it has ended.
#[inline]
fn sort_bytes(row: &SortedRow<'_>, depth: usize) -> u64 {
    if depth == 0 {
        return u64::from(row.rank) << 48 | u64::from(row.group) << 32 | padded(row.key) >> 32;
    }
    padded(&row.key[depth - ADDRESS_BYTES..])
}

#[inline]
fn padded(bytes: &[u8]) -> u64 {
    if let Some(front) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*front);
    }
    let mut front = [0; 8];
    front[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(front)
}
