//! Rows of a table as their forms. Source: docs/evolution-rules.md#proof
//!
//! Columns of one field must agree: a row in which they do not plainly do is left to Python, which knows why they may
//! differ. The exact rules are `widen.proof.row_reader`.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Int8Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, Int8Array, ListArray, MapArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};

use crate::number::{fits_bits, mark_spelling, read_integer, Number};
use crate::plan::{ColumnPlan, FieldPlan, InvalidPlan, Kind, RecordPlan};
use crate::scan::write_string;
use crate::time::{write_date, write_time};
use crate::{DigestSum, Fit, Refused};

/// The largest whole number that surely has few digits as a double.
const PLAIN_WHOLE: f64 = 1e15;

/// Digests the rows of a table.
pub struct RowReader {
    plan: RecordPlan,
    /// The columns that only Python reads: those of rescued values and of texts that are not records.
    special: Vec<usize>,
    sum: DigestSum,
}

impl RowReader {
    pub fn new(mut plan: RecordPlan, special: Vec<usize>, limit: u64) -> Result<Self, InvalidPlan> {
        prepare(&mut plan)?;
        Ok(RowReader {
            plan,
            special,
            sum: DigestSum::new(limit),
        })
    }

    pub fn sum(&self) -> &DigestSum {
        &self.sum
    }

    /// Add rows, and return the indexes of those that Python has to read.
    pub fn add(&mut self, rows: &StructArray) -> Result<Vec<u64>, InvalidPlan> {
        let mut refused = Vec::new();
        let mut sum = self.sum.clone();
        self.encode(rows, |row, encoded| match encoded {
            Some((form, values)) => sum.add(form, values, 0),
            None => refused.push(row as u64),
        })?;
        self.sum = sum;
        Ok(refused)
    }

    /// Call a function with each row, its form and the number of its values; without them if Python has to read it.
    pub fn encode(
        &self,
        rows: &StructArray,
        mut each: impl FnMut(usize, Option<(&[u8], i64)>),
    ) -> Result<(), InvalidPlan> {
        let record = RecordValues::new(&self.plan, rows.columns())?;
        let special: Vec<&ArrayRef> = self
            .special
            .iter()
            .map(|position| rows.column(*position))
            .collect();
        let mut form = Vec::new();
        for row in 0..rows.len() {
            form.clear();
            let is_special = special.iter().any(|column| column.is_valid(row));
            match record.write(row, &mut form) {
                // A row without values is not a value.
                Ok(_) if !is_special && form == b"{}" => each(row, Some((&form, 0))),
                Ok(values) if !is_special => each(row, Some((&form, values))),
                _ => each(row, None),
            }
        }
        Ok(())
    }
}

/// Sort the fields of a plan by their keys, and check its types.
fn prepare(plan: &mut RecordPlan) -> Result<(), InvalidPlan> {
    plan.fields.sort_by(|one, other| one.key.cmp(&other.key));
    for field in &mut plan.fields {
        prepare_field(field)?;
    }
    Ok(())
}

fn prepare_field(field: &mut FieldPlan) -> Result<(), InvalidPlan> {
    for column in &mut field.columns {
        column.kind()?;
        if let Some(record) = &mut column.record {
            prepare(record)?;
        }
        for entries in &mut column.entries {
            prepare_field(entries)?;
        }
    }
    Ok(())
}

/// The columns of the fields of a record.
struct RecordValues<'a> {
    fields: Vec<FieldValues<'a>>,
}

struct FieldValues<'a> {
    /// The key as it begins the field in a form.
    key: Vec<u8>,
    columns: Vec<(Values<'a>, Slot)>,
    /// The columns that are null everywhere.
    others: Vec<Slot>,
    rules: FieldRules,
}

/// What a column may hold.
#[derive(Clone, Copy)]
struct Slot {
    kind: Kind,
    /// The number of arrays around the kind.
    dim: usize,
    stands_alone: bool,
    has_booleans_as_numbers: bool,
}

#[derive(Clone, Copy)]
struct FieldRules {
    checks_places: bool,
    has_marks: bool,
    reads_times: bool,
}

/// The columns of a field in a row, or in an item of its arrays.
struct Level<'a, 'b> {
    present: Vec<(&'b Values<'a>, usize, Slot)>,
    absent: Vec<Slot>,
    /// The number of arrays around the place.
    dim: usize,
    rules: FieldRules,
}

