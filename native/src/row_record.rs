//! Records of rows, before Python gets them.

/// Numbers of the records of a row (`cdc/model/records.py`).
pub const CHANGE: u8 = 0;
pub const TOMBSTONE: u8 = 1;
pub const NEW_KEY: u8 = 2;

/// What a record says of its row.
#[derive(Clone, Copy, PartialEq)]
pub enum Change {
    Created,
    Updated,
    Deleted,
    /// Nothing of its own: a tombstone.
    None,
}

/// A record of a row.
pub struct RowRecord<'a> {
    pub key: Option<&'a [u8]>,
    /// None for a tombstone, and in TiCDC's protocol for a deleted row.
    pub value: Option<&'a [u8]>,
    /// The number of its row.
    pub row: i64,
    /// Its number among the records of the row.
    pub number: u8,
    /// A header of its own: the other key of an update that changes the key.
    pub header: Option<(&'static str, &'a [u8])>,
    /// The partition that a dispatcher chooses; none where the hash of the key does.
    pub partition: Option<u32>,
    pub change: Change,
}

impl RowRecord<'_> {
    /// Return whether it is a tombstone behind another record of its row, whose key and partition it shares.
    pub fn follows(&self) -> bool {
        self.number == TOMBSTONE && self.change == Change::None
    }
}

/// Receives a record; None when it cannot.
pub type Take<'a> = dyn FnMut(&RowRecord) -> Option<()> + 'a;
