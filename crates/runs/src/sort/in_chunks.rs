//! Large rows: only their places are distributed and sorted; they are visited where they lie in the buffer.
//!
//! Takes 16 bytes for each row. The buffer's memory is given back when all rows were visited.

use super::{Buckets, Rows, SortedRow, item, refine, visit_winners};
use crate::buffer::{BufferedRow, RowBuffer};
use crate::error::RunError;

/// As [`super::for_each_winner`].
pub(super) fn for_each_winner(
    buffer: RowBuffer,
    ranks: &[u16],
    visit: impl FnMut(SortedRow<'_>),
) -> Result<(), RunError> {
    let buckets = Buckets::new(&buffer, ranks);
    let (mut items, ends) = distribute(&buffer, ranks, &buckets)?;
    let rows = BufferRows { buffer: &buffer, ranks };
    let mut start = 0;
    for end in ends {
        refine(&rows, &mut items[start..end], buckets.depth());
        start = end;
    }
    visit_winners(&rows, &items, visit);
    Ok(())
}

/// An item for every row, those of a bucket together, and where each bucket ends.
fn distribute(buffer: &RowBuffer, ranks: &[u16], buckets: &Buckets) -> Result<(Vec<u128>, Vec<usize>), RunError> {
    let mut ends = vec![0usize; buckets.count];
    let mut unknown = None;
    buffer.for_each(|row| match ranks.get(usize::from(row.state)) {
        Some(rank) => ends[buckets.of(*rank, row.group)] += 1,
        None => unknown = Some(row.state),
    });
    if let Some(state) = unknown {
        return Err(RunError::UnknownState { state, sections: ranks.len() });
    }
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    let mut items = vec![0; total];
    buffer.for_each_placed(|place, row| {
        let row = ranked(row, ranks);
        let end = &mut ends[buckets.of(row.rank, row.group)];
        items[*end] = item(&row, buckets.depth(), place);
        *end += 1;
    });
    Ok((items, ends))
}

#[inline]
fn ranked<'a>(row: BufferedRow<'a>, ranks: &[u16]) -> SortedRow<'a> {
    SortedRow { rank: ranks[usize::from(row.state)], group: row.group, key: row.key, value: row.value }
}

/// The rows of a buffer, by their places there.
struct BufferRows<'a> {
    buffer: &'a RowBuffer,
    ranks: &'a [u16],
}

impl Rows for BufferRows<'_> {
    #[inline]
    fn row(&self, place: usize) -> SortedRow<'_> {
        ranked(self.buffer.row_at(place), self.ranks)
    }

    fn generation(&self, place: usize) -> u32 {
        self.buffer.generation_of(place)
    }
}
