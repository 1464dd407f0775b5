//! Decodes lines of JSON into Arrow columns by a plan that Widen makes in Python; docs/kernel.md explains it.

mod columns;
mod decoder;
mod numbers;
mod quotes;
mod record_shape;
mod scanner;
mod spellings;
mod text_kinds;
mod times;

#[cfg(feature = "python")]
mod python;

pub use decoder::RecordDecoder;
pub use quotes::has_plain_quotes;
pub use record_shape::{kinds, ColumnPlan, FieldPlan, InvalidPlan, RecordPlan};
pub use text_kinds::text_kind;
