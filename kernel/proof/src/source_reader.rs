//! Texts of a source as the forms that their rows must have. Source: docs/evolution-rules.md#proof
//!
//! For each value the columns of its field are asked in the order in which the proof reads them; the first that holds
//! the value exactly says what the row must give back. The exact rules are `widen.proof.expected_values`.

use std::collections::{HashMap, HashSet};

use crate::csv::is_value;
use crate::number::{fits_bits, mark_spelling, read_integer, Canonical, Token, MAX_DECIMAL_DIGITS};
use crate::plan::{ColumnPlan, FieldPlan, InvalidPlan, Kind, RecordPlan};
use crate::scan::{unescape, write_string, Cursor, Keys, MAX_LEVELS};
use crate::spelled::read_spelled;
use crate::time::{classify, trim_time, write_time, Temporal};
use crate::{DigestSum, Fit, Refused};

const MASK: &[u8] = b"***";

/// A field that the records of a file get from the path of the file: its key, and JSON, or nothing for null.
pub type FileField = (String, Option<String>);

/// Digests the texts of a source.
pub struct SourceReader {
    root: usize,
    shapes: Vec<Shape>,
    fields: Vec<FieldShape>,
    is_rescuing: bool,
    sum: DigestSum,
    counts: Counts,
    form: Vec<u8>,
    texts: Vec<u8>,
    /// The parts of the records around the place, each with the rank of its key.
    parts: Vec<Part>,
    sorted: Vec<u8>,
    generation: u64,
}

/// The counts of one record.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Values of the source.
    values: i64,
    /// Those in another form.
    converted: i64,
    /// Values in the form.
    in_form: i64,
}

impl Counts {
    fn beyond_form(&self) -> i64 {
        self.values - self.in_form
    }
}

#[derive(Clone, Copy)]
struct Part {
    rank: usize,
    start: usize,
    end: usize,
}

/// The fields of a record.
struct Shape {
    /// The fields in the order of their keys.
    fields: Vec<usize>,
    by_key: HashMap<Box<[u8]>, usize>,
    refuses_unknown: bool,
    /// The keys as Spark compares names, if a key in another case may stand for one of them.
    in_any_case: HashSet<Box<[u8]>>,
    /// The rank that followed each rank in the last record; the one that came first is at the end.
    following: Vec<usize>,
    /// The number of the record in which each key came last.
    seen: Vec<u64>,
}

struct FieldShape {
    key: Box<[u8]>,
    plan: FieldPlan,
    columns: Vec<Column>,
    /// The widest record.
    record: Option<usize>,
}

struct Column {
    dim: usize,
    kind: Kind,
    has_epochs: bool,
    unit_nanos: i64,
    has_booleans_as_numbers: bool,
    rounds: bool,
    /// The field of the values of a map.
    entries: Option<usize>,
}

impl SourceReader {
    /// Return a reader.
    ///
    /// Args: whether the table has a rescue column; the share of the digests that is summed, as `DigestSum::new`.
    pub fn new(plan: &RecordPlan, is_rescuing: bool, limit: u64) -> Result<Self, InvalidPlan> {
        let mut reader = SourceReader {
            root: 0,
            shapes: Vec::new(),
            fields: Vec::new(),
            is_rescuing,
            sum: DigestSum::new(limit),
            counts: Counts::default(),
            form: Vec::new(),
            texts: Vec::new(),
            parts: Vec::new(),
            sorted: Vec::new(),
            generation: 0,
        };
        reader.root = reader.add_shape(plan)?;
        Ok(reader)
    }

    fn add_shape(&mut self, plan: &RecordPlan) -> Result<usize, InvalidPlan> {
        let mut fields: Vec<&FieldPlan> = plan.fields.iter().collect();
        // The order of bytes in UTF-8 is that of characters.
        fields.sort_by(|one, other| one.key.cmp(&other.key));
        let ids = fields
            .iter()
            .map(|field| self.add_field(field))
            .collect::<Result<Vec<_>, _>>()?;
        let by_key = fields
            .iter()
            .enumerate()
            .map(|(rank, field)| (field.key.as_bytes().into(), rank))
            .collect();
        self.shapes.push(Shape {
            following: vec![0; ids.len() + 1],
            seen: vec![0; ids.len()],
            fields: ids,
            by_key,
            refuses_unknown: plan.refuses_unknown,
            in_any_case: plan
                .in_any_case
                .iter()
                .map(|key| key.as_bytes().into())
                .collect(),
        });
        Ok(self.shapes.len() - 1)
    }

