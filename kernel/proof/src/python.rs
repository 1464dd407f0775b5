//! The module for Python.

use arrow_array::{RecordBatch, StructArray};
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::source_reader::{is_blank, FileField, Span};
use crate::{CsvPlan, DigestSum, InvalidPlan, RecordPlan, RowReader, SourceReader};

/// The digest, and the numbers of records, of values and of conversions.
type Sums = ([u8; 16], u64, i64, i64);

/// The form of a row and the number of its values; None if Python has to read it.
type EncodedRow<'py> = Option<(Bound<'py, PyBytes>, i64)>;

fn sums(sum: &DigestSum) -> Sums {
    (
        sum.digest.to_be_bytes(),
        sum.records,
        sum.values,
        sum.converted,
    )
}

fn value_error(error: InvalidPlan) -> PyErr {
    PyValueError::new_err(error.0)
}

/// Digests the texts of a source.
#[pyclass(name = "SourceReader", module = "widen._kernel.proof")]
struct PySourceReader(SourceReader);

#[pymethods]
impl PySourceReader {
    #[new]
    fn new(plan: RecordPlan, is_rescuing: bool, limit: u64) -> PyResult<Self> {
        SourceReader::new(&plan, is_rescuing, limit)
            .map(PySourceReader)
            .map_err(value_error)
    }

    /// Add the record of each line; return where the lines stand that Python has to read.
    fn add(&mut self, lines: &[u8], file_fields: Vec<FileField>) -> Vec<Span> {
        self.0.add_lines(lines, &file_fields)
    }

    /// Add the records of a file that has a record on each line, or return None and add nothing if it has not.
    fn add_file(&mut self, data: &[u8], file_fields: Vec<FileField>) -> Option<Vec<Span>> {
        self.0.add_file(data, &file_fields)
    }

    /// Add the rows of a CSV file after its header; return where the lines stand that Python has to read, or None and
    /// add nothing if a row may take several lines.
    fn add_csv(
        &mut self,
        rows: &[u8],
        plan: CsvPlan,
        file_fields: Vec<FileField>,
    ) -> Option<Vec<Span>> {
        self.0.add_csv(rows, &plan, &file_fields)
    }

    /// Add the record in each text; return the indexes of the texts that Python has to read.
    fn add_texts(
        &mut self,
        texts: &Bound<'_, PyList>,
        file_fields: Vec<FileField>,
    ) -> PyResult<Vec<usize>> {
        let mut refused = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let text = text.cast::<PyBytes>()?.as_bytes();
            if !is_blank(text) && !self.0.add(text, &file_fields) {
                refused.push(at);
            }
        }
        Ok(refused)
    }

    /// Return what `add` digests of a text: a form, its values beyond the form, and how many are converted; None if
    /// Python has to read the text.
    fn encode<'py>(
        &mut self,
        py: Python<'py>,
        text: &[u8],
    ) -> Option<(Bound<'py, PyBytes>, i64, i64)> {
        let (form, values, converted) = self.0.encode(text, &[]).ok()?;
        Some((PyBytes::new(py, form), values, converted))
    }

    fn sums(&self) -> Sums {
        sums(self.0.sum())
    }
}

/// Digests the rows of a table.
#[pyclass(name = "RowReader", module = "widen._kernel.proof")]
struct PyRowReader(RowReader);

#[pymethods]
impl PyRowReader {
    #[new]
    fn new(plan: RecordPlan, special: Vec<usize>, limit: u64) -> PyResult<Self> {
        RowReader::new(plan, special, limit)
            .map(PyRowReader)
            .map_err(value_error)
    }

    /// Add rows; return the indexes of those that Python has to read.
    fn add(&mut self, rows: PyArrowType<RecordBatch>) -> PyResult<Vec<u64>> {
        self.0.add(&StructArray::from(rows.0)).map_err(value_error)
    }

    /// Return what `add` digests of rows: the form of each and the number of its values; None for those that Python has
    /// to read.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        rows: PyArrowType<RecordBatch>,
    ) -> PyResult<Vec<EncodedRow<'py>>> {
        let mut found = Vec::new();
        self.0
            .encode(&StructArray::from(rows.0), |_, encoded| {
                found.push(encoded.map(|(form, values)| (PyBytes::new(py, form), values)));
            })
            .map_err(value_error)?;
        Ok(found)
    }

    fn sums(&self) -> Sums {
        sums(self.0.sum())
    }
}

/// Return the module.
pub fn module<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    let module = PyModule::new(py, "widen._kernel.proof")?;
    module.add("VERSION", 6)?;
    module.add_class::<PySourceReader>()?;
    module.add_class::<PyRowReader>()?;
    Ok(module)
}
