//! How the values of row images are written as Avro: what `cdc/avro/avro_renderers.py` and `cdc/avro/avro_binary.py` write.

use crate::avro_binary;
use crate::avro_union::AvroUnion;
use crate::binary_json;
use crate::byte_order::{double, float, little_endian, signed_little_endian};
use crate::charset::Charset;
use crate::decimal::DecimalMode;
use crate::json_renderer::{is_true, JsonRenderer};
use crate::value_layout::Layout;

/// What a value's Avro is made of.
enum Source {
    /// The stored bytes.
    StoredBytes,
    /// Its JSON text: a whole number, or a string without escapes.
    JsonText,
    /// Its JSON text, which is a double.
    JsonDouble,
}

/// How the values of a column are written.
pub struct AvroRenderer {
    source: Source,
    /// How they are written as JSON.
    json: JsonRenderer,
    union: AvroUnion,
}

impl AvroRenderer {
    /// Return how a column lies in row images and is written, from a name `avro-stored:`, `avro-shown:` or `avro-double:`
    /// with that of its JSON renderer, whose texts follow those of `AvroUnion`; None for what is not supported.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, AvroRenderer)> {
        let (source, json) = match name.split_once(':')? {
            ("avro-stored", json) => (Source::StoredBytes, json),
            ("avro-shown", json) => (Source::JsonText, json),
            ("avro-double", json) => (Source::JsonDouble, json),
            _ => return None,
        };
        let (union, texts) = AvroUnion::split(texts)?;
        let (layout, json) = JsonRenderer::of(json, numbers, texts)?;
        let renderer = AvroRenderer { source, json, union };
        renderer.is_known().then_some((layout, renderer))
    }

    /// Return whether `write` has something for the values.
    fn is_known(&self) -> bool {
        match (&self.source, &self.json) {
            (Source::JsonText | Source::JsonDouble, _) => true,
            (Source::StoredBytes, JsonRenderer::Ticdc(renderer)) => !renderer.is_text(),
            (Source::StoredBytes, JsonRenderer::Geometry | JsonRenderer::Point | JsonRenderer::Vector) => false,
            (Source::StoredBytes, json) => !matches!(json, JsonRenderer::Year | JsonRenderer::Temporal(..)),
        }
    }

    /// Add a value; None for what Avro, or the column, cannot hold.
    #[inline(never)]
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self.source {
            Source::StoredBytes => self.stored(out, data),
            Source::JsonText => self.json_text(out, data),
            Source::JsonDouble => {
                let mut text = Vec::with_capacity(32);
                self.json.write(&mut text, data)?;
                out.extend_from_slice(&self.union.branch);
                avro_binary::double(out, std::str::from_utf8(&text).ok()?.parse().ok()?)
            }
        }
    }

    fn json_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let mut text = Vec::with_capacity(64);
        self.json.write(&mut text, data)?;
        if let Some(substitute) = self.union.substitute(&text) {
            out.extend_from_slice(substitute);
            return Some(());
        }
        out.extend_from_slice(&self.union.branch);
        if text.first() == Some(&b'"') {
            let inside = text.get(1..text.len() - 1)?;
            avro_binary::bytes(out, inside);
            return (!inside.contains(&b'\\')).then_some(());
        }
        avro_binary::long(out, std::str::from_utf8(&text).ok()?.parse().ok()?);
        Some(())
    }

    fn stored(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        if let JsonRenderer::Enum(texts) = &self.json {
            // The texts begin with the branch.
            out.extend_from_slice(texts.get(little_endian(data) as usize)?);
            return Some(());
        }
        out.extend_from_slice(&self.union.branch);
        match &self.json {
            JsonRenderer::Signed => avro_binary::long(out, signed_little_endian(data)),
            JsonRenderer::Unsigned => avro_binary::long(out, i64::try_from(little_endian(data)).ok()?),
            JsonRenderer::Boolean { signed, above_zero } => {
                avro_binary::boolean(out, is_true(data, *signed, *above_zero))
            }
            JsonRenderer::UnsignedBase64 => avro_binary::decimal(out, &u128::from(little_endian(data)).to_be_bytes()),
            JsonRenderer::Decimal(packed, DecimalMode::Precise) => {
                packed.with_complement(data, |bytes| avro_binary::decimal(out, bytes))
            }
            JsonRenderer::Float => return avro_binary::float(out, float(data)),
            JsonRenderer::FloatAsDouble => return avro_binary::double(out, f64::from(float(data))),
            JsonRenderer::Double => return avro_binary::double(out, double(data)),
            JsonRenderer::DoubleAsFloat => return avro_binary::float(out, double(data) as f32),
            JsonRenderer::Bit => {
                out.push(data[0]);
                return (data[0] < 2).then_some(());
            }
            JsonRenderer::Bits => avro_binary::bits(out, data),
            JsonRenderer::Ticdc(renderer) => return renderer.write_avro(out, data),
            JsonRenderer::Set(members) => return set(out, members, little_endian(data)),
            JsonRenderer::Binary { pad, .. } => {
                // The server cuts trailing zero bytes of BINARY(n) in row images.
                let size = data.len().max(*pad);
                avro_binary::long(out, size as i64);
                out.extend_from_slice(data);
                out.resize(out.len() + size - data.len(), 0);
            }
            JsonRenderer::Text(Charset::Utf8) => return avro_binary::string(out, data),
            JsonRenderer::Text(charset) => {
                let mut text = Vec::with_capacity(data.len());
                charset.write_plain(&mut text, data)?;
                avro_binary::bytes(out, &text);
            }
            JsonRenderer::WideChar(charset) => {
                let mut text = Vec::with_capacity(data.len());
                charset.write_plain_fixed(&mut text, data)?;
                avro_binary::bytes(out, &text);
            }
            JsonRenderer::Json => {
                let mut document = Vec::with_capacity(2 * data.len());
                binary_json::document(&mut document, data)?;
                avro_binary::bytes(out, &document);
            }
            _ => return None,
        }
        Some(())
    }
}

fn set(out: &mut Vec<u8>, members: &[Vec<u8>], mask: u64) -> Option<()> {
    if members.len() < 64 && mask >> members.len() != 0 {
        return None;
    }
    let chosen = || members.iter().take(64).enumerate().filter(|(index, _)| mask >> index & 1 == 1);
    let size: usize = chosen().map(|(_, member)| member.len() + 1).sum();
    avro_binary::long(out, size.saturating_sub(1) as i64);
    for (place, (_, member)) in chosen().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
    Some(())
}
