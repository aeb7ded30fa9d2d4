//! Times as text, `2013-01-31T05:00:00Z`, and as milliseconds since 1970, without a library.

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// Days in 400 years, after which the calendar repeats itself.
const DAYS_OF_ERA: i64 = 146_097;

/// Days from 1970-01-01 to a date of the Gregorian calendar; years begin with March in between, so that the day that
/// is not always there is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The mirror of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// The milliseconds of a time that is written like `2013-01-31T05:00:00Z`; `None` when it is not.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator| text.splitn(3, separator).map(|part| part.parse().ok()).collect();
    let (date, time): (Option<Vec<i64>>, Option<Vec<i64>>) = (numbers(date, '-'), numbers(time, ':'));
    let (&[year, month, day], &[hour, minute, second]) = (&date?[..], &time?[..]) else { return None };
    let within = (1..=12).contains(&month) && (1..=31).contains(&day) && (0..9_999).contains(&year);
    within.then(|| days(year, month, day) * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000)
}

/// The time as text, to the minute: `2013-01-31T05:00Z`.
pub(crate) fn format(time_ms: i64) -> String {
    let (year, month, day) = date(time_ms.div_euclid(DAY_MS));
    let minutes = time_ms.rem_euclid(DAY_MS) / MINUTE_MS;
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}Z", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were_written() {
        assert_eq!(parse("2013-01-01T10:00:00Z"), Some(1_357_034_400_000));
        for text in ["1970-01-01T00:00", "2013-12-31T23:59", "2000-02-29T12:30", "1969-12-31T23:00"] {
            assert_eq!(parse(&format!("{text}:00Z")).map(format), Some(format!("{text}Z")));
        }
        for wrong in ["", "2013-01-01", "2013-01-01T10:00:00", "2013-13-01T10:00:00Z", "2013-01-01T10:aa:00Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