    fn add_field(&mut self, plan: &FieldPlan) -> Result<usize, InvalidPlan> {
        let columns = plan
            .columns
            .iter()
            .map(|column| self.add_column(column))
            .collect::<Result<Vec<_>, _>>()?;
        let widest = plan
            .columns
            .iter()
            .filter_map(|column| column.record.as_ref().map(|record| (column.dim, record)))
            .reduce(|widest, other| if other.0 > widest.0 { other } else { widest });
        let record = match widest {
            Some((_, record)) => Some(self.add_shape(record)?),
            None => None,
        };
        let mut key = Vec::new();
        write_string(plan.key.as_bytes(), &mut key);
        key.push(b':');
        self.fields.push(FieldShape {
            key: key.into(),
            plan: FieldPlan {
                columns: Vec::new(),
                ..plan.clone()
            },
            columns,
            record,
        });
        Ok(self.fields.len() - 1)
    }

    fn add_column(&mut self, plan: &ColumnPlan) -> Result<Column, InvalidPlan> {
        let entries = match plan.entries.first() {
            Some(entries) => Some(self.add_field(entries)?),
            None => None,
        };
        Ok(Column {
            dim: plan.dim,
            kind: plan.kind()?,
            has_epochs: plan.has_epochs,
            unit_nanos: plan.unit_nanos,
            has_booleans_as_numbers: plan.has_booleans_as_numbers,
            rounds: plan.rounds,
            entries,
        })
    }

    pub fn sum(&self) -> &DigestSum {
        &self.sum
    }

    /// Add the record in a text, or return false if Python has to read the text.
    pub fn add(&mut self, text: &[u8], file_fields: &[FileField]) -> bool {
        if self.read(text, file_fields).is_err() {
            return false;
        }
        self.sum
            .add(&self.form, self.counts.beyond_form(), self.counts.converted);
        true
    }

    /// Return the form of the record in a text, the number of its values that are not in the form, and how many are
    /// converted.
    pub fn encode(&mut self, text: &[u8], file_fields: &[FileField]) -> Fit<(&[u8], i64, i64)> {
        self.read(text, file_fields)?;
        Ok((&self.form, self.counts.beyond_form(), self.counts.converted))
    }

