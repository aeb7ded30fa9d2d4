//! The contract between an operator and whoever runs it.
//!
//! One value is one subtask's instance of one operator. Calls never overlap (EX-04) and come in this
//! order: `open`, then any mix of `on_batch`, `poll`, `on_watermark`, `on_mark`, `on_clock`, `on_lull`, `prepare_snapshot` and
//! `on_completed`, then `on_end` once if the input ends, then a last `prepare_snapshot` (EX-08).

use millpond_core::{Epoch, UserResult};
use millpond_state::KeyedBackendControl;

use crate::batch::BoxBatch;
use crate::context::{OpenContext, OperatorContext};
use crate::time::{Advance, TimeMark};

/// One subtask's instance of an operator.
pub trait Operator {
    /// Declares state and gets ready. Operator state is restored already; keyed state is restored
    /// after this call into the states declared in it.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult;

    /// Processes a batch from input `input`. May stop early when it has emitted much and return
    /// the rest, which is offered again once downstream has room.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>>;

    /// Event time has come to `watermark` on all inputs that take part in it: what is due by then happens, and its
    /// output is ahead of the watermark (WM-18). The runtime passes the watermark on, and shows nothing else
    /// to the operator before it is [`Advance::Done`]. It never goes back (WM-01).
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let _ = (watermark, context);
        Ok(Advance::Done)
    }

    /// Whether event time begins anew here: the operator pushes marks of its own, and is shown no watermark
    /// from upstream but the last, [`MAX_WATERMARK`](crate::MAX_WATERMARK), which passes (WM-15).
    fn assigns_time(&self) -> bool {
        false
    }

    /// Whether marks of event time are handed to the operator ([`Operator::on_mark`]), which sends them on itself once
    /// what came before them is out. It is shown no watermark then.
    fn carries_marks(&self) -> bool {
        false
    }

    /// A mark has come, behind all records so far; only where [`Operator::carries_marks`] holds.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_mark(&mut self, mark: TimeMark, context: &mut OperatorContext<'_>) -> UserResult {
        context.outputs.mark(mark);
        Ok(())
    }

    /// Whether the operator takes records now. When it does not, nothing is taken from the inputs of its chain either,
    /// until it has been woken ([`OperatorContext::waker`], [`Operator::wake_at`]) and takes some again. Records that
    /// are in the chain when an epoch must close reach it all the same.
    fn takes_input(&self) -> bool {
        true
    }

    /// Whether it is a checkpoint that the operator waits for while it does not take input: when the open epoch is to
    /// close, records reach it all the same.
    fn yields_to_epochs(&self) -> bool {
        false
    }

    /// Whether a checkpoint is wanted before its time, because the operator cannot go on for long without one.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    /// Whether the operator waits for work of its own that is under way elsewhere. The end of the stream waits for it;
    /// epochs do not.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Whether side effects of completed epochs are on their way elsewhere. An attempt whose stream has ended waits for
    /// them; nothing else does. Meanwhile [`Operator::on_clock`] is called although the stream has ended.
    fn is_committing(&self) -> bool {
        false
    }

    /// When the operator wants [`Operator::on_clock`] to be called, in processing time (milliseconds).
    fn wake_at(&self) -> Option<i64> {
        None
    }

    /// The time that [`Operator::wake_at`] asked for has come. Does a bounded amount of work; what is left is
    /// asked for by `wake_at` again.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let _ = context;
        Ok(())
    }

    /// Nothing waits for the operator at the moment.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_lull(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let _ = context;
        Ok(())
    }

    /// All inputs have ended: emit what is left.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let _ = context;
        Ok(())
    }

    /// The operator has processed exactly the records of epochs up to `epoch`. Output emitted here
    /// still belongs to `epoch` (BA-07). Operator state is captured right after, keyed state frozen.
    ///
    /// # Errors
    /// Ends the attempt.
    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let _ = (epoch, context);
        Ok(())
    }

    /// The administrative side of the keyed state, if the operator has any.
    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        None
    }

    /// The checkpoint of `epoch` is durable: side effects of epochs up to it may become visible.
    /// Called at most once per epoch, in order; a completed epoch may be skipped (BA-16).
    ///
    /// # Errors
    /// Ends the attempt (BA-15).
    fn on_completed(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let _ = (epoch, context);
        Ok(())
    }
}

/// What a source did when it was asked for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// There may be more at once.
    Ready,
    /// Nothing for now.
    Idle,
    /// Nothing ever again.
    Exhausted,
}

/// An operator without inputs.
pub trait SourceOperator: Operator {
    /// Emits about `limit` records at most.
    ///
    /// # Errors
    /// Ends the attempt.
    fn poll(&mut self, limit: usize, context: &mut OperatorContext<'_>) -> UserResult<SourceStatus>;
}

/// An operator of either sort.
pub enum Instance {
    /// Has inputs.
    Operator(Box<dyn Operator>),
    /// Has none.
    Source(Box<dyn SourceOperator>),
}

impl Instance {
    /// The common face, to look at.
    #[must_use]
    pub fn look(&self) -> &dyn Operator {
        match self {
            Instance::Operator(operator) => operator.as_ref(),
            Instance::Source(source) => source.as_ref(),
        }
    }

    /// The common face.
    pub fn operator(&mut self) -> &mut dyn Operator {
        match self {
            Instance::Operator(operator) => operator.as_mut(),
            Instance::Source(source) => source.as_mut(),
        }
    }
}
