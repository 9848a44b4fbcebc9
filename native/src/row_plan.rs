//! Decoders of row events from the plans that Python passes.

use pyo3::prelude::*;

use crate::column_renderer::ColumnRenderer;
use crate::kafka_partitions::AssignedPartitions;
use crate::key_header::{HeaderColumnPlan, KeyHeader};
use crate::row_decoder::{Column, EnvelopeTexts, RowDecoder};
use crate::row_kernel::RowKernel;
use crate::tally::Tally;
use crate::ticdc_dispatcher::{Dispatcher, DispatcherPlan};

/// A column's label, the text for NULL if it can be NULL, whether it is in the value, its constant, and its renderer: name,
/// numbers, texts.
type ColumnPlan = (Vec<u8>, Option<Vec<u8>>, bool, Option<Vec<u8>>, String, Vec<i64>, Vec<Vec<u8>>);

/// Return the decoder of a table version, or None for one with something that is not supported.
///
/// `around` has the texts before and after keys, the one that values begin with, and those before the image of an insert,
/// before another first image, and between two; then those before, between and after the members of images.
/// `binary` is true when row numbers are written as in Avro; `deletes` says whether a delete has a record, and whether it
/// has a tombstone after that; `owned` has the number of the topic's partitions and those whose rows are produced;
/// `unwrapped` is there for values that are rows alone, and says whether deletes have theirs. `headers` has how keys are written in headers; none where updates that change the key are
/// left to Python. `row_texts` returns the texts around the row number, of an event's context and the letter of an operation.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn plan(
    columns: Vec<ColumnPlan>,
    keys: Vec<usize>,
    around: Vec<Vec<u8>>,
    binary: bool,
    deletes: (bool, bool),
    tally: Py<Tally>,
    owned: Option<(u32, Vec<u32>)>,
    unwrapped: Option<bool>,
    headers: Option<Vec<HeaderColumnPlan>>,
    row_texts: Py<PyAny>,
) -> Option<RowKernel> {
    let width = columns.len();
    let mut decoder = decoder_of(columns, &keys, envelope_of(around, binary)?)?;
    decoder.assigned = owned.map(|(count, assigned)| AssignedPartitions::new(count, &assigned));
    (decoder.deletes, decoder.unwrapped) = (deletes, unwrapped);
    if let Some(headers) = headers {
        decoder.key_header = Some(KeyHeader::of(headers, width)?);
    }
    Some(RowKernel { decoder, tally, dispatcher: None, row_texts })
}

/// Return the decoder of a table version whose rows are written in TiCDC's protocol, or None for one with something that is
/// not supported.
///
/// `heads` are what keys and values begin with, `dispatcher` is its plan; the others are those of `plan`.
#[pyfunction]
pub fn flat_plan(
    columns: Vec<ColumnPlan>,
    keys: Vec<usize>,
    heads: (Vec<u8>, Vec<u8>),
    dispatcher: DispatcherPlan,
    tally: Py<Tally>,
    row_texts: Py<PyAny>,
) -> Option<RowKernel> {
    let dispatcher = Some(Dispatcher::of(dispatcher, columns.len())?);
    let mut around = vec![Vec::new(); 9];
    (around[0], around[2]) = heads;
    let decoder = decoder_of(columns, &keys, envelope_of(around, true)?)?;
    Some(RowKernel { decoder, tally, dispatcher, row_texts })
}

fn envelope_of(around: Vec<Vec<u8>>, binary: bool) -> Option<EnvelopeTexts> {
    let [key_head, key_tail, value_head, insert, before, between, open, comma, close]: [Vec<u8>; 9] =
        around.try_into().ok()?;
    Some(EnvelopeTexts { key_head, key_tail, value_head, insert, before, between, open, comma, close, binary })
}

fn decoder_of(columns: Vec<ColumnPlan>, keys: &[usize], envelope: EnvelopeTexts) -> Option<RowDecoder> {
    let mut separator: &[u8] = &[];
    let column = |(index, plan): (usize, ColumnPlan)| {
        let (label, null, in_value, constant, name, numbers, texts) = plan;
        let (layout, renderer) = ColumnRenderer::of(&name, &numbers, texts)?;
        let in_key = keys.iter().position(|&key| key == index);
        let mut lead = Vec::new();
        if in_value {
            lead = [separator, &label, constant.as_deref().unwrap_or_default()].concat();
            separator = &envelope.comma;
        }
        Some(Column { label, lead, null, in_value: in_value && constant.is_none(), in_key, layout, renderer })
    };
    let columns: Vec<Column> = columns.into_iter().enumerate().map(column).collect::<Option<_>>()?;
    if columns.is_empty() || keys.iter().any(|&key| key >= columns.len()) {
        return None;
    }
    let (assigned, deletes, unwrapped, key_header) = (None, (true, false), None, None);
    Some(RowDecoder { columns, key_columns: keys.len(), envelope, assigned, deletes, unwrapped, key_header })
}
