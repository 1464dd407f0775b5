//! From texts to columns: one pass over each record, which fits exactly or is refused as a whole.

use arrow_array::StructArray;
use arrow_schema::{ArrowError, Fields};
use rustc_hash::FxHashSet;

use crate::columns::{Column, MapColumn, RecordColumn, Scalar};
use crate::numbers::{self, Number};
use crate::record_shape::{apply_plan, kinds, Field, Hollow, InvalidPlan, RecordPlan, Take};
use crate::scanner::{Fit, Refused, Scanner, MAX_LEVELS};
use crate::spellings::{read_time, Spelled};
use crate::times::{parse_temporal, Temporal};

/// Decodes the records that fit the columns.
pub struct RecordDecoder {
    root: RecordColumn,
    scratch: Vec<u8>,
}

impl RecordDecoder {
    pub fn new(fields: &Fields, plan: &RecordPlan) -> Result<RecordDecoder, InvalidPlan> {
        let mut root = RecordColumn::new(fields);
        apply_plan(&mut root, plan)?;
        Ok(RecordDecoder {
            root,
            scratch: Vec::new(),
        })
    }

    /// The number of records since the last call of `finish`.
    pub fn records(&self) -> usize {
        self.root.len()
    }

    /// Add the record of a text; return whether it fits. If not, nothing of it is left in the columns.
    pub fn add(&mut self, text: &[u8]) -> bool {
        let before = self.root.len();
        let is_fitting = simdutf8::basic::from_utf8(text).is_ok() && self.decode(text).is_ok();
        if !is_fitting {
            self.root.resize(before);
        }
        is_fitting
    }

