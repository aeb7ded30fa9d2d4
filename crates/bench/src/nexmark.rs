//! `nexmark`: a query of the Nexmark benchmark, `q=0` to `q=22`, over `events` generated events.
//!
//! `q=generate` reads the events and throws them away: what it costs is part of every query. The checksum is a sum over
//! the rows of the result; a row that is taken back is subtracted, so that it is that of the last result in whatever order
//! it came about (not of q12, which goes by the wall clock).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::operators::{Change, Ranked, Windowed};
use millpond_core::seed::mix64;
use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::{Dataflow, Sink, SinkContext, Stream};
use millpond_jobmanager::Job;
use millpond_nexmark::{Auction, Bid, Event, Nexmark, Streams, queries as q};
use millpond_operators::SinkOperators;

use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;
use crate::setup::{Setup, add_pauses};

/// What all subtasks of the sink have seen.
#[derive(Default)]
struct Seen {
    sum: AtomicU64,
    rows: AtomicU64,
}

/// Sums what `print` makes of rows.
struct PrintSink<T, F> {
    seen: Arc<Seen>,
    print: F,
    sum: u64,
    rows: u64,
    types: std::marker::PhantomData<fn(T)>,
}

impl<T: Data, F: Fn(&T) -> u64 + 'static> Sink for PrintSink<T, F> {
    type Record = T;
    type Committable = ();

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult {
        Ok(())
    }

    fn write(&mut self, row: T) -> UserResult {
        self.sum = self.sum.wrapping_add((self.print)(&row));
        self.rows += 1;
        Ok(())
    }

    fn prepare(&mut self, _epoch: Epoch) -> UserResult<Vec<()>> {
        self.seen.sum.fetch_add(std::mem::take(&mut self.sum), Ordering::Relaxed);
        self.seen.rows.fetch_add(std::mem::take(&mut self.rows), Ordering::Relaxed);
        Ok(Vec::new())
    }

    fn commit(&mut self, (): ()) -> UserResult {
        Ok(())
    }
}

/// Numbers in order, as one.
fn print<const N: usize>(numbers: [u64; N]) -> u64 {
    mix64(
        numbers
            .into_iter()
            .fold(N as u64, |all, number| all.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number),
    )
}

fn text(text: &str) -> u64 {
    print([text.len() as u64, text.bytes().fold(0, |all, byte| all.wrapping_mul(31) + u64::from(byte))])
}

/// Without what may differ between bids of one millisecond.
fn bid(bid: &Bid) -> u64 {
    print([bid.auction, bid.bidder, bid.date_time as u64])
}

fn priced(of: &Bid) -> u64 {
    print([bid(of), of.price])
}

fn auction(auction: &Auction) -> u64 {
    print([auction.id, auction.seller, auction.expires as u64])
}

