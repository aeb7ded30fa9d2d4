//! From the marks of many senders to the clock of one operator. Pure.
//!
//! A [`Valve`] merges the channels of one input, an [`OperatorClock`] the inputs of one operator: the
//! watermark is the minimum over those that take part in event time. It never goes back (WM-01).
//!
//! Who has sent the last watermark takes no part any more, and the last watermark comes once all have sent it: an
//! idle sender may still have something to say, and all of that would be late.

use millpond_dataflow::time::{MAX_WATERMARK, MIN_WATERMARK, TimeMark};

/// One sender.
#[derive(Clone, Copy, Debug)]
struct Channel {
    watermark: i64,
    idle: bool,
    /// Whether it counts: a channel that was idle counts again once it has caught up (WM-05).
    aligned: bool,
}

/// Merges the channels of one input.
#[derive(Debug)]
struct Valve {
    channels: Vec<Channel>,
    watermark: i64,
    idle: bool,
}

impl Valve {
    fn new(channels: usize) -> Self {
        let channel = Channel { watermark: MIN_WATERMARK, idle: false, aligned: true };
        Valve { channels: vec![channel; channels.max(1)], watermark: MIN_WATERMARK, idle: false }
    }

    /// A mark has come over `channel`; what it means for the input is added to `out`.
    fn take(&mut self, channel: usize, mark: TimeMark, out: &mut Vec<TimeMark>) {
        let last = self.watermark;
        let Some(own) = self.channels.get_mut(channel) else { return };
        let mut held_back = false;
        match mark {
            TimeMark::Watermark(watermark) => {
                if own.idle || watermark <= own.watermark {
                    return;
                }
                held_back = own.watermark == last;
                own.watermark = watermark;
                own.aligned |= watermark >= last;
            }
            TimeMark::Idle => {
                held_back = own.watermark == last;
                (own.idle, own.aligned) = (true, false);
            }
            TimeMark::Active if !own.idle => return,
            TimeMark::Active => {
                own.idle = false;
                own.aligned = own.watermark >= last;
            }
        }
        self.settle(held_back, out);
    }

    /// Says what has changed. `held_back` is whether the channel that spoke had set the last watermark.
    fn settle(&mut self, held_back: bool, out: &mut Vec<TimeMark>) {
        let Valve { channels, watermark, idle } = self;
        let live = || channels.iter().filter(|channel| !channel.idle && !channel.has_ended());
        let all_ended = channels.iter().all(|channel| channel.has_ended());
        if !all_ended && live().next().is_none() {
            if std::mem::replace(idle, true) {
                return;
            }
            let waiting = channels.iter().filter(|channel| !channel.has_ended());
            let newest = waiting.map(|channel| channel.watermark).max();
            if let Some(newest) = newest.filter(|newest| held_back && *newest > *watermark) {
                *watermark = newest;
                out.push(TimeMark::Watermark(newest));
            }
            out.push(TimeMark::Idle);
            return;
        }
        if std::mem::take(idle) {
            out.push(TimeMark::Active);
        }
        let least = live().filter(|channel| channel.aligned).map(|channel| channel.watermark).min();
        let least = if all_ended { Some(MAX_WATERMARK) } else { least };
        if let Some(least) = least.filter(|least| *least > *watermark) {
            *watermark = least;
            out.push(TimeMark::Watermark(least));
        }
    }
}

impl Channel {
    /// Whether it has sent the last watermark.
    fn has_ended(&self) -> bool {
        self.watermark == MAX_WATERMARK
    }
}

/// The clock of an operator: the minimum over its inputs that are not idle (WM-17).
#[derive(Debug)]
pub(crate) struct OperatorClock {
    inputs: Vec<Valve>,
    watermark: i64,
    idle: bool,
    scratch: Vec<TimeMark>,
}

impl OperatorClock {
    /// A clock over inputs with so many channels each.
    pub(crate) fn new(channels: &[usize]) -> Self {
        let inputs = channels.iter().map(|channels| Valve::new(*channels)).collect();
        OperatorClock { inputs, watermark: MIN_WATERMARK, idle: false, scratch: Vec::new() }
    }

