//! Dates and times as `time.precision.mode` has them.

use crate::byte_order::big_endian;
use crate::calendar::{
    civil, clock, date, day_of, day_text, digits_of, dot_fraction, epoch_days, fraction_bytes, old_seconds,
    packed_units, without_zeros, Day,
};
use crate::json_text;

const NANO: i64 = 1_000_000_000;
const DAY_MICROS: i64 = 86_400_000_000;

/// How the values of a column of a temporal type are written.
pub struct TemporalFormat {
    /// Fraction digits.
    pub digits: usize,
    /// Units a second; 0 for ISO texts.
    pub unit: i64,
    /// Whether years 1 to 99 count as 1970 to 2069.
    pub adjust: bool,
    pub nullable: bool,
    /// Text in place of MySQL's zero dates.
    pub zero: Box<[u8]>,
    pub null: Box<[u8]>,
    /// How a TIME is written in a mode that only allows times of day: none, milliseconds, or a text.
    pub time_of_day: TimeOfDay,
}

#[derive(Clone, Copy, PartialEq)]
pub enum TimeOfDay {
    No,
    Millis,
    Text,
}

impl TemporalFormat {
    /// Return what a column is written as, from numbers: digits, units a second (0 for ISO texts), whether two-digit
    /// years are adjusted, whether the column may be NULL, and what a TIME of a time of day is (0 none, 1 milliseconds,
    /// 2 text); and texts: of zero dates, and of NULL. None for others.
    pub fn new(numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<TemporalFormat> {
        let &[digits, unit, adjust, nullable, time_of_day] = numbers else { return None };
        let [zero, null]: [Vec<u8>; 2] = texts.try_into().ok()?;
        if ![0, 1_000, 1_000_000, 1_000_000_000].contains(&unit) {
            return None;
        }
        Some(TemporalFormat {
            digits: usize::try_from(digits).ok().filter(|&digits| digits <= 6)?,
            unit,
            adjust: adjust != 0,
            nullable: nullable != 0,
            zero: zero.into_boxed_slice(),
            null: null.into_boxed_slice(),
            time_of_day: match time_of_day {
                0 => TimeOfDay::No,
                1 => TimeOfDay::Millis,
                2 => TimeOfDay::Text,
                _ => return None,
            },
        })
    }

    /// Add a DATE from its text.
    pub fn date_of_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let (year, month, day) = day_text(data)?;
        self.day(out, day_of(year, month, day, self.adjust)?);
        Some(())
    }

    /// Add a DATETIME from its text, with as many digits after the point as the column has.
    pub fn datetime_of_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let (head, rest) = data.split_at_checked(10)?;
        let (time, fraction) = rest.split_at_checked(9)?;
        let (year, month, day) = day_text(head)?;
        let &[b' ', h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
        let (hours, minutes, seconds) = (digits_of(&[h1, h2])?, digits_of(&[m1, m2])?, digits_of(&[s1, s2])?);
        let stored = match fraction.split_first() {
            None if self.digits == 0 => 0,
            Some((b'.', digits)) if digits.len() == self.digits => digits_of(digits)?,
            _ => return None,
        };
        if minutes > 59 || seconds > 59 {
            return None;
        }
        let Day::Of { year, month, day } = day_of(year, month, day, self.adjust)? else {
            out.extend_from_slice(&self.zero);
            return Some(());
        };
        if self.unit == 0 {
            out.push(b'"');
            let from = out.len();
            date(out, (year, month, day));
            out.push(b'T');
            out.extend_from_slice(&data[11..]);
            without_zeros(out, from);
            out.extend_from_slice(b"Z\"");
            return Some(());
        }
        let parts = 10i64.pow(self.digits as u32);
        let part = if self.unit >= parts { stored * (self.unit / parts) } else { stored / (parts / self.unit) };
        let whole = (epoch_days(year, month, day) * 24 + hours) * 3600 + minutes * 60 + seconds;
        let value = i128::from(whole) * i128::from(self.unit) + i128::from(part);
        if self.unit == NANO {
            return self.number(out, value);
        }
        json_text::signed_wide(out, value);
        Some(())
    }

