//! What calls from Python have in common: a panic is no more than a decline, and texts come with one character a byte.

use std::borrow::Cow;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::prelude::*;

use crate::declined::Declined;

/// Run the work of a call; a panic is a decline.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Declined>) -> Result<T, Declined> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Declined::Defect))
}

/// Return the bytes of a text with one character a byte.
pub fn byte_text(text: &str) -> Result<Cow<'_, [u8]>, Declined> {
    if text.is_ascii() {
        return Ok(text.as_bytes().into());
    }
    let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    bytes.map(Into::into).map_err(|_| Declined::Call)
}

/// Panic, and return what a decoder would return.
#[pyfunction]
pub fn panic() -> i64 {
    guarded(|| panic!("requested")).unwrap_or_else(|why| why as i64)
}
