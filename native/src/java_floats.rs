//! FLOAT and DOUBLE as Java prints them, which Debezium writes.

use crate::json_text;

/// Add a double as Java's `Double.toString` of JDK 19 and later writes it; None for what MySQL does not store.
pub fn double(out: &mut Vec<u8>, value: f64) -> Option<()> {
    if !value.is_finite() {
        return None;
    }
    let size = value.abs();
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        // Shortest digits, without an exponent in this range.
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
        return Some(());
    }
    if value < 0.0 {
        out.push(b'-');
    }
    notation(out, ryu::Buffer::new().format_finite(size), size);
    Some(())
}

/// Add the nearest 4-byte float of a double as Java prints it; None when the double is too large.
pub fn double_as_float(out: &mut Vec<u8>, value: f64) -> Option<()> {
    float(out, value as f32)
}

/// Add a float as Java's `Float.toString` of JDK 19 and later writes it; None for what MySQL does not store.
pub fn float(out: &mut Vec<u8>, value: f32) -> Option<()> {
    if !value.is_finite() {
        return None;
    }
    if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0.0" } else { b"0.0" });
        return Some(());
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let size = value.abs();
    notation(out, &shortest(size), f64::from(size));
    Some(())
}

/// Return the shortest correctly rounded decimal that reads back as the same float.
fn shortest(value: f32) -> String {
    let wide = f64::from(value);
    let least = if value < f32::MIN_POSITIVE { 1 } else { 6 };
    for digits in least..9usize {
        let text = format!("{wide:.*e}", digits - 1);
        if text.parse::<f64>().is_ok_and(|read| read as f32 == value) {
            return text;
        }
    }
    format!("{wide:.8e}")
}

/// Add Java's notation of a positive decimal in the form `d.ddde-n`.
fn notation(out: &mut Vec<u8>, decimal: &str, value: f64) {
    let (mut digits, mut exponent) = significant_digits(decimal);
    if digits.len() == 1 {
        // Java looks for the closest decimal of two digits where one would do.
        (digits, exponent) = significant_digits(&format!("{value:.1e}"));
    }
    let count = digits.len() as i32;
    let push = |out: &mut Vec<u8>, range: &[u8]| out.extend_from_slice(range);
    if (-3..0).contains(&exponent) {
        push(out, b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        push(out, &digits);
    } else if (0..7).contains(&exponent) {
        digits.resize(digits.len().max(exponent as usize + 1), b'0');
        push(out, &digits[..exponent as usize + 1]);
        out.push(b'.');
        push(out, if count > exponent + 1 { &digits[exponent as usize + 1..] } else { b"0" });
    } else {
        out.push(digits[0]);
        out.push(b'.');
        push(out, if count > 1 { &digits[1..] } else { b"0" });
        out.push(b'E');
        json_text::signed(out, i64::from(exponent));
    }
}

/// Return a decimal's digits without leading and trailing zeros, and the exponent of the first one.
pub fn significant_digits(decimal: &str) -> (Vec<u8>, i32) {
    let (mantissa, exponent) = decimal.split_once('e').unwrap_or((decimal, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = whole.bytes().chain(fraction.bytes()).take_while(|&digit| digit == b'0').count();
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).skip(zeros).collect();
    while digits.len() > 1 && digits.last() == Some(&b'0') {
        digits.pop();
    }
    let exponent: i32 = exponent.parse().unwrap_or(0);
    (digits, exponent + whole.len() as i32 - 1 - zeros as i32)
}
