//! Departure delays in event time: hourly and sliding means per airport, each departure with the weather of its hour,
//! and the rotations of each aircraft.
//!
//! ```text
//! flights.csv ─► departures ─┬─► late                                              (side output)
//!               in file order├─► by airport ──► hourly, sliding                    (windows, aggregated)
//!                            ├─► by aircraft ─► rotations                          (session windows)
//!                            └─► by airport ─┬► with weather                       (temporal join)
//! weather.csv ───────────────── by airport ──┘
//! ```
//!
//! A departure happens at its scheduled time plus its delay, and the file is in the order of scheduled days: departures
//! are out of order by up to a day. Whoever comes more than [`BOUND`] after the newest is late. Windows would decide so by
//! the watermark, which travels between batches, so that it would depend on their size; here one operator decides it
//! record by record, and keeps the newest time in its state. What it lets through is never late behind it, and the
//! results are the same however often the job fails, and with any number of workers. `too-late` shows that: it stays empty.
//!
//! Both files must be in the order of time (`scripts/in-order` brings them into it), and each is one split.
//!
//! `delays run [options] -- [--data DIR] [--out DIR] [--pace RECORDS_PER_SECOND]`

mod calendar;
#[path = "../options.rs"]
mod options;
mod punctual;
mod records;
mod rotations;

use std::process::ExitCode;
use std::time::Duration;

use millpond::prelude::*;

use crate::options::{Options, Pace};
use crate::punctual::Punctual;
use crate::records::{Airport, Delays, Departure, FlightRow, Observation, Summary, WeatherRow, WithWeather};
use crate::rotations::{Rotation, Rotations};

/// Departures that come too late.
const LATE: SideTag<Departure> = SideTag::new("late");
/// Departures that windows and joins would take for late: none.
const TOO_LATE: SideTag<Departure> = SideTag::new("too late");

const HOUR: Duration = Duration::from_secs(3_600);
/// So long may a departure come after the newest.
const BOUND: Duration = Duration::from_secs(20 * 3_600);
/// An aircraft that has not departed for so long begins a new rotation.
const REST: Duration = Duration::from_secs(8 * 3_600);

fn main() -> ExitCode {
    millpond::main_named("delays", job)
}

fn job(flow: &mut Dataflow) -> UserResult {
    let options = Options::parse(&millpond::args(), "out/delays")?;
    let mut pace = Pace::new(options.pace);
    let rows = flow.source("flights", FileSource::csv::<FlightRow>(options.data.join("flights.csv*"))).parallelism(1);
    let departures = rows.inspect(move |_| pace.wait()).parallelism(1).try_flat_map(|row, output| {
        // A cancelled flight has not departed.
        Departure::of(&row)?.into_iter().for_each(|departure| output.emit(departure));
        Ok(())
    });
    let punctual = departures.parallelism(1).process("punctual", Punctual::new(BOUND, LATE)).parallelism(1);
    let late = punctual.side_output(LATE);
    // A minute more than what was let through: a departure just as old as that still meets a session that ends then.
    let strategy = WatermarkStrategy::bounded_out_of_orderness(BOUND + Duration::from_secs(60));
    let strategy = strategy.timestamps(|departure: &Departure| departure.departed_ms);
    let departures = punctual.assign_timestamps(strategy).parallelism(1);

    let strategy = WatermarkStrategy::monotonous().try_timestamps(|row: &WeatherRow| Ok(Some(row.observed_ms()?)));
    let weather = flow
        .timed_source("weather", FileSource::csv::<WeatherRow>(options.data.join("weather.csv*")), strategy)
        .parallelism(1)
        .try_map(|row| Observation::of(&row));

    let out = |name: &str| options.out.join(name);
    let hourly = windows(&departures, "hourly", Windows::tumbling(HOUR));
    let sliding = windows(&departures, "sliding", Windows::sliding(3 * HOUR, HOUR / 2));
    let rotations = departures
        .filter(|departure| departure.tailnum.is_some())
        .key_by(|departure| departure.tailnum.clone().unwrap_or_default())
        .window(Windows::session(REST))
        .late_output(TOO_LATE)
        .aggregate_with("rotations", Rotations, |tailnum, _, legs, output| {
            output.emit(Rotation::new(tailnum, legs));
            Ok(())
        });
    let with_weather = with_weather(&departures, &weather);

    let too_late = hourly.side_output(TOO_LATE).union(&sliding.side_output(TOO_LATE));
    let too_late = too_late.union(&rotations.side_output(TOO_LATE)).union(&with_weather.side_output(TOO_LATE));
    late.sink("write late", FileSink::json(out("late")));
    too_late.sink("write too late", FileSink::json(out("too-late")));
    hourly.sink("write hourly", FileSink::json(out("hourly")));
    sliding.sink("write sliding", FileSink::json(out("sliding")));
    rotations.sink("write rotations", FileSink::json(out("rotations")));
    with_weather.sink("write with weather", FileSink::json(out("with-weather")));
    Ok(())
}

/// Per airport and window: how many departed, mean and worst delay.
fn windows(departures: &Stream<Departure>, name: &str, windows: Windows<Departure>) -> Stream<Summary> {
    departures.key_by(|departure| departure.origin.clone()).window(windows).late_output(TOO_LATE).aggregate_with(
        name,
        Delays,
        |airport: &Airport, window, delays, output| {
            output.emit(Summary::new(airport, window, delays));
            Ok(())
        },
    )
}

/// Each departure with the newest observation of its airport up to its time.
fn with_weather(departures: &Stream<Departure>, weather: &Stream<Observation>) -> Stream<WithWeather> {
    departures
        .key_by(|departure| departure.origin.clone())
        .temporal_join(&weather.key_by(|observation| observation.origin.clone()))
        .late_output(TOO_LATE)
        .left_outer("with weather", |departure, observation, output| {
            output.emit(WithWeather::new(departure, observation));
            Ok(())
        })
}
