//! DECIMAL as MySQL stores and prints it.

use crate::java_floats;
use crate::json_text;

/// How a DECIMAL is written.
#[derive(Clone, Copy)]
pub enum DecimalMode {
    Precise,
    Text,
    Double,
}

/// The packed form of a DECIMAL: groups of digits and the bytes that hold them, the first ones before.
pub struct PackedDecimal {
    words: Vec<(u32, usize)>,
    scale: usize,
    digits: u32,
}

/// A number of up to 320 bits without a sign, lowest part first.
type Wide = [u64; 5];
/// Nine groups of nine: a column has 65, and an expression, which a JSON document can hold, as many as MySQL computes with.
const MOST_DIGITS: i64 = 81;

enum Unscaled {
    Short(i128),
    Long(bool, Wide),
}

impl PackedDecimal {
    /// Return the form of `DECIMAL(precision, scale)`, or None when there is no such type.
    pub fn new(precision: i64, scale: i64) -> Option<PackedDecimal> {
        const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
        if !(1..=MOST_DIGITS).contains(&precision) || !(0..=precision).contains(&scale) {
            return None;
        }
        let (whole, scale) = ((precision - scale) as usize, scale as usize);
        let mut words = Vec::new();
        let mut add = |digits: usize| {
            if digits > 0 {
                words.push((digits as u32, BYTES[digits]));
            }
        };
        add(whole % 9);
        (0..whole / 9 + scale / 9).for_each(|_| add(9));
        add(scale % 9);
        Some(PackedDecimal { words, scale, digits: precision as u32 })
    }

    /// Return the bytes that a value takes.
    pub fn size(&self) -> usize {
        self.words.iter().map(|word| word.1).sum()
    }

    fn parts<'a>(&'a self, data: &'a [u8], negative: bool) -> impl Iterator<Item = (u32, u64)> + 'a {
        let mut at = 0;
        self.words.iter().enumerate().map(move |(index, &(digits, size))| {
            let mut word = data[at..at + size].iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
            at += size;
            if index == 0 {
                word ^= 1 << (8 * size - 1);
            }
            if negative {
                word ^= (1 << (8 * size)) - 1;
            }
            (digits, word)
        })
    }

    fn unscaled(&self, data: &[u8]) -> Unscaled {
        // The top bit is inverted; of negative numbers all bits are.
        let negative = data[0] & 0x80 == 0;
        // A damaged group can contain more than its digits: four bytes for seven digits, 214 times as much.
        if self.digits <= 34 {
            let sum = self
                .parts(data, negative)
                .fold(0i128, |sum, (digits, word)| sum * i128::from(10u64.pow(digits)) + i128::from(word));
            return Unscaled::Short(if negative { -sum } else { sum });
        }
        let mut sum: Wide = [0; 5];
        for (digits, word) in self.parts(data, negative) {
            let mut carry = u128::from(word);
            for limb in &mut sum {
                carry += u128::from(*limb) * u128::from(10u64.pow(digits));
                *limb = carry as u64;
                carry >>= 64;
            }
        }
        Unscaled::Long(negative && sum != [0; 5], sum)
    }

    /// Hand the unscaled number of a value to `take`, as a big-endian two's complement form.
    pub fn with_complement(&self, data: &[u8], take: impl FnOnce(&[u8])) {
        self.unscaled(data).with_complement(take);
    }

    /// Add a value without quotes; None for one that Python cannot write either.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8], mode: DecimalMode) -> Option<()> {
        let value = self.unscaled(data);
        match mode {
            DecimalMode::Precise => value.base64(out),
            DecimalMode::Text => value.text(out, self.scale),
            DecimalMode::Double => {
                let mut digits = Vec::with_capacity(80);
                value.text(&mut digits, 0);
                digits.extend_from_slice(format!("e-{}", self.scale).as_bytes());
                // Rounded to the nearest, as Python divides; zero has no sign in Python.
                let value: f64 = std::str::from_utf8(&digits).ok()?.parse().ok()?;
                java_floats::double(out, value)?;
            }
        }
        Some(())
    }
}

impl Unscaled {
    /// Add Base64 of the shortest big-endian two's complement form.
    fn base64(&self, out: &mut Vec<u8>) {
        self.with_complement(|bytes| base64_complement(out, bytes));
    }

