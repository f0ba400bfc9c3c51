//! Weekly windows with a minimum of hosts, in UTC or at a fixed offset from it. There are no time zones: a window does not
//! follow summer time.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::time::UnixMs;

/// Windows of one schedule at most.
pub const WINDOWS_MAX: usize = 64;
/// The greatest distance from UTC, in minutes.
const OFFSET_MINUTES_MAX: i32 = 14 * 60;
const DAY_MINUTES: u32 = 24 * 60;

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

/// The days in the order of their numbers.
const DAYS: [Day; 7] = [
    Day::Mon,
    Day::Tue,
    Day::Wed,
    Day::Thu,
    Day::Fri,
    Day::Sat,
    Day::Sun,
];

/// A time of day: minutes since midnight, below 24 hours. Its text is `"08:30"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DayTime(u32);

/// The fixed distance of local time from UTC, in minutes. Its text is `"+01:00"`, or `"UTC"` for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offset(i32);

/// A weekly window in which a cluster has a greater minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The days on which the window begins.
    pub days: Vec<Day>,
    /// The time of day at which the window begins.
    pub from: DayTime,
    /// The time of day at which the window ends, exclusive; on the next day if it is not after `from`.
    pub to: DayTime,
    /// Hosts at least while the window lasts.
    pub min: u32,
}

impl Window {
    /// Whether the window lasts at this moment.
    #[must_use]
    pub fn contains(&self, now: UnixMs, offset: Offset) -> bool {
        let (today, minute) = offset.local(now);
        let yesterday = DAYS[(today as usize + 6) % 7];
        let (from, to) = (self.from.0, self.to.0);
        if from < to {
            return self.days.contains(&today) && (from..to).contains(&minute);
        }
        let began_today = self.days.contains(&today) && minute >= from;
        let began_yesterday = self.days.contains(&yesterday) && minute < to;
        began_today || began_yesterday
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, day) in self.days.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}", format!("{day:?}").to_lowercase())?;
        }
        write!(f, " {}-{}", self.from, self.to)
    }
}

impl Offset {
    /// The day and the minute of the day at a moment.
    fn local(self, now: UnixMs) -> (Day, u32) {
        // A week more keeps the sum positive and the day the same.
        let minutes = i128::from(now.0 / 60_000) + i128::from(self.0) + 7 * i128::from(DAY_MINUTES);
        let minutes = u128::try_from(minutes).unwrap_or_default();
        let minute = (minutes % u128::from(DAY_MINUTES)) as u32;
        // 1970-01-01 was a Thursday.
        let day = (minutes / u128::from(DAY_MINUTES) + 3) % 7;
        (DAYS[day as usize], minute)
    }
}

/// A text that is no time of a schedule. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No time of day.
    #[error("`{0}` is no time of day: write hours and minutes, such as \"08:30\"")]
    DayTime(String),
    /// No distance from UTC.
    #[error(
        "`{0}` is no distance from UTC: write \"UTC\", or hours and minutes up to 14 hours, such as \"+01:00\""
    )]
    Offset(String),
}

fn hours_and_minutes(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let two_digits = |part: &str| {
        let is_sound = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_digit());
        part.parse::<u32>().ok().filter(|_| is_sound)
    };
    let minutes = two_digits(minutes).filter(|minutes| *minutes < 60)?;
    Some(two_digits(hours)? * 60 + minutes)
}

impl std::str::FromStr for DayTime {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<DayTime, ScheduleError> {
        hours_and_minutes(text)
            .filter(|minutes| *minutes < DAY_MINUTES)
            .map(DayTime)
            .ok_or_else(|| ScheduleError::DayTime(text.chars().take(32).collect()))
    }
}

impl std::str::FromStr for Offset {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Offset, ScheduleError> {
        if text == "UTC" {
            return Ok(Offset::default());
        }
        let signed = match text.split_at_checked(1) {
            Some(("+", rest)) => hours_and_minutes(rest).map(u32::cast_signed),
            Some(("-", rest)) => hours_and_minutes(rest).map(|minutes| -minutes.cast_signed()),
            _ => None,
        };
        signed
            .filter(|minutes| minutes.abs() <= OFFSET_MINUTES_MAX)
            .map(Offset)
            .ok_or_else(|| ScheduleError::Offset(text.chars().take(32).collect()))
    }
}

impl fmt::Display for DayTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.0.unsigned_abs();
        match self.0 {
            0 => f.write_str("UTC"),
            1.. => write!(f, "+{:02}:{:02}", minutes / 60, minutes % 60),
            _ => write!(f, "-{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

/// Serde by text, for types with `Display` and `FromStr`.
macro_rules! by_text {
    ($($name:ident),+) => {
        $(
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                }
            }
        )+
    };
}

by_text!(DayTime, Offset);

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday 2026-11-30 00:00 UTC.
    const MONDAY: u64 = 1_795_996_800_000;
    const HOUR: u64 = 3_600_000;

    fn window(days: &[Day], from: &str, to: &str) -> Window {
        Window {
            days: days.to_vec(),
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            min: 2,
        }
    }

    /// The hours of a week, from Monday, in which a window lasts.
    fn hours(window: &Window, offset: &str) -> Vec<u64> {
        let offset = offset.parse().unwrap();
        let lasts = |hour: &u64| window.contains(UnixMs(MONDAY + hour * HOUR), offset);
        (0..7 * 24).filter(lasts).collect()
    }

    #[test]
    fn windows_last_from_their_beginning_to_their_end() {
        let office = window(&[Day::Mon, Day::Fri], "08:00", "10:00");
        assert_eq!(hours(&office, "UTC"), [8, 9, 104, 105]);
        assert_eq!(hours(&office, "+01:00"), [7, 8, 103, 104]);
        assert_eq!(hours(&office, "-10:00"), [18, 19, 114, 115]);
        let night = window(&[Day::Sun], "23:00", "02:00");
        assert_eq!(hours(&night, "UTC"), [0, 1, 167]);
        let day = window(&[Day::Tue], "00:00", "00:00");
        assert_eq!(hours(&day, "UTC"), (24..48).collect::<Vec<_>>());
        assert!(!office.contains(UnixMs(u64::MAX), Offset(-840)));
        assert!(window(&[Day::Wed], "00:00", "00:00").contains(UnixMs(0), Offset(-840)));
    }

    #[test]
    fn texts_are_read_back_and_others_refused() {
        for text in ["UTC", "+01:00", "-09:30"] {
            assert_eq!(text.parse::<Offset>().unwrap().to_string(), text);
        }
        for wrong in ["", "01:00", "+14:01", "+1:00", "+01:60", "Z", "é1:00"] {
            assert!(wrong.parse::<Offset>().is_err(), "{wrong}");
        }
        assert_eq!("08:05".parse::<DayTime>().unwrap().to_string(), "08:05");
        for wrong in ["", "24:00", "8:00", "08:60", "08-00", "+8:00"] {
            assert!(wrong.parse::<DayTime>().is_err(), "{wrong}");
        }
        let office = window(&[Day::Mon, Day::Fri], "08:00", "10:00");
        assert_eq!(office.to_string(), "mon,fri 08:00-10:00");
        let json = serde_json::to_string(&office).unwrap();
        assert_eq!(serde_json::from_str::<Window>(&json).unwrap(), office);
    }
}
