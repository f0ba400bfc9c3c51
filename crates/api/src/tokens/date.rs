//! Dates of the proleptic Gregorian calendar as seconds since 1970, for the expiry of tokens.
//!
//! The arithmetic counts years from March on, so that the leap day is a year's last; 400 years have 146,097 days.

use toml::value::{Date, Datetime, Offset, Time};

const DAY_SECONDS: i64 = 86_400;
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Seconds since 1970 of a date with time and offset. `None` without an offset or before 1970. A date alone is its first second, UTC.
pub(super) fn seconds(date: &Datetime) -> Option<u64> {
    let Date { year, month, day } = date.date?;
    let (time, offset) = match (date.time, date.offset) {
        (None, None) => (0, 0),
        (Some(time), Some(offset)) => (
            i64::from(time.hour) * 3_600
                + i64::from(time.minute) * 60
                + i64::from(time.second.unwrap_or(0)),
            match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(minutes) * 60,
            },
        ),
        _ => return None,
    };
    let from_march = (i64::from(month) + 9) % 12;
    let year = i64::from(year) - i64::from(month <= 2);
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * ERA_DAYS + year * 365 + year / 4 - year / 100 + of_year - EPOCH_DAYS;
    u64::try_from(days * DAY_SECONDS + time - offset).ok()
}

/// The date of so many seconds since 1970, UTC. `None` after the year 9999.
pub(super) fn date(seconds: u64) -> Option<Datetime> {
    let seconds = i64::try_from(seconds).ok()?;
    let (days, time) = (seconds / DAY_SECONDS + EPOCH_DAYS, seconds % DAY_SECONDS);
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year + i64::from(month <= 2);
    let small = |value: i64| u8::try_from(value).ok();
    (year <= 9_999).then_some(())?;
    Some(Datetime {
        date: Some(Date {
            year: u16::try_from(year).ok()?,
            month: small(month)?,
            day: small(of_year - (153 * from_march + 2) / 5 + 1)?,
        }),
        time: Some(Time {
            hour: small(time / 3_600)?,
            minute: small(time / 60 % 60)?,
            second: small(time % 60),
            nanosecond: None,
        }),
        offset: Some(Offset::Z),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By GNU `date -u -d DATE +%s`.
    #[test]
    fn known_dates() {
        for (text, known) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-28T20:45:07Z", 1_795_898_707),
            ("2027-03-01T01:00:00+02:00", 1_803_855_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("2027-01-31", 1_801_353_600),
        ] {
            let date: Datetime = text.parse().unwrap();
            assert_eq!(seconds(&date), Some(known), "{text}");
        }
        for bad in ["1969-12-31T23:59:59Z", "2027-01-31T00:00:00", "10:00:00"] {
            let date: Datetime = bad.parse().unwrap();
            assert_eq!(seconds(&date), None, "{bad}");
        }
    }

    #[test]
    fn dates_read_as_they_were_written() {
        for day in 0..60_000 {
            let moment = day * 86_400 + day % 86_400;
            assert_eq!(seconds(&date(moment).unwrap()), Some(moment));
        }
        assert_eq!(date(u64::MAX), None);
        assert_eq!(date(253_402_300_800), None, "the year 10000");
    }
}