    fn decode(&mut self, text: &[u8]) -> Fit<()> {
        let mut reader = Reader {
            scanner: Scanner::new(text),
            scratch: &mut self.scratch,
        };
        reader.record(&mut self.root, MAX_LEVELS)?;
        // Nothing may follow but space.
        if reader.scanner.peek() == 0 && reader.scanner.at >= text.len() {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Return the columns of all records since the last call.
    pub fn finish(&mut self) -> Result<StructArray, ArrowError> {
        self.root.finish()
    }

    /// Forget the records since the last call.
    pub fn clear(&mut self) {
        self.root.resize(0);
    }
}

struct Reader<'t, 's> {
    scanner: Scanner<'t>,
    scratch: &'s mut Vec<u8>,
}

impl<'t> Reader<'t, '_> {
    fn record(&mut self, record: &mut RecordColumn, levels: u32) -> Fit<()> {
        if levels == 0 || !record.shape.is_known {
            return Err(Refused);
        }
        self.scanner.expect(b'{')?;
        record.shape.records += 1;
        let (number, row) = (record.shape.records, record.len());
        let (mut guess, mut previous) = (record.shape.first, None);
        if self.scanner.peek() == b'}' {
            self.scanner.at += 1;
        } else {
            loop {
                let at = self.key(record, guess, previous)?;
                let field = &mut record.shape.fields[at];
                if field.last_record == number {
                    return Err(Refused);
                }
                field.last_record = number;
                (guess, previous) = (field.next, Some(at));
                self.scanner.expect(b':')?;
                self.field(&mut record.columns, &record.shape.fields[at], row, levels)?;
                if self.scanner.is_end(b'}')? {
                    break;
                }
                self.scanner.peek();
            }
        }
        if record.shape.has_required {
            let is_missing = |field: &Field| field.is_required && field.last_record != number;
            if record.shape.fields.iter().any(is_missing) {
                return Err(Refused);
            }
        }
        record.end_record();
        Ok(())
    }

    /// Read a key; return its place. It is probably the guessed one, else it becomes the guess after the previous key.
    #[inline(always)]
    fn key(
        &mut self,
        record: &mut RecordColumn,
        guess: u32,
        previous: Option<usize>,
    ) -> Fit<usize> {
        if self.scanner.byte(self.scanner.at) != b'"' {
            return Err(Refused);
        }
        if let Some(field) = record.shape.fields.get(guess as usize) {
            if let Some(length) = field.begins(&self.scanner.text[self.scanner.at + 1..]) {
                self.scanner.at += 1 + length;
                return Ok(guess as usize);
            }
        }
        let token = self.scanner.string()?;
        let key = self.scanner.unescaped(token, self.scratch)?;
        let at = record.shape.find(key).ok_or(Refused)?;
        match previous {
            None => record.shape.first = at,
            Some(previous) => record.shape.fields[previous].next = at,
        }
        Ok(at as usize)
    }

    /// Read the value of a field into its columns.
    #[inline(always)]
    fn field(&mut self, columns: &mut [Column], field: &Field, row: usize, levels: u32) -> Fit<()> {
        let byte = self.scanner.peek();
        if byte == b'n' {
            self.scanner.word(b"null")?;
            // A column that is NOT NULL refuses it; all others get their nulls later.
            let is_known = !field.slots.is_empty()
                || field.take == Take::LeftOut
                || field.hollow.empties & kinds::NULL != 0;
            return if field.is_required || !is_known {
                Err(Refused)
            } else {
                Ok(())
            };
        }
        if field.is_single {
            let slot = &field.slots[0];
            let column = &mut columns[slot.column];
            column.pad(row);
            let kind_bits = if byte == b'[' {
                kinds::ARRAY
            } else {
                kinds::RECORD
            };
            if matches!(byte, b'[' | b'{') && slot.takes & kind_bits == 0 {
                return Err(Refused);
            }
            let takes = if matches!(column, Column::List(_) | Column::Map(_)) {
                slot.item_takes
            } else {
                slot.takes
            };
            return match byte {
                b'[' | b'{' => self.value(column, takes, levels - 1),
                _ if matches!(column, Column::List(_)) => self.route(columns, field, row, levels),
                _ => self.value(column, takes, levels - 1),
            };
        }
        self.route(columns, field, row, levels)
    }

    /// Read a value in the form of a column: scalars of some kinds, arrays, maps or records of them.
    fn value(&mut self, column: &mut Column, takes: u16, levels: u32) -> Fit<()> {
        let byte = self.scanner.peek();
        if byte == b'n' {
            self.scanner.word(b"null")?;
            column.push_null();
            return Ok(());
        }
        match column {
            Column::Text(values) if byte == b'"' && takes & kinds::STRING != 0 => {
                let token = self.scanner.string()?;
                values.push(self.scanner.unescaped(token, self.scratch)?)
            }
            Column::List(list) => {
                if levels == 0 {
                    return Err(Refused);
                }
                self.scanner.expect(b'[')?;
                if self.scanner.peek() == b']' {
                    self.scanner.at += 1;
                } else {
                    loop {
                        self.value(&mut list.items, takes, levels - 1)?;
                        if self.scanner.is_end(b']')? {
                            break;
                        }
                    }
                }
                list.end_array()
            }
            Column::Record(record) => self.record(record, levels),
            Column::Map(map) => self.map(map, takes, levels),
            column => {
                let (kind, scalar) = if byte == b'"' {
                    let token = self.scanner.string()?;
                    temporal_kind(self.scanner.unescaped(token, self.scratch)?).ok_or(Refused)?
                } else {
                    self.number_or_word(byte)?
                };
                if takes & kind != 0 && column.put(&scalar)? {
                    Ok(())
                } else {
                    Err(Refused)
                }
            }
        }
    }

    fn map(&mut self, map: &mut MapColumn, takes: u16, levels: u32) -> Fit<()> {
        if levels == 0 {
            return Err(Refused);
        }
        self.scanner.expect(b'{')?;
        let mut keys: FxHashSet<Vec<u8>> = FxHashSet::default();
        if self.scanner.peek() == b'}' {
            self.scanner.at += 1;
        } else {
            loop {
                if self.scanner.peek() != b'"' {
                    return Err(Refused);
                }
                let token = self.scanner.string()?;
                let key = self.scanner.unescaped(token, self.scratch)?;
                map.keys.push(key)?;
                if !keys.insert(key.to_vec()) {
                    return Err(Refused);
                }
                self.scanner.expect(b':')?;
                self.value(&mut map.values, takes, levels - 1)?;
                if self.scanner.is_end(b'}')? {
                    break;
                }
            }
        }
        map.end_map()
    }

    /// Read a scalar that is not a string.
    #[inline(always)]
    fn number_or_word(&mut self, byte: u8) -> Fit<(u16, Scalar<'t>)> {
        match byte {
            b't' => self
                .scanner
                .word(b"true")
                .map(|()| (kinds::BOOLEAN, Scalar::Boolean(true))),
            b'f' => self
                .scanner
                .word(b"false")
                .map(|()| (kinds::BOOLEAN, Scalar::Boolean(false))),
            _ => {
                let (token, number) = numbers::scan(&mut self.scanner)?;
                Ok(match number {
                    Number::Long(value) => (kinds::LONG, Scalar::Long(value, token)),
                    Number::Double(value) => (kinds::DOUBLE, Scalar::Double(value, token)),
                    Number::Decimal => (kinds::DECIMAL, Scalar::Decimal(token)),
                })
            }
        }
    }

    /// Read a value into all columns of a field that take its kind.
    #[inline(never)]
    fn route(&mut self, columns: &mut [Column], field: &Field, row: usize, levels: u32) -> Fit<()> {
        let byte = self.scanner.peek();
        let is_nested = matches!(byte, b'[' | b'{');
        match field.take {
            Take::LeftOut => return self.scanner.skip_scalar(),
            Take::Masked => {
                self.scanner.skip_scalar()?;
                return put_scalar(
                    columns,
                    field,
                    row,
                    kinds::STRING,
                    Scalar::Text(&field.mask),
                );
            }
            Take::AsJson | Take::AsText if is_nested || field.take == Take::AsJson => {
                if field.takes & kinds::STRING == 0 {
                    return Err(Refused);
                }
                self.scratch.clear();
                self.scanner.compact(self.scratch, levels - 1)?;
                return put_scalar(
                    columns,
                    field,
                    row,
                    kinds::STRING,
                    Scalar::Text(self.scratch),
                );
            }
            _ => {}
        }
        if is_nested {
            return self.route_nested(columns, field, row, levels - 1, byte);
        }
        if byte == b'"' {
            let token = self.scanner.string()?;
            let text = self.scanner.unescaped(token, self.scratch)?;
            let (kind, scalar) = string_kind(field, text)?;
            return put_scalar(columns, field, row, kind, scalar);
        }
        let (kind, scalar) = self.number_or_word(byte)?;
        match scalar {
            Scalar::Long(value, _) if value.unsigned_abs() >= field.bound => Err(Refused),
            scalar => put_scalar(columns, field, row, kind, scalar),
        }
    }

    /// Read an array or a record into the columns that take it, once for each.
    fn route_nested(
        &mut self,
        columns: &mut [Column],
        field: &Field,
        row: usize,
        levels: u32,
        byte: u8,
    ) -> Fit<()> {
        let kind = if byte == b'[' {
            kinds::ARRAY
        } else {
            kinds::RECORD
        };
        if field.slots.is_empty() {
            return self.hollow(&field.hollow, byte, levels);
        }
        if field.takes & kind == 0 {
            return Err(Refused);
        }
        if kind == kinds::ARRAY && field.routes_items {
            return self.route_items(columns, field, row);
        }
        let (start, mut end) = (self.scanner.at, self.scanner.at);
        for slot in field.slots.iter().filter(|slot| slot.takes & kind != 0) {
            let column = &mut columns[slot.column];
            column.pad(row);
            self.scanner.at = start;
            if kind == kinds::ARRAY {
                self.value(column, slot.item_takes, levels)?;
            } else {
                self.wrapped_record(column, slot.item_takes, levels)?;
            }
            end = self.scanner.at;
        }
        self.scanner.at = end;
        Ok(())
    }

    /// Read an array whose items are all of one kind into all columns of arrays that take the kind.
    fn route_items(&mut self, columns: &mut [Column], field: &Field, row: usize) -> Fit<()> {
        self.scanner.expect(b'[')?;
        let mut kind_of_items = 0;
        if self.scanner.peek() == b']' {
            self.scanner.at += 1;
        } else {
            loop {
                let byte = self.scanner.peek();
                let (kind, scalar) = if byte == b'"' {
                    let token = self.scanner.string()?;
                    (
                        kinds::STRING,
                        Scalar::Text(self.scanner.unescaped(token, self.scratch)?),
                    )
                } else {
                    self.number_or_word(byte)?
                };
                if kind_of_items == 0 {
                    kind_of_items = kind;
                    pad_arrays(columns, field, row, kind)?;
                }
                let is_beyond =
                    matches!(scalar, Scalar::Long(value, _) if value.unsigned_abs() >= field.bound);
                if kind != kind_of_items || is_beyond {
                    return Err(Refused);
                }
                for slot in field
                    .slots
                    .iter()
                    .filter(|slot| slot.item_takes & kind != 0)
                {
                    let Column::List(list) = &mut columns[slot.column] else {
                        return Err(Refused);
                    };
                    if !list.items.put(&scalar)? {
                        return Err(Refused);
                    }
                }
                if self.scanner.is_end(b']')? {
                    break;
                }
            }
        }
        // Every column of arrays takes the empty one.
        let is_taking = |item_takes: u16| kind_of_items == 0 || item_takes & kind_of_items != 0;
        for slot in field
            .slots
            .iter()
            .filter(|slot| slot.takes & kinds::ARRAY != 0 && is_taking(slot.item_takes))
        {
            let column = &mut columns[slot.column];
            column.pad(row);
            let Column::List(list) = column else {
                return Err(Refused);
            };
            list.end_array()?;
        }
        Ok(())
    }

    /// Read a record into a column of records, or as the only item of its arrays.
    fn wrapped_record(&mut self, column: &mut Column, takes: u16, levels: u32) -> Fit<()> {
        let Column::List(list) = column else {
            return self.value(column, takes, levels);
        };
        self.wrapped_record(&mut list.items, takes, levels)?;
        list.end_array()
    }

    /// Read an empty array, an empty record, or a record of fields without a value, all of them without columns.
    fn hollow(&mut self, hollow: &Hollow, byte: u8, levels: u32) -> Fit<()> {
        let (end, kind) = if byte == b'[' {
            (b']', kinds::EMPTY_ARRAY)
        } else {
            (b'}', kinds::EMPTY_RECORD)
        };
        self.scanner.at += 1;
        if byte == b'{' && !hollow.below.is_empty() && self.scanner.peek() != end {
            return self.hollow_fields(&hollow.below, levels);
        }
        self.scanner.expect(end)?;
        if hollow.empties & kind != 0 {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    fn hollow_fields(&mut self, fields: &[(Box<[u8]>, Hollow)], levels: u32) -> Fit<()> {
        // One bit for each field tells a key that is there twice.
        if levels <= 1 || fields.len() > 64 {
            return Err(Refused);
        }
        let mut seen = 0_u64;
        loop {
            if self.scanner.peek() != b'"' {
                return Err(Refused);
            }
            let token = self.scanner.string()?;
            let key = &self.scanner.text[token.start..token.end];
            let at = fields.iter().position(|(own, _)| **own == *key);
            let at = at.filter(|_| !token.has_escapes).ok_or(Refused)?;
            if seen & (1 << at) != 0 {
                return Err(Refused);
            }
            seen |= 1 << at;
            self.scanner.expect(b':')?;
            let hollow = &fields[at].1;
            match self.scanner.peek() {
                b'n' if hollow.empties & kinds::NULL != 0 => self.scanner.word(b"null")?,
                byte @ (b'[' | b'{') => self.hollow(hollow, byte, levels - 1)?,
                _ => return Err(Refused),
            }
            if self.scanner.is_end(b'}')? {
                return Ok(());
            }
        }
    }
}

/// Make the columns ready for the items of an array of a kind, which at least one of them must take.
fn pad_arrays(columns: &mut [Column], field: &Field, row: usize, kind: u16) -> Fit<()> {
    let mut is_taken = false;
    for slot in field
        .slots
        .iter()
        .filter(|slot| slot.item_takes & kind != 0)
    {
        columns[slot.column].pad(row);
        is_taken = true;
    }
    if is_taken {
        Ok(())
    } else {
        Err(Refused)
    }
}

fn string_kind<'t>(field: &Field, text: &'t [u8]) -> Fit<(u16, Scalar<'t>)> {
    let as_text = (kinds::STRING, Scalar::Text(text));
    if !field.has_instants && !field.has_local_times {
        return Ok(as_text);
    }
    let mut temporal = parse_temporal(text);
    if temporal.is_none() && field.spells_any {
        temporal = read_time(text).map(|time| match time {
            Spelled::Instant(micros) => Temporal::Instant(micros),
            Spelled::LocalTime(micros) => Temporal::LocalTime(micros),
        });
    }
    Ok(match temporal {
        Some(Temporal::Date(day)) => (kinds::DATE, Scalar::Date(day, text)),
        Some(Temporal::Instant(micros)) if field.has_instants => {
            (kinds::TIMESTAMP, Scalar::Timestamp(micros, text))
        }
        Some(Temporal::LocalTime(micros)) if field.has_local_times => {
            (kinds::LOCAL_TIME, Scalar::LocalTime(micros, text))
        }
        // Python knows the zone.
        Some(Temporal::LocalTime(_)) if field.has_zone => return Err(Refused),
        _ => as_text,
    })
}

#[inline(always)]
fn temporal_kind(text: &[u8]) -> Option<(u16, Scalar<'_>)> {
    Some(match parse_temporal(text)? {
        Temporal::Date(day) => (kinds::DATE, Scalar::Date(day, text)),
        Temporal::Instant(micros) => (kinds::TIMESTAMP, Scalar::Timestamp(micros, text)),
        Temporal::LocalTime(micros) => (kinds::LOCAL_TIME, Scalar::LocalTime(micros, text)),
    })
}

/// Append a scalar to all columns of a field that take its kind.
#[inline(always)]
fn put_scalar(
    columns: &mut [Column],
    field: &Field,
    row: usize,
    kind: u16,
    scalar: Scalar,
) -> Fit<()> {
    if field.takes & kind == 0 {
        return Err(Refused);
    }
    let mut is_held = false;
    for slot in field.slots.iter().filter(|slot| slot.takes & kind != 0) {
        let column = &mut columns[slot.column];
        column.pad(row);
        let holds = column.put(&scalar)?;
        if !holds && slot.decides & kind != 0 {
            return Err(Refused);
        }
        is_held |= holds;
    }
    // The plan makes sure that some column holds the value. If it does not, no value may be lost.
    if is_held {
        Ok(())
    } else {
        Err(Refused)
    }
}
