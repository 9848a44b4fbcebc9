//! Character sets.

use std::sync::{Arc, Mutex, PoisonError};

use crate::json_text;

/// A character's text inside a JSON string by byte; none for a byte that is an error.
type Table = Arc<Vec<Option<Box<[u8]>>>>;

/// The tables in use: those of a character set are the same for all columns. MySQL has 27 of them.
static TABLES: Mutex<Vec<Table>> = Mutex::new(Vec::new());
const MOST_TABLES: usize = 64;

fn shared(made: Vec<Option<Box<[u8]>>>) -> Table {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = tables.iter().find(|table| ***table == made) {
        return Arc::clone(known);
    }
    if tables.len() >= MOST_TABLES {
        tables.clear();
    }
    tables.push(Arc::new(made));
    Arc::clone(&tables[tables.len() - 1])
}

/// How bytes are decoded to characters.
pub enum Charset {
    Utf8,
    Table(Table),
    Utf16 { little: bool },
    Utf32,
}

impl Charset {
    /// Return a character set; a table has the text of each byte, empty for one that is an error.
    pub fn new(name: &str, texts: Vec<Vec<u8>>) -> Option<Charset> {
        Some(match name {
            "utf8" => Charset::Utf8,
            "utf16" => Charset::Utf16 { little: false },
            "utf16le" => Charset::Utf16 { little: true },
            "utf32" => Charset::Utf32,
            "table" if texts.len() == 256 => {
                let entry = |text: Vec<u8>| (!text.is_empty()).then(|| text.into_boxed_slice());
                Charset::Table(shared(texts.into_iter().map(entry).collect()))
            }
            _ => return None,
        })
    }

    /// Add bytes as the inside of a JSON string; None when they are not well formed.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            Charset::Utf8 => return json_text::escaped_utf8(out, data),
            Charset::Table(_) if json_text::is_plain_ascii(data) && self.has_ascii() => out.extend_from_slice(data),
            Charset::Table(table) => {
                for &byte in data {
                    out.extend_from_slice(table[usize::from(byte)].as_deref()?);
                }
            }
            Charset::Utf16 { .. } | Charset::Utf32 => {
                for character in self.characters(data)? {
                    json_text::escaped_char(out, character);
                }
            }
        }
        Some(())
    }

    /// Add a CHAR of two or four bytes a character: the server cuts trailing 0x20 bytes, also half of a character.
    pub fn write_fixed(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        self.fixed(data)?.into_iter().for_each(|character| json_text::escaped_char(out, character));
        Some(())
    }

    /// Add bytes as UTF-8; None when they are not well formed. The texts of a table are taken as they are.
    pub fn write_plain(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            Charset::Utf8 => out.extend_from_slice(std::str::from_utf8(data).ok()?.as_bytes()),
            Charset::Table(_) => return self.write(out, data),
            Charset::Utf16 { .. } | Charset::Utf32 => plain(out, self.characters(data)?),
        }
        Some(())
    }

    /// Add a CHAR of two or four bytes a character as UTF-8.
    pub fn write_plain_fixed(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        plain(out, self.fixed(data)?);
        Some(())
    }

    fn fixed(&self, data: &[u8]) -> Option<Vec<char>> {
        let unit = if matches!(self, Charset::Utf32) { 4 } else { 2 };
        let mut whole = data.to_vec();
        whole.resize(data.len().next_multiple_of(unit), b' ');
        let mut characters = self.characters(&whole)?;
        while characters.last() == Some(&' ') {
            characters.pop();
        }
        Some(characters)
    }

    fn has_ascii(&self) -> bool {
        matches!(self, Charset::Table(table) if table[usize::from(b'[')].as_deref() == Some(b"["))
    }

    fn characters(&self, data: &[u8]) -> Option<Vec<char>> {
        match self {
            Charset::Utf16 { little } => {
                let units = data.chunks_exact(2);
                if !units.remainder().is_empty() {
                    return None;
                }
                let unit = |pair: &[u8]| {
                    let pair = [pair[0], pair[1]];
                    if *little {
                        u16::from_le_bytes(pair)
                    } else {
                        u16::from_be_bytes(pair)
                    }
                };
                char::decode_utf16(units.map(unit)).collect::<Result<_, _>>().ok()
            }
            Charset::Utf32 => {
                let codes = data.chunks_exact(4);
                if !codes.remainder().is_empty() {
                    return None;
                }
                codes.map(|four| char::from_u32(u32::from_be_bytes(four.try_into().ok()?))).collect()
            }
            Charset::Utf8 | Charset::Table(_) => None,
        }
    }
}

fn plain(out: &mut Vec<u8>, characters: Vec<char>) {
    for character in characters {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
