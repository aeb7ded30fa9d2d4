//! What goes in and what comes out.

use millpond::prelude::*;

use crate::calendar;

/// Code of an airport.
pub(crate) type Airport = String;

/// A row of `flights.csv`, as far as it is needed; a missing value is `NA`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlightRow {
    /// The scheduled hour, in UTC.
    time_hour: String,
    minute: String,
    dep_delay: String,
    carrier: String,
    flight: String,
    tailnum: String,
    origin: Airport,
    dest: Airport,
}

/// A departure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Departure {
    /// When it departed: as scheduled, and the delay.
    pub(crate) departed_ms: i64,
    delay_minutes: i64,
    pub(crate) label: String,
    pub(crate) tailnum: Option<String>,
    pub(crate) origin: Airport,
    dest: Airport,
}

fn known(value: &str) -> Option<&str> {
    (value != "NA").then_some(value)
}

fn number<N: std::str::FromStr>(field: &str, value: &str) -> UserResult<N> {
    value.parse().map_err(|_| format!("{field} is not a number: {value:?}").into())
}

fn hour_ms(time_hour: &str) -> UserResult<i64> {
    calendar::parse(time_hour).ok_or_else(|| format!("time_hour is not a time: {time_hour:?}").into())
}

impl Departure {
    /// The departure in a row; none of a cancelled flight.
    pub(crate) fn of(row: &FlightRow) -> UserResult<Option<Departure>> {
        let Some(delay) = known(&row.dep_delay) else { return Ok(None) };
        let (minute, delay_minutes): (i64, i64) = (number("minute", &row.minute)?, number("dep_delay", delay)?);
        let number: u32 = number("flight", &row.flight)?;
        Ok(Some(Departure {
            departed_ms: hour_ms(&row.time_hour)? + (minute + delay_minutes) * 60_000,
            delay_minutes,
            label: format!("{}{number} {}-{}", row.carrier, row.origin, row.dest),
            tailnum: known(&row.tailnum).map(str::to_owned),
            origin: row.origin.clone(),
            dest: row.dest.clone(),
        }))
    }

    /// How long it was late, and where it went.
    pub(crate) fn leg(&self) -> (i64, String) {
        (self.delay_minutes, format!("{}-{}", self.origin, self.dest))
    }
}

/// Number, sum and most of delays, in minutes.
pub(crate) struct Delays;

impl AggregateFunction for Delays {
    type Input = Departure;
    type Accumulator = (u64, i64, i64);
    type Output = (u64, i64, i64);

    fn create_accumulator(&self) -> (u64, i64, i64) {
        (0, 0, i64::MIN)
    }

    fn add(&self, departure: Departure, (departures, total, worst): &mut (u64, i64, i64)) {
        *departures += 1;
        *total += departure.delay_minutes;
        *worst = departure.delay_minutes.max(*worst);
    }

    fn result(&self, accumulator: &(u64, i64, i64)) -> (u64, i64, i64) {
        *accumulator
    }

    fn merge(&self, one: (u64, i64, i64), other: (u64, i64, i64)) -> (u64, i64, i64) {
        (one.0 + other.0, one.1 + other.1, one.2.max(other.2))
    }
}

/// The delays of an airport in a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    origin: Airport,
    from: String,
    to: String,
    departures: u64,
    mean_minutes: f64,
    worst_minutes: i64,
}

impl Summary {
    pub(crate) fn new(origin: &Airport, window: Window, (departures, total, worst): (u64, i64, i64)) -> Self {
        Summary {
            origin: origin.clone(),
            from: calendar::format(window.start),
            to: calendar::format(window.end),
            departures,
            mean_minutes: total as f64 / departures as f64,
            worst_minutes: worst,
        }
    }
}

/// A row of `weather.csv`, as far as it is needed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WeatherRow {
    origin: Airport,
    temp: String,
    wind_speed: String,
    precip: String,
    visib: String,
    /// The hour of the observation, in UTC.
    time_hour: String,
}

impl WeatherRow {
    pub(crate) fn observed_ms(&self) -> UserResult<i64> {
        hour_ms(&self.time_hour)
    }
}

/// The weather at an airport from some hour on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(crate) origin: Airport,
    observed_ms: i64,
    temperature: Option<f64>,
    wind_speed: Option<f64>,
    precipitation: Option<f64>,
    visibility: Option<f64>,
}

impl Observation {
    pub(crate) fn of(row: &WeatherRow) -> UserResult<Observation> {
        let value = |field: &str, value: &str| known(value).map(|value| number(field, value)).transpose();
        Ok(Observation {
            origin: row.origin.clone(),
            observed_ms: row.observed_ms()?,
            temperature: value("temp", &row.temp)?,
            wind_speed: value("wind_speed", &row.wind_speed)?,
            precipitation: value("precip", &row.precip)?,
            visibility: value("visib", &row.visib)?,
        })
    }
}

/// A departure with the weather at its time; the weather's fields are missing when there was no observation yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WithWeather {
    flight: String,
    departed: String,
    delay_minutes: i64,
    observed: Option<String>,
    temperature: Option<f64>,
    wind_speed: Option<f64>,
    precipitation: Option<f64>,
    visibility: Option<f64>,
}

impl WithWeather {
    pub(crate) fn new(departure: &Departure, observation: Option<&Observation>) -> Self {
        WithWeather {
            flight: departure.label.clone(),
            departed: calendar::format(departure.departed_ms),
            delay_minutes: departure.delay_minutes,
            observed: observation.map(|observation| calendar::format(observation.observed_ms)),
            temperature: observation.and_then(|observation| observation.temperature),
            wind_speed: observation.and_then(|observation| observation.wind_speed),
            precipitation: observation.and_then(|observation| observation.precipitation),
            visibility: observation.and_then(|observation| observation.visibility),
        }
    }
}
