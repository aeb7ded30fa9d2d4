//! Puts the rows of a buffer in order: by (section rank, key group, key), then by age.
//!
//! First the rows are distributed to buckets of neighbouring (section, group) pairs, so that all that follows works on
//! little at a time: small rows are copied ([`copied`]); of large ones only the places are, and they are visited where
//! they lie ([`in_chunks`]). Then each bucket is sorted by one 128-bit number per row: 8 bytes of the *sort key* from
//! the current depth on, how many bytes it has from there on (at most 9), and the row's place. The sort key of a row is
//! rank (2 bytes), group (2 bytes), key bytes. Rows with equal numbers are then sorted by the next 8 bytes.
//!
//! Invariant: of equal rows the one that came later has the greater place.

mod copied;
mod in_chunks;

use crate::buffer::RowBuffer;
use crate::error::RunError;

/// From this mean size of a row on, in bytes, copying it costs more than finding it again in its chunk.
const LARGE_ROW_BYTES: usize = 256;
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

const CLASS_SHIFT: u32 = 60;

/// A row with the place of its section instead of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortedRow<'a> {
    pub(crate) rank: u16,
    pub(crate) group: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

/// Rows that are found by their places, which are below 2^60.
trait Rows {
    /// The row at a place that was given out for it.
    fn row(&self, place: usize) -> SortedRow<'_>;

    /// How many buffers had been merged in before that row came.
    fn generation(&self, place: usize) -> u32;
}

/// Visits the rows in order; of equal rows only the one that wins.
///
/// `ranks[state]` is the place of the state's section among the sections ordered by name.
pub(crate) fn for_each_winner(
    buffer: RowBuffer,
    ranks: &[u16],
    visit: impl FnMut(SortedRow<'_>),
) -> Result<(), RunError> {
    if buffer.bytes() / buffer.rows().max(1) < LARGE_ROW_BYTES {
        copied::for_each_winner(buffer, ranks, visit)
    } else {
        in_chunks::for_each_winner(buffer, ranks, visit)
    }
}

/// Visits one row of each run of equal rows; equal rows stand together, the oldest first.
fn visit_winners(rows: &impl Rows, items: &[u128], mut visit: impl FnMut(SortedRow<'_>)) {
    let mut places = items.iter().map(|item| place_of(*item));
    let Some(mut winner) = places.next() else {
        return;
    };
    let mut row = rows.row(winner);
    for place in places {
        let later = rows.row(place);
        let equal = later.key == row.key && later.group == row.group && later.rank == row.rank;
        if !equal {
            visit(row);
        } else if !beats(rows, (&later, place), (&row, winner)) {
            continue;
        }
        (row, winner) = (later, place);
    }
    visit(row);
}

/// Whether a row wins over an equal one that came before it.
fn beats(rows: &impl Rows, later: (&SortedRow<'_>, usize), earlier: (&SortedRow<'_>, usize)) -> bool {
    later.0.value.is_some() || earlier.0.value.is_none() || rows.generation(later.1) > rows.generation(earlier.1)
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

    /// How many bytes of the sort key all rows of a bucket have in common.
    const fn depth(&self) -> usize {
        if self.shift == 0 { ADDRESS_BYTES } else { 0 }
    }
}

/// The number that a row is sorted by, from `depth` on.
#[inline]
fn item(row: &SortedRow<'_>, depth: usize, place: usize) -> u128 {
    let remaining = ADDRESS_BYTES + row.key.len() - depth;
    let class = remaining.min(LONGER) as u64;
    u128::from(sort_bytes(row, depth)) << 64 | u128::from(class << CLASS_SHIFT | place as u64)
}

#[inline]
fn place_of(item: u128) -> usize {
    (item as u64 & ((1 << CLASS_SHIFT) - 1)) as usize
}

/// Sorts rows that agree in their first `depth` sort-key bytes.
fn refine(rows: &impl Rows, items: &mut [u128], depth: usize) {
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
                (&rows.row(place).key[next - ADDRESS_BYTES..], place)
            });
            continue;
        }
        for item in run.iter_mut() {
            let place = place_of(*item);
            *item = self::item(&rows.row(place), next, place);
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

#[cfg(test)]
mod tests;
