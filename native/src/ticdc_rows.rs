//! Rows in TiCDC's protocol: keys, values without what was before, and the partition that the dispatcher gives each.

use crate::declined::Declined;
use crate::row_decoder::{Operation, RowDecoder, Rows};
use crate::scratch::Scratch;
use crate::ticdc_dispatcher::Dispatcher;

/// Receives the key, the value, the row number and the partition of a record; None when it cannot.
pub type TakeWithPartition<'a> = dyn FnMut(Option<&[u8]>, Option<&[u8]>, i64, u32) -> Option<()> + 'a;

/// Hand the records of an event to `take`, and return the number of rows.
///
/// The texts around the row number of other records follow the columns.
pub fn decode(
    decoder: &RowDecoder,
    dispatcher: &Dispatcher,
    operation: Operation,
    rows: &Rows,
    scratch: &mut Scratch,
    take: &mut TakeWithPartition,
) -> Result<i64, Declined> {
    decoder.check_images(operation, rows)?;
    let (mut at, mut number) = (0, rows.first);
    let mut text = Vec::new();
    while at < rows.data.len() {
        if operation == Operation::Update {
            scratch.value.clear();
            at = decoder.image(rows.data, at, scratch).ok_or(Declined::Value)?;
            std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        }
        let from = at;
        scratch.value.clear();
        scratch.value.extend_from_slice(&decoder.envelope.value_head);
        at = decoder.image(rows.data, at, scratch).ok_or(Declined::Value)?;
        if operation == Operation::Update && scratch.key != scratch.other_key {
            return Err(Declined::KeyChange);
        }
        let partition = dispatcher.partition(decoder, rows.data, from, &mut text).ok_or(Declined::Value)?;
        scratch.value.extend_from_slice(rows.before_number);
        scratch.value.extend_from_slice(rows.after_number);
        let key = (decoder.key_columns > 0).then_some(scratch.key.as_slice());
        let value = (operation != Operation::Delete).then_some(scratch.value.as_slice());
        take(key, value, number, partition).ok_or(Declined::Call)?;
        number += 1;
    }
    Ok(number - rows.first)
}
