//! Runs futures for records on the subtask's own thread.
//!
//! A future is polled when it is begun, and whenever it has rung; the clock ends attempts and pauses. Records under way
//! are operator state: after a restore they are begun again, by whichever subtask they were dealt to.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millpond_core::{Data, Epoch, UserResult, error::chain};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::{BoxBatch, OpenContext, Operator, OperatorContext, Output, TimeMark};
use millpond_state::OperatorListState;

use super::alarm::{Alarm, Bell};
use super::flights::{Departure, Flights, Phase, Timed};
use super::{AsyncError, AsyncMap, Failed};

/// An attempt that is running.
struct Running<U> {
    future: Pin<Box<dyn Future<Output = UserResult<U>>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// What came of a record: a result, or why there is none.
type Outcome<U> = Result<U, String>;

/// See the module.
pub(crate) struct AsyncOperator<T, U, F> {
    settings: AsyncMap<T>,
    function: F,
    flights: Flights<T, Running<U>, Outcome<U>>,
    alarm: Arc<Alarm>,
    state: Option<OperatorListState<Timed<T>>>,
    /// Whether the state holds no record.
    stored_none: bool,
    output: Output<U>,
}

impl<T: Data, U: Data, F, Fut> AsyncOperator<T, U, F>
where
    F: FnMut(T) -> Fut + 'static,
    Fut: Future<Output = UserResult<U>> + 'static,
{
    pub(crate) fn new(settings: AsyncMap<T>, function: F) -> Self {
        let flights = Flights::new(settings.ordered, settings.capacity);
        let (alarm, output) = (Arc::new(Alarm::default()), Output::new());
        AsyncOperator { settings, function, flights, alarm, state: None, stored_none: true, output }
    }

    /// Begins what there is room for, and emits what may go out, until neither is left.
    fn go_on(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        loop {
            while let Some(departure) = self.flights.depart() {
                match departure {
                    Departure::Result((_, time_ms), Ok(result)) => {
                        self.output.set_time(time_ms);
                        self.output.emit(result);
                    }
                    Departure::Result((record, time_ms), Err(reason)) => {
                        self.output.set_time(time_ms);
                        if let Some(tag) = self.settings.failed {
                            self.output.emit_side(tag, Failed { record, reason });
                        }
                    }
                    Departure::Mark(mark) => {
                        self.output.flush(context.outputs);
                        context.outputs.mark(mark);
                    }
                }
            }
            let Some(number) = self.flights.begin() else { break };
            self.attempt(number, context)?;
        }
        self.output.set_time(NO_TIME);
        self.output.flush(context.outputs);
        Ok(())
    }

    /// Begins an attempt for a record.
    fn attempt(&mut self, number: u64, context: &OperatorContext<'_>) -> UserResult {
        let Some(flight) = self.flights.get(number) else { return Ok(()) };
        flight.attempts += 1;
        let record = flight.record.0.clone();
        self.alarm.set_subtask(context.waker);
        let bell = Bell::new(number, &self.alarm);
        let waker = Waker::from(Arc::clone(&bell));
        let future = Box::pin((self.function)(record));
        let due_ms = self.settings.timeout_ms.map(|timeout_ms| context.clock.now_ms().saturating_add(timeout_ms));
        self.flights.set(number, Phase::Running(Running { future, bell, waker }), due_ms);
        self.poll(number, context)
    }

    /// Lets the running attempt of a record go on.
    fn poll(&mut self, number: u64, context: &OperatorContext<'_>) -> UserResult {
        let Some(flight) = self.flights.get(number) else { return Ok(()) };
        let attempts = flight.attempts;
        let Phase::Running(Running { future, bell, waker }) = &mut flight.phase else { return Ok(()) };
        bell.answer();
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(result)) => {
                self.flights.set(number, Phase::Done(Ok(result)), None);
                Ok(())
            }
            Poll::Ready(Err(source)) => self.failed(number, AsyncError::Failed { attempts, source }, context),
        }
    }

    /// An attempt has failed: another one comes, or the failure is final.
    fn failed(&mut self, number: u64, error: AsyncError, context: &OperatorContext<'_>) -> UserResult {
        let attempts = self.flights.get(number).map_or(0, |flight| flight.attempts);
        if let Some(pause_ms) = self.settings.retry.pause_ms(attempts, &error) {
            let due_ms = context.clock.now_ms().saturating_add(pause_ms);
            self.flights.set(number, Phase::Resting, Some(due_ms));
            return Ok(());
        }
        if self.settings.failed.is_none() {
            return Err(error.into());
        }
        self.flights.set(number, Phase::Done(Err(chain(&error))), None);
        Ok(())
    }

    /// The clock has reached what was set for a record: its attempt takes too long, or the next one begins.
    fn on_due(&mut self, number: u64, context: &OperatorContext<'_>) -> UserResult {
        let Some(flight) = self.flights.get(number) else { return Ok(()) };
        match flight.phase {
            Phase::Resting => self.attempt(number, context),
            Phase::Running(_) => {
                let (attempts, timeout_ms) = (flight.attempts, self.settings.timeout_ms.unwrap_or(i64::MAX));
                self.failed(number, AsyncError::TimedOut { attempts, timeout_ms }, context)
            }
            Phase::Queued | Phase::Done(_) => Ok(()),
        }
    }
}

impl<T: Data, U: Data, F, Fut> Operator for AsyncOperator<T, U, F>
where
    F: FnMut(T) -> Fut + 'static,
    Fut: Future<Output = UserResult<U>> + 'static,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let state = context.states.list::<Timed<T>>("under way")?;
        let stored = state.get(context.states)?.to_vec();
        self.stored_none = stored.is_empty();
        stored.into_iter().for_each(|(record, time_ms)| self.flights.push(record, time_ms));
        self.state = Some(state);
        Ok(())
    }

    /// Takes all records, whatever the capacity: those beyond it wait to be begun.
    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        batch.downcast::<T>().into_timed().for_each(|(record, time_ms)| self.flights.push(record, time_ms));
        self.go_on(context)?;
        Ok(None)
    }

    fn carries_marks(&self) -> bool {
        true
    }

    fn on_mark(&mut self, mark: TimeMark, context: &mut OperatorContext<'_>) -> UserResult {
        self.flights.mark(mark);
        self.go_on(context)
    }

    fn takes_input(&self) -> bool {
        self.flights.has_room()
    }

    fn is_waiting(&self) -> bool {
        !self.flights.is_empty()
    }

    fn wake_at(&self) -> Option<i64> {
        if self.alarm.has_rung() || self.flights.can_begin() { Some(i64::MIN) } else { self.flights.first_due() }
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        for number in self.alarm.hear() {
            self.poll(number, context)?;
        }
        let now_ms = context.clock.now_ms();
        while let Some(number) = self.flights.next_due(now_ms) {
            self.on_due(number, context)?;
        }
        self.go_on(context)
    }

    fn prepare_snapshot(&mut self, _epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let Some(state) = &self.state else { return Ok(()) };
        if !(self.stored_none && self.flights.has_no_records()) {
            state.update(context.states, self.flights.records().cloned())?;
            self.stored_none = self.flights.has_no_records();
        }
        Ok(())
    }
}
