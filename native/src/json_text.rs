//! Texts as JSON has them: digits, Base64 and strings with their escapes.

/// Two digits each of 0 to 99.
const PAIRS: &[u8; 200] = b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

/// Add a number.
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Add a number with at least so many digits.
pub fn padded(out: &mut Vec<u8>, value: u64, digits: usize) {
    if value < 100 && digits == 2 {
        let pair = value as usize * 2;
        out.extend_from_slice(&[PAIRS[pair], PAIRS[pair + 1]]);
        return;
    }
    let mut buffer = itoa::Buffer::new();
    let made = buffer.format(value).as_bytes();
    for _ in made.len()..digits {
        out.push(b'0');
    }
    out.extend_from_slice(made);
}

/// Add a number that may be below zero.
pub fn signed(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Add a number of more than 64 bits.
pub fn signed_wide(out: &mut Vec<u8>, value: i128) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Add true or false.
pub fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Add what `write` adds, between quotes.
pub fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// Add bytes as Base64, with padding.
pub fn base64(out: &mut Vec<u8>, data: &[u8]) {
    base64_with(out, data, STANDARD);
}

/// Add bytes as Base64 with the alphabet for addresses, with padding.
pub fn base64_url(out: &mut Vec<u8>, data: &[u8]) {
    base64_with(out, data, URL_SAFE);
}

fn base64_with(out: &mut Vec<u8>, data: &[u8], alphabet: &[u8; 64]) {
    out.reserve(data.len().div_ceil(3) * 4);
    let chunks = data.chunks_exact(3);
    let rest = chunks.remainder();
    for three in chunks {
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        out.extend_from_slice(&[
            alphabet[(bits >> 18) as usize & 63],
            alphabet[(bits >> 12) as usize & 63],
            alphabet[(bits >> 6) as usize & 63],
            alphabet[bits as usize & 63],
        ]);
    }
    match rest {
        [one] => {
            out.extend_from_slice(&[alphabet[(one >> 2) as usize], alphabet[(one << 4) as usize & 63], b'=', b'='])
        }
        [one, two] => out.extend_from_slice(&[
            alphabet[(one >> 2) as usize],
            alphabet[(one << 4 | two >> 4) as usize & 63],
            alphabet[(two << 2) as usize & 63],
            b'=',
        ]),
        _ => {}
    }
}

/// Add bytes in hexadecimal.
pub fn hex(out: &mut Vec<u8>, data: &[u8]) {
    out.reserve(data.len() * 2);
    for byte in data {
        out.push(LOWER[usize::from(byte >> 4)]);
        out.push(LOWER[usize::from(byte & 15)]);
    }
}

fn short_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        8 => b'b',
        12 => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => return None,
    })
}

fn control(out: &mut Vec<u8>, byte: u8, digits: &[u8; 16]) {
    out.push(b'\\');
    match short_escape(byte) {
        Some(letter) => out.push(letter),
        None => {
            out.extend_from_slice(&[b'u', b'0', b'0', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]])
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Each byte of a word set to the same value.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Return how many of the first bytes of eight, the lowest being the first, are ASCII that a JSON string has as it is.
fn plain_of_word(word: u64) -> usize {
    // The top bit of a byte that is zero is set, and none below the lowest one of these.
    let zero = |word: u64| word.wrapping_sub(each(1)) & !word;
    let below_blank = word.wrapping_sub(each(0x20)) & !word;
    let other = below_blank | zero(word ^ each(b'"')) | zero(word ^ each(b'\\')) | word;
    (other & each(0x80)).trailing_zeros() as usize / 8
}

/// Return whether a JSON string has all bytes as they are, and they are below a limit.
///
/// Of a block of known size, looked at without an early end, the processor takes all bytes at a time.
fn is_plain_block(block: &[u8; 16], limit: u8) -> bool {
    let other = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte >= limit);
    !block.iter().fold(false, |any, &byte| any | other(byte))
}

/// Return how many bytes from the first one on a JSON string has as they are, and are below a limit above ASCII.
fn plain_bytes(data: &[u8], limit: u8) -> usize {
    let mut rest = data;
    while let Some((block, after)) = rest.split_first_chunk::<16>() {
        if !is_plain_block(block, limit) {
            break;
        }
        rest = after;
    }
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let plain = plain_of_word(u64::from_le_bytes(*word));
        if plain < 8 {
            rest = &rest[plain..];
            break;
        }
        rest = after;
    }
    if let (1..8, Some(last)) = (rest.len(), data.last_chunk::<8>()) {
        // Zero bytes come in after the last one, and are not plain.
        let word = u64::from_le_bytes(*last) >> (64 - 8 * rest.len());
        rest = &rest[plain_of_word(word)..];
    }
    let plain = rest.iter().position(|&byte| !is_plain(byte) || byte >= limit).unwrap_or(rest.len());
    data.len() - rest.len() + plain
}

/// Add text as the inside of a JSON string as Jackson writes it: upper case escapes, pairs of surrogates above U+FFFF.
pub fn escaped(out: &mut Vec<u8>, text: &str) {
    let data = text.as_bytes();
    let mut done = 0;
    while done < data.len() {
        let plain = plain_bytes(&data[done..], 0xF0);
        out.extend_from_slice(&data[done..done + plain]);
        done += plain;
        let Some(&byte) = data.get(done) else { break };
        if byte < 0xF0 {
            control(out, byte, UPPER);
            done += 1;
        } else {
            escaped_char(out, text[done..].chars().next().unwrap_or_default());
            done += 4;
        }
    }
}

/// Add a character as the inside of a JSON string.
pub fn escaped_char(out: &mut Vec<u8>, character: char) {
    let code = character as u32;
    if code < 0x80 {
        let byte = code as u8;
        if is_plain(byte) {
            out.push(byte);
        } else {
            control(out, byte, UPPER);
        }
    } else if code < 0x10000 {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.extend_from_slice(b"\\u");
            for shift in [12, 8, 4, 0] {
                out.push(UPPER[usize::from(*unit >> shift & 15)]);
            }
        }
    }
}

/// Add UTF-8 as the inside of a JSON string; None when it is not UTF-8.
pub fn escaped_utf8(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    let plain = plain_bytes(data, 0x80);
    out.extend_from_slice(&data[..plain]);
    if plain < data.len() {
        escaped(out, std::str::from_utf8(&data[plain..]).ok()?);
    }
    Some(())
}

/// Add UTF-8 as MySQL writes it inside the strings of JSON documents: lower case escapes, everything else as it is.
pub fn escaped_by_mysql(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    std::str::from_utf8(data).ok()?;
    let mut done = 0;
    while done < data.len() {
        // No byte of UTF-8 is as large.
        let plain = plain_bytes(&data[done..], 0xFF);
        out.extend_from_slice(&data[done..done + plain]);
        done += plain;
        if let Some(&byte) = data.get(done) {
            control(out, byte, LOWER);
            done += 1;
        }
    }
    Some(())
}

/// Return whether a JSON string has these bytes as they are: ASCII without anything to escape.
pub fn is_plain_ascii(data: &[u8]) -> bool {
    plain_bytes(data, 0x80) == data.len()
}