    /// The operator's watermark.
    #[inline]
    pub(crate) fn watermark(&self) -> i64 {
        self.watermark
    }

    /// A mark has come over a channel of an input; what it means for the operator is added to `out`.
    pub(crate) fn take(&mut self, input: usize, channel: usize, mark: TimeMark, out: &mut Vec<TimeMark>) {
        let mut seen = std::mem::take(&mut self.scratch);
        if let Some(valve) = self.inputs.get_mut(input) {
            valve.take(channel, mark, &mut seen);
        }
        for mark in seen.drain(..) {
            // With one input, what the valve says is what the operator hears.
            if self.inputs.len() == 1 {
                match mark {
                    TimeMark::Watermark(watermark) => self.watermark = watermark,
                    TimeMark::Idle => self.idle = true,
                    TimeMark::Active => self.idle = false,
                }
                out.push(mark);
            } else {
                self.combine(out);
            }
        }
        self.scratch = seen;
    }

    fn combine(&mut self, out: &mut Vec<TimeMark>) {
        let has_ended = |input: &Valve| input.watermark == MAX_WATERMARK;
        let all_ended = self.inputs.iter().all(has_ended);
        let live = self.inputs.iter().filter(|input| !input.idle && !has_ended(input));
        let least = if all_ended { Some(MAX_WATERMARK) } else { live.map(|input| input.watermark).min() };
        let Some(least) = least else {
            if std::mem::replace(&mut self.idle, true) {
                return;
            }
            // As WM-04 has it for channels: what the inputs have come to is not lost.
            let waiting = self.inputs.iter().filter(|input| !has_ended(input));
            let newest = waiting.map(|input| input.watermark).max().unwrap_or(MIN_WATERMARK);
            if newest > self.watermark {
                self.watermark = newest;
                out.push(TimeMark::Watermark(newest));
            }
            out.push(TimeMark::Idle);
            return;
        };
        if std::mem::take(&mut self.idle) {
            out.push(TimeMark::Active);
        }
        if least > self.watermark {
            self.watermark = least;
            out.push(TimeMark::Watermark(least));
        }
    }
}

#[cfg(test)]
mod tests {
    use TimeMark::{Active, Idle, Watermark};

    use super::*;

    fn clock(channels: &[usize]) -> impl FnMut(usize, usize, TimeMark) -> Vec<TimeMark> {
        let mut clock = OperatorClock::new(channels);
        move |input, channel, mark| {
            let mut out = Vec::new();
            clock.take(input, channel, mark, &mut out);
            out
        }
    }

    #[test]
    fn wm_01_watermarks_never_go_back_and_repeats_are_swallowed() {
        let mut take = clock(&[1]);
        assert_eq!(take(0, 0, Watermark(5)), [Watermark(5)]);
        assert!(take(0, 0, Watermark(5)).is_empty());
        assert!(take(0, 0, Watermark(-3)).is_empty());
        assert_eq!(take(0, 0, Watermark(6)), [Watermark(6)]);
    }

    #[test]
    fn wm_02_the_minimum_over_channels_waits_for_every_channel() {
        let mut take = clock(&[3]);
        assert!(take(0, 0, Watermark(12)).is_empty());
        assert!(take(0, 1, Watermark(8)).is_empty());
        assert_eq!(take(0, 2, Watermark(10)), [Watermark(8)]);
        assert_eq!(take(0, 1, Watermark(15)), [Watermark(10)]);
        assert!(take(0, 0, Watermark(17)).is_empty());
    }

    #[test]
    fn wm_03_an_idle_channel_is_left_out_and_its_watermarks_are_ignored() {
        let mut take = clock(&[2]);
        assert!(take(0, 0, Watermark(20)).is_empty());
        assert_eq!(take(0, 1, Idle), [Watermark(20)]);
        assert!(take(0, 1, Watermark(99)).is_empty());
        assert!(take(0, 1, Idle).is_empty());
        assert_eq!(take(0, 0, Watermark(21)), [Watermark(21)]);
    }