/// A row that is taken back is subtracted.
fn change<T>(row: impl Fn(&T) -> u64 + 'static) -> impl Fn(&Change<T>) -> u64 + 'static {
    move |change| if change.adds() { row(&change.row) } else { row(&change.row).wrapping_neg() }
}

fn mean((key, mean): &(u64, f64)) -> u64 {
    print([*key, mean.to_bits()])
}

fn windowed(counted: &Windowed<u64, u64>) -> u64 {
    print([counted.key, counted.window.start as u64, counted.window.end as u64, counted.value])
}

fn counts(counts: &q::Counts) -> u64 {
    let groups = [counts.bids, counts.bidders, counts.auctions].map(print);
    print([print(groups), u64::from(counts.last_minute)])
}

/// Ends a stream in a sum.
struct Ending(Arc<Seen>);

impl Ending {
    fn end<T: Data>(&self, rows: &Stream<T>, print: impl Fn(&T) -> u64 + 'static) {
        let (sum, seen, types) = (0, Arc::clone(&self.0), std::marker::PhantomData);
        rows.sink("sink", PrintSink { seen, print, sum, rows: 0, types });
    }
}

/// Builds a query.
fn build(query: u64, events: &Stream<Event>, to: &Ending) -> UserResult {
    let streams = Streams::new(events);
    let streams = &streams;
    match query {
        0 => to.end(&q::q0(streams), priced),
        1 => to.end(&q::q1(streams), priced),
        2 => to.end(&q::q2(streams), |row| print([row.auction, row.price])),
        3 => to.end(&q::q3(streams), |row| print([row.auction, text(&row.name)])),
        4 => to.end(&q::q4(streams), change(mean)),
        5 => to.end(&q::q5(streams), |row| print([row.window_end as u64, row.auction, row.bids])),
        6 => to.end(&q::q6(streams), change(mean)),
        7 => to.end(&q::q7(streams), priced),
        8 => to.end(&q::q8(streams), |row| print([row.id, row.window_start as u64])),
        9 => to.end(&q::q9(streams), |row| print([auction(&row.auction), row.bid.price, row.bid.date_time as u64])),
        10 => to.end(&q::q10(streams), |row| print([row.auction, row.price, text(&row.day), text(&row.minute)])),
        11 => to.end(&q::q11(streams), windowed),
        12 => to.end(&q::q12(streams), windowed),
        13 => to.end(&q::q13(streams), |row| print([row.auction, row.price, text(&row.value)])),
        14 => to.end(&q::q14(streams), |row| print([row.auction, row.price, row.time_of_day as u64, row.letters_c])),
        15 => to.end(&q::q15(streams), change(|(day, row)| print([*day as u64, counts(row)]))),
        16 => to.end(
            &q::q16(streams),
            change(|((channel, day), row): &((String, i64), q::Counts)| {
                print([text(channel), *day as u64, counts(row)])
            }),
        ),
        17 => to.end(
            &q::q17(streams),
            change(|((auction, day), row): &((u64, i64), q::Prices)| {
                print([*auction, *day as u64, print(row.bids), row.min, row.max, row.sum])
            }),
        ),
        18 => to.end(&q::q18(streams), change(bid)),
        19 => to.end(&q::q19(streams), change(|ranked: &Ranked<Bid>| print([ranked.rank, priced(&ranked.row)]))),
        20 => to.end(&q::q20(streams), |row| print([priced(&row.bid), auction(&row.auction)])),
        21 => to.end(&q::q21(streams), |row| print([row.auction, row.price, text(&row.channel_id)])),
        22 => to.end(&q::q22(streams), |row| print([row.auction, row.price, text(&row.directories[2])])),
        other => return Err(format!("there is no query {other}").into()),
    }
    Ok(())
}

fn job(query: Option<u64>, nexmark: Nexmark, seen: &Arc<Seen>) -> Job {
    let seen = Arc::clone(seen);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let (events, to) = (nexmark.events(flow), Ending(Arc::clone(&seen)));
        match query {
            None => to.end(&events, |event| event.date_time() as u64),
            Some(query) => build(query, &events, &to)?,
        }
        Ok(())
    })
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let query = match parameters.text("q", "0") {
        "generate" => None,
        _ => Some(parameters.number("q", 0)?),
    };
    let events = parameters.number("events", 10_000_000)?;
    let splits = parameters.number("splits", parameters.number("parallelism", 1)?)? as u32;
    let nexmark = Nexmark::new(events).splits(splits);
    let nexmark = nexmark.events_per_second(parameters.number("events_per_second", 10_000)?);
    let warmup = parameters.number("warmup", 0)?;
    if warmup > 0 {
        let nexmark = Nexmark::new(warmup).splits(splits);
        Setup::new(parameters)?.run(&job(query, nexmark, &Arc::default()))?;
    }
    let (setup, seen) = (Setup::new(parameters)?, Arc::new(Seen::default()));
    let span = Span::start();
    let report = setup.run(&job(query, nexmark, &seen))?;
    let (wall_s, cpu_s, other_cpu_s) = span.stop();
    let mut line = serde_json::json!({
        "engine": "millpond",
        "workload": "nexmark",
        "q": query.map_or("generate".to_owned(), |query| query.to_string()),
        "events": events,
        "backend": setup.settings.backend.name(),
        "parallelism": setup.settings.workers,
        "checkpoint_ms": setup.settings.checkpoints.interval_ms.unwrap_or(0),
        "events_per_s": (events as f64 / wall_s.max(1e-9)).round(),
        "events_per_cpu_s": (events as f64 / cpu_s.max(0.01)).round(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "other_cpu_s": other_cpu_s,
        "checksum": seen.sum.load(Ordering::Relaxed).to_string(),
        "outputs": seen.rows.load(Ordering::Relaxed),
        "epochs": report.epoch.0,
        "peak_rss_mb": peak_rss_mb(),
    });
    if let Some(meter) = &setup.meter {
        line["checkpoint_bytes_written"] = meter.snapshot().bytes_written().into();
        add_pauses(&mut line, &setup.components.pauses);
    }
    Ok(line)
}