    /// Add a TIMESTAMP from its text in UTC.
    pub fn timestamp_of_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        if data.len() < 19 {
            return None;
        }
        if data.starts_with(b"0000") {
            out.extend_from_slice(&self.zero);
            return Some(());
        }
        out.push(b'"');
        out.extend_from_slice(&data[..10]);
        out.push(b'T');
        out.extend_from_slice(&data[11..]);
        out.extend_from_slice(b"Z\"");
        Some(())
    }

    /// Add a TIME from `[-]hh:mm:ss[.f]`.
    pub fn time_of_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let (negative, rest) = match data.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, data),
        };
        let mut parts = rest.splitn(3, |&byte| byte == b':');
        let (hours, minutes) = (digits_of(parts.next()?)?, digits_of(parts.next()?)?);
        let mut ends = parts.next()?.splitn(2, |&byte| byte == b'.');
        let seconds = digits_of(ends.next()?)?;
        if hours > 9999 || minutes > 59 || seconds > 59 {
            return None;
        }
        let unit = if self.time_of_day == TimeOfDay::No { self.unit } else { 1_000_000 };
        let mut units = (hours * 3600 + minutes * 60 + seconds) * unit;
        if let Some(fraction) = ends.next() {
            units += digits_of(fraction).filter(|_| fraction.len() <= 6)? * unit / 10i64.pow(fraction.len() as u32);
        }
        self.time_value(out, if negative { -units } else { units })
    }

    fn day(&self, out: &mut Vec<u8>, found: Day) {
        match found {
            Day::Zero => out.extend_from_slice(&self.zero),
            Day::Of { year, month, day } if self.unit == 0 => {
                out.push(b'"');
                date(out, (year, month, day));
                out.extend_from_slice(b"Z\"");
            }
            Day::Of { year, month, day } => json_text::signed(out, epoch_days(year, month, day)),
        }
    }

    fn scaled(&self, stored: i64) -> i64 {
        let parts = 100i64.pow(fraction_bytes(self.digits) as u32);
        if self.unit >= parts {
            stored * (self.unit / parts)
        } else {
            stored / (parts / self.unit)
        }
    }

    fn number(&self, out: &mut Vec<u8>, value: i128) -> Option<()> {
        match i64::try_from(value) {
            Ok(short) => json_text::signed(out, short),
            // Python writes null for it, and reports it.
            Err(_) => return None,
        }
        Some(())
    }

    /// Add a DATE: days since the epoch, or an ISO text.
    pub fn date(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let packed = i64::from(data[0]) | i64::from(data[1]) << 8 | i64::from(data[2]) << 16;
        self.day(out, day_of(packed >> 9, packed >> 5 & 15, packed & 31, self.adjust)?);
        Some(())
    }

    /// Add a DATETIME2: a number, or an ISO text.
    pub fn datetime(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let packed = big_endian(&data[..5]);
        let stored = big_endian(&data[5..]);
        let months = packed >> 22 & 0x1FFFF;
        let found = day_of(months / 13, months % 13, packed >> 17 & 31, self.adjust)?;
        let Day::Of { year, month, day } = found else {
            out.extend_from_slice(&self.zero);
            return Some(());
        };
        let (hours, minutes, seconds) = (packed >> 12 & 31, packed >> 6 & 63, packed & 63);
        if self.unit == 0 {
            out.push(b'"');
            let from = out.len();
            date(out, (year, month, day));
            out.push(b'T');
            clock(out, hours, minutes, seconds);
            dot_fraction(out, self.digits, stored)?;
            without_zeros(out, from);
            out.extend_from_slice(b"Z\"");
            return Some(());
        }
        let whole = (epoch_days(year, month, day) * 24 + hours) * 3600 + minutes * 60 + seconds;
        let value = i128::from(whole) * i128::from(self.unit) + i128::from(self.scaled(stored));
        if self.unit == NANO {
            return self.number(out, value);
        }
        json_text::signed_wide(out, value);
        Some(())
    }

    /// Add a TIMESTAMP of seconds and a stored fraction.
    pub fn timestamp(&self, out: &mut Vec<u8>, seconds: i64, fraction: &[u8]) -> Option<()> {
        let stored = big_endian(fraction);
        // 0000-00-00 is stored as second 0; MySQL accepts no other TIMESTAMP before 1970-01-01 00:00:01.
        if seconds == 0 && stored == 0 {
            out.extend_from_slice(&self.zero);
            return Some(());
        }
        out.push(b'"');
        self.moment(out, seconds);
        dot_fraction(out, self.digits, stored)?;
        out.extend_from_slice(b"Z\"");
        Some(())
    }

    fn moment(&self, out: &mut Vec<u8>, seconds: i64) {
        let (day, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        date(out, civil(day));
        out.push(b'T');
        clock(out, rest / 3600, rest / 60 % 60, rest % 60);
    }

    /// Add a TIMESTAMP2.
    pub fn timestamp2(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        self.timestamp(out, big_endian(&data[..4]), &data[4..])
    }

    /// Add a TIME2.
    pub fn time(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let unit = if self.time_of_day == TimeOfDay::No { self.unit } else { 1_000_000 };
        self.time_value(out, packed_units(data, self.digits, unit))
    }

    fn time_value(&self, out: &mut Vec<u8>, value: i64) -> Option<()> {
        match self.time_of_day {
            // Only milliseconds are for a type of 32 bits; Python names what does not fit.
            TimeOfDay::No if self.unit != 1_000 || i32::try_from(value).is_ok() => json_text::signed(out, value),
            TimeOfDay::No => return None,
            TimeOfDay::Millis if (0..=DAY_MICROS).contains(&value) => json_text::signed(out, value / 1000),
            TimeOfDay::Text if (0..DAY_MICROS).contains(&value) => {
                let (seconds, micros) = (value / 1_000_000, value % 1_000_000);
                out.push(b'"');
                let from = out.len();
                clock(out, seconds / 3600, seconds / 60 % 60, seconds % 60);
                if self.digits > 0 {
                    out.push(b'.');
                    let at = out.len();
                    json_text::padded(out, micros as u64, 6);
                    out.truncate(at + self.digits);
                }
                without_zeros(out, from);
                out.extend_from_slice(b"Z\"");
            }
            // Python writes null for a time outside of a day, and reports it.
            _ => return None,
        }
        Some(())
    }

    /// Add a DATETIME of MySQL 5.5: `YYYYMMDDhhmmss` as a number.
    pub fn old_datetime(&self, out: &mut Vec<u8>, value: u64) -> Option<()> {
        let (day, time) = ((value / 1_000_000) as i64, (value % 1_000_000) as i64);
        let found = day_of(day / 10_000, day / 100 % 100, day % 100, self.adjust)?;
        let Day::Of { year, month, day } = found else {
            out.extend_from_slice(&self.zero);
            return Some(());
        };
        let seconds = epoch_days(year, month, day) * 86_400 + time / 10_000 * 3600 + time / 100 % 100 * 60 + time % 100;
        if self.unit == 0 {
            out.push(b'"');
            self.moment(out, seconds);
            out.extend_from_slice(b"Z\"");
            return Some(());
        }
        self.number(out, i128::from(seconds) * i128::from(self.unit))
    }

    /// Add a TIME of MySQL 5.5: `[-]hhhmmss` as a number.
    pub fn old_time(&self, out: &mut Vec<u8>, value: i64) -> Option<()> {
        let unit = if self.time_of_day == TimeOfDay::No { self.unit } else { 1_000_000 };
        self.time_value(out, old_seconds(value) * unit)
    }
}
