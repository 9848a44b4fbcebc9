//! Days, times of day and fractions as MySQL stores and prints them.

use crate::byte_order::big_endian;
use crate::json_text;

const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAYS_OF_MONTH: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Return the bytes that hold a fraction of so many digits.
pub fn fraction_bytes(digits: usize) -> usize {
    digits.div_ceil(2)
}

/// A day as MySQL stores it: `0000-00-00`, and each day without year, month or day of the month, is zero.
pub enum Day {
    Zero,
    Of { year: i64, month: i64, day: i64 },
}

/// Return a day, years adjusted; None for one that no calendar has.
pub fn day_of(year: i64, month: i64, day: i64, adjust: bool) -> Option<Day> {
    if year == 0 || month == 0 || day == 0 {
        return Some(Day::Zero);
    }
    let year = if adjust && year < 100 { year + if year < 70 { 2000 } else { 1900 } } else { year };
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let longest = DAYS_OF_MONTH.get(month as usize - 1)? + i64::from(leap && month == 2);
    (day <= longest).then_some(Day::Of { year, month, day })
}

/// Return the days since 1970-01-01 of a day in the Gregorian calendar.
pub fn epoch_days(year: i64, month: i64, day: i64) -> i64 {
    let (y, leap) = (year - 1, (year % 4 == 0 && year % 100 != 0) || year % 400 == 0);
    let before = DAYS_BEFORE_MONTH[month as usize - 1] + i64::from(leap && month > 2);
    y * 365 + y / 4 - y / 100 + y / 400 + before + day - 719_163
}

/// Return year, month and day of a number of days since 1970-01-01.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

/// Add `YYYY-MM-DD`.
pub fn date(out: &mut Vec<u8>, (year, month, day): (i64, i64, i64)) {
    json_text::padded(out, year as u64, 4);
    out.push(b'-');
    json_text::padded(out, month as u64, 2);
    out.push(b'-');
    json_text::padded(out, day as u64, 2);
}

/// Add `hh:mm:ss`.
pub fn clock(out: &mut Vec<u8>, hours: i64, minutes: i64, seconds: i64) {
    json_text::padded(out, hours as u64, 2);
    out.push(b':');
    json_text::padded(out, minutes as u64, 2);
    out.push(b':');
    json_text::padded(out, seconds as u64, 2);
}

/// Remove zeros at the end of a fraction that begins after `from`, and its point when nothing is left.
pub fn without_zeros(out: &mut Vec<u8>, from: usize) {
    if out[from..].contains(&b'.') {
        while out.last() == Some(&b'0') {
            out.pop();
        }
        if out.last() == Some(&b'.') {
            out.pop();
        }
    }
}

/// Add `.f` with so many digits; None for a stored fraction that they cannot hold.
pub fn dot_fraction(out: &mut Vec<u8>, digits: usize, stored: i64) -> Option<()> {
    let size = fraction_bytes(digits);
    if size == 0 {
        return Some(());
    }
    if size < 3 && stored >= 100i64.pow(size as u32) {
        return None;
    }
    out.push(b'.');
    let from = out.len();
    match digits {
        6 => json_text::padded(out, stored as u64, 6),
        5 => json_text::padded(out, stored as u64 / 10, 5),
        // An odd number of digits is stored as if it were one digit more.
        _ => {
            json_text::padded(out, stored as u64, 2 * size);
            out.truncate(from + digits);
        }
    }
    Some(())
}

/// Return the microseconds of a TIME2 with so many digits.
pub fn packed_micros(data: &[u8], digits: usize) -> i64 {
    packed_units(data, digits, 1_000_000)
}

/// Return the time of a TIME2 with so many digits, in units of which a second has `unit`.
pub fn packed_units(data: &[u8], digits: usize, unit: i64) -> i64 {
    let bits = 8 * fraction_bytes(digits);
    let value = big_endian(data) - (0x80_0000 << bits);
    let size = value.abs();
    let whole = size >> bits;
    let fraction = size - (whole << bits);
    let seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 0x3F) * 60 + (whole & 0x3F);
    let parts = 100i64.pow(fraction_bytes(digits) as u32);
    let units = seconds * unit + fraction * unit / parts;
    if value < 0 {
        -units
    } else {
        units
    }
}

/// Return the seconds of a TIME of MySQL 5.5: `[-]hhhmmss` as a number.
pub fn old_seconds(value: i64) -> i64 {
    let size = value.abs();
    let seconds = size / 10_000 * 3600 + size / 100 % 100 * 60 + size % 100;
    if value < 0 {
        -seconds
    } else {
        seconds
    }
}

/// Return a number of digits alone.
pub fn digits_of(data: &[u8]) -> Option<i64> {
    let good = !data.is_empty() && data.len() <= 9 && data.iter().all(u8::is_ascii_digit);
    good.then(|| data.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

/// Return year, month and day of `YYYY-MM-DD`.
pub fn day_text(data: &[u8]) -> Option<(i64, i64, i64)> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = data else { return None };
    Some((digits_of(&[y1, y2, y3, y4])?, digits_of(&[m1, m2])?, digits_of(&[d1, d2])?))
}
