//! Buffers that one row after the other uses.

use std::cell::Cell;

/// Where a rendered value lies.
#[derive(Clone, Copy, Default)]
pub struct Span {
    /// Whether in the record's value, or else apart from it.
    pub in_value: bool,
    pub start: usize,
    pub end: usize,
}

/// The buffers.
#[derive(Default)]
pub struct Scratch {
    /// The value and the key of a record, and the key of an update's other image.
    pub value: Vec<u8>,
    pub key: Vec<u8>,
    pub other_key: Vec<u8>,
    /// Of an update that changes the key: the value of one of its records, and the header.
    pub split_value: Vec<u8>,
    pub header: Vec<u8>,
    /// Rendered values that do not lie in the record's value.
    pub apart: Vec<u8>,
    /// Where rendered values lie: of the key's columns in row events, of all columns in rows of a snapshot.
    pub spans: Vec<Span>,
}

/// Bytes of a buffer that are kept from one event to the next.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    /// Those for all tables; while they are in use, and after a panic, empty ones are here.
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// Give back memory that one large row took.
    pub fn shrink(&mut self) {
        let Scratch { value, key, other_key, split_value, header, apart, .. } = self;
        for buffer in [value, key, other_key, split_value, header, apart] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

/// Do something with the thread's buffers.
pub fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take();
    let result = work(&mut scratch);
    scratch.shrink();
    SCRATCH.set(scratch);
    result
}
