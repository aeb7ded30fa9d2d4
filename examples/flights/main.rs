//! Flights out of New York: running delays, the last flights of each aircraft, destinations of each
//! carrier, and each flight with its aircraft.
//!
//! ```text
//! flights.csv ─► parse ─┬─► by carrier and origin ─► delays         (ValueState)
//!                       ├─► by aircraft ───────────► last flights   (ListState)
//!                       ├─► by carrier ────────────► destinations   (MapState)
//!                       └─► by aircraft ─┬─────────► with aircraft  (broadcast state)
//! planes.csv ──────────── to everybody ──┘
//! ```
//!
//! `flights run [options] -- [--data DIR] [--out DIR] [--pace RECORDS_PER_SECOND]`

mod aircraft;
#[path = "../options.rs"]
mod options;
mod records;

use std::process::ExitCode;

use millpond::prelude::*;

use crate::aircraft::WithAircraft;
use crate::options::{Options, Pace};
use crate::records::{Delays, Destination, Flight, FlightRow, LastFlights, Plane, PlaneRow, Unreadable};

/// Rows that are no flights.
const UNREADABLE: SideTag<Unreadable> = SideTag::new("unreadable");
/// Flights remembered of each aircraft.
const REMEMBERED: usize = 10;

fn main() -> ExitCode {
    millpond::main_named("flights", job)
}

fn job(flow: &mut Dataflow) -> UserResult {
    let options = Options::parse(&millpond::args(), "out/flights")?;
    let rows = flow.source("flights", FileSource::csv::<FlightRow>(options.data.join("flights*.csv*")));
    let mut pace = Pace::new(options.pace);
    let flights = rows.inspect(move |_| pace.wait()).try_flat_map(|row, output| {
        match Flight::try_from(row) {
            Ok(flight) => output.emit(flight),
            Err(unreadable) => output.emit_side(UNREADABLE, unreadable),
        }
        Ok(())
    });
    let planes = flow
        .source("planes", FileSource::csv::<PlaneRow>(options.data.join("planes.csv")))
        .try_map(|row| Ok(Plane::try_from(row)?));

    let out = |name: &str| options.out.join(name);
    flights.side_output(UNREADABLE).sink("write unreadable", FileSink::json(out("unreadable")));
    delays(&flights).sink("write delays", FileSink::json(out("delays")));
    last_flights(&flights).sink("write last flights", FileSink::json(out("last-flights")));
    destinations(&flights).sink("write destinations", FileSink::json(out("destinations")));
    with_aircraft(&flights, &planes).sink("write with aircraft", FileSink::json(out("with-aircraft")));
    Ok(())
}

/// Per carrier and origin, after each flight: how many departed and were cancelled, mean and worst delay.
fn delays(flights: &Stream<Flight>) -> Stream<Delays> {
    flights.key_by(|flight| (flight.carrier.clone(), flight.origin.clone())).process_with(
        "delays",
        |states| states.value::<Delays>("delays"),
        |delays, flight, context, output| {
            let updated = delays.modify(context, |delays| {
                let delays = delays.get_or_insert_with(|| Delays::new(&flight));
                delays.add(&flight);
                delays.clone()
            })?;
            output.emit(updated);
            Ok(())
        },
    )
}

/// Per aircraft, after each flight: its last ten flights.
fn last_flights(flights: &Stream<Flight>) -> Stream<LastFlights> {
    flights.filter(|flight| flight.tailnum.is_some()).key_by(|flight| flight.tailnum.clone()).process_with(
        "last flights",
        |states| states.list::<String>("last"),
        |last, flight, context, output| {
            last.add(context, flight.label())?;
            let known = last.get(context)?;
            if known.len() > REMEMBERED {
                let kept = known[known.len() - REMEMBERED..].to_vec();
                last.update(context, kept)?;
            }
            let flights = last.get(context)?.to_vec();
            output.emit(LastFlights { tailnum: flight.tailnum.unwrap_or_default(), flights });
            Ok(())
        },
    )
}

/// Per carrier, after each flight: how many flights to its destination so far.
fn destinations(flights: &Stream<Flight>) -> Stream<Destination> {
    flights.key_by(|flight| flight.carrier.clone()).process_with(
        "destinations",
        |states| states.map::<String, u64>("flights by destination"),
        |by_destination, flight, context, output| {
            let flights = by_destination.get(context, &flight.dest)?.copied().unwrap_or(0) + 1;
            by_destination.put(context, flight.dest.clone(), flights)?;
            output.emit(Destination { carrier: flight.carrier, dest: flight.dest, flights });
            Ok(())
        },
    )
}

/// Each flight with what the register says of its aircraft.
fn with_aircraft(flights: &Stream<Flight>, planes: &Stream<Plane>) -> Stream<records::WithAircraft> {
    flights
        .key_by(|flight| flight.tailnum.clone().unwrap_or_default())
        .connect_broadcast(planes)
        .process("with aircraft", WithAircraft::default())
}
