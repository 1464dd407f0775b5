//! What Python says about the fields of a table: which columns each has, and what the policy does with its values.

/// The type of a column without its arrays; the order in which columns are read is that of Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Record,
    Map,
    Boolean,
    /// An integer of so many bits besides the sign.
    Integer(u32),
    Double,
    Float,
    /// A decimal with its precision and scale.
    Decimal(i64, i64),
    Date,
    Timestamp,
    LocalTime,
    Binary,
    String,
}

/// A plan that names a type or a rule that the crate does not have.
#[derive(Debug)]
pub struct InvalidPlan(pub String);

/// One column of a field, as `widen.proof.rules.SourceColumn`.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct ColumnPlan {
    /// The place of the column among the columns around it.
    pub position: usize,
    /// The number of arrays around the type.
    pub dim: usize,
    pub type_name: String,
    pub precision: i64,
    pub scale: i64,
    /// Whether integers may stand in this timestamp column alone.
    pub has_epochs: bool,
    /// The unit of these integers.
    pub unit_nanos: i64,
    pub has_booleans_as_numbers: bool,
    /// Whether the policy lets this column of doubles round.
    pub rounds: bool,
    /// Whether no other column of the field may hold a value of this one.
    pub stands_alone: bool,
    /// The fields of a record.
    pub record: Option<RecordPlan>,
    /// The values of a map, as the one field in this list.
    pub entries: Vec<FieldPlan>,
}

/// One field of a record.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct FieldPlan {
    pub key: String,
    pub columns: Vec<ColumnPlan>,
    pub is_excluded: bool,
    pub is_masked: bool,
    /// Whether objects of the field are maps.
    pub is_map: bool,
    /// Whether only Python knows what becomes of a value.
    pub is_refused: bool,
    /// Whether a string may spell out something that the policy hides.
    pub refuses_strings: bool,
    pub has_dates: bool,
    pub has_local_times: bool,
    /// Whether times may be in other spellings, and without a zone in one that Python knows.
    pub spells_any: bool,
    pub has_zone: bool,
    /// Whether each column must hold a value that it can hold; else some may be null.
    pub checks_places: bool,
    /// Whether some columns take an integer, and not the same number with a point.
    pub has_marks: bool,
}

/// The fields of a record.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct RecordPlan {
    pub fields: Vec<FieldPlan>,
    /// Whether a key without a field may be one that the policy hides.
    pub refuses_unknown: bool,
    /// The keys as Spark compares names; empty if a key in another case never stands for one of them.
    pub in_any_case: Vec<String>,
}

impl ColumnPlan {
    pub fn kind(&self) -> Result<Kind, InvalidPlan> {
        Ok(match self.type_name.as_str() {
            "record" => Kind::Record,
            "map" => Kind::Map,
            "boolean" => Kind::Boolean,
            "byte" => Kind::Integer(7),
            "short" => Kind::Integer(15),
            "integer" => Kind::Integer(31),
            "long" => Kind::Integer(63),
            "double" => Kind::Double,
            "float" => Kind::Float,
            "decimal" => Kind::Decimal(self.precision, self.scale),
            "date" => Kind::Date,
            "timestamp" => Kind::Timestamp,
            "timestamp_ntz" => Kind::LocalTime,
            "binary" => Kind::Binary,
            "string" => Kind::String,
            other => return Err(InvalidPlan(format!("unknown type {other}"))),
        })
    }
}
