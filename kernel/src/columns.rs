//! Columns that grow value by value and become Arrow arrays.
//!
//! A column may lag behind its record: missing values at its end are nulls that `pad` or `finish` adds. So a field
//! that a record lacks costs nothing.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Int8Type, TimestampMicrosecondType,
};
use arrow_array::{
    new_null_array, ArrayRef, ArrowPrimitiveType, BooleanArray, ListArray, MapArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, TimeUnit};

use crate::numbers::{self, MAX_EXACT_INTEGER};
use crate::record_shape::RecordShape;
use crate::scanner::{Fit, Refused};
use crate::times::{self, DAY_MICROS};

/// A scalar of a text, with its spelling.
#[derive(Clone, Copy)]
pub enum Scalar<'t> {
    Boolean(bool),
    Long(i64, &'t [u8]),
    Double(f64, &'t [u8]),
    Decimal(&'t [u8]),
    Text(&'t [u8]),
    Date(i32, &'t [u8]),
    Timestamp(i64, &'t [u8]),
    LocalTime(i64, &'t [u8]),
}

/// Values of one machine type, and which are not null.
#[derive(Default)]
pub struct Values<T> {
    pub values: Vec<T>,
    pub valid: Vec<bool>,
}

#[derive(Default)]
pub struct TextValues {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    valid: Vec<bool>,
}

pub struct ListColumn {
    field: FieldRef,
    ends: Vec<i32>,
    valid: Vec<bool>,
    pub items: Column,
}

pub struct MapColumn {
    field: FieldRef,
    is_sorted: bool,
    ends: Vec<i32>,
    valid: Vec<bool>,
    pub keys: TextValues,
    pub values: Column,
}

pub struct RecordColumn {
    pub fields: Fields,
    pub columns: Vec<Column>,
    valid: Vec<bool>,
    /// What the records look like; without it no record fits.
    pub shape: RecordShape,
}

pub enum Column {
    Boolean(Values<bool>),
    Byte(Values<i8>),
    Short(Values<i16>),
    Integer(Values<i32>),
    Long(Values<i64>),
    Float(Values<f32>),
    Double(Values<f64>),
    Date(Values<i32>),
    /// `unit_nanos` is the unit of integers, 0 if their magnitude tells it.
    Timestamp {
        values: Values<i64>,
        zone: Option<Arc<str>>,
        unit_nanos: i64,
    },
    Decimal {
        values: Values<i128>,
        precision: u8,
        scale: i8,
    },
    Text(TextValues),
    List(Box<ListColumn>),
    Map(Box<MapColumn>),
    Record(Box<RecordColumn>),
    /// A column of any other type. It has only nulls.
    Unfilled {
        data_type: DataType,
        length: usize,
    },
}

impl<T: Default + Clone> Values<T> {
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        self.values.push(value);
        self.valid.push(true);
    }

    fn resize(&mut self, length: usize) {
        self.values.resize(length, T::default());
        self.valid.resize(length, false);
    }
}

impl TextValues {
    /// Append a text. An Arrow column of texts has at most 2 GiB.
    #[inline(always)]
    pub fn push(&mut self, text: &[u8]) -> Fit<()> {
        let end = offset(self.bytes.len() + text.len())?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        self.valid.push(true);
        Ok(())
    }

    fn resize(&mut self, length: usize) {
        let end = if length < self.ends.len() {
            length.checked_sub(1).map(|at| self.ends[at])
        } else {
            self.ends.last().copied()
        };
        let end = end.unwrap_or(0);
        self.bytes.truncate(end as usize);
        self.ends.resize(length, end);
        self.valid.resize(length, false);
    }

    fn finish(&mut self) -> Result<StringArray, ArrowError> {
        let bytes = take(&mut self.bytes);
        StringArray::try_new(
            offsets(&mut self.ends),
            bytes.into(),
            nulls(&mut self.valid),
        )
    }
}

impl Column {
    pub fn new(data_type: &DataType) -> Column {
        match data_type {
            DataType::Boolean => Column::Boolean(Values::default()),
            DataType::Int8 => Column::Byte(Values::default()),
            DataType::Int16 => Column::Short(Values::default()),
            DataType::Int32 => Column::Integer(Values::default()),
            DataType::Int64 => Column::Long(Values::default()),
            DataType::Float32 => Column::Float(Values::default()),
            DataType::Float64 => Column::Double(Values::default()),
            DataType::Date32 => Column::Date(Values::default()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Column::Timestamp {
                values: Values::default(),
                zone: zone.clone(),
                unit_nanos: 0,
            },
            DataType::Decimal128(precision, scale) => Column::Decimal {
                values: Values::default(),
                precision: *precision,
                scale: *scale,
            },
            DataType::Utf8 => Column::Text(TextValues::default()),
            DataType::List(field) => Column::List(Box::new(ListColumn {
                field: field.clone(),
                ends: Vec::new(),
                valid: Vec::new(),
                items: Column::new(field.data_type()),
            })),
            DataType::Struct(fields) => Column::Record(Box::new(RecordColumn::new(fields))),
            DataType::Map(field, is_sorted) => match field.data_type() {
                DataType::Struct(entry)
                    if entry.len() == 2 && *entry[0].data_type() == DataType::Utf8 =>
                {
                    Column::Map(Box::new(MapColumn {
                        field: field.clone(),
                        is_sorted: *is_sorted,
                        ends: Vec::new(),
                        valid: Vec::new(),
                        keys: TextValues::default(),
                        values: Column::new(entry[1].data_type()),
                    }))
                }
                _ => Column::Unfilled {
                    data_type: data_type.clone(),
                    length: 0,
                },
            },
            _ => Column::Unfilled {
                data_type: data_type.clone(),
                length: 0,
            },
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Column::Boolean(values) => values.valid.len(),
            Column::Byte(values) => values.valid.len(),
            Column::Short(values) => values.valid.len(),
            Column::Integer(values) | Column::Date(values) => values.valid.len(),
            Column::Long(values) | Column::Timestamp { values, .. } => values.valid.len(),
            Column::Float(values) => values.valid.len(),
            Column::Double(values) => values.valid.len(),
            Column::Decimal { values, .. } => values.valid.len(),
            Column::Text(values) => values.valid.len(),
            Column::List(list) => list.valid.len(),
            Column::Map(map) => map.valid.len(),
            Column::Record(record) => record.len(),
            Column::Unfilled { length, .. } => *length,
        }
    }

    /// Set the length: add nulls, or cut off values, also those of a nested value that was refused halfway.
    pub fn resize(&mut self, length: usize) {
        match self {
            Column::Boolean(values) => values.resize(length),
            Column::Byte(values) => values.resize(length),
            Column::Short(values) => values.resize(length),
            Column::Integer(values) | Column::Date(values) => values.resize(length),
            Column::Long(values) | Column::Timestamp { values, .. } => values.resize(length),
            Column::Float(values) => values.resize(length),
            Column::Double(values) => values.resize(length),
            Column::Decimal { values, .. } => values.resize(length),
            Column::Text(values) => values.resize(length),
            Column::List(list) => {
                let items = resize_ends(&mut list.ends, &mut list.valid, length);
                list.items.cut(items);
            }
            Column::Map(map) => {
                let entries = resize_ends(&mut map.ends, &mut map.valid, length);
                map.keys.resize(entries);
                map.values.cut(entries);
            }
            Column::Record(record) => record.resize(length),
            Column::Unfilled { length: own, .. } => *own = length,
        }
    }

    /// Cut off values from a length on.
    fn cut(&mut self, length: usize) {
        self.resize(length.min(self.len()));
    }

    /// Add nulls up to a length, so that the next value is the one at that place.
    #[inline(always)]
    pub fn pad(&mut self, length: usize) {
        if self.len() < length {
            self.resize(length);
        }
    }

    pub fn push_null(&mut self) {
        self.resize(self.len() + 1);
    }

    /// Append a scalar, wrapped in arrays where the column has them.
    ///
    /// Returns whether the column can hold it exactly; if not, nothing is appended.
    ///
    /// Source: docs/evolution-rules.md#lattice, as `widen.rows.row.CONVERSIONS`
    #[inline(always)]
    pub fn put(&mut self, scalar: &Scalar) -> Fit<bool> {
        match (self, scalar) {
            (Column::Text(values), Scalar::Text(text)) => values.push(text).map(|()| true),
            (Column::Long(values), Scalar::Long(value, _)) => Ok(put(values, Some(*value))),
            (Column::Double(values), Scalar::Double(value, _)) => Ok(put(values, Some(*value))),
            (column, scalar) => column.put_converted(scalar),
        }
    }

    fn put_converted(&mut self, scalar: &Scalar) -> Fit<bool> {
        Ok(match self {
            Column::Boolean(values) => match scalar {
                Scalar::Boolean(value) => put(values, Some(*value)),
                _ => false,
            },
            Column::Byte(values) => put(values, to_integer(scalar)),
            Column::Short(values) => put(values, to_integer(scalar)),
            Column::Integer(values) => put(values, to_integer(scalar)),
            Column::Long(values) => put(values, to_integer(scalar)),
            Column::Float(values) => put(values, to_float(scalar)),
            Column::Double(values) => put(values, to_double(scalar)),
            Column::Date(values) => match scalar {
                Scalar::Date(day, _) => put(values, Some(*day)),
                _ => false,
            },
            Column::Timestamp {
                values,
                zone,
                unit_nanos,
            } => put(values, to_timestamp(scalar, zone.is_some(), *unit_nanos)),
            Column::Decimal {
                values,
                precision,
                scale,
            } => put(values, to_decimal(scalar, *precision, *scale)),
            Column::Text(values) => {
                values.push(spelling(scalar))?;
                true
            }
            Column::List(list) => {
                if !list.items.put(scalar)? {
                    return Ok(false);
                }
                list.end_array()?;
                true
            }
            Column::Map(_) | Column::Record(_) | Column::Unfilled { .. } => false,
        })
    }

    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Boolean(values) => {
                let array = BooleanBuffer::from(values.values.as_slice());
                values.values.clear();
                Arc::new(BooleanArray::new(array, nulls(&mut values.valid)))
            }
            Column::Byte(values) => Arc::new(primitive::<Int8Type>(values)?),
            Column::Short(values) => Arc::new(primitive::<Int16Type>(values)?),
            Column::Integer(values) => Arc::new(primitive::<Int32Type>(values)?),
            Column::Long(values) => Arc::new(primitive::<Int64Type>(values)?),
            Column::Float(values) => Arc::new(primitive::<Float32Type>(values)?),
            Column::Double(values) => Arc::new(primitive::<Float64Type>(values)?),
            Column::Date(values) => Arc::new(primitive::<Date32Type>(values)?),
            Column::Timestamp { values, zone, .. } => Arc::new(
                primitive::<TimestampMicrosecondType>(values)?.with_timezone_opt(zone.clone()),
            ),
            Column::Decimal {
                values,
                precision,
                scale,
            } => Arc::new(
                primitive::<Decimal128Type>(values)?
                    .with_precision_and_scale(*precision, *scale)?,
            ),
            Column::Text(values) => Arc::new(values.finish()?),
            Column::List(list) => {
                let (ends, valid) = (offsets(&mut list.ends), nulls(&mut list.valid));
                Arc::new(ListArray::try_new(
                    list.field.clone(),
                    ends,
                    list.items.finish()?,
                    valid,
                )?)
            }
            Column::Map(map) => {
                let (ends, valid) = (offsets(&mut map.ends), nulls(&mut map.valid));
                let arrays: Vec<ArrayRef> =
                    vec![Arc::new(map.keys.finish()?), map.values.finish()?];
                let DataType::Struct(fields) = map.field.data_type() else {
                    unreachable!("a map has entries")
                };
                let entries = StructArray::try_new(fields.clone(), arrays, None)?;
                Arc::new(MapArray::try_new(
                    map.field.clone(),
                    ends,
                    entries,
                    valid,
                    map.is_sorted,
                )?)
            }
            Column::Record(record) => Arc::new(record.finish()?),
            Column::Unfilled { data_type, length } => {
                new_null_array(data_type, std::mem::take(length))
            }
        })
    }
}

impl ListColumn {
    /// Append an array of the items since the end of the last one.
    #[inline(always)]
    pub fn end_array(&mut self) -> Fit<()> {
        self.ends.push(offset(self.items.len())?);
        self.valid.push(true);
        Ok(())
    }
}

impl MapColumn {
    /// Append a map of the entries since the end of the last one.
    pub fn end_map(&mut self) -> Fit<()> {
        self.ends.push(offset(self.keys.valid.len())?);
        self.valid.push(true);
        Ok(())
    }
}

impl RecordColumn {
    pub fn new(fields: &Fields) -> RecordColumn {
        RecordColumn {
            fields: fields.clone(),
            columns: fields
                .iter()
                .map(|field| Column::new(field.data_type()))
                .collect(),
            valid: Vec::new(),
            shape: RecordShape::default(),
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    #[inline(always)]
    pub fn end_record(&mut self) {
        self.valid.push(true);
    }

    pub fn resize(&mut self, length: usize) {
        // The columns may have values of a record that was refused halfway.
        let complete = length.min(self.valid.len());
        self.columns
            .iter_mut()
            .for_each(|column| column.cut(complete));
        self.valid.resize(length, false);
    }

    pub fn finish(&mut self) -> Result<StructArray, ArrowError> {
        let length = self.len();
        self.columns
            .iter_mut()
            .for_each(|column| column.pad(length));
        let arrays = self
            .columns
            .iter_mut()
            .map(Column::finish)
            .collect::<Result<_, _>>()?;
        let valid = nulls(&mut self.valid);
        StructArray::try_new_with_length(self.fields.clone(), arrays, valid, length)
    }
}

#[inline(always)]
fn put<T: Default + Clone>(values: &mut Values<T>, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    values.push(value);
    true
}

/// Return the number of an integer column. What a kind may become there is in `TAKES` in Python, not here.
fn to_integer<T: TryFrom<i64>>(scalar: &Scalar) -> Option<T> {
    let value = match scalar {
        Scalar::Boolean(value) => i64::from(*value),
        Scalar::Long(value, _) => *value,
        Scalar::Date(day, _) => i64::from(*day),
        Scalar::Timestamp(micros, _) => to_millis(*micros)?,
        _ => return None,
    };
    T::try_from(value).ok()
}

fn to_double(scalar: &Scalar) -> Option<f64> {
    match scalar {
        Scalar::Boolean(value) => Some(f64::from(u8::from(*value))),
        Scalar::Long(value, _) if value.unsigned_abs() <= MAX_EXACT_INTEGER => Some(*value as f64),
        Scalar::Long(_, token) | Scalar::Decimal(token) => numbers::to_exact_double(token),
        Scalar::Double(value, _) => Some(*value),
        Scalar::Date(day, _) => Some(f64::from(*day)),
        Scalar::Timestamp(micros, _) => Some(to_millis(*micros)? as f64),
        Scalar::Text(_) | Scalar::LocalTime(..) => None,
    }
}

fn to_float(scalar: &Scalar) -> Option<f32> {
    match scalar {
        Scalar::Boolean(value) => Some(f32::from(u8::from(*value))),
        Scalar::Long(_, token) | Scalar::Double(_, token) | Scalar::Decimal(token) => {
            numbers::to_exact_float(token)
        }
        _ => None,
    }
}

fn to_decimal(scalar: &Scalar, precision: u8, scale: i8) -> Option<i128> {
    let whole = |value: i64| {
        let unscaled =
            i128::from(value).checked_mul(10i128.checked_pow(u32::try_from(scale).ok()?)?)?;
        (unscaled.unsigned_abs() < 10u128.checked_pow(u32::from(precision))?).then_some(unscaled)
    };
    match scalar {
        Scalar::Boolean(value) => whole(i64::from(*value)),
        Scalar::Long(value, _) => whole(*value),
        Scalar::Double(_, token) | Scalar::Decimal(token) => {
            numbers::to_decimal(token, precision, scale)
        }
        Scalar::Date(day, _) => whole(i64::from(*day)),
        Scalar::Timestamp(micros, _) => whole(to_millis(*micros)?),
        Scalar::Text(_) | Scalar::LocalTime(..) => None,
    }
}

fn to_timestamp(scalar: &Scalar, has_zone: bool, unit_nanos: i64) -> Option<i64> {
    match scalar {
        Scalar::Long(value, _) if has_zone => times::epoch_to_micros(*value, unit_nanos),
        Scalar::Date(day, _) => Some(i64::from(*day) * DAY_MICROS),
        Scalar::Timestamp(micros, _) if has_zone => Some(*micros),
        Scalar::LocalTime(micros, _) if !has_zone => Some(*micros),
        _ => None,
    }
}

fn to_millis(micros: i64) -> Option<i64> {
    (micros % 1000 == 0).then_some(micros / 1000)
}

fn spelling<'t>(scalar: &Scalar<'t>) -> &'t [u8] {
    match scalar {
        Scalar::Boolean(true) => b"true",
        Scalar::Boolean(false) => b"false",
        Scalar::Long(_, text)
        | Scalar::Double(_, text)
        | Scalar::Decimal(text)
        | Scalar::Text(text) => text,
        Scalar::Date(_, text) | Scalar::Timestamp(_, text) | Scalar::LocalTime(_, text) => text,
    }
}

#[inline(always)]
fn offset(length: usize) -> Fit<i32> {
    i32::try_from(length).map_err(|_| Refused)
}

/// Set the number of arrays or maps; return how many items they have together.
fn resize_ends(ends: &mut Vec<i32>, valid: &mut Vec<bool>, length: usize) -> usize {
    let last = length
        .min(ends.len())
        .checked_sub(1)
        .map_or(0, |at| ends[at]);
    ends.resize(length, last);
    valid.resize(length, false);
    last as usize
}

/// Return the offsets of Arrow: the ends, after the begin of the first.
fn offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut all = Vec::with_capacity(ends.len() + 1);
    all.push(0);
    all.append(ends);
    OffsetBuffer::new(all.into())
}

fn nulls(valid: &mut Vec<bool>) -> Option<NullBuffer> {
    let has_nulls = valid.contains(&false);
    let buffer = has_nulls.then(|| NullBuffer::from(valid.as_slice()));
    valid.clear();
    buffer
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Values<T::Native>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    PrimitiveArray::try_new(take(&mut values.values).into(), nulls(&mut values.valid))
}

/// Return the values, and make room for about as many.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let capacity = values.len() + values.len() / 8;
    std::mem::replace(values, Vec::with_capacity(capacity))
}