    fn read(&mut self, text: &[u8], file_fields: &[FileField]) -> Fit<()> {
        if !text.is_ascii() && std::str::from_utf8(text).is_err() {
            return Err(Refused);
        }
        self.form.clear();
        self.parts.clear();
        self.counts = Counts::default();
        let mut cursor = Cursor::new(text);
        self.record(&mut cursor, self.root, MAX_LEVELS, file_fields)?;
        // A row without values is not a value.
        if self.form == b"{}" {
            self.counts.in_form = 0;
        }
        if cursor.is_at_end() {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Write the form of a record, and return whether all its values are null.
    fn record(
        &mut self,
        cursor: &mut Cursor,
        shape: usize,
        levels: usize,
        file_fields: &[FileField],
    ) -> Fit<bool> {
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        cursor.expect(b'{')?;
        let (form_start, parts_start) = (self.form.len(), self.parts.len());
        self.form.push(b'{');
        self.generation += 1;
        let generation = self.generation;
        let mut unknown = Keys::default();
        let mut last = self.shapes[shape].fields.len();
        let mut are_all_null = true;
        let mut has_more = cursor.peek()? != b'}';
        if !has_more {
            cursor.at += 1;
        }
        while has_more {
            let (key, has_escapes) = cursor.string()?;
            cursor.expect(b':')?;
            match self.find_key(shape, last, key, has_escapes)? {
                Some(rank) => {
                    last = rank;
                    are_all_null &= !self.field(cursor, shape, rank, generation, levels)?;
                }
                None => {
                    unknown.add(key, has_escapes)?;
                    are_all_null &= !self.unknown(cursor, shape, key, has_escapes, levels)?;
                }
            }
            has_more = cursor.has_next(b'}')?;
        }
        for (key, value) in file_fields {
            let rank = self.shapes[shape].by_key.get(key.as_bytes()).copied();
            match (rank, value) {
                (Some(rank), Some(value)) => {
                    let mut cursor = Cursor::new(value.as_bytes());
                    self.field(&mut cursor, shape, rank, generation, levels)?;
                }
                // A record with this key keeps it, and the one from the file gets another name.
                (Some(rank), None) if self.shapes[shape].seen[rank] != generation => {}
                (None, None) if !self.is_rescuing => {}
                _ => return Err(Refused),
            }
        }
        self.sort(form_start, parts_start);
        self.form.push(b'}');
        Ok(are_all_null)
    }

    /// Return the rank of a key; most records have the keys of the last one.
    fn find_key(
        &mut self,
        shape: usize,
        last: usize,
        key: &[u8],
        has_escapes: bool,
    ) -> Fit<Option<usize>> {
        if has_escapes {
            self.texts.clear();
            unescape(key, &mut self.texts)?;
            return Ok(self.shapes[shape].by_key.get(&*self.texts).copied());
        }
        let Shape {
            fields,
            following,
            by_key,
            ..
        } = &mut self.shapes[shape];
        let guess = following[last];
        if let Some(field) = fields.get(guess) {
            let known = &self.fields[*field].key;
            if known.len() == key.len() + 3 && &known[1..known.len() - 2] == key {
                return Ok(Some(guess));
            }
        }
        let rank = by_key.get(key).copied();
        if let Some(rank) = rank {
            following[last] = rank;
        }
        Ok(rank)
    }

    /// Write a field of a record, and return whether its value is not null.
    fn field(
        &mut self,
        cursor: &mut Cursor,
        shape: usize,
        rank: usize,
        generation: u64,
        levels: usize,
    ) -> Fit<bool> {
        let seen = &mut self.shapes[shape].seen[rank];
        if *seen == generation {
            return Err(Refused);
        }
        *seen = generation;
        let field = self.shapes[shape].fields[rank];
        if self.fields[field].plan.is_excluded {
            cursor.skip(levels)?;
            return Ok(false);
        }
        if cursor.peek()? == b'n' {
            cursor.word(b"null")?;
            return Ok(false);
        }
        let start = self.form.len();
        self.form.extend_from_slice(&self.fields[field].key);
        if self.value(cursor, field, 0, levels)? {
            let end = self.form.len();
            self.parts.push(Part { rank, start, end });
        } else {
            self.form.truncate(start);
        }
        Ok(true)
    }

    /// Pass over the value of a key without columns, and return whether it is not null.
    fn unknown(
        &mut self,
        cursor: &mut Cursor,
        shape: usize,
        key: &[u8],
        has_escapes: bool,
        levels: usize,
    ) -> Fit<bool> {
        if self.is_rescuing {
            return Err(Refused);
        }
        if cursor.peek()? == b'n' {
            cursor.word(b"null")?;
            return Ok(false);
        }
        let shape = &self.shapes[shape];
        // Only Python compares other names than those of ASCII.
        let may_be_known = !shape.in_any_case.is_empty()
            && (has_escapes
                || !key.is_ascii()
                || shape
                    .in_any_case
                    .contains(key.to_ascii_lowercase().as_slice()));
        if shape.refuses_unknown || may_be_known {
            return Err(Refused);
        }
        self.empty(cursor, levels)?;
        Ok(true)
    }

    /// Pass over a value for which there is no column: one without scalars becomes null.
    fn empty(&mut self, cursor: &mut Cursor, levels: usize) -> Fit<bool> {
        let skipped = cursor.skip(levels)?;
        if skipped.has_scalar || self.is_rescuing {
            return Err(Refused);
        }
        self.counts.values += skipped.empties;
        self.counts.converted += skipped.empties;
        Ok(false)
    }

    /// Bring the parts of a record into the order of their keys, with commas between them.
    fn sort(&mut self, form_start: usize, parts_start: usize) {
        let parts = &mut self.parts[parts_start..];
        let from = form_start + 1;
        let is_sorted = parts.windows(2).all(|pair| pair[0].rank < pair[1].rank);
        if !is_sorted {
            parts.sort_unstable_by_key(|part| part.rank);
        }
        self.sorted.clear();
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                self.sorted.push(b',');
            }
            self.sorted
                .extend_from_slice(&self.form[part.start..part.end]);
        }
        self.form.truncate(from);
        self.form.extend_from_slice(&self.sorted);
        self.parts.truncate(parts_start);
    }

    /// Write a value, given the number of arrays around it, and return whether the form has one.
    fn value(&mut self, cursor: &mut Cursor, field: usize, dim: usize, levels: usize) -> Fit<bool> {
        let plan = &self.fields[field].plan;
        if plan.is_refused {
            return Err(Refused);
        }
        if plan.is_masked {
            return self.masked(cursor, field, levels);
        }
        match cursor.peek()? {
            b'"' => self.string(cursor, field, dim),
            b'{' => self.object(cursor, field, dim, levels),
            b'[' => self.array(cursor, field, dim, levels),
            b't' => {
                cursor.word(b"true")?;
                self.boolean(field, dim, true)
            }
            b'f' => {
                cursor.word(b"false")?;
                self.boolean(field, dim, false)
            }
            _ => self.number(cursor, field, dim),
        }
    }

    fn masked(&mut self, cursor: &mut Cursor, field: usize, levels: usize) -> Fit<bool> {
        cursor.skip(levels)?;
        if !self.has_column(field, 0, Kind::String) {
            return Err(Refused);
        }
        write_string(MASK, &mut self.form);
        self.count(false)
    }

