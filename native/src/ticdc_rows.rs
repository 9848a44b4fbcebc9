//! Rows in TiCDC's protocol: keys, values without what was before, and the partition that the dispatcher gives each.

use crate::declined::Declined;
use crate::row_decoder::{Operation, RowDecoder, Rows};
use crate::row_record::{Change, RowRecord, Take, CHANGE, NEW_KEY};
use crate::scratch::Scratch;
use crate::ticdc_dispatcher::Dispatcher;

/// Hand the records of an event to `take`, and return the number of rows.
///
/// The texts around the row number of other records follow the columns. An update that changes the key deletes the old row
/// and creates the new one.
pub fn decode(
    decoder: &RowDecoder,
    dispatcher: &Dispatcher,
    operation: Operation,
    rows: &Rows,
    scratch: &mut Scratch,
    take: &mut Take,
) -> Result<i64, Declined> {
    decoder.check_images(operation, rows)?;
    let (mut at, mut row) = (0, rows.first);
    let (mut text, mut created) = (Vec::new(), None);
    let mut partition = |at| dispatcher.partition(decoder, rows.data, at, &mut text).ok_or(Declined::Value);
    while at < rows.data.len() {
        let first = at;
        if operation == Operation::Update {
            scratch.value.clear();
            at = decoder.image(rows.data, at, scratch).ok_or(Declined::Value)?;
            std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        }
        let last = at;
        scratch.value.clear();
        scratch.value.extend_from_slice(&decoder.envelope.value_head);
        at = decoder.image(rows.data, at, scratch).ok_or(Declined::Value)?;
        let mut record = RowRecord {
            key: (decoder.key_columns > 0).then_some(scratch.key.as_slice()),
            value: None,
            row,
            number: CHANGE,
            header: None,
            partition: Some(partition(last)?),
            change: operation.change(),
        };
        let mut texts = (rows.before_number, rows.after_number);
        if operation == Operation::Update && scratch.key != scratch.other_key {
            if created.is_none() {
                created = Some((rows.texts_of)(Operation::Insert).ok_or(Declined::KeyChange)?);
            }
            let (before, after) = created.as_ref().ok_or(Declined::Defect)?;
            texts = (before, after);
            let (key, partition) = (Some(scratch.other_key.as_slice()), Some(partition(first)?));
            take(&RowRecord { key, partition, change: Change::Deleted, ..record }).ok_or(Declined::Call)?;
            (record.number, record.change) = (NEW_KEY, Change::Created);
        }
        scratch.value.extend_from_slice(texts.0);
        scratch.value.extend_from_slice(texts.1);
        record.value = (operation != Operation::Delete).then_some(&scratch.value);
        take(&record).ok_or(Declined::Call)?;
        row += 1;
    }
    Ok(row - rows.first)
}
