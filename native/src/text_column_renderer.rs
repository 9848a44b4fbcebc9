//! How the values of the text protocol's columns are written: as JSON or as Avro.

use crate::text_avro_renderer::TextAvroRenderer;
use crate::text_json_renderer::TextJsonRenderer;

/// How the values of a column are written.
pub enum TextColumnRenderer {
    Json(TextJsonRenderer),
    Avro(Box<TextAvroRenderer>),
}

impl TextColumnRenderer {
    /// Return how a column's values are written, from the name of their renderer with numbers and texts; None for what is
    /// not supported.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<TextColumnRenderer> {
        if name.starts_with("avro-") {
            return Some(TextColumnRenderer::Avro(Box::new(TextAvroRenderer::of(name, numbers, texts)?)));
        }
        Some(TextColumnRenderer::Json(TextJsonRenderer::of(name, numbers, texts)?))
    }

    /// Add the JSON text, or the bytes in Avro, of a value; None for what has none, or is not as the server writes it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            TextColumnRenderer::Json(renderer) => renderer.write(out, data),
            TextColumnRenderer::Avro(renderer) => renderer.write(out, data),
        }
    }
}