    /// Hand a big-endian two's complement form to `take`.
    fn with_complement(&self, take: impl FnOnce(&[u8])) {
        match self {
            Unscaled::Short(value) => take(&value.to_be_bytes()),
            Unscaled::Long(negative, sum) => {
                let mut bytes = [0u8; 40];
                for (index, limb) in sum.iter().enumerate() {
                    bytes[32 - 8 * index..40 - 8 * index].copy_from_slice(&limb.to_be_bytes());
                }
                if *negative {
                    let mut carry = true;
                    for byte in bytes.iter_mut().rev() {
                        let (inverted, over) = (!*byte).overflowing_add(u8::from(carry));
                        *byte = inverted;
                        carry = over;
                    }
                }
                take(&bytes);
            }
        }
    }

    /// Add the plain text with all digits after the point.
    fn text(&self, out: &mut Vec<u8>, scale: usize) {
        let mut digits = Vec::with_capacity(80);
        let negative = match self {
            Unscaled::Short(value) => {
                match u64::try_from(value.unsigned_abs()) {
                    Ok(short) => json_text::padded(&mut digits, short, 1),
                    Err(_) => digits.extend_from_slice(value.unsigned_abs().to_string().as_bytes()),
                }
                *value < 0
            }
            Unscaled::Long(negative, sum) => {
                wide_text(&mut digits, *sum);
                *negative
            }
        };
        if negative {
            out.push(b'-');
        }
        if scale == 0 {
            out.extend_from_slice(&digits);
            return;
        }
        let whole = digits.len().saturating_sub(scale);
        if whole == 0 {
            out.push(b'0');
        }
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.resize(out.len() + scale.saturating_sub(digits.len()), b'0');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn wide_text(out: &mut Vec<u8>, mut value: Wide) {
    let mut groups = Vec::with_capacity(16);
    while value != [0; 5] {
        let mut rest = 0u128;
        for limb in value.iter_mut().rev() {
            let part = rest << 64 | u128::from(*limb);
            *limb = (part / 1_000_000_000) as u64;
            rest = part % 1_000_000_000;
        }
        groups.push(rest as u64);
    }
    let mut groups = groups.iter().rev();
    json_text::unsigned(out, *groups.next().unwrap_or(&0));
    groups.for_each(|&group| json_text::padded(out, group, 9));
}

fn base64_complement(out: &mut Vec<u8>, bytes: &[u8]) {
    json_text::base64(out, shortest_complement(bytes));
}

/// Return a number's bytes without those before its shortest two's complement form.
pub fn shortest_complement(bytes: &[u8]) -> &[u8] {
    let fill = if bytes[0] & 0x80 == 0 { 0 } else { 0xFF };
    let mut first = 0;
    while first + 1 < bytes.len() && bytes[first] == fill && (bytes[first + 1] ^ fill) & 0x80 == 0 {
        first += 1;
    }
    &bytes[first..]
}

/// Return a number of at most 70 digits.
fn parse_digits(negative: bool, digits: &[u8]) -> Unscaled {
    if digits.len() <= 36 {
        let sum = digits.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        return Unscaled::Short(if negative { -sum } else { sum });
    }
    let mut sum: Wide = [0; 5];
    for digit in digits {
        let mut carry = u128::from(digit - b'0');
        for limb in &mut sum {
            carry += u128::from(*limb) * 10;
            *limb = carry as u64;
            carry >>= 64;
        }
    }
    Unscaled::Long(negative && sum != [0; 5], sum)
}

/// Hand a number of at most 70 digits to `take`, as a big-endian two's complement form.
pub fn complement_of_digits(negative: bool, digits: &[u8], take: impl FnOnce(&[u8])) {
    parse_digits(negative, digits).with_complement(take);
}

/// Add a DECIMAL of at most 70 digits, the last `scale` of them after the point, without quotes.
pub fn decimal_digits(out: &mut Vec<u8>, negative: bool, digits: &[u8], scale: usize, mode: DecimalMode) {
    let value = parse_digits(negative, digits);
    match mode {
        DecimalMode::Precise => value.base64(out),
        DecimalMode::Text | DecimalMode::Double => value.text(out, scale),
    }
}

/// Add Base64 of an unsigned number's shortest two's complement form.
pub fn base64_unsigned(out: &mut Vec<u8>, value: u64) {
    base64_complement(out, &u128::from(value).to_be_bytes());
}
