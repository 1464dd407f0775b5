//! The shape of records: which columns the values of each key go to.
//!
//! Python makes the plan of it from the routes (`widen.rows.native_decoder`); here it gets the places of the columns.

use rustc_hash::FxHashMap;

use crate::columns::{Column, RecordColumn};

/// Kinds of values, as bits; the same as in `widen.rows.native_decoder`.
pub mod kinds {
    pub const BOOLEAN: u16 = 1;
    pub const LONG: u16 = 2;
    pub const DOUBLE: u16 = 4;
    pub const DECIMAL: u16 = 8;
    pub const STRING: u16 = 16;
    pub const DATE: u16 = 32;
    pub const TIMESTAMP: u16 = 64;
    pub const LOCAL_TIME: u16 = 128;
    pub const ARRAY: u16 = 256;
    pub const RECORD: u16 = 512;
    pub const NULL: u16 = 1024;
    pub const EMPTY_ARRAY: u16 = 2048;
    pub const EMPTY_RECORD: u16 = 4096;
}

/// What to do with the values of a field before they are routed; the same as in `widen.json.field_rules`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Take {
    #[default]
    AsIs,
    AsText,
    AsJson,
    Masked,
    LeftOut,
}

/// One column that values of a field go to.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct ColumnPlan {
    pub name: String,
    /// The kinds of scalars that go to the column, and `ARRAY` and `RECORD`.
    pub takes: u16,
    /// The kinds of which the column must hold each value.
    pub decides: u16,
    /// The kinds of the scalars in arrays and maps.
    pub item_takes: u16,
    /// The unit of integers in a timestamp column; 0 if their magnitude tells it.
    pub unit_nanos: i64,
    pub record: Option<RecordPlan>,
}

/// One field of a record.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct FieldPlan {
    pub key: String,
    pub columns: Vec<ColumnPlan>,
    /// The `FieldRule`.
    pub take: String,
    /// The text of every value that is masked.
    pub mask: String,
    /// Integers from this magnitude on are refused.
    pub bound: u64,
    pub is_required: bool,
    /// Whether each array goes to all columns that take the kind of its items.
    pub routes_items: bool,
    /// Whether strings are read as dates and timestamps, and as timestamps without a time zone.
    pub has_instants: bool,
    pub has_local_times: bool,
    /// Whether times in other spellings are read, and times without a zone in one that Python knows.
    pub spells_any: bool,
    pub has_zone: bool,
    /// What a field without a column may be: `NULL`, `EMPTY_ARRAY` and `EMPTY_RECORD`.
    pub empties: u16,
    /// The fields of a record without a column, which have none either.
    pub below: Vec<FieldPlan>,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct RecordPlan {
    pub fields: Vec<FieldPlan>,
}

/// A column of a field by its place in the record.
#[derive(Debug)]
pub struct ColumnSlot {
    pub column: usize,
    pub takes: u16,
    pub decides: u16,
    pub item_takes: u16,
}

#[derive(Debug)]
pub struct Field {
    pub slots: Vec<ColumnSlot>,
    pub takes: u16,
    pub take: Take,
    pub mask: Box<[u8]>,
    pub bound: u64,
    pub is_required: bool,
    pub routes_items: bool,
    pub has_instants: bool,
    pub has_local_times: bool,
    pub spells_any: bool,
    pub has_zone: bool,
    pub hollow: Hollow,
    /// Whether the only column takes every value in its own form, so that nothing has to be routed.
    pub is_single: bool,
    key: Box<[u8]>,
    head: u64,
    head_mask: u64,
    /// The number of the last record with the field, to find duplicate keys.
    pub last_record: u64,
    /// The field that followed in the last record: most records have the same order.
    pub next: u32,
}

/// A field without a column: what it may be, and the fields of its records, which have no column either.
#[derive(Debug, Default)]
pub struct Hollow {
    pub empties: u16,
    pub below: Vec<(Box<[u8]>, Hollow)>,
}

impl Hollow {
    fn new(plan: &FieldPlan) -> Hollow {
        let below = plan.below.iter();
        Hollow {
            empties: plan.empties,
            below: below
                .map(|field| (field.key.as_bytes().into(), Hollow::new(field)))
                .collect(),
        }
    }
}

#[derive(Debug, Default)]
pub struct RecordShape {
    pub fields: Vec<Field>,
    index: FxHashMap<Box<[u8]>, u32>,
    pub first: u32,
    pub records: u64,
    pub has_required: bool,
    pub is_known: bool,
}

