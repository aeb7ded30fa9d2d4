//! What a user says about event time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::time::MIN_WATERMARK;

use super::bounded::Bounded;

/// Progress of event time in one split, by the user's rules (punctuated, heuristic, …).
pub trait WatermarkGenerator<T>: 'static {
    /// Called for each record with its event time; [`i64::MIN`] when it has none.
    fn on_record(&mut self, record: &T, time_ms: i64);

    /// The watermark as of now: no record with this time or an older one is expected. May repeat itself
    /// (WM-11); going back has no effect.
    fn watermark(&mut self) -> i64;
}

/// How event times are found in a stream of `T`, and how far behind the newest of them event time is.
///
/// ```
/// use std::time::Duration;
/// use millpond_operators::WatermarkStrategy;
///
/// // Records say when they happened, and come up to five seconds late; a quiet split does not hold up the others.
/// let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_secs(5))
///     .timestamps(|(time_ms, _): &(i64, u64)| *time_ms)
///     .idle_after(Duration::from_secs(60));
/// ```
///
/// Each split of a source has a clock of its own, and the source's watermark is the least of them. Without
/// [`timestamps`](WatermarkStrategy::timestamps) the records carry their times already, from a source that
/// knows them.
pub struct WatermarkStrategy<T> {
    extract: Option<ShareExtract<T>>,
    generator: MakeGenerator<T>,
    immediate: bool,
    jump_ms: Option<i64>,
    pub(crate) interval_ms: i64,
    pub(crate) idle_after_ms: Option<i64>,
    pub(crate) alignment: Option<Alignment>,
}

/// Which sources wait for each other, and how far ahead of the slowest a split may be.
#[derive(Clone, Debug)]
pub(crate) struct Alignment {
    pub(crate) group: String,
    pub(crate) max_drift_ms: i64,
}

/// The function that finds event times is one for all splits of a subtask.
type ShareExtract<T> = Rc<std::cell::RefCell<dyn Extract<T>>>;

/// Makes the generator of a split; a record may be so many milliseconds ahead of all others.
type MakeGenerator<T> = Box<dyn Fn(Option<i64>) -> Box<dyn Generate<T>>>;

/// Finds event times, a batch at a time.
pub(crate) trait Extract<T> {
    /// Appends the times of `records`.
    fn extract(&mut self, records: &[T], times: &mut Vec<i64>) -> UserResult;
}

struct ExtractWith<F>(F);

impl<T, F: FnMut(&T) -> UserResult<Option<i64>>> Extract<T> for ExtractWith<F> {
    fn extract(&mut self, records: &[T], times: &mut Vec<i64>) -> UserResult {
        times.reserve(records.len());
        for record in records {
            times.push((self.0)(record)?.unwrap_or(NO_TIME));
        }
        Ok(())
    }
}

struct ExtractPlain<F>(F);

impl<T, F: FnMut(&T) -> i64> Extract<T> for ExtractPlain<F> {
    fn extract(&mut self, records: &[T], times: &mut Vec<i64>) -> UserResult {
        times.extend(records.iter().map(&mut self.0));
        Ok(())
    }
}

/// Progress of event time, a batch at a time.
pub(crate) trait Generate<T> {
    /// These records have come, with these times, while the clock showed `now_ms`.
    fn observe(&mut self, records: &[T], times: &[i64], now_ms: i64);
    /// The watermark as of now.
    fn watermark(&mut self) -> i64;
}

struct Custom<G>(G);

impl<T, G: WatermarkGenerator<T>> Generate<T> for Custom<G> {
    fn observe(&mut self, records: &[T], times: &[i64], _now_ms: i64) {
        let times = times.iter().copied().chain(std::iter::repeat(NO_TIME));
        records.iter().zip(times).for_each(|(record, time)| self.0.on_record(record, time));
    }

    fn watermark(&mut self) -> i64 {
        self.0.watermark()
    }
}

struct Punctuated<F> {
    find: F,
    newest: i64,
}

impl<T: 'static, F: Fn(&T, i64) -> Option<i64> + 'static> WatermarkGenerator<T> for Punctuated<Rc<F>> {
    fn on_record(&mut self, record: &T, time_ms: i64) {
        self.newest = self.newest.max((self.find)(record, time_ms).unwrap_or(MIN_WATERMARK));
    }

    fn watermark(&mut self) -> i64 {
        self.newest
    }
}

