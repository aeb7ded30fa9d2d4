//! From the marks of many senders to the clock of one operator. Pure.
//!
//! A [`Valve`] merges the channels of one input, an [`OperatorClock`] the inputs of one operator: the
//! watermark is the minimum over those that take part in event time. It never goes back (WM-01).

use millpond_dataflow::time::{MIN_WATERMARK, TimeMark};

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
        match mark {
            TimeMark::Watermark(watermark) => {
                if own.idle || watermark <= own.watermark {
                    return;
                }
                own.watermark = watermark;
                own.aligned |= watermark >= last;
                self.raise(out);
            }
            TimeMark::Idle if own.idle => {}
            TimeMark::Idle => {
                let held_back = own.watermark == last;
                (own.idle, own.aligned) = (true, false);
                if self.channels.iter().all(|channel| channel.idle) {
                    let newest = self.channels.iter().map(|channel| channel.watermark).max();
                    if let Some(newest) = newest.filter(|newest| held_back && *newest > last) {
                        self.watermark = newest;
                        out.push(TimeMark::Watermark(newest));
                    }
                    self.idle = true;
                    out.push(TimeMark::Idle);
                } else if held_back {
                    self.raise(out);
                }
            }
            TimeMark::Active if !own.idle => {}
            TimeMark::Active => {
                own.idle = false;
                own.aligned = own.watermark >= last;
                if std::mem::take(&mut self.idle) {
                    out.push(TimeMark::Active);
                }
            }
        }
    }

    /// Moves to the minimum over the channels that count.
    fn raise(&mut self, out: &mut Vec<TimeMark>) {
        let counting = self.channels.iter().filter(|channel| channel.aligned);
        if let Some(least) = counting.map(|channel| channel.watermark).min()
            && least > self.watermark
        {
            self.watermark = least;
            out.push(TimeMark::Watermark(least));
        }
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
        let least = self.inputs.iter().filter(|input| !input.idle).map(|input| input.watermark).min();
        match least {
            None if self.idle => {}
            None => {
                // As WM-04 has it for channels: what the inputs have come to is not lost.
                let newest = self.inputs.iter().map(|input| input.watermark).max().unwrap_or(MIN_WATERMARK);
                if newest > self.watermark {
                    self.watermark = newest;
                    out.push(TimeMark::Watermark(newest));
                }
                self.idle = true;
                out.push(TimeMark::Idle);
            }
            Some(least) => {
                if std::mem::take(&mut self.idle) {
                    out.push(TimeMark::Active);
                }
                if least > self.watermark {
                    self.watermark = least;
                    out.push(TimeMark::Watermark(least));
                }
            }
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
