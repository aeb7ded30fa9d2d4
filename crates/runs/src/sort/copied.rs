//! Small rows: copied bucket by bucket, each with a head of its own, and sorted where they are then.
//!
//! Takes as much memory again as the rows have, fresh; gives that of the buffer back on the way.

use super::{Buckets, Rows, SortedRow, item, refine, visit_winners};
use crate::buffer::{BufferedRow, RowBuffer};
use crate::error::RunError;

const HEAD_BYTES: usize = 16;
const TOMBSTONE: u32 = u32::MAX;

/// As [`super::for_each_winner`].
pub(super) fn for_each_winner(
    buffer: RowBuffer,
    ranks: &[u16],
    mut visit: impl FnMut(SortedRow<'_>),
) -> Result<(), RunError> {
    let buckets = Buckets::new(&buffer, ranks);
    let (rows, ends) = distribute(buffer, ranks, &buckets)?;
    let depth = buckets.depth();
    let mut items = Vec::new();
    let mut start = 0;
    for end in ends {
        items.clear();
        while start < end {
            let row = rows.row(start);
            items.push(item(&row, depth, start));
            start += HEAD_BYTES + row.key.len() + row.value.map_or(0, <[u8]>::len);
        }
        refine(&rows, &mut items, depth);
        visit_winners(&rows, &items, &mut visit);
    }
    Ok(())
}

/// The copied rows, one after the other.
struct CopiedRows(Vec<u8>);

/// Copies all rows so that those of a bucket stand together, in the order in which they came; also
/// returns where each bucket ends. The buffer is given back to the allocator piece by piece.
fn distribute(buffer: RowBuffer, ranks: &[u16], buckets: &Buckets) -> Result<(CopiedRows, Vec<usize>), RunError> {
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
    Ok((CopiedRows(rows), ends))
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

impl CopiedRows {
    #[inline]
    fn head(&self, place: usize) -> (u128, &[u8]) {
        let (head, rest) = self.0[place..].split_first_chunk::<HEAD_BYTES>().expect("a row begins with its head");
        (u128::from_le_bytes(*head), rest)
    }
}

impl Rows for CopiedRows {
    #[inline]
    fn row(&self, place: usize) -> SortedRow<'_> {
        let (head, rest) = self.head(place);
        let (key, rest) = rest.split_at((head >> 64) as u32 as usize);
        let value_bytes = (head >> 96) as u32;
        SortedRow {
            rank: (head >> 32) as u16,
            group: (head >> 48) as u16,
            key,
            value: (value_bytes != TOMBSTONE).then(|| &rest[..value_bytes as usize]),
        }
    }

    fn generation(&self, place: usize) -> u32 {
        self.head(place).0 as u32
    }
}
