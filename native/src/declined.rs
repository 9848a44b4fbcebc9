//! Why rows are left to Python.

/// Why the rows of an event, or a row of a snapshot, are left to Python; Python gets the number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Declined {
    /// A value does not fit its column, or the rows do not end where the event ends.
    Value = -1,
    /// An UPDATE changes a key whose headers this code does not write.
    KeyChange = -2,
    /// Images leave columns out.
    IncompleteImage = -3,
    /// The call is not one that this code knows.
    Call = -4,
    /// This code has a defect.
    Defect = -5,
}

impl Declined {
    /// How many reasons there are.
    pub const COUNT: usize = 5;

    /// Return its index in the list of reasons, 0 for -1.
    pub fn index(self) -> usize {
        (-(self as i64) - 1) as usize
    }
}