    fn has_column(&self, field: usize, dim: usize, kind: Kind) -> bool {
        let columns = &self.fields[field].columns;
        columns
            .iter()
            .any(|column| column.dim == dim && column.kind == kind)
    }

    /// Count a value of the form.
    fn count(&mut self, is_exact: bool) -> Fit<bool> {
        self.counts.values += 1;
        self.counts.in_form += 1;
        self.counts.converted += i64::from(!is_exact);
        Ok(true)
    }

    fn object(
        &mut self,
        cursor: &mut Cursor,
        field: usize,
        dim: usize,
        levels: usize,
    ) -> Fit<bool> {
        let FieldShape {
            plan,
            columns,
            record,
            ..
        } = &self.fields[field];
        if plan.is_map {
            let mut maps = columns
                .iter()
                .filter(|column| column.kind == Kind::Map && column.dim == dim);
            return match (maps.next(), maps.next()) {
                (
                    Some(Column {
                        entries: Some(entries),
                        ..
                    }),
                    None,
                ) => {
                    let entries = *entries;
                    self.map(cursor, entries, levels)
                }
                _ => Err(Refused),
            };
        }
        let has_record = columns
            .iter()
            .any(|column| column.kind == Kind::Record && column.dim == dim);
        if let (true, Some(record)) = (has_record, *record) {
            let start = self.form.len();
            let are_all_null = self.record(cursor, record, levels, &[])?;
            if &self.form[start..] == b"{}" {
                // An empty object is a value; one with empty values has counted those.
                self.counts.values += i64::from(are_all_null);
                self.counts.in_form += 1;
            }
            return Ok(true);
        }
        if columns.iter().any(|column| column.dim > dim) {
            return Err(Refused);
        }
        self.empty(cursor, levels)
    }

