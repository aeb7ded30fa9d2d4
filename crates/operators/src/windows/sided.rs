//! Windows over the records of two streams: the general window operator over records that say where they come from.
//!
//! Owns how the records of a window are shown, each side on its own. Which windows there are, when they fire and what is
//! late is the same as for one stream; sessions merge across both sides (JN-13).

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, OpenContext, Operator, OperatorContext, Output, SideTag,
};
use millpond_state::{KeyedBackendControl, StateDeclarer};
use serde::{Deserialize, Serialize};

use super::evict::{Evictor, InWindow};
use super::function::WindowFunction;
use super::operator::WindowOperator;
use super::window::Window;
use crate::connect::LEFT;

/// A record of one of two streams: what assigners, triggers and evictors see of windows over both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sided<L, R> {
    /// A record of the first stream.
    Left(L),
    /// A record of the second stream.
    Right(R),
}

/// A function over all records of a window of two streams. It is called also when one side has none (JN-12).
///
/// Keyed state that it declares is per key, over all windows, as for a [`WindowProcess`](crate::WindowProcess).
pub trait WindowCoProcess: 'static {
    /// The key.
    type Key: Key;
    /// What comes from the first stream.
    type Left: Data;
    /// What comes from the second stream.
    type Right: Data;
    /// What it emits.
    type Output: Data;

    /// Declares keyed state. Called once per attempt, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, states: &mut StateDeclarer<'_, Self::Key>) -> UserResult {
        let _ = states;
        Ok(())
    }

    /// Called when the window fires, with its key as the current key. What it emits carries the last time of the
    /// window. The records of a side come in the order of arrival, those of merged sessions one after the other.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        window: Window,
        lefts: &[InWindow<Self::Left>],
        rights: &[InWindow<Self::Right>],
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called when the window goes for good.
    ///
    /// # Errors
    /// Ends the attempt.
    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, Self::Key>) -> UserResult {
        let _ = (window, context);
        Ok(())
    }
}

/// What a window over two streams holds: the records of both sides, in the order of arrival.
type Both<L, R> = Vec<InWindow<Sided<L, R>>>;

/// An evictor of a window over two streams.
type BothEvictor<L, R> = Box<dyn Evictor<Sided<L, R>>>;

/// Shows the records of a window, each side on its own.
pub(crate) struct BothSides<P: WindowCoProcess> {
    pub(crate) process: P,
    pub(crate) evictor: Option<BothEvictor<P::Left, P::Right>>,
    pub(crate) late_left: Option<SideTag<P::Left>>,
    pub(crate) late_right: Option<SideTag<P::Right>>,
}

impl<P: WindowCoProcess> WindowFunction<P::Key, Sided<P::Left, P::Right>> for BothSides<P> {
    type Content = Both<P::Left, P::Right>;
    type Output = P::Output;

    fn open(&mut self, states: &mut StateDeclarer<'_, P::Key>) -> UserResult {
        self.process.open(states)
    }

    fn add(&mut self, content: &mut Option<Self::Content>, record: Sided<P::Left, P::Right>, time_ms: i64) {
        content.get_or_insert_default().push((record, time_ms));
    }

    fn merge(&mut self, mut content: Self::Content, other: Self::Content) -> Self::Content {
        content.extend(other);
        content
    }

    fn emit(
        &mut self,
        window: Window,
        content: &mut Self::Content,
        context: &mut KeyedContext<'_, P::Key>,
        output: &mut Output<P::Output>,
    ) -> UserResult {
        if let Some(evictor) = &mut self.evictor {
            evictor.before(content, window);
        }
        let (order, lefts, rights) = divide(std::mem::take(content));
        self.process.process(window, &lefts, &rights, context, output)?;
        *content = unite(&order, lefts, rights);
        if let Some(evictor) = &mut self.evictor {
            evictor.after(content, window);
        }
        Ok(())
    }

    fn is_empty(&self, content: &Self::Content) -> bool {
        content.is_empty()
    }

    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, P::Key>) -> UserResult {
        self.process.clear(window, context)
    }

    fn late(&mut self, record: Sided<P::Left, P::Right>, output: &mut Output<P::Output>) -> bool {
        match (record, self.late_left, self.late_right) {
            (Sided::Left(record), Some(tag), _) => output.emit_side(tag, record),
            (Sided::Right(record), _, Some(tag)) => output.emit_side(tag, record),
            _ => return false,
        }
        true
    }
}

/// Both sides on their own, and whether each record in turn was a left one.
fn divide<L, R>(both: Both<L, R>) -> (Vec<bool>, Vec<InWindow<L>>, Vec<InWindow<R>>) {
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    let order = both.into_iter().map(|(record, time)| match record {
        Sided::Left(record) => {
            lefts.push((record, time));
            true
        }
        Sided::Right(record) => {
            rights.push((record, time));
            false
        }
    });
    (order.collect(), lefts, rights)
}

/// The mirror of [`divide`].
fn unite<L, R>(order: &[bool], lefts: Vec<InWindow<L>>, rights: Vec<InWindow<R>>) -> Both<L, R> {
    let (mut lefts, mut rights) = (lefts.into_iter(), rights.into_iter());
    let next = |is_left: &bool| {
        if *is_left {
            lefts.next().map(|(record, time)| (Sided::Left(record), time))
        } else {
            rights.next().map(|(record, time)| (Sided::Right(record), time))
        }
    };
    order.iter().filter_map(next).collect()
}

/// The general window operator with two inputs.
pub(crate) struct SidedOperator<K: Key, L: Data, R: Data, F: WindowFunction<K, Sided<L, R>>>(
    pub(crate) WindowOperator<K, Sided<L, R>, F>,
);

impl<K: Key, L: Data, R: Data, F: WindowFunction<K, Sided<L, R>>> Operator for SidedOperator<K, L, R, F> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.0.open(context)
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        if input == LEFT {
            self.0.on_records(batch.downcast::<Keyed<K, L>>(), context, Sided::Left)
        } else {
            self.0.on_records(batch.downcast::<Keyed<K, R>>(), context, Sided::Right)
        }
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        self.0.on_watermark(watermark, context)
    }

    fn wake_at(&self) -> Option<i64> {
        self.0.wake_at()
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        self.0.on_clock(context)
    }

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.0.prepare_snapshot(epoch, context)
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.0.keyed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_sides_come_together_in_their_order() {
        let both = vec![(Sided::Right(7), 1), (Sided::Left("a"), 5), (Sided::Left("b"), 2), (Sided::Right(8), 0)];
        let (order, lefts, rights) = divide(both.clone());
        assert_eq!((&lefts[..], &rights[..]), (&[("a", 5), ("b", 2)][..], &[(7, 1), (8, 0)][..]));
        assert_eq!(unite(&order, lefts, rights), both);
    }
}
