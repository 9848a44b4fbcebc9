//! Decodes row events, and rows of snapshots, into the records that airflow-provider-mysql-cdc writes, byte for byte as its
//! Python decoder does.
//!
//! The kernel *declines* what it does not support, and whatever is malformed: then it has added nothing, and the
//! Python decoder reads the event, and raises its errors. It raises nothing about data itself.

#![forbid(unsafe_code)]

mod avro_binary;
mod avro_renderer;
mod avro_union;
mod binary_json;
mod binlog_events;
mod byte_order;
mod calendar;
mod charset;
mod column_renderer;
mod decimal;
mod declined;
mod decoded_transactions;
mod java_floats;
mod json_renderer;
mod json_text;
mod kafka_partitions;
mod key_header;
mod known_tables;
mod mysql_text;
mod python_calls;
mod python_records;
mod row_context;
mod row_decoder;
mod row_kernel;
mod row_plan;
mod row_record;
mod scratch;
mod spatial;
mod tally;
mod temporal_format;
mod text_avro_renderer;
mod text_column_renderer;
mod text_json_renderer;
mod text_packets;
mod text_row_decoder;
mod text_rows;
mod ticdc_dispatcher;
mod ticdc_renderer;
mod ticdc_rows;
mod transaction;
mod transaction_decoder;
mod value_layout;

use pyo3::prelude::*;

/// Hash of the arguments of the functions below and of records (`tests/property/test_native_form.py`); the loader accepts
/// only its own.
const FORM: i64 = 0x41beb856;

#[pymodule]
fn mysql_cdc_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The message of a panic goes to the job's log, once, and not to stderr for each event.
    std::panic::set_hook(Box::new(|_| {}));
    module.add("FORM", FORM)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<row_kernel::RowKernel>()?;
    module.add_class::<tally::Tally>()?;
    module.add_class::<text_rows::TextRows>()?;
    module.add_class::<transaction_decoder::TransactionDecoder>()?;
    module.add_function(wrap_pyfunction!(row_plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(row_plan::flat_plan, module)?)?;
    module.add_function(wrap_pyfunction!(text_rows::text_plan, module)?)?;
    module.add_function(wrap_pyfunction!(text_rows::frames, module)?)?;
    module.add_function(wrap_pyfunction!(python_calls::panic, module)?)?;
    Ok(())
}
