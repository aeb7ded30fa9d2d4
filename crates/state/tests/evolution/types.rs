//! One type of a job over the years.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Status1 {
    Planned,
    Late(u8),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Leg1 {
    pub(crate) from: String,
    pub(crate) miles: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flight1 {
    pub(crate) carrier: String,
    pub(crate) delay: i16,
    pub(crate) price: f32,
    pub(crate) status: Status1,
    pub(crate) legs: Vec<Leg1>,
    pub(crate) obsolete: u64,
}

/// Wider integers and floats, a field gone, one renamed, one added, one optional now, variants reordered
/// and added, all of it nested too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Status2 {
    Cancelled,
    Late(u32),
    Planned,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Leg2 {
    pub(crate) miles: i64,
    #[serde(alias = "from")]
    pub(crate) origin: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flight2 {
    pub(crate) delay: i64,
    #[serde(alias = "carrier")]
    pub(crate) airline: String,
    pub(crate) price: Option<f64>,
    pub(crate) status: Status2,
    pub(crate) legs: Vec<Leg2>,
    #[serde(default = "seven")]
    pub(crate) seats: u32,
    pub(crate) gate: Option<String>,
}

fn seven() -> u32 {
    7
}

/// One more change on top, which can read both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flight3 {
    #[serde(alias = "airline", alias = "carrier")]
    pub(crate) operator: String,
    pub(crate) delay: i128,
}

pub(crate) fn old(number: u16) -> Flight1 {
    Flight1 {
        carrier: format!("carrier {number}"),
        delay: -(number as i16),
        price: 0.5,
        status: if number.is_multiple_of(2) { Status1::Planned } else { Status1::Late(number as u8) },
        legs: vec![Leg1 { from: "JFK".into(), miles: number }; usize::from(number % 3)],
        obsolete: u64::MAX,
    }
}

/// What [`old`] must become.
pub(crate) fn new(number: u16) -> Flight2 {
    Flight2 {
        delay: -i64::from(number),
        airline: format!("carrier {number}"),
        price: Some(0.5),
        status: if number.is_multiple_of(2) { Status2::Planned } else { Status2::Late(u32::from(number as u8)) },
        legs: vec![Leg2 { miles: i64::from(number), origin: "JFK".into() }; usize::from(number % 3)],
        seats: 7,
        gate: None,
    }
}

pub(crate) fn newest(number: u16) -> Flight3 {
    Flight3 { operator: format!("carrier {number}"), delay: -i128::from(number) }
}