    fn map(&mut self, cursor: &mut Cursor, entries: usize, levels: usize) -> Fit<bool> {
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        cursor.expect(b'{')?;
        let (form_start, from) = (self.form.len(), self.form.len() + 1);
        self.form.push(b'{');
        let mut found: Vec<(Vec<u8>, usize, usize)> = Vec::new();
        let mut has_more = cursor.peek()? != b'}';
        if !has_more {
            cursor.at += 1;
            self.form.push(b'}');
            return self.count(true);
        }
        while has_more {
            let (raw, has_escapes) = cursor.string()?;
            let mut key = Vec::new();
            if has_escapes {
                unescape(raw, &mut key)?;
            } else {
                key.extend_from_slice(raw);
            }
            cursor.expect(b':')?;
            let start = self.form.len();
            write_string(&key, &mut self.form);
            self.form.push(b':');
            self.item(cursor, entries, 0, levels)?;
            found.push((key, start, self.form.len()));
            has_more = cursor.has_next(b'}')?;
        }
        found.sort_unstable();
        if found.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Refused);
        }
        self.sorted.clear();
        for (number, (_, start, end)) in found.iter().enumerate() {
            if number > 0 {
                self.sorted.push(b',');
            }
            self.sorted.extend_from_slice(&self.form[*start..*end]);
        }
        self.form.truncate(from);
        self.form.extend_from_slice(&self.sorted);
        self.form.push(b'}');
        debug_assert!(form_start < self.form.len());
        Ok(true)
    }

    /// Write an item of an array or a map; nulls stay.
    fn item(&mut self, cursor: &mut Cursor, field: usize, dim: usize, levels: usize) -> Fit<bool> {
        let is_null = cursor.peek()? == b'n';
        if is_null {
            cursor.word(b"null")?;
        }
        let has_form = !is_null && self.value(cursor, field, dim, levels)?;
        if !has_form {
            self.form.extend_from_slice(b"null");
        }
        Ok(has_form)
    }

    fn array(&mut self, cursor: &mut Cursor, field: usize, dim: usize, levels: usize) -> Fit<bool> {
        let columns = &self.fields[field].columns;
        if !columns.iter().any(|column| column.dim > dim) {
            // Maps hold arrays of their own.
            return self.empty(cursor, levels);
        }
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        cursor.expect(b'[')?;
        self.form.push(b'[');
        if cursor.peek()? == b']' {
            cursor.at += 1;
            self.form.push(b']');
            return self.count(true);
        }
        let (mut has_form, mut has_object) = (false, false);
        loop {
            has_object |= cursor.peek()? == b'{';
            has_form |= self.item(cursor, field, dim + 1, levels)?;
            if !cursor.has_next(b']')? {
                break;
            }
            self.form.push(b',');
        }
        // Python knows whether an array of objects without columns is stored (D19).
        if has_object && !has_form {
            return Err(Refused);
        }
        self.form.push(b']');
        Ok(true)
    }

    /// Write a text that is not JSON.
    fn text(&mut self, text: &[u8], field: usize) -> Fit<bool> {
        let plan = &self.fields[field].plan;
        if plan.is_refused || plan.refuses_strings {
            return Err(Refused);
        }
        let is_masked = plan.is_masked;
        if !is_masked && (plan.has_dates || plan.has_local_times) {
            return self.time(text, field, 0);
        }
        if !self.has_column(field, 0, Kind::String) {
            return Err(Refused);
        }
        write_string(if is_masked { MASK } else { text }, &mut self.form);
        self.count(!is_masked)
    }

    fn string(&mut self, cursor: &mut Cursor, field: usize, dim: usize) -> Fit<bool> {
        let (text, has_escapes) = cursor.string()?;
        let plan = &self.fields[field].plan;
        if plan.refuses_strings {
            return Err(Refused);
        }
        let reads_times = plan.has_dates || plan.has_local_times;
        if !has_escapes && !reads_times {
            if !self.has_column(field, dim, Kind::String) {
                return Err(Refused);
            }
            self.form.push(b'"');
            self.form.extend_from_slice(text);
            self.form.push(b'"');
            return self.count(true);
        }
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        let result = unescape(text, &mut texts).and_then(|()| {
            if reads_times {
                self.time(&texts, field, dim)
            } else if self.has_column(field, dim, Kind::String) {
                write_string(&texts, &mut self.form);
                self.count(true)
            } else {
                Err(Refused)
            }
        });
        self.texts = texts;
        result
    }

    /// Write a string that may be a date or a timestamp.
    fn time(&mut self, text: &[u8], field: usize, dim: usize) -> Fit<bool> {
        let plan = &self.fields[field].plan;
        let mut kind = match classify(text) {
            // Python knows the zone.
            Temporal::LocalTime if !plan.has_local_times && plan.has_dates && plan.has_zone => {
                return Err(Refused)
            }
            Temporal::LocalTime if !plan.has_local_times => Temporal::Text,
            Temporal::Timestamp if !plan.has_dates => Temporal::Text,
            kind => kind,
        };
        let mut spelled = Vec::new();
        if kind == Temporal::Text && plan.spells_any {
            match read_spelled(text) {
                Some((local, None)) if plan.has_local_times => {
                    write_time(local, &mut spelled)?;
                    kind = Temporal::LocalTime;
                }
                Some((_, None)) if plan.has_dates && plan.has_zone => return Err(Refused),
                Some((local, Some(minutes))) if plan.has_dates => {
                    write_time(local - minutes * 60_000_000, &mut spelled)?;
                    kind = Temporal::Timestamp;
                }
                _ => {}
            }
        }
        let columns = &self.fields[field].columns;
        let here = columns.iter().filter(|column| column.dim == dim);
        let mut form: Option<(Vec<u8>, bool)> = None;
        for column in here {
            let time = if spelled.is_empty() {
                trim_time(text)
            } else {
                &spelled
            };
            let instant = || [time, b"Z"].concat();
            let (value, is_exact) = match (column.kind, kind) {
                (Kind::String, _) => (text.to_vec(), true),
                (Kind::Date, Temporal::Date) => (text.to_vec(), true),
                (Kind::Timestamp, Temporal::Date) => ([text, b"T00:00:00Z"].concat(), false),
                (Kind::LocalTime, Temporal::Date) => ([text, b"T00:00:00"].concat(), false),
                (Kind::Timestamp, Temporal::Timestamp) => {
                    let value = instant();
                    let is_exact = value == text;
                    (value, is_exact)
                }
                (Kind::LocalTime, Temporal::LocalTime) => {
                    let value = time.to_vec();
                    let is_exact = value == text;
                    (value, is_exact)
                }
                // Numbers hold dates as counts.
                (
                    Kind::Integer(_) | Kind::Double | Kind::Decimal(..),
                    Temporal::Date | Temporal::Timestamp,
                ) => return Err(Refused),
                _ => continue,
            };
            form = Some((value, is_exact));
            break;
        }
        let (value, is_exact) = form.ok_or(Refused)?;
        write_string(&value, &mut self.form);
        self.count(is_exact)
    }

    fn boolean(&mut self, field: usize, dim: usize, value: bool) -> Fit<bool> {
        let word: &[u8] = if value { b"true" } else { b"false" };
        for column in &self.fields[field].columns {
            if column.dim != dim {
                continue;
            }
            match column.kind {
                Kind::Boolean => {
                    self.form.extend_from_slice(word);
                    return self.count(true);
                }
                Kind::String => {
                    let columns = &self.fields[field].columns;
                    if columns.iter().any(|each| {
                        each.dim > dim
                            && (each.kind == Kind::Boolean || each.has_booleans_as_numbers)
                    }) {
                        return Err(Refused);
                    }
                    write_string(word, &mut self.form);
                    return self.count(false);
                }
                _ if column.has_booleans_as_numbers => return Err(Refused),
                _ => {}
            }
        }
        Err(Refused)
    }

    fn number(&mut self, cursor: &mut Cursor, field: usize, dim: usize) -> Fit<bool> {
        if let Some(text) = cursor.plain_number() {
            let is_whole = !text.contains(&b'.');
            let first = self.fields[field].columns.iter().find(|column| {
                column.dim == dim
                    && !matches!(
                        column.kind,
                        Kind::Date | Kind::Boolean | Kind::Record | Kind::Map
                    )
            });
            let is_kept = match first.map(|column| column.kind) {
                Some(Kind::Integer(63)) => is_whole,
                Some(Kind::Integer(31)) => is_whole && text.len() < 10,
                // Between a column of integers and one of doubles, the first takes what is whole.
                Some(Kind::Double) => true,
                _ => false,
            };
            if is_kept {
                cursor.at += text.len();
                self.form.extend_from_slice(text);
                return self.count(true);
            }
        }
        let token = cursor.number()?;
        let SourceReader { fields, form, .. } = self;
        for column in &fields[field].columns {
            if column.dim != dim {
                continue;
            }
            let start = form.len();
            if let Some(is_exact) = write_number(column, &token, form)? {
                if fields[field].plan.has_marks && &form[start..] != token.text {
                    mark_number(&fields[field].columns, dim, &token, form, start)?;
                }
                return self.count(is_exact);
            }
        }
        Err(Refused)
    }
}

