//! Days and times of day, in UTC.

const DAY_MS: i64 = 86_400_000;

/// Days since 1970-01-01.
pub(crate) fn day_number(time_ms: i64) -> i64 {
    time_ms.div_euclid(DAY_MS)
}

/// As in `2015-07-15`.
pub(crate) fn day(time_ms: i64) -> String {
    let (year, month, day) = civil(day_number(time_ms));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Minutes since midnight.
pub(crate) fn minute_number(time_ms: i64) -> u32 {
    (time_ms.rem_euclid(DAY_MS) / 60_000) as u32
}

/// As in `23:59`.
pub(crate) fn minute(time_ms: i64) -> String {
    let minute = minute_number(time_ms);
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// From 0 to 23.
pub(crate) fn hour(time_ms: i64) -> u32 {
    minute_number(time_ms) / 60
}

/// Year, month and day of a number of days since 1970-01-01. Years begin in March here, so that the day that some years
/// have more is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, in_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let days =
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (16_631, "2015-07-15"), (-1, "1969-12-31")];
        for (number, text) in days {
            assert_eq!(day(number * DAY_MS), text);
        }
        assert_eq!((minute(16_631 * DAY_MS + 86_399_999).as_str(), hour(-1)), ("23:59", 23));
    }
}
