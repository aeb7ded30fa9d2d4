//! Windows the naive way: every record is kept, every window is computed from its records when it fires.

use std::collections::BTreeMap;

/// Which windows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Tumbling(i64),
    Sliding(i64, i64),
    Cumulative(i64, i64),
    Session(i64),
}

type Span = (i64, i64);

/// What a window held when it fired: key, window, values.
pub(crate) type Fired = (u64, Span, Vec<u64>);

pub(crate) struct Model {
    shape: Shape,
    offset: i64,
    lateness: i64,
    watermark: i64,
    /// Values by key and window.
    windows: BTreeMap<(u64, Span), Vec<u64>>,
    pub(crate) fired: Vec<Fired>,
    pub(crate) late: Vec<(u64, i64, u64)>,
}

impl Model {
    pub(crate) fn new(shape: Shape, offset: i64, lateness: i64) -> Self {
        let (windows, fired, late) = (BTreeMap::new(), Vec::new(), Vec::new());
        Model { shape, offset, lateness, watermark: i64::MIN, windows, fired, late }
    }

    /// What came out, in order: key, window, sum and number of values.
    pub(crate) fn results(&self) -> Vec<(u64, i64, i64, u64, u64)> {
        let sums = |(key, (start, end), values): &Fired| (*key, *start, *end, values.iter().sum(), values.len() as u64);
        let mut results: Vec<_> = self.fired.iter().map(sums).collect();
        results.sort_unstable();
        results
    }

    /// All windows that hold `time`, found by trying.
    fn spans(&self, time: i64) -> Vec<Span> {
        let multiple = |of: i64| (-2_000..2_000).map(move |i| i * of + self.offset);
        let all: Vec<Span> = match self.shape {
            Shape::Tumbling(size) => multiple(size).map(|start| (start, start + size)).collect(),
            Shape::Sliding(size, slide) => multiple(slide).map(|start| (start, start + size)).collect(),
            Shape::Cumulative(size, step) => {
                let steps = size / step;
                multiple(size).flat_map(|start| (1..=steps).map(move |n| (start, start + n * step))).collect()
            }
            Shape::Session(gap) => vec![(time, time + gap)],
        };
        all.into_iter().filter(|(start, end)| *start <= time && time < *end).collect()
    }

    fn is_gone(&self, span: Span) -> bool {
        span.1 - 1 + self.lateness <= self.watermark
    }

    fn fire(&mut self, key: u64, span: Span) {
        if let Some(values) = self.windows.get(&(key, span)) {
            self.fired.push((key, span, values.clone()));
        }
    }

    pub(crate) fn record(&mut self, key: u64, time: i64, value: u64) {
        let mut spans = self.spans(time);
        let had_some = !spans.is_empty();
        if let Shape::Session(_) = self.shape {
            let own = spans[0];
            let known = self.windows.keys().filter(|(other, span)| *other == key && span.0 <= own.1 && own.0 <= span.1);
            let known: Vec<Span> = known.map(|(_, span)| *span).collect();
            let cover = known.iter().fold(own, |cover, span| (cover.0.min(span.0), cover.1.max(span.1)));
            if !self.is_gone(cover) {
                let values = known.iter().flat_map(|span| self.windows.remove(&(key, *span)).unwrap_or_default());
                let values: Vec<u64> = values.collect();
                self.windows.insert((key, cover), values);
            }
            spans = vec![cover];
        }
        spans.retain(|span| !self.is_gone(*span));
        if spans.is_empty() && (had_some || time + self.lateness <= self.watermark) {
            self.late.push((key, time, value));
        }
        for span in spans {
            self.windows.entry((key, span)).or_default().push(value);
            if span.1 - 1 <= self.watermark {
                self.fire(key, span);
            }
        }
    }

    pub(crate) fn advance(&mut self, watermark: i64) {
        if watermark <= self.watermark {
            return;
        }
        let before = std::mem::replace(&mut self.watermark, watermark);
        let due =
            self.windows.keys().filter(|(_, span)| before < span.1 && span.1 - 1 <= watermark && span.1 - 1 > before);
        let due: Vec<(u64, Span)> = due.copied().collect();
        due.into_iter().for_each(|(key, span)| self.fire(key, span));
        let gone: Vec<(u64, Span)> = self.windows.keys().filter(|(_, span)| self.is_gone(*span)).copied().collect();
        gone.iter().for_each(|window| {
            self.windows.remove(window);
        });
    }
}