/// Mark a number of which a column holds something else than of its plain spelling.
fn mark_number(
    columns: &[Column],
    dim: usize,
    token: &Token,
    form: &mut Vec<u8>,
    start: usize,
) -> Fit<()> {
    let mut others = columns.iter().filter(|column| column.dim >= dim);
    if others.clone().any(|column| column.kind == Kind::Timestamp) {
        return Err(Refused);
    }
    if form[start] == b'"' {
        // Texts say its spelling, and the arrays of numbers hold the same for all.
        let has_arrays = others.any(|column| {
            column.dim > dim && !matches!(column.kind, Kind::String | Kind::Record | Kind::Map)
        });
        return if has_arrays { Err(Refused) } else { Ok(()) };
    }
    if others.clone().any(|column| column.kind == Kind::String) {
        // A number with many digits has a mark already.
        let digits = form[start..].strip_prefix(b"~1\"");
        if digits.and_then(|digits| digits.strip_suffix(b"\"")) != Some(token.text) {
            mark_spelling(form, start, token.text);
        }
        return Ok(());
    }
    if token.is_whole() {
        return Ok(());
    }
    let Some(value) = read_integer(&form[start..]) else {
        return Ok(());
    };
    if others.any(|column| matches!(column.kind, Kind::Integer(bits) if fits_bits(value, bits))) {
        let spelling = [&form[start..], b"."].concat();
        mark_spelling(form, start, &spelling);
    }
    Ok(())
}

/// Write a number as a column holds it, and return whether the table gives its spelling back; None if it cannot hold
/// it exactly.
fn write_number(column: &Column, token: &Token, out: &mut Vec<u8>) -> Fit<Option<bool>> {
    let number = &token.number;
    let is_whole = token.is_whole();
    if column.kind == Kind::String {
        write_string(token.text, out);
        return Ok(Some(false));
    }
    if is_whole && token.whole_digits > MAX_DECIMAL_DIGITS {
        return Ok(None);
    }
    // Only a double has a negative zero.
    if number.is_zero() && number.is_negative && column.kind != Kind::Double {
        return Err(Refused);
    }
    match column.kind {
        Kind::Integer(bits) => {
            let Some(value) = is_whole.then(|| number.to_integer()).flatten() else {
                return Ok(None);
            };
            if !fits_bits(value, bits) {
                return Ok(None);
            }
            out.extend_from_slice(token.text);
            Ok(Some(true))
        }
        Kind::Double => {
            let canonical = number.canonical();
            let is_double = canonical == Canonical::Double
                || canonical == Canonical::Zero
                || (canonical == Canonical::Integer && number.is_double());
            if !is_double {
                return if column.rounds {
                    Err(Refused)
                } else {
                    Ok(None)
                };
            }
            let is_exact = token.has_canonical_spelling(canonical);
            token.write(canonical, is_exact, out);
            Ok(Some(is_exact))
        }
        Kind::Decimal(precision, scale) if number.fits_decimal(precision, scale) => {
            let canonical = number.canonical();
            let is_canonical = token.has_canonical_spelling(canonical);
            token.write(canonical, is_canonical, out);
            let has_scale = !token.has_exponent
                && token.fraction_digits > 0
                && token.fraction_digits as i64 == scale;
            Ok(Some(has_scale || is_canonical))
        }
        Kind::Float => Err(Refused),
        Kind::Timestamp if column.has_epochs => {
            let Some(value) = is_whole.then(|| number.to_integer()).flatten() else {
                return Ok(None);
            };
            let nanos = i128::from(value) * i128::from(column.unit_nanos);
            // Python decides about times between microseconds, and outside of the years 1 to 9999.
            let micros = i64::try_from(nanos / 1000).map_err(|_| Refused)?;
            if nanos % 1000 != 0 {
                return Err(Refused);
            }
            let mut time = Vec::with_capacity(32);
            write_time(micros, &mut time)?;
            time.push(b'Z');
            write_string(&time, out);
            Ok(Some(false))
        }
        _ => Ok(None),
    }
}

