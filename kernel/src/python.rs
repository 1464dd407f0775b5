//! The module for Python.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, UInt16Array};
use arrow_pyarrow::{PyArrowType, ToPyArrow};
use arrow_schema::{DataType, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::{has_plain_quotes, text_kind, RecordDecoder, RecordPlan};

/// Decodes the records that fit the columns; the texts of all others have to be read otherwise.
#[pyclass(name = "Decoder", module = "widen._kernel")]
struct Decoder {
    schema: SchemaRef,
    decoder: RecordDecoder,
}

#[pymethods]
impl Decoder {
    #[new]
    fn new(schema: PyArrowType<Schema>, plan: RecordPlan) -> PyResult<Decoder> {
        let decoder = RecordDecoder::new(&schema.0.fields, &plan)
            .map_err(|error| PyValueError::new_err(error.0))?;
        Ok(Decoder {
            schema: schema.0.into(),
            decoder,
        })
    }

    /// Add the records of texts; return the indexes of the texts that do not fit.
    fn add(&mut self, texts: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
        let mut refused = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            if !self.decoder.add(text.cast::<PyBytes>()?.as_bytes()) {
                refused.push(at);
            }
        }
        Ok(refused)
    }

    /// The number of records since the last `take`.
    #[getter]
    fn records(&self) -> usize {
        self.decoder.records()
    }

    /// Return the records since the last call as a `pyarrow.RecordBatch`.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let columns = self
            .decoder
            .finish()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        RecordBatch::from(columns)
            .with_schema(self.schema.clone())
            .map_err(|error| PyValueError::new_err(error.to_string()))?
            .to_pyarrow(py)
    }

    /// Forget the records since the last `take`.
    fn clear(&mut self) {
        self.decoder.clear();
    }
}

/// Return the kind of each text of columns as `uint16`, null for null.
///
/// Args: columns of strings; whether fractions are numbers that a double does not give back as they are written.
#[pyfunction]
fn text_kinds<'py>(
    py: Python<'py>,
    texts: PyArrowType<RecordBatch>,
    is_written: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let kinds = texts.0.columns().iter().map(|column| {
        if column.data_type() != &DataType::Utf8 {
            return Err(PyTypeError::new_err("columns must be strings"));
        }
        let kind = |text: Option<&str>| text.map(|text| text_kind(text.as_bytes(), is_written));
        let kinds: UInt16Array = column.as_string::<i32>().iter().map(kind).collect();
        Ok(Arc::new(kinds) as ArrayRef)
    });
    let names = texts
        .0
        .schema_ref()
        .fields()
        .iter()
        .map(|field| field.name());
    let columns: Vec<_> = names
        .zip(kinds)
        .map(|(name, kind)| Ok((name, kind?)))
        .collect::<PyResult<_>>()?;
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, kind)| (name, kind, true)),
    )
    .map_err(|error| PyValueError::new_err(error.to_string()))?
    .to_pyarrow(py)
}

/// Return whether every quote of CSV belongs to a well-formed field on one line.
///
/// Args: the text; the byte of the quote; the byte of the separator.
#[pyfunction(name = "has_plain_quotes")]
fn text_has_plain_quotes(data: &[u8], quote: u8, separator: u8) -> bool {
    has_plain_quotes(data, quote, separator)
}

#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Decoder>()?;
    module.add_function(wrap_pyfunction!(text_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(text_has_plain_quotes, module)?)?;
    // The proof's crate shares nothing with the decoder but this module.
    module.add_submodule(&widen_proof::python::module(module.py())?)
}
