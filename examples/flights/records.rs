//! What goes in and what comes out.

use millpond::prelude::*;

/// A row of `flights.csv`, as it stands there; a missing value is `NA`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlightRow {
    year: String,
    month: String,
    day: String,
    sched_dep_time: String,
    dep_delay: String,
    carrier: String,
    flight: String,
    tailnum: String,
    origin: String,
    dest: String,
}

/// A departure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flight {
    pub(crate) date: String,
    pub(crate) scheduled: u32,
    /// Minutes; none for a cancelled flight.
    pub(crate) delay: Option<i32>,
    pub(crate) carrier: String,
    pub(crate) number: u32,
    /// The aircraft; not always known.
    pub(crate) tailnum: Option<String>,
    pub(crate) origin: String,
    pub(crate) dest: String,
}

/// A row that is no flight, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unreadable {
    field: String,
    value: String,
}

impl Flight {
    /// Names the flight.
    pub(crate) fn label(&self) -> String {
        format!("{} {}{} {}-{}", self.date, self.carrier, self.number, self.origin, self.dest)
    }
}

fn known(value: String) -> Option<String> {
    (value != "NA").then_some(value)
}

fn number<N: std::str::FromStr>(field: &str, value: &str) -> Result<N, Unreadable> {
    value.parse().map_err(|_| Unreadable { field: field.to_owned(), value: value.to_owned() })
}

impl TryFrom<FlightRow> for Flight {
    type Error = Unreadable;

    fn try_from(row: FlightRow) -> Result<Flight, Unreadable> {
        let (month, day): (u32, u32) = (number("month", &row.month)?, number("day", &row.day)?);
        Ok(Flight {
            date: format!("{}-{month:02}-{day:02}", row.year),
            scheduled: number("sched_dep_time", &row.sched_dep_time)?,
            delay: known(row.dep_delay).map(|delay| number("dep_delay", &delay)).transpose()?,
            carrier: row.carrier,
            number: number("flight", &row.flight)?,
            tailnum: known(row.tailnum),
            origin: row.origin,
            dest: row.dest,
        })
    }
}

/// A row of `planes.csv`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlaneRow {
    tailnum: String,
    year: String,
    manufacturer: String,
    model: String,
    seats: String,
}

/// An aircraft of the register.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plane {
    pub(crate) tailnum: String,
    pub(crate) built: Option<u32>,
    pub(crate) manufacturer: String,
    pub(crate) model: String,
    pub(crate) seats: u32,
}

impl TryFrom<PlaneRow> for Plane {
    type Error = std::num::ParseIntError;

    fn try_from(row: PlaneRow) -> Result<Plane, Self::Error> {
        Ok(Plane {
            tailnum: row.tailnum,
            built: known(row.year).map(|year| year.parse()).transpose()?,
            manufacturer: row.manufacturer,
            model: row.model,
            seats: row.seats.parse()?,
        })
    }
}

/// Running delays of a carrier at an origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delays {
    carrier: String,
    origin: String,
    departed: u64,
    cancelled: u64,
    total_minutes: i64,
    mean_minutes: f64,
    worst_minutes: Option<i32>,
}

impl Delays {
    /// Nothing so far.
    pub(crate) fn new(flight: &Flight) -> Self {
        Delays {
            carrier: flight.carrier.clone(),
            origin: flight.origin.clone(),
            departed: 0,
            cancelled: 0,
            total_minutes: 0,
            mean_minutes: 0.0,
            worst_minutes: None,
        }
    }

    /// Counts one more flight.
    pub(crate) fn add(&mut self, flight: &Flight) {
        match flight.delay {
            None => self.cancelled += 1,
            Some(delay) => {
                self.departed += 1;
                self.total_minutes += i64::from(delay);
                self.mean_minutes = self.total_minutes as f64 / self.departed as f64;
                self.worst_minutes = self.worst_minutes.max(Some(delay));
            }
        }
    }
}

/// The last flights of an aircraft, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LastFlights {
    pub(crate) tailnum: String,
    pub(crate) flights: Vec<String>,
}

/// How often a carrier has flown somewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Destination {
    pub(crate) carrier: String,
    pub(crate) dest: String,
    pub(crate) flights: u64,
}

/// A flight with its aircraft; the aircraft's fields are missing when the register does not have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WithAircraft {
    flight: String,
    scheduled: u32,
    tailnum: Option<String>,
    manufacturer: Option<String>,
    model: Option<String>,
    built: Option<u32>,
    seats: Option<u32>,
}

impl WithAircraft {
    /// Puts both together.
    pub(crate) fn new(flight: &Flight, plane: Option<&Plane>) -> Self {
        WithAircraft {
            flight: flight.label(),
            scheduled: flight.scheduled,
            tailnum: flight.tailnum.clone(),
            manufacturer: plane.map(|plane| plane.manufacturer.clone()),
            model: plane.map(|plane| plane.model.clone()),
            built: plane.and_then(|plane| plane.built),
            seats: plane.map(|plane| plane.seats),
        }
    }
}