// ---- rows of texts -----------------------------------------------------------------------------------

impl SourceReader {
    /// Return the rank of each key, or None where there is no field.
    pub fn ranks(&self, keys: &[String]) -> Vec<Option<usize>> {
        let by_key = &self.shapes[self.root].by_key;
        keys.iter()
            .map(|key| by_key.get(key.as_bytes()).copied())
            .collect()
    }

    /// Forget what was added after a sum.
    pub fn restore(&mut self, sum: DigestSum) {
        self.sum = sum;
    }

    /// Add a row of texts, given the ranks of its keys and which texts are JSON; return false if Python has to read it.
    pub fn add_row(
        &mut self,
        line: &[u8],
        ranks: &[Option<usize>],
        row: &[Option<&[u8]>],
        values: &str,
        file_fields: &[FileField],
    ) -> bool {
        let is_text = line.is_ascii() || std::str::from_utf8(line).is_ok();
        // A row and its file may have a field of the same name.
        if !is_text || !file_fields.is_empty() || self.row(ranks, row, values).is_err() {
            return false;
        }
        self.sum
            .add(&self.form, self.counts.beyond_form(), self.counts.converted);
        true
    }

    fn row(&mut self, ranks: &[Option<usize>], row: &[Option<&[u8]>], values: &str) -> Fit<()> {
        self.form.clear();
        self.parts.clear();
        self.counts = Counts::default();
        self.form.push(b'{');
        for (rank, text) in ranks.iter().zip(row) {
            let (rank, text) = match (rank, text) {
                (Some(rank), Some(text)) => (*rank, *text),
                (Some(_), None) => continue,
                (None, None) if !self.is_rescuing => continue,
                _ => return Err(Refused),
            };
            let field = self.shapes[self.root].fields[rank];
            if self.fields[field].plan.is_excluded {
                continue;
            }
            let start = self.form.len();
            self.form.extend_from_slice(&self.fields[field].key);
            let has_form = if is_value(text, values)? {
                self.value(&mut Cursor::new(text), field, 0, MAX_LEVELS)?
            } else {
                self.text(text, field)?
            };
            if has_form {
                let end = self.form.len();
                self.parts.push(Part { rank, start, end });
            } else {
                self.form.truncate(start);
            }
        }
        self.sort(0, 0);
        self.form.push(b'}');
        Ok(())
    }
}

// ---- lines and files -------------------------------------------------------------------------------

/// Where a text begins and ends.
pub type Span = (usize, usize);

impl SourceReader {
    /// Add the record of each line, and return where the lines stand that Python has to read.
    pub fn add_lines(&mut self, lines: &[u8], file_fields: &[FileField]) -> Vec<Span> {
        let mut refused = Vec::new();
        let mut start = 0;
        for line in lines.split(|byte| *byte == b'\n') {
            let end = start + line.len();
            let text = line.strip_suffix(b"\r").unwrap_or(line);
            // A carriage return ends a line, too.
            let is_one_line = !text.contains(&b'\r');
            let is_read = is_blank(text) || (is_one_line && self.add(text, file_fields));
            if !is_read {
                refused.push((start, end));
            }
            start = end + 1;
        }
        refused
    }

    /// Add the records of a file, or add nothing and return None if it may not have a record on each line.
    pub fn add_file(&mut self, data: &[u8], file_fields: &[FileField]) -> Option<Vec<Span>> {
        let before = self.sum.clone();
        if !has_object_lines(data) {
            return None;
        }
        let refused = self.add_lines(data, file_fields);
        // One line that is a record tells that the lines are the texts of the file.
        if self.sum.records == before.records {
            self.sum = before;
            return None;
        }
        Some(refused)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

/// Whether a text is nothing but space, and so has no row.
pub fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|byte| is_space(*byte))
}

