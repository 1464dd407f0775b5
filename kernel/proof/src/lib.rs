//! The proof's own reading of source records and of table rows; docs/kernel.md explains it.
//!
//! Both sides bring a record to one form, which is JSON with sorted keys and without nulls, and digest it. The forms
//! are those of `widen.proof.canonical`; what this crate is not sure of, it refuses, and Python reads it. It shares no
//! code with the decoder of the writer: the parser, the numbers and the times are of its own.

mod csv;
mod digest;
mod number;
mod plan;
mod row_reader;
mod scan;
mod source_reader;
mod spelled;
mod time;

#[cfg(feature = "python")]
pub mod python;

pub use csv::CsvPlan;
pub use digest::DigestSum;
pub use plan::{ColumnPlan, FieldPlan, InvalidPlan, RecordPlan};
pub use row_reader::RowReader;
pub use source_reader::SourceReader;

/// A value, or that Python has to read the record.
pub type Fit<T> = Result<T, Refused>;

/// The record is not one of which the crate is sure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused;
