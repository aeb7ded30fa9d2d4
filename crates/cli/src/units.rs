//! Durations, sizes, counts and times as people write and read them.
//!
//! Owns the spelling in both directions. The `_text` functions are exact and read back by the
//! matching `parse_` function; the `_words` functions are for eyes only.

const MS_PER_DAY: i64 = 86_400_000;

/// Units of duration with their length in milliseconds, longest first.
const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size with their length in bytes, longest first.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads a duration such as `250ms`, `10s`, `1m30s` or `0`, in milliseconds.
///
/// # Errors
/// Says what was expected.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let refuse = || format!("{text:?} is not a duration such as 250ms, 10s, 1m30s or 2h");
    if text == "0" {
        return Ok(0);
    }
    let mut rest = text;
    let mut total_ms = 0u64;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(refuse)?;
        let unit_length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_length);
        let (_, unit_ms) = DURATIONS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        let part_ms = number.checked_mul(*unit_ms).ok_or_else(|| format!("{text:?} is too long"))?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(|| format!("{text:?} is too long"))?;
        rest = next;
    }
    if text.is_empty() { Err(refuse()) } else { Ok(total_ms) }
}

/// A duration in the largest unit that is exact: `90s`, `250ms`.
#[must_use]
pub(crate) fn duration_text(ms: u64) -> String {
    exact(ms, &DURATIONS, "0")
}

/// A duration for eyes: `230 ms`, `1.2 s`, `3 min 5 s`.
#[must_use]
pub(crate) fn duration_words(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Reads a size such as `4MiB`, `64KB` or `1024` (bytes).
///
/// # Errors
/// Says what was expected.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let refuse = || format!("{text:?} is not a size such as 1024, 64KB or 4MiB");
    let (number, unit) = split_number(text).ok_or_else(refuse)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, unit_bytes) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refuse)?;
    number.checked_mul(*unit_bytes).ok_or_else(|| format!("{text:?} is too large"))
}

/// A size in the largest unit that is exact: `4MiB`.
#[must_use]
pub(crate) fn bytes_text(bytes: u64) -> String {
    exact(bytes, &SIZES, "0B")
}

/// A size for eyes, in powers of ten: `85.3 MB`.
#[must_use]
pub(crate) fn bytes_words(bytes: u64) -> String {
    scaled(bytes, &[("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)], " ")
        .unwrap_or_else(|| format!("{bytes} B"))
}

/// A count for eyes: `12.3k`, `4.0M`.
#[must_use]
pub(crate) fn count_words(count: u64) -> String {
    scaled(count, &[("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)], "").unwrap_or_else(|| count.to_string())
}

/// A moment in milliseconds since 1970 as `2026-03-01 12:00:00` in UTC.
#[must_use]
pub(crate) fn time_text(ms: i64) -> String {
    let (days, in_day_ms) = (ms.div_euclid(MS_PER_DAY), ms.rem_euclid(MS_PER_DAY));
    let (year, month, day) = civil_date(days);
    let seconds = in_day_ms / 1_000;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The leading decimal digits of `text`, and what follows them.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

fn exact(value: u64, units: &[(&str, u64)], zero: &str) -> String {
    let fitting = units.iter().find(|(_, length)| value != 0 && value.is_multiple_of(*length));
    fitting.map_or_else(|| zero.to_owned(), |(unit, length)| format!("{}{unit}", value / length))
}

fn scaled(value: u64, units: &[(&str, u64)], space: &str) -> Option<String> {
    let (unit, length) = units.iter().find(|(_, length)| value >= *length)?;
    let tenths = u128::from(value) * 10 / u128::from(*length);
    Some(format!("{}.{}{space}{unit}", tenths / 10, tenths % 10))
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    // Years are counted from March, so that the leap day is the last of its year.
    let since_march_0000 = days + 719_468;
    let (era, day_of_era) = (since_march_0000.div_euclid(DAYS_PER_ERA), since_march_0000.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        let read = ["0", "250ms", "10s", "1m30s", "2h", "1d"].map(|text| parse_duration_ms(text).unwrap());
        assert_eq!(read, [0, 250, 10_000, 90_000, 7_200_000, 86_400_000]);
    }

    #[test]
    fn durations_without_unit_or_sense_are_refused() {
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "1x", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_duration_ms(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_read_in_every_unit() {
        let read = ["0", "1024", "7B", "64KB", "4MiB", "1gib"].map(|text| parse_bytes(text).unwrap());
        assert_eq!(read, [0, 1_024, 7, 64_000, 4 << 20, 1 << 30]);
        for text in ["", "MB", "1.5MB", "-1", "4 MiB", "3XB", "18446744073709551615GB"] {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_short() {
        assert_eq!(
            [0, 999, 1_250, 185_000, 7_380_000].map(duration_words),
            ["0 ms", "999 ms", "1.2 s", "3 min 5 s", "2 h 3 min"]
        );
        assert_eq!([0, 999, 85_349_000, u64::MAX].map(bytes_words), ["0 B", "999 B", "85.3 MB", "18446744.0 TB"]);
        assert_eq!([7, 12_399, 4_000_000].map(count_words), ["7", "12.3k", "4.0M"]);
    }

    #[test]
    fn times_are_utc_dates_on_both_sides_of_1970_and_on_leap_days() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00");
        assert_eq!(time_text(-1), "1969-12-31 23:59:59");
        assert_eq!(time_text(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(time_text(1_709_251_199_999), "2024-02-29 23:59:59");
        assert_eq!(time_text(4_107_542_400_000), "2100-03-01 00:00:00");
    }

    proptest! {
        #[test]
        fn exact_texts_read_back(value: u64) {
            prop_assert_eq!(parse_duration_ms(&duration_text(value)), Ok(value));
            prop_assert_eq!(parse_bytes(&bytes_text(value)), Ok(value));
        }

        #[test]
        fn no_text_makes_the_readers_panic(text: String) {
            let _ = (parse_duration_ms(&text), parse_bytes(&text));
        }
    }
}
