//! Any bytes as a text: the decoder neither panics nor leaves columns that do not fit together.
#![no_main]

use arrow_array::Array;
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use libfuzzer_sys::fuzz_target;
use kernel::{kinds, ColumnPlan, FieldPlan, RecordDecoder, RecordPlan};

fn column(name: &str, takes: u16) -> ColumnPlan {
    ColumnPlan {
        name: name.to_owned(),
        takes,
        decides: takes,
        ..Default::default()
    }
}

fn field(key: &str, columns: Vec<ColumnPlan>) -> FieldPlan {
    FieldPlan {
        key: key.to_owned(),
        columns,
        take: "as it is".to_owned(),
        bound: u64::MAX,
        empties: kinds::NULL,
        ..Default::default()
    }
}

fn decoder() -> RecordDecoder {
    let list = |inner| DataType::List(Field::new("item", inner, true).into());
    let inner: Fields = vec![Field::new("x", DataType::Int64, true)].into();
    let fields: Fields = vec![
        Field::new("n", DataType::Int64, true),
        Field::new("n__string", DataType::Utf8, true),
        Field::new("d", DataType::Float64, true),
        Field::new("c", DataType::Decimal128(20, 4), true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("a", list(DataType::Float64), true),
        Field::new("r", DataType::Struct(inner), true),
    ]
    .into();
    let record = ColumnPlan {
        record: Some(RecordPlan {
            fields: vec![field("x", vec![column("x", kinds::LONG)])],
        }),
        ..column("r", kinds::RECORD)
    };
    let array = ColumnPlan {
        item_takes: kinds::LONG | kinds::DOUBLE,
        ..column("a", kinds::ARRAY)
    };
    let mut dated = field("at", vec![column("at", kinds::TIMESTAMP)]);
    dated.has_instants = true;
    let plan = RecordPlan {
        fields: vec![
            field("n", vec![column("n", kinds::LONG), column("n__string", kinds::STRING)]),
            field("d", vec![column("d", kinds::LONG | kinds::DOUBLE)]),
            field("c", vec![column("c", kinds::LONG | kinds::DOUBLE | kinds::DECIMAL)]),
            dated,
            field("a", vec![array]),
            field("r", vec![record]),
        ],
    };
    RecordDecoder::new(&fields, &plan).expect("the plan fits the columns")
}

fuzz_target!(|data: &[u8]| {
    let mut decoder = decoder();
    let fitting = data
        .split(|byte| *byte == b'\n')
        .filter(|text| decoder.add(text))
        .count();
    assert_eq!(decoder.records(), fitting);
    let rows = decoder.finish().expect("the columns are arrays");
    assert_eq!(rows.len(), fitting);
    rows.to_data().validate_full().expect("the arrays are valid");
});
