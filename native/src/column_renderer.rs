//! How the values of a row image's columns are written: as JSON or as Avro.

use crate::avro_renderer::AvroRenderer;
use crate::json_renderer::JsonRenderer;
use crate::value_layout::Layout;

/// How the values of a column are written.
pub enum ColumnRenderer {
    Json(JsonRenderer),
    Avro(Box<AvroRenderer>),
}

impl ColumnRenderer {
    /// Return how a column lies in row images and is written, from the name of its renderer with numbers and texts; None
    /// for what is not supported.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, ColumnRenderer)> {
        if name.starts_with("avro-") {
            let (layout, renderer) = AvroRenderer::of(name, numbers, texts)?;
            return Some((layout, ColumnRenderer::Avro(Box::new(renderer))));
        }
        let (layout, renderer) = JsonRenderer::of(name, numbers, texts)?;
        Some((layout, ColumnRenderer::Json(renderer)))
    }

    /// Add the JSON text, or the bytes in Avro, of a value; None for what has none.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            ColumnRenderer::Json(renderer) => renderer.write(out, data),
            ColumnRenderer::Avro(renderer) => renderer.write(out, data),
        }
    }
}
