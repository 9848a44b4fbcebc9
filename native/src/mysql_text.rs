//! Numbers and texts as MySQL prints them in the text protocol.

/// Return a whole number of digits alone, with or without a minus.
pub fn integer(data: &[u8]) -> Option<i128> {
    let (negative, digits) = signed_digits(data)?;
    if digits.is_empty() || digits.len() > 30 {
        return None;
    }
    let size = digits.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    Some(if negative { -size } else { size })
}

/// Return a whole number that so many bits hold, with a sign or without one.
pub fn integer_of_bits(data: &[u8], bits: u32) -> Option<i64> {
    let (negative, digits) = signed_digits(data)?;
    let value = match digits.len() {
        1..=18 => {
            let size = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            if negative {
                -size
            } else {
                size
            }
        }
        _ => i64::try_from(integer(data)?).ok()?,
    };
    (bits == 64 || (-(1 << (bits - 1))..1 << bits).contains(&value)).then_some(value)
}

/// Return a whole number without a sign.
pub fn unsigned(data: &[u8]) -> Option<u64> {
    u64::try_from(integer(data)?).ok()
}

/// Return whether a whole number means true: one above zero, or one that is not zero.
pub fn is_true(data: &[u8], above_zero: bool) -> Option<bool> {
    let value = integer(data)?;
    Some(if above_zero { value > 0 } else { value != 0 })
}

/// Return whether there is a minus, and what follows it; None for anything but digits there.
fn signed_digits(data: &[u8]) -> Option<(bool, &[u8])> {
    let (negative, digits) = sign(data);
    digits.iter().all(u8::is_ascii_digit).then_some((negative, digits))
}

/// Return whether there is a minus, and what follows it.
fn sign(data: &[u8]) -> (bool, &[u8]) {
    match data.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, data),
    }
}

/// Return a number with or without point and exponent.
pub fn double(data: &[u8]) -> Option<f64> {
    let known = |byte: &u8| byte.is_ascii_digit() || b"+-.e".contains(byte);
    if !data.iter().all(known) {
        return None;
    }
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// Return a FLOAT that the SELECT gives as a double of all digits; None for one that no FLOAT is.
pub fn float(data: &[u8]) -> Option<f32> {
    let value = double(data)?;
    (f64::from(value as f32) == value).then_some(value as f32)
}

/// Return whether a DECIMAL has a minus, and its digits; None for one with fewer or more than `scale` after the point.
pub fn decimal_digits(data: &[u8], scale: usize) -> Option<(bool, Vec<u8>)> {
    let (negative, rest) = sign(data);
    let point = rest.len().checked_sub(if scale > 0 { scale + 1 } else { 0 })?;
    let mut digits = rest[..point].to_vec();
    if scale > 0 {
        if rest[point] != b'.' {
            return None;
        }
        digits.extend_from_slice(&rest[point + 1..]);
    }
    let good = !digits.is_empty() && point > 0 && digits.len() <= 70 && digits.iter().all(u8::is_ascii_digit);
    good.then_some((negative, digits))
}

/// Return a text without blanks at its end.
pub fn without_blanks(data: &[u8]) -> &[u8] {
    let end = data.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &data[..end]
}

/// Return JSON text without the blanks between its tokens.
pub fn compact_json(data: &[u8]) -> Option<Vec<u8>> {
    let mut compact = Vec::with_capacity(data.len());
    let (mut inside, mut escaped) = (false, false);
    for &byte in data {
        if inside {
            compact.push(byte);
            inside = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte != b' ' {
            // The server writes no other blanks between tokens.
            if matches!(byte, b'\t' | b'\r' | b'\n') {
                return None;
            }
            compact.push(byte);
            inside = byte == b'"';
        }
    }
    (!inside).then_some(compact)
}
