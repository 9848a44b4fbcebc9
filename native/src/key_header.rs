//! Keys as Connect's SimpleHeaderConverter prints them: headers of records of an update that changes the key.
//!
//! What `header_text` of `cdc/decode/codegen/decode_error.py` writes.

use crate::json_renderer::JsonRenderer;

pub const NEW_KEY_HEADER: &str = "__debezium.newkey";
pub const OLD_KEY_HEADER: &str = "__debezium.oldkey";

/// A column of the key: its index, its quoted name with a colon, the text of NULL, whether its JSON strings are written
/// without quotes, and its renderer as JSON: name, numbers, texts.
pub type HeaderColumnPlan = (usize, Vec<u8>, Vec<u8>, bool, String, Vec<i64>, Vec<Vec<u8>>);

struct HeaderColumn {
    index: usize,
    label: Vec<u8>,
    null: Vec<u8>,
    bare: bool,
    renderer: JsonRenderer,
}

/// Writes the key of a row image, in key order.
pub struct KeyHeader {
    columns: Vec<HeaderColumn>,
}

impl KeyHeader {
    /// Return what writes the keys of a table with so many columns; None for one with something that is not supported.
    pub fn of(columns: Vec<HeaderColumnPlan>, width: usize) -> Option<KeyHeader> {
        let column = |(index, label, null, bare, name, numbers, texts): HeaderColumnPlan| {
            let (_, renderer) = JsonRenderer::of(&name, &numbers, texts)?;
            (index < width).then_some(HeaderColumn { index, label, null, bare, renderer })
        };
        Some(KeyHeader { columns: columns.into_iter().map(column).collect::<Option<_>>()? })
    }

    /// Put the key of an image into a buffer, whatever was in it; `values` are those of all columns, none for NULL.
    pub fn write(&self, values: &[Option<&[u8]>], out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        let mut text = Vec::new();
        for (place, column) in self.columns.iter().enumerate() {
            out.push(if place == 0 { b'{' } else { b',' });
            out.extend_from_slice(&column.label);
            let Some(value) = values[column.index] else {
                out.extend_from_slice(&column.null);
                continue;
            };
            text.clear();
            column.renderer.write(&mut text, value)?;
            match text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
                None => out.extend_from_slice(&text),
                Some(inside) if column.bare => out.extend_from_slice(inside),
                Some(inside) => {
                    out.push(b'"');
                    unescaped(out, inside)?;
                    out.push(b'"');
                }
            }
        }
        out.push(b'}');
        Some(())
    }
}

/// Add the inside of a JSON string in UTF-8, with no escapes but those of quote and backslash.
fn unescaped(out: &mut Vec<u8>, json: &[u8]) -> Option<()> {
    let mut rest = json;
    while let Some(plain) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..plain]);
        let letter = *rest.get(plain + 1)?;
        let escape = &rest[plain..];
        rest = &rest[plain + 2..];
        match letter {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut units = vec![code_unit(escape)?];
                if (0xD800..0xDC00).contains(&units[0]) {
                    units.push(code_unit(&escape[6..])?);
                }
                out.extend_from_slice(String::from_utf16(&units).ok()?.as_bytes());
                rest = &escape[6 * units.len()..];
            }
            _ => out.extend_from_slice(&escape[..2]),
        }
    }
    out.extend_from_slice(rest);
    Some(())
}

/// Return the number in an escape `\uXXXX` that these bytes begin with.
fn code_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