/// Whether each line looks like one object.
fn has_object_lines(data: &[u8]) -> bool {
    let lines = data.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines
        .filter_map(|line| {
            let first = line.iter().position(|byte| !is_space(*byte))?;
            let last = line.iter().rposition(|byte| !is_space(*byte))?;
            Some(&line[first..=last])
        })
        .all(|line| line.first() == Some(&b'{') && line.last() == Some(&b'}') && !has_two(line))
}

/// Whether an object may begin after the end of another one.
fn has_two(line: &[u8]) -> bool {
    line.iter().enumerate().any(|(at, byte)| {
        *byte == b'}'
            && line[at + 1..]
                .iter()
                .find(|byte| !matches!(byte, b' ' | b'\t'))
                == Some(&b'{')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(type_name: &str) -> ColumnPlan {
        ColumnPlan {
            type_name: type_name.to_owned(),
            precision: 6,
            scale: 2,
            ..Default::default()
        }
    }

    fn field(key: &str, columns: Vec<ColumnPlan>) -> FieldPlan {
        FieldPlan {
            key: key.to_owned(),
            columns,
            ..Default::default()
        }
    }

    fn reader() -> SourceReader {
        let array = ColumnPlan {
            dim: 1,
            ..column("double")
        };
        let record = ColumnPlan {
            record: Some(RecordPlan {
                fields: vec![field("x", vec![column("integer")])],
                ..Default::default()
            }),
            ..column("record")
        };
        let plan = RecordPlan {
            fields: vec![
                field("n", vec![column("long"), column("string")]),
                field("d", vec![column("decimal"), array]),
                field("r", vec![record]),
            ],
            ..Default::default()
        };
        SourceReader::new(&plan, false, 1 << 32).unwrap()
    }

    fn form(text: &str) -> Option<String> {
        let mut reader = reader();
        let (form, ..) = reader.encode(text.as_bytes(), &[]).ok()?;
        Some(String::from_utf8(form.to_vec()).unwrap())
    }

    #[test]
    fn records_have_the_forms_of_their_rows() {
        for (text, wanted) in [
            (" {\"n\": 5, \"d\":1.50} ", "{\"d\":1.5,\"n\":5}"),
            (
                "{\"n\":9223372036854775808}",
                "{\"n\":\"9223372036854775808\"}",
            ),
            ("{\"n\":\"a\\u0041\\n\"}", "{\"n\":\"aA\\n\"}"),
            ("{\"d\":[1,null,2.50]}", "{\"d\":[1,null,2.5]}"),
            ("{\"r\":{\"x\":-7}}", "{\"r\":{\"x\":-7}}"),
            ("{\"r\":{\"x\":null}}", "{\"r\":{}}"),
            ("{\"n\":null,\"new\":null,\"empty\":[[]]}", "{}"),
            ("{\"n\":true}", "{\"n\":\"true\"}"),
        ] {
            assert_eq!(form(text).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_needs_a_closer_look_is_refused() {
        for text in [
            "{\"d\":1.234}",
            "{\"d\":\"text\"}",
            "{\"d\":{}}",
            "{\"new\":1}",
            "{\"n\":1,\"n\":1}",
            "{\"n\":null,\"n\":1}",
            "{\"new\":null,\"new\":null}",
            "{\"n\":-0}",
            "{\"n\":1}x",
            "{\"n\":1,}",
            "{\"n\":NaN}",
            "[{\"n\":1}]",
            "{\"r\":{\"x\":2147483648}}",
            "{\"n\":\"\\ud800\"}",
        ] {
            assert_eq!(form(text), None, "{text}");
        }
    }

    #[test]
    fn lines_end_as_in_python() {
        let mut reader = reader();
        let refused = reader.add_lines(b"{\"n\":1}\r\n\n{\"n\":2}\r{\"n\":3}\n \x0b\nx", &[]);
        assert_eq!(refused, [(10, 25), (29, 30)]);
        assert_eq!(reader.sum().records, 1);
    }

    #[test]
    fn a_file_has_lines_or_is_left_to_python() {
        let mut reader = reader();
        assert!(reader.add_file(b"{\"n\":1}{\"n\":2}", &[]).is_none());
        assert!(reader.add_file(b"{\n\"n\":1\n}", &[]).is_none());
        assert!(reader.add_file(b"{\"q\":1}\n", &[]).is_none());
        assert_eq!(reader.sum().records, 0);
        assert_eq!(
            reader.add_file(b"\n{\"n\":1}\n{\"q\":1}\n", &[]),
            Some(vec![(9, 16)])
        );
    }

    #[test]
    fn values_beyond_the_form_are_counted() {
        let mut reader = reader();
        assert!(reader.add(b"{\"n\":1,\"d\":1.500,\"new\":{\"a\":[]}}", &[]));
        assert_eq!((reader.sum().values, reader.sum().converted), (1, 2));
    }
}