/// A plan that does not match the columns.
#[derive(Debug, PartialEq)]
pub struct InvalidPlan(pub String);

/// Give a record column and all columns below their shapes.
pub fn apply_plan(record: &mut RecordColumn, plan: &RecordPlan) -> Result<(), InvalidPlan> {
    let mut shape = RecordShape {
        is_known: true,
        ..RecordShape::default()
    };
    for (number, field) in plan.fields.iter().enumerate() {
        let mut slots = Vec::new();
        for column in &field.columns {
            let at = record
                .fields
                .iter()
                .position(|own| own.name() == &column.name);
            let at =
                at.ok_or_else(|| InvalidPlan(format!("there is no column {:?}", column.name)))?;
            apply_to_column(&mut record.columns[at], column)?;
            let (takes, decides, item_takes) = (column.takes, column.decides, column.item_takes);
            slots.push(ColumnSlot {
                column: at,
                takes,
                decides,
                item_takes,
            });
        }
        if shape
            .index
            .insert(field.key.as_bytes().into(), number as u32)
            .is_some()
        {
            return Err(InvalidPlan(format!(
                "the key {:?} is in the plan twice",
                field.key
            )));
        }
        shape.has_required |= field.is_required;
        shape
            .fields
            .push(Field::new(field, slots, number as u32 + 1)?);
    }
    record.shape = shape;
    Ok(())
}

fn apply_to_column(column: &mut Column, plan: &ColumnPlan) -> Result<(), InvalidPlan> {
    match column {
        Column::List(list) => apply_to_column(&mut list.items, plan),
        Column::Map(map) => apply_to_column(&mut map.values, plan),
        Column::Record(record) => plan
            .record
            .as_ref()
            .map_or(Ok(()), |plan| apply_plan(record, plan)),
        Column::Timestamp { unit_nanos, .. } => {
            *unit_nanos = plan.unit_nanos;
            Ok(())
        }
        _ => Ok(()),
    }
}

impl Field {
    fn new(plan: &FieldPlan, slots: Vec<ColumnSlot>, next: u32) -> Result<Field, InvalidPlan> {
        let take = match plan.take.as_str() {
            "as it is" => Take::AsIs,
            "as text" => Take::AsText,
            "as json" => Take::AsJson,
            "masked" => Take::Masked,
            "left out" => Take::LeftOut,
            other => return Err(InvalidPlan(format!("there is no field rule {other:?}"))),
        };
        let takes = slots.iter().fold(0, |takes, slot| takes | slot.takes);
        let has_times = plan.has_instants || plan.has_local_times;
        // Integers need a look at the bound, unless every column holds all of them.
        let is_single =
            slots.len() == 1 && take == Take::AsIs && !has_times && plan.bound >= 1 << 63;
        let key = [plan.key.as_bytes(), b"\""].concat();
        let (mut head, mut head_mask) = ([0; 8], [0; 8]);
        for (at, byte) in key.iter().take(8).enumerate() {
            (head[at], head_mask[at]) = (*byte, 0xff);
        }
        Ok(Field {
            slots,
            takes,
            take,
            mask: plan.mask.as_bytes().into(),
            bound: plan.bound,
            is_required: plan.is_required,
            routes_items: plan.routes_items,
            has_instants: plan.has_instants,
            has_local_times: plan.has_local_times,
            spells_any: plan.spells_any,
            has_zone: plan.has_zone,
            hollow: Hollow::new(plan),
            is_single,
            key: key.into(),
            head: u64::from_le_bytes(head),
            head_mask: u64::from_le_bytes(head_mask),
            last_record: 0,
            next,
        })
    }

    /// Return whether a text goes on with the key of the field and a quote, and the length of both.
    ///
    /// A key with a quote or a backslash in it never does, since a text has them escaped.
    #[inline(always)]
    pub fn begins(&self, text: &[u8]) -> Option<usize> {
        let length = self.key.len();
        // One comparison of eight bytes decides about most keys.
        let head: &[u8; 8] = text.first_chunk()?;
        if u64::from_le_bytes(*head) & self.head_mask != self.head {
            return None;
        }
        (length <= 8 || text.get(8..length)? == &self.key[8..]).then_some(length)
    }
}

impl RecordShape {
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.get(key).copied()
    }
}