    #[test]
    fn wm_04_the_last_channel_that_goes_idle_lets_the_largest_watermark_out() {
        let mut take = clock(&[2]);
        take(0, 0, Watermark(10));
        assert_eq!(take(0, 1, Watermark(30)), [Watermark(10)]);
        assert!(take(0, 1, Idle).is_empty());
        assert_eq!(take(0, 0, Idle), [Watermark(30), Idle]);
        assert_eq!(take(0, 0, Active), [Active]);
        assert!(take(0, 1, Active).is_empty());
    }

    #[test]
    fn wm_05_a_channel_that_comes_back_counts_once_it_has_caught_up() {
        let mut take = clock(&[2]);
        take(0, 0, Watermark(10));
        assert_eq!(take(0, 1, Idle), [Watermark(10)]);
        assert!(take(0, 1, Active).is_empty());
        assert_eq!(take(0, 0, Watermark(12)), [Watermark(12)]);
        assert!(take(0, 1, Watermark(11)).is_empty(), "below the last output: it does not count yet");
        assert_eq!(take(0, 0, Watermark(15)), [Watermark(15)]);
        assert!(take(0, 1, Watermark(16)).is_empty());
        assert_eq!(take(0, 0, Watermark(20)), [Watermark(16)]);
    }

    #[test]
    fn wm_06_the_last_watermark_needs_all_active_channels() {
        let mut take = clock(&[2]);
        assert!(take(0, 0, Watermark(i64::MAX)).is_empty());
        assert_eq!(take(0, 1, Watermark(i64::MAX)), [Watermark(i64::MAX)]);
    }

    #[test]
    fn a_channel_that_has_ended_does_not_end_event_time_for_an_idle_one() {
        let mut take = clock(&[2]);
        assert_eq!(take(0, 0, Watermark(7)), []);
        assert_eq!(take(0, 1, Watermark(5)), [Watermark(5)]);
        assert_eq!(take(0, 1, Idle), [Watermark(7)]);
        assert_eq!(take(0, 0, Watermark(i64::MAX)), [Idle]);
        assert_eq!(take(0, 1, Active), [Active]);
        assert_eq!(take(0, 1, Watermark(9)), [Watermark(9)]);
        assert_eq!(take(0, 1, Idle), [Idle]);
        assert_eq!(take(0, 1, Active), [Active]);
        assert_eq!(take(0, 1, Watermark(i64::MAX)), [Watermark(i64::MAX)]);
    }

    #[test]
    fn an_input_that_has_ended_does_not_end_event_time_for_an_idle_one() {
        let mut take = clock(&[1, 1]);
        take(1, 0, Idle);
        assert_eq!(take(0, 0, Watermark(7)), [Watermark(7)]);
        assert_eq!(take(0, 0, Watermark(i64::MAX)), [Idle]);
        assert_eq!(take(1, 0, Active), [Active]);
        assert_eq!(take(1, 0, Watermark(i64::MAX)), [Watermark(i64::MAX)]);
    }

    #[test]
    fn wm_17_two_inputs_use_the_minimum_and_leave_out_an_idle_one() {
        let mut take = clock(&[1, 2]);
        assert!(take(0, 0, Watermark(7)).is_empty());
        take(1, 0, Watermark(3));
        assert_eq!(take(1, 1, Watermark(4)), [Watermark(3)]);
        assert!(take(1, 0, Idle).contains(&Watermark(4)));
        assert_eq!(take(1, 1, Idle), [Watermark(7)]);
        assert_eq!(take(0, 0, Idle), [Idle]);
        assert_eq!(take(1, 0, Active), [Active]);
        assert!(take(1, 0, Watermark(6)).is_empty());
        assert_eq!(take(1, 0, Watermark(9)), [Watermark(9)]);
    }
}