/// A column: its values, inside of arrays or not.
enum Values<'a> {
    List(&'a ListArray, Box<Values<'a>>),
    Record(&'a StructArray, RecordValues<'a>),
    Map(&'a MapArray, &'a StringArray, Box<Values<'a>>),
    Boolean(&'a BooleanArray),
    Byte(&'a Int8Array),
    Short(&'a Int16Array),
    Integer(&'a Int32Array),
    Long(&'a Int64Array),
    Double(&'a Float64Array),
    Float(&'a Float32Array),
    Decimal(&'a Decimal128Array, i64),
    Date(&'a Date32Array),
    Timestamp(&'a TimestampMicrosecondArray),
    LocalTime(&'a TimestampMicrosecondArray),
    String(&'a StringArray),
    Unread(&'a ArrayRef),
}

impl<'a> RecordValues<'a> {
    fn new(plan: &RecordPlan, arrays: &'a [ArrayRef]) -> Result<Self, InvalidPlan> {
        let fields = plan
            .fields
            .iter()
            .map(|field| FieldValues::new(field, arrays))
            .filter(|field| !matches!(field, Ok(field) if field.columns.is_empty()))
            .collect::<Result<_, _>>()?;
        Ok(RecordValues { fields })
    }

    /// Write the form of a record, and return the number of its values.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Fit<i64> {
        out.push(b'{');
        let start = out.len();
        let mut values = 0;
        for field in &self.fields {
            if field.columns.iter().all(|(column, _)| column.is_null(row)) {
                continue;
            }
            let before = out.len();
            if before > start {
                out.push(b',');
            }
            out.extend_from_slice(&field.key);
            match field.write(row, out)? {
                Some(count) => values += count,
                None => out.truncate(before),
            }
        }
        let is_empty = out.len() == start;
        out.push(b'}');
        Ok(if is_empty { 1 } else { values })
    }
}

impl<'a> FieldValues<'a> {
    fn new(plan: &FieldPlan, arrays: &'a [ArrayRef]) -> Result<Self, InvalidPlan> {
        let mut key = Vec::new();
        write_string(plan.key.as_bytes(), &mut key);
        key.push(b':');
        let (mut columns, mut others) = (Vec::new(), Vec::new());
        for column in &plan.columns {
            let array = arrays
                .get(column.position)
                .ok_or_else(|| InvalidPlan(format!("no column {}", column.position)))?;
            let slot = Slot::new(column)?;
            if array.null_count() < array.len() {
                columns.push((Values::new(column, column.dim, array)?, slot));
            } else {
                others.push(slot);
            }
        }
        let rules = FieldRules {
            checks_places: plan.checks_places && plan.columns.len() > 1,
            has_marks: plan.has_marks,
            reads_times: plan.has_dates || plan.has_local_times,
        };
        Ok(FieldValues {
            key,
            columns,
            others,
            rules,
        })
    }

    /// Write the value that the columns hold together, and return its number of values; None if all are null.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Fit<Option<i64>> {
        let mut valid = self
            .columns
            .iter()
            .filter(|(column, _)| !column.is_null(row));
        let Some((first, slot)) = valid.next() else {
            return Ok(None);
        };
        // In most rows at most one column has a value.
        if (slot.stands_alone || !self.rules.checks_places) && valid.next().is_none() {
            return first.write(row, out);
        }
        let mut level = Level {
            present: Vec::new(),
            absent: self.others.clone(),
            dim: 0,
            rules: self.rules,
        };
        for (column, slot) in &self.columns {
            if column.is_null(row) {
                level.absent.push(*slot);
            } else {
                level.present.push((column, row, *slot));
            }
        }
        level.write(out).map(Some)
    }
}

impl Slot {
    fn new(plan: &ColumnPlan) -> Result<Self, InvalidPlan> {
        Ok(Slot {
            kind: plan.kind()?,
            dim: plan.dim,
            stands_alone: plan.stands_alone,
            has_booleans_as_numbers: plan.has_booleans_as_numbers,
        })
    }

    fn is_number(&self) -> bool {
        matches!(
            self.kind,
            Kind::Integer(_) | Kind::Double | Kind::Float | Kind::Decimal(..)
        )
    }
}

impl Level<'_, '_> {
    /// Write the value that several columns hold together; at least one is not null there.
    fn write(&self, out: &mut Vec<u8>) -> Fit<i64> {
        let (first, row, slot) = *self.present.first().ok_or(Refused)?;
        if self.present.len() == 1 && (slot.stands_alone || !self.rules.checks_places) {
            return first.write(row, out)?.ok_or(Refused);
        }
        let start = out.len();
        let scalar = self
            .present
            .iter()
            .position(|(column, ..)| !matches!(column, Values::List(..) | Values::Map(..)));
        let Some(scalar) = scalar else {
            return self.write_arrays(out);
        };
        let (column, row, slot) = self.present[scalar];
        // A timestamp may stand for an integer, and records may have different fields.
        if matches!(column, Values::Timestamp(_) | Values::Record(..)) {
            return Err(Refused);
        }
        let count = column.write(row, out)?.ok_or(Refused)?;
        let value = out[start..].to_vec();
        for (at, (other, row, _)) in self.present.iter().enumerate() {
            if at != scalar && !other.agrees(*row, &value)? {
                return Err(Refused);
            }
        }
        if self.rules.checks_places && self.check_places(slot, &value)? {
            mark_spelling(out, start, &[&value, &b"."[..]].concat());
        }
        Ok(count)
    }

    /// Refuse a value that a column without it may hold, and return whether it is a number that has a mark.
    fn check_places(&self, slot: Slot, value: &[u8]) -> Fit<bool> {
        let is_time = |kind| matches!(kind, Kind::Date | Kind::Timestamp | Kind::LocalTime);
        let has_times = self.present.iter().any(|(.., each)| is_time(each.kind));
        if has_times && !self.rules.reads_times {
            return Err(Refused);
        }
        let mut is_marked = false;
        for other in self.absent.iter().filter(|other| other.dim >= self.dim) {
            if matches!(other.kind, Kind::Record | Kind::Map | Kind::Binary) {
                continue;
            }
            let is_fine = match slot.kind {
                Kind::Boolean => {
                    is_time(other.kind) || (other.is_number() && !other.has_booleans_as_numbers)
                }
                Kind::String => {
                    other.kind == Kind::Boolean
                        || (other.kind != Kind::String && !self.rules.reads_times)
                }
                Kind::Date | Kind::LocalTime => other.kind == Kind::Boolean,
                _ if slot.is_number() => match (other.kind, read_integer(value)) {
                    (Kind::Boolean | Kind::Date | Kind::LocalTime, _) => true,
                    (Kind::Integer(bits), Some(integer)) if fits_bits(integer, bits) => {
                        is_marked = true;
                        self.rules.has_marks && !matches!(slot.kind, Kind::Integer(_))
                    }
                    (Kind::Integer(_), _) => true,
                    (Kind::Timestamp, None) => value.first() != Some(&b'~'),
                    _ => false,
                },
                _ => false,
            };
            if !is_fine {
                return Err(Refused);
            }
        }
        // A text says the spelling, and an integer elsewhere that there is no point.
        let has_spelling = self.present.iter().any(|(.., each)| {
            matches!(
                each.kind,
                Kind::String | Kind::Integer(_) | Kind::Timestamp | Kind::Boolean
            )
        });
        let has_time = self.absent.iter().any(|each| each.kind == Kind::Timestamp);
        if is_marked && (has_spelling || has_time) {
            return Err(Refused);
        }
        Ok(is_marked)
    }

    fn write_arrays(&self, out: &mut Vec<u8>) -> Fit<i64> {
        let mut lists = Vec::new();
        for (column, row, slot) in &self.present {
            let Values::List(list, items) = column else {
                return Err(Refused);
            };
            let offsets = list.value_offsets();
            let (start, end) = (offsets[*row] as usize, offsets[*row + 1] as usize);
            // A column that holds no item of an array does not hold the array.
            let is_void = start < end && (start..end).all(|at| items.is_null(at));
            if is_void && self.rules.checks_places {
                return Err(Refused);
            }
            lists.push((&**items, start, end, *slot));
        }
        let length = lists[0].2 - lists[0].1;
        if lists.iter().any(|(_, start, end, _)| end - start != length) {
            return Err(Refused);
        }
        if length == 0 && self.rules.checks_places && !self.absent.is_empty() {
            return Err(Refused);
        }
        out.push(b'[');
        let mut values = 0;
        for index in 0..length {
            if index > 0 {
                out.push(b',');
            }
            let mut level = Level {
                present: Vec::new(),
                absent: self.absent.clone(),
                dim: self.dim + 1,
                rules: self.rules,
            };
            for (items, start, _, slot) in &lists {
                if items.is_null(start + index) {
                    level.absent.push(*slot);
                } else {
                    level.present.push((*items, start + index, *slot));
                }
            }
            if level.present.is_empty() {
                out.extend_from_slice(b"null");
            } else {
                values += level.write(out)?;
            }
        }
        out.push(b']');
        Ok(if length == 0 { 1 } else { values })
    }
}

impl<'a> Values<'a> {
    fn new(
        plan: &crate::plan::ColumnPlan,
        dim: usize,
        array: &'a ArrayRef,
    ) -> Result<Self, InvalidPlan> {
        let wrong = || {
            InvalidPlan(format!(
                "a column of {} has the type {}",
                plan.type_name,
                array.data_type()
            ))
        };
        if dim > 0 {
            let list = array.as_list_opt::<i32>().ok_or_else(wrong)?;
            let items = Values::new(plan, dim - 1, list.values())?;
            return Ok(Values::List(list, Box::new(items)));
        }
        let values = match plan.kind()? {
            Kind::Record => {
                let records = array.as_struct_opt().ok_or_else(wrong)?;
                let fields = plan.record.as_ref().ok_or_else(wrong)?;
                return Ok(Values::Record(
                    records,
                    RecordValues::new(fields, records.columns())?,
                ));
            }
            Kind::Map => {
                let map = array.as_map_opt().ok_or_else(wrong)?;
                let keys = map.keys().as_string_opt::<i32>().ok_or_else(wrong)?;
                let entries = plan.entries.first().ok_or_else(wrong)?;
                let [column] = &*entries.columns else {
                    return Err(wrong());
                };
                let values = Values::new(column, column.dim, map.values())?;
                return Ok(Values::Map(map, keys, Box::new(values)));
            }
            Kind::Boolean => array.as_boolean_opt().map(Values::Boolean),
            Kind::Integer(7) => array.as_primitive_opt::<Int8Type>().map(Values::Byte),
            Kind::Integer(15) => array.as_primitive_opt::<Int16Type>().map(Values::Short),
            Kind::Integer(31) => array.as_primitive_opt::<Int32Type>().map(Values::Integer),
            Kind::Integer(_) => array.as_primitive_opt::<Int64Type>().map(Values::Long),
            Kind::Double => array.as_primitive_opt::<Float64Type>().map(Values::Double),
            Kind::Float => array.as_primitive_opt::<Float32Type>().map(Values::Float),
            Kind::Decimal(_, scale) => array
                .as_primitive_opt::<Decimal128Type>()
                .map(|values| Values::Decimal(values, scale)),
            Kind::Date => array.as_primitive_opt::<Date32Type>().map(Values::Date),
            Kind::Timestamp => array
                .as_primitive_opt::<TimestampMicrosecondType>()
                .map(Values::Timestamp),
            Kind::LocalTime => array
                .as_primitive_opt::<TimestampMicrosecondType>()
                .map(Values::LocalTime),
            Kind::String => array.as_string_opt::<i32>().map(Values::String),
            Kind::Binary => Some(Values::Unread(array)),
        };
        values.ok_or_else(wrong)
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Values::List(values, _) => values.is_null(row),
            Values::Record(values, _) => values.is_null(row),
            Values::Map(values, ..) => values.is_null(row),
            Values::Boolean(values) => values.is_null(row),
            Values::Byte(values) => values.is_null(row),
            Values::Short(values) => values.is_null(row),
            Values::Integer(values) => values.is_null(row),
            Values::Long(values) => values.is_null(row),
            Values::Double(values) => values.is_null(row),
            Values::Float(values) => values.is_null(row),
            Values::Decimal(values, _) => values.is_null(row),
            Values::Date(values) => values.is_null(row),
            Values::Timestamp(values) | Values::LocalTime(values) => values.is_null(row),
            Values::String(values) => values.is_null(row),
            Values::Unread(values) => values.is_null(row),
        }
    }

    /// Write the form of a value, and return the number of its values; None if it is null.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Fit<Option<i64>> {
        if self.is_null(row) {
            return Ok(None);
        }
        match self {
            Values::List(lists, items) => {
                let offsets = lists.value_offsets();
                return write_list(items, offsets[row] as usize, offsets[row + 1] as usize, out)
                    .map(Some);
            }
            Values::Record(_, fields) => return fields.write(row, out).map(Some),
            Values::Map(maps, keys, values) => {
                let offsets = maps.value_offsets();
                let entries = offsets[row] as usize..offsets[row + 1] as usize;
                return write_map(keys, values, entries, out).map(Some);
            }
            Values::Boolean(values) => {
                let word: &[u8] = if values.value(row) { b"true" } else { b"false" };
                out.extend_from_slice(word);
            }
            Values::Byte(values) => write_integer(values.value(row).into(), out),
            Values::Short(values) => write_integer(values.value(row).into(), out),
            Values::Integer(values) => write_integer(values.value(row).into(), out),
            Values::Long(values) => write_integer(values.value(row), out),
            Values::Double(values) => write_double(values.value(row), out)?,
            Values::Float(values) => write_float(values.value(row), out)?,
            Values::Decimal(values, scale) => Number::of(values.value(row), -scale).write(out),
            Values::Date(values) => {
                out.push(b'"');
                write_date(values.value(row).into(), out)?;
                out.push(b'"');
            }
            Values::Timestamp(values) => {
                out.push(b'"');
                write_time(values.value(row), out)?;
                out.extend_from_slice(b"Z\"");
            }
            Values::LocalTime(values) => {
                out.push(b'"');
                write_time(values.value(row), out)?;
                out.push(b'"');
            }
            Values::String(values) => write_string(values.value(row).as_bytes(), out),
            Values::Unread(_) => return Err(Refused),
        }
        Ok(Some(1))
    }

    /// Whether a column has the value of another column, also as its text or as the only item of an array.
    fn agrees(&self, row: usize, value: &[u8]) -> Fit<bool> {
        match self {
            Values::List(lists, items) => {
                let offsets = lists.value_offsets();
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                Ok(end - start == 1 && !items.is_null(start) && items.agrees(start, value)?)
            }
            Values::String(values) if value.first() != Some(&b'"') => {
                // The mark of a long number belongs to no text.
                Ok(value.first() != Some(&b'~') && values.value(row).as_bytes() == value)
            }
            Values::Map(..) | Values::Record(..) => Err(Refused),
            _ => {
                let mut own = Vec::new();
                self.write(row, &mut own)?;
                Ok(own == value)
            }
        }
    }
}

fn write_list(items: &Values, start: usize, end: usize, out: &mut Vec<u8>) -> Fit<i64> {
    out.push(b'[');
    let mut values = 0;
    for at in start..end {
        if at > start {
            out.push(b',');
        }
        match items.write(at, out)? {
            Some(count) => values += count,
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b']');
    Ok(if start == end { 1 } else { values })
}

fn write_map(
    keys: &StringArray,
    values: &Values,
    entries: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) -> Fit<i64> {
    let is_empty = entries.is_empty();
    let mut order: Vec<usize> = entries.collect();
    order.sort_unstable_by_key(|at| keys.value(*at));
    if order
        .windows(2)
        .any(|pair| keys.value(pair[0]) == keys.value(pair[1]))
    {
        return Err(Refused);
    }
    out.push(b'{');
    let mut count = 0;
    for (number, at) in order.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_string(keys.value(at).as_bytes(), out);
        out.push(b':');
        match values.write(at, out)? {
            Some(more) => count += more,
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    Ok(if is_empty { 1 } else { count })
}

fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_double(value: f64, out: &mut Vec<u8>) -> Fit<()> {
    if !value.is_finite() {
        return Err(Refused);
    }
    if value.fract() == 0.0 && value.abs() < PLAIN_WHOLE && value != 0.0 {
        write_integer(value as i64, out);
    } else {
        Number::of_double(value).write_double(out);
    }
    Ok(())
}

/// Write a float: it means its exact value, which has few digits if it is a small multiple of 1/256.
fn write_float(value: f32, out: &mut Vec<u8>) -> Fit<()> {
    let wide = f64::from(value);
    if (wide * 256.0).fract() != 0.0 || wide.abs() >= 1e7 {
        return Err(Refused);
    }
    write_double(wide, out)
}