/// The longest time between two watermarks while records come (WM-16).
const INTERVAL: Duration = Duration::from_millis(200);
/// One record a year ahead of all others does not move event time.
const JUMP: Duration = Duration::from_secs(365 * 24 * 3_600);

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl<T: Data> WatermarkStrategy<T> {
    fn new(generator: impl Fn(Option<i64>) -> Box<dyn Generate<T>> + 'static) -> Self {
        WatermarkStrategy {
            extract: None,
            generator: Box::new(generator),
            immediate: false,
            jump_ms: Some(millis(JUMP)),
            interval_ms: millis(INTERVAL),
            idle_after_ms: None,
            alignment: None,
        }
    }

    /// For splits whose times never go down.
    #[must_use]
    pub fn monotonous() -> Self {
        WatermarkStrategy::bounded_out_of_orderness(Duration::ZERO)
    }

    /// For splits in which a record comes at most `bound` of event time after a newer one: the watermark is the
    /// newest time seen, less `bound`, less one millisecond (WM-10).
    #[must_use]
    pub fn bounded_out_of_orderness(bound: Duration) -> Self {
        let delay_ms = millis(bound);
        // The splits of a subtask know of each other.
        let believed = Rc::new(Cell::new(NO_TIME));
        WatermarkStrategy::new(move |jump_ms| Box::new(Bounded::new(delay_ms, jump_ms, Rc::clone(&believed))))
    }

    /// By own rules; `make` makes the generator of one split. [`max_jump`](WatermarkStrategy::max_jump) does not
    /// apply.
    #[must_use]
    pub fn custom<G: WatermarkGenerator<T>>(make: impl Fn() -> G + 'static) -> Self {
        WatermarkStrategy::new(move |_| Box::new(Custom(make())))
    }

    /// For streams in which some records announce the watermark: `find` is shown each record with its event time
    /// and returns the watermark that it announces, if it does. It is sent with the batch, whatever the interval.
    /// [`max_jump`](WatermarkStrategy::max_jump) does not apply.
    #[must_use]
    pub fn punctuated(find: impl Fn(&T, i64) -> Option<i64> + 'static) -> Self {
        let find = Rc::new(find);
        let make = move || Punctuated { find: Rc::clone(&find), newest: MIN_WATERMARK };
        WatermarkStrategy { immediate: true, ..WatermarkStrategy::custom(make) }
    }

    /// How the event time of a record is found, in milliseconds since 1970-01-01 UTC or in any other unit that
    /// the job keeps to. Negative times are times like any other; [`i64::MIN`] is none (WM-19).
    #[must_use]
    pub fn timestamps(self, time_ms: impl FnMut(&T) -> i64 + 'static) -> Self {
        WatermarkStrategy { extract: Some(Rc::new(std::cell::RefCell::new(ExtractPlain(time_ms)))), ..self }
    }

    /// As [`timestamps`](WatermarkStrategy::timestamps), where a record may have no time, or the look for it may
    /// fail, which ends the attempt.
    #[must_use]
    pub fn try_timestamps(self, time_ms: impl FnMut(&T) -> UserResult<Option<i64>> + 'static) -> Self {
        WatermarkStrategy { extract: Some(Rc::new(std::cell::RefCell::new(ExtractWith(time_ms)))), ..self }
    }

    /// A split without records for longer than this (processing time) takes no part in event time until it has
    /// one again (WM-12). Without it, a split that is quiet holds event time back.
    #[must_use]
    pub fn idle_after(self, timeout: Duration) -> Self {
        WatermarkStrategy { idle_after_ms: Some(millis(timeout)), ..self }
    }

    /// A split that is more than `max_drift` of event time ahead of the slowest one of all sources in `group` is not
    /// read until that has come nearer (WM-20): operators downstream then hold no more than so much of the quick ones.
    /// Splits that are [idle](WatermarkStrategy::idle_after) are not waited for; one that is quiet is. Groups
    /// do not reach beyond one process, and have no effect on [`assign_timestamps`].
    ///
    /// [`assign_timestamps`]: crate::StreamOperators::assign_timestamps
    #[must_use]
    pub fn aligned(self, group: &str, max_drift: Duration) -> Self {
        let alignment = Alignment { group: group.to_owned(), max_drift_ms: millis(max_drift) };
        WatermarkStrategy { alignment: Some(alignment), ..self }
    }

    /// The longest time between two watermarks while records come; 200 ms when not given. They are sent earlier
    /// when many records have come, or none waits.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        WatermarkStrategy { interval_ms: millis(interval), ..self }
    }

    /// A record that is more than this ahead of all before it in its split does not move event time, unless many
    /// in a row are: one wrong time must not close every window. The first record of a split is compared with the
    /// splits of its subtask that came before, and with the wall clock; the first of a subtask is believed when the
    /// next agrees. `None` believes every record; 365 days when not given. What is not believed is counted and
    /// logged.
    #[must_use]
    pub fn max_jump(self, jump: Option<Duration>) -> Self {
        WatermarkStrategy { jump_ms: jump.map(millis), ..self }
    }

    /// Whether a watermark is to be sent at once.
    pub(crate) fn is_immediate(&self) -> bool {
        self.immediate
    }

    pub(crate) fn extractor(&self) -> Option<ShareExtract<T>> {
        self.extract.clone()
    }

    pub(crate) fn generator(&self) -> Box<dyn Generate<T>> {
        (self.generator)(self.jump_ms)
    }
}
